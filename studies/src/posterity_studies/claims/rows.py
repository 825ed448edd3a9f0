"""One row for each of the paper's statements. Figures come from results and from `published`: none is written here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from posterity_studies.claims import figures as f
from posterity_studies.engine.declaration import Record
from posterity_studies.shared import published
from posterity_studies.studies.cold_posterior import reading as cold_posterior
from posterity_studies.studies.small_data.reading import EXACT, OURS, PAIR

Found = Mapping[str, Sequence[Record]]
"""Records by study; a study without results has none."""
Text = Callable[[Sequence[Record]], str]


@dataclass(frozen=True)
class Row:
    """A statement of the paper, what it prints, what we find at its settings and at ours, and what became of it."""

    place: str
    claim: str
    study: str = ""
    """Whose results the figures are from; empty for what tests hold."""
    printed: Callable[[], str] = lambda: "–"
    there: Text = lambda records: "–"
    """At the published settings."""
    here: Text = lambda records: "–"
    """At ours, with what differs named."""
    verdict: Text = f.outcome_of
    tests: tuple[str, ...] = ()
    """Files and functions that hold it, where no figure can."""


def _tested(place: str, claim: str, *tests: str) -> Row:
    return Row(place, claim, verdict=lambda records: "held by tests", tests=tests)


NEAREST, LEMMAS = "tests/algebra/test_nearest.py", "tests/pacbayes/test_lemmas.py"
ROWS: tuple[Row, ...] = (
    _tested(
        "Lemma 1",
        "the distance of a pair to a sum, as that of two matrices of rank one",
        f"{NEAREST}::test_relative_error_agrees_with_dense",
    ),
    _tested(
        "Lemma 2, Algorithm 1",
        "the nearest pair is the leading singular pair, and the power method finds it",
        f"{NEAREST}::test_closed_form_is_the_leading_singular_pair_of_the_rearranged_matrix",
        f"{NEAREST}::test_converged_power_method_is_the_closed_form",
        f"{NEAREST}::test_power_method_stops_by_the_published_rule_and_tells_its_errors",
    ),
    _tested(
        "Remark to Lemma 2",
        "where σ₁ ≈ σ₂ the result is in the span of their vectors, and as good",
        f"{NEAREST}::test_where_the_largest_singular_values_are_close_the_power_method_ends_in_their_span",
    ),
    _tested(
        "Section 3.3, remark",
        "τ is among the other scales: three scales a layer have the optimum of one number",
        "tests/pacbayes/test_tune.py::test_per_layer_scales_never_beat_the_one_number_optimum",
    ),
    _tested(
        "Lemma 3, its remark and corollary",
        "an error is at most NLL / ln 2, best for likely truths; bounds may take it",
        f"{LEMMAS}::test_an_error_costs_at_most_its_nll_over_ln_2",
        f"{LEMMAS}::test_the_lemma_is_tighter_where_the_truth_is_likely",
        f"{LEMMAS}::test_bounds_grow_with_the_risk_so_that_the_lemma_may_stand_in_them",
    ),
    *(
        Row(
            "Table 2a",
            f"{name} bound, baseline → grid search → learned prior → curvature scaling → projection: each step lowers it",
            "bounds",
            partial(f.paper_ladder, key),
            partial(f.ladders, measure=key, gammas=published.GAMMAS),
            partial(f.ladders, measure=key, gammas=(100.0,)),
            partial(f.ladder_verdict, measure=key),
        )
        for key, name in (("catoni", "Catoni"), ("mcallester", "McAllester"))
    ),
    Row(
        "Figure 2b",
        "accuracy in % with 10 images per class, γ = τ = 1e-5: learned / isotropic around the source weights / at zero",
        "small-data",
        f.paper_at_ten,
        lambda records: f"one pair, jitter 10 % {f.at_ten(records, PAIR)}; exact sum {f.at_ten(records, EXACT)}",
        lambda records: f"shrunk by 30 %, τ = 0.1: {f.at_ten(records, OURS)}; the mode {f.at_ten(records, 'map')}",
    ),
    Row(
        "Figure 2b",
        "times fewer images than isotropic around the source weights, for 50, 80 and 90 %",
        "small-data",
        f.paper_times,
        lambda records: f"one pair, jitter 10 %: {f.times_fewer(records, PAIR)}",
        lambda records: f"shrunk by 30 %, τ = 0.1: {f.times_fewer(records, OURS)}",
    ),
    Row(
        "Figure 2c",
        "points of accuracy lost at τ = 0.1, γ = 1e-5, all images: learned / at the mean / at zero",
        "cold-posterior",
        cold_posterior.paper_lost,
        lambda records: f"exact sum, N = 10,656: {f.lost(records, 'free')}",
        lambda records: (
            f"shrunk by 30 %: {f.lost(records, 'shrunk 0.3')}; 100 per class {f.lost(records, 'shrunk 0.3', 100)}"
        ),
    ),
    Row(
        "Figure 3",
        "relative error of one pair / of the factor-wise sum over sizes, scales and γ",
        "kronecker",
        f.paper_nearest,
        lambda records: f"measured the authors' way {f.nearest(records, '_guarded')}",
        f.nearest,
    ),
    Row(
        "Table of iterations",
        "the power method has converged in the second iteration: its error in the first two",
        "kronecker",
        f.paper_iterations,
        partial(f.first_iterations, start="normal"),
        lambda records: f"from a start of positive entries {f.first_iterations(records, 'positive')}",
    ),
    Row(
        "Section 2 and appendix, K-FOC",
        "K-FOC is closer to the Fisher information than KFAC, in Frobenius norm",
        "kfoc-quality",
        there=f.kfoc_closer,
    ),
    _tested(
        "Section 3.4, Algorithm 2",
        "columns add no KL for what is frozen; laterals have the posterior they come from as prior",
        "tests/progressive/test_bpnn.py::test_a_certificate_counts_the_divergence_of_new_blocks_alone",
        "tests/progressive/test_bpnn.py::test_lateral_priors_are_the_posteriors_they_come_from_with_their_scales",
    ),
    Row(
        "Table 1",
        "points of mean accuracy ahead of isotropic at the weights / at zero / PNN 1e-5, ResNet-50",
        "continual-large",
        f.paper_leads,
        lambda records: "Washington RGB-D: loader tested on a miniature, never run (the data could not be had)",
        lambda records: f"six sets, last stage, one lateral: {f.stream_leads(records)}",
    ),
    Row(
        "Table 1, at LeNet scale",
        "the same, ahead of isotropic around the source weights, by stream",
        "continual-small",
        here=f.small_stream_leads,
    ),
    Row(
        "Section 4.3, Figure 5",
        "few shots: learned against isotropic priors of γ ≤ 1e-6, accuracy / NLL / ECE / unknown inputs",
        "few-shot-modes",
        lambda: "better on average (a picture)",
        lambda records: f.few_shot(records, "published"),
        lambda records: f"against a tuned γ: {f.few_shot(records, 'tuned')}",
        f.few_shot_verdict,
    ),
    Row(
        "Section 4.3",
        "the McAllester bound often gave the best model",
        "few-shot-modes",
        lambda: "often",
        f.scales_chosen,
        verdict=lambda records: "counted",
    ),
    Row(
        "Section 4.3",
        "few shots in function space, all strengths tuned by leave-one-out: NLL, learned minus isotropic",
        "last-stage",
        here=f.function_space_gap,
    ),
    Row(
        "Figure 6",
        "the approximate bound has its optimum where the true one has: decades apart",
        "bound-shape",
        lambda: "“close”",
        f.apart,
    ),
    Row(
        "Figure 7",
        "over 8 γ and 5 τ: panels where the learned prior needs fewer images for 80 % than isotropic around the source weights",
        "small-data",
        f.paper_panels,
        f.panels,
        verdict=f.panels_verdict,
    ),
    Row(
        "Figure 8, left",
        "points lost at τ = 0.1 over γ = 1e-3 … 1e-8: the learned prior changes least",
        "cold-posterior",
        f.paper_over_gammas,
        lambda records: f"exact sum {f.over_gammas(records, 'free')}",
        lambda records: f"shrunk by 30 %: {f.over_gammas(records, 'shrunk 0.3')}",
        f.over_gammas_verdict,
    ),
    Row(
        "Figure 8, right",
        "ResNet-50, ImageNet → CIFAR-10: points by which the mode under the learned prior is ahead",
        "cold-posterior-large",
        f.paper_mode_gap,
        f.mode_gap,
        verdict=f.mode_gap_verdict,
    ),
    Row(
        "Figure 8, right",
        "the warmest τ whose draws are level with the mode, learned / isotropic, γ = 1e-3; 1e-5",
        "cold-posterior-large",
        f.paper_warmest,
        f.warmest,
    ),
    _tested(
        "Appendix on regression",
        "Alquier's bound with its Ψ, and the sub-gamma one above it",
        f"{LEMMAS}::test_the_general_bound_fails_no_more_often_than_stated",
        f"{LEMMAS}::test_a_loss_in_the_unit_interval_is_sub_gamma_with_a_quarter_so_that_bound_is_above_the_general_one",
        "tests/pacbayes/test_regression.py::test_it_holds_on_fresh_data_where_its_assumptions_do",
    ),
)
