"""The paper's Lemma 3 with its corollary, and the general bound of Alquier et al. that its appendix on regression starts from."""

import itertools
import math

import pytest
import torch

from posterity.laplace import Scales
from posterity.pacbayes import Landscape, catoni_best, mcallester
from posterity_studies.shared.sub_gamma import sub_gamma


def nats_over_ln_2(probs, y):
    return -probs.gather(1, y[:, None]).squeeze(1).log() / math.log(2)


@pytest.mark.parametrize("classes", [2, 3, 10, 100])
def test_an_error_costs_at_most_its_nll_over_ln_2(classes):
    """Lemma 3, for probabilities from nearly even to nearly certain and every label."""
    generator = torch.Generator().manual_seed(classes)
    widths = torch.logspace(-3, 2, 200, dtype=torch.float64)[:, None]
    probs = (widths * torch.randn(200, classes, generator=generator, dtype=torch.float64)).softmax(-1)
    for label in range(classes):
        y = torch.full((200,), label)
        wrong = (probs.argmax(-1) != y).double()
        assert bool((nats_over_ln_2(probs, y) >= wrong).all())


def test_the_lemma_is_tight_where_two_classes_share_all_probability():
    probs = torch.tensor([[0.5 + 1e-9, 0.5 - 1e-9]], dtype=torch.float64)
    assert float(nats_over_ln_2(probs, torch.tensor([1]))) == pytest.approx(1.0, abs=1e-8)


def test_the_lemma_is_tighter_where_the_truth_is_likely():
    """The remark after it: what it adds to a right answer falls with the probability of the truth."""
    likely = torch.linspace(0.51, 0.999, 50, dtype=torch.float64)
    added = nats_over_ln_2(torch.stack([likely, 1 - likely], 1), torch.zeros(50, dtype=torch.int64))
    assert bool((added.diff() < 0).all())
    assert float(added[-1]) < 0.01


def test_bounds_grow_with_the_risk_so_that_the_lemma_may_stand_in_them():
    """The corollary."""
    risks = torch.linspace(0.0, 0.9, 19).tolist()
    for kl in (0.0, 10.0, 500.0):
        for values in (
            [mcallester(r, kl, 1000, 0.1) for r in risks],
            [catoni_best(r, kl, 1000, 0.1)[0] for r in risks],
        ):
            assert all(low <= high + 1e-12 for low, high in itertools.pairwise(values))


def test_without_spread_the_approximate_risk_is_the_lemmas_and_so_no_less_than_the_error():
    generator = torch.Generator().manual_seed(0)
    probs = (3 * torch.randn(500, 4, generator=generator, dtype=torch.float64)).softmax(-1)
    y = torch.randint(4, (500,), generator=generator)
    nll = float(-probs.gather(1, y[:, None]).log().sum())
    landscape = Landscape({"layer": torch.rand(7, generator=generator, dtype=torch.float64)}, {"layer": 1.0}, nll, 500)
    aer = landscape.aer(Scales(temperature=1e-300))
    assert aer == pytest.approx(float(nats_over_ln_2(probs, y).mean()), rel=1e-12)
    assert aer >= float((probs.argmax(-1) != y).double().mean())


RISKS = torch.tensor([0.05, 0.3, 0.6], dtype=torch.float64)
"""Of three hypotheses with errors of zero or one, each believed alike before the data."""


def psi(lam: float, n: int) -> float:
    """Ψ of Alquier et al., exactly: ln E_π E exp(λn (risk − mean of n losses)), with λ counted for each example."""
    one = (1 - RISKS) * (lam * RISKS).exp() + RISKS * (lam * (RISKS - 1)).exp()
    return float((n * one.log()).logsumexp(0)) - math.log(len(RISKS))


def alquier(risk: float, kl: float, n: int, delta: float, lam: float) -> float:
    return risk + (kl - math.log(delta) + psi(lam, n)) / (lam * n)


@pytest.mark.parametrize("lam", [0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("n", [1, 10, 100])
def test_a_loss_in_the_unit_interval_is_sub_gamma_with_a_quarter_so_that_bound_is_above_the_general_one(lam, n):
    """Hoeffding's lemma: ψ(λ) ≤ λ²/8, which is s² = 1/4 and c = 0."""
    general, special = alquier(0.2, 3.0, n, 0.05, lam), sub_gamma(0.2, 3.0, n, 0.05, 0.25, 0.0, lam)
    assert general <= special
    assert special - general < lam / 8


def test_the_general_bound_fails_no_more_often_than_stated():
    """Over all outcomes of ten examples for three hypotheses, with the posterior that makes the bound least for each."""
    n, lam, delta = 10, 1.0, 0.2
    counts = torch.arange(n + 1, dtype=torch.float64)
    binomial = torch.tensor([math.comb(n, k) for k in range(n + 1)], dtype=torch.float64)
    chances = binomial * RISKS[:, None] ** counts * (1 - RISKS[:, None]) ** (n - counts)
    failed = 0.0
    for outcome in itertools.product(range(n + 1), repeat=len(RISKS)):
        errors = torch.tensor(outcome, dtype=torch.float64) / n
        posterior = (-lam * n * errors).softmax(0)
        kl = float((posterior * (posterior * len(RISKS)).log()).sum())
        if float(posterior @ RISKS) > alquier(float(posterior @ errors), kl, n, delta, lam):
            failed += float(torch.stack([chances[g, k] for g, k in enumerate(outcome)]).prod())
    assert failed <= delta
