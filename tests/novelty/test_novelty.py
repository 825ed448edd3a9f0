"""Unknown inputs: p-values are uniform on known inputs, small on others, survive a file, and bad input is named."""

import json

import pytest
import torch

from posterity.curvature import Bernoulli, Categorical, GaussianNoise
from posterity.errors import BadData, DamagedFile, NoData, SizeMismatch
from posterity.gaussian.card import KnownFeatures
from posterity.novelty import (
    LeftOutInputs,
    Reference,
    RelativeVariance,
    alarm,
    by_folds,
    energy,
    entropy,
    from_known,
    of_outputs,
    to_known,
    watching,
)
from posterity.novelty.neighbours import Neighbourhood
from posterity.novelty.ranks import Ranks
from posterity.novelty.whitening import Whitening


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def known(n, seed=0, shift=0.0):
    """Three clusters in two layers, and a score of the predictor's own."""
    centres = 4 * normal(3, 8, seed=99)
    head = centres[torch.arange(n) % 3] + normal(n, 8, seed=seed) + shift
    return {"input": torch.cat((head, normal(n, 4, seed=seed + 1)), 1), "head": head}, {
        "entropy": normal(n, seed=seed + 2)
    }


def reference(n=200, **options):
    features, moments = known(n)
    return Reference.of(features, by_folds(features, moments), **options)


def test_p_values_are_uniform_on_new_known_inputs():
    p = reference(400).p(*known(2000, seed=50))
    for rate in (0.05, 0.2, 0.5, 0.8):
        # Of 400 left-out inputs the share at a rate varies by about its root over 20.
        assert abs(float((p <= rate).double().mean()) - rate) < 3.5 * (rate * (1 - rate) / 400) ** 0.5 + 0.01


def test_false_alarms_stay_at_the_rate_asked_for_with_few_known_inputs():
    rates = []
    for seed in range(16):
        features, moments = known(30, seed=1000 * seed)
        fit = Reference.of(features, by_folds(features, moments))
        rates.append(float(alarm(fit.unknown(*known(200, seed=1000 * seed + 500)), 0.1).double().mean()))
    assert 0.05 < sum(rates) / 16 < 0.16  # standard error 0.015


def test_a_third_left_out_at_a_time_costs_no_false_alarms():
    """What is left out of three folds has fewer known inputs near it than new inputs will have, and looks farther away."""
    rates = []
    for seed in range(24):
        x = {"head": normal(42, 8, seed=1000 * seed)}
        fit = Reference.of(x, by_folds(x, {}, torch.arange(42) % 3))
        rates.append(
            float(alarm(fit.unknown({"head": normal(400, 8, seed=1000 * seed + 500)}, {}), 0.2).double().mean())
        )
    assert 0.15 < sum(rates) / 24 < 0.24  # standard error 0.015; 0.12 without the correction


def test_far_inputs_are_unknown_and_keep_their_order():
    fit = reference()
    nearer, farther = (fit.unknown(*known(50, seed=7, shift=shift)) for shift in (6.0, 60.0))
    assert bool(alarm(nearer, 0.05).all())
    assert bool((farther > nearer).all())
    assert bool((farther < 1).all())


def test_an_input_unusual_in_one_score_alone_is_found():
    fit = reference(400)
    features, moments = known(50, seed=3)
    assert bool((fit.p(features, {"entropy": moments["entropy"] + 50}) < 0.02).all())
    inside = {**features, "input": features["input"] + torch.tensor([0.0] * 8 + [30.0] * 4).double()}
    assert bool((fit.p(inside, moments) < 0.02).all())


def test_features_of_training_examples_alarm_on_new_inputs_and_left_out_ones_do_not():
    """A network that pulls its own examples together: what it was not trained on tells the rate."""
    centres = 4 * normal(3, 8, seed=99)

    def seen(x):
        return {
            "head": centres[torch.cdist(x, centres).argmin(1)] + 0.3 * (x - centres[torch.cdist(x, centres).argmin(1)])
        }

    x, aside, new = (known(n, seed=s)[0]["head"] for n, s in ((300, 0), (150, 20), (1000, 40)))
    naive = Reference.of(seen(x), by_folds(seen(x), {}))
    honest = Reference.of(seen(x), [LeftOutInputs(seen(x), {"head": aside}, {})])
    assert float(alarm(naive.unknown({"head": new}, {}), 0.05).double().mean()) > 0.3
    assert 0.01 < float(alarm(honest.unknown({"head": new}, {}), 0.05).double().mean()) < 0.11


def test_neighbours_of_a_left_out_input_are_never_of_its_own_group():
    """Copies in one group: with the group left out, an input looks as far away as it is."""
    base = normal(40, 6)
    rows, groups = base.repeat_interleave(4, 0) + 1e-3 * normal(160, 6, seed=1), torch.arange(40).repeat_interleave(4)
    new = {"head": normal(500, 6, seed=2)}
    rates = {}
    for name, folds in (("groups", groups), ("rows", torch.arange(160))):
        fit = Reference.of({"head": rows}, by_folds({"head": rows}, {}, folds))
        rates[name] = float(alarm(fit.unknown(new, {}), 0.1).double().mean())
    assert rates["rows"] > 0.5
    assert rates["groups"] < 0.25


def test_source_inputs_count_as_known_only_where_the_target_lies_among_them():
    features, moments = known(40)
    same, other = known(300, seed=70)[0], {name: x + 30 for name, x in known(300, seed=70)[0].items()}
    assert Reference.of(features, by_folds(features, moments), source=same).source
    assert not Reference.of(features, by_folds(features, moments), source=other).source
    assert len(Reference.of(features, by_folds(features, moments), source=same).rows["head"]) == 340


def test_a_stored_reference_says_the_same_to_the_last_bit(tmp_path):
    from safetensors.torch import load_file, save_file

    for fit in (reference(), reference(keep_features=False), reference(2), reference(900)):
        known_ = to_known(fit)
        save_file(known_.tensors, tmp_path / "reference.safetensors")
        read = from_known(
            KnownFeatures(load_file(tmp_path / "reference.safetensors"), json.loads(json.dumps(known_.words)))
        )
        torch.testing.assert_close(read.p(*known(60, seed=9)), fit.p(*known(60, seed=9)), rtol=0, atol=0)
        assert read.missing == fit.missing


def test_a_reference_of_resnet_50_takes_at_most_a_megabyte():
    features = {"fc": normal(700, 2048).relu()}
    stored = to_known(Reference.of(features, [LeftOutInputs(features, {"fc": normal(40, 2048, seed=1).relu()}, {})]))
    assert 800_000 < sum(x.numel() * x.element_size() for x in stored.tensors.values()) <= 1_050_000


def test_without_features_the_predictors_scores_are_left_and_it_is_said():
    fit = reference(keep_features=False)
    assert not fit.rows
    assert "features of known inputs were left out" in fit.missing[0]
    assert bool((fit.p({}, {"entropy": torch.full((3,), 50.0)}) < 0.01).all())


@pytest.mark.parametrize("n", [1, 2])
def test_one_or_two_known_inputs_work_and_it_is_said(n):
    fit = reference(n)
    assert fit.missing
    unknown = fit.unknown(*known(5, seed=1))
    assert bool(((unknown >= 0) & (unknown <= 1)).all())


def test_constant_features_and_features_of_zero_length_give_numbers():
    for rows in (torch.ones(30, 4), torch.zeros(30, 4), torch.cat((torch.zeros(15, 4), normal(15, 4).float()))):
        fit = Reference.of({"head": rows}, by_folds({"head": rows}, {}))
        unknown = fit.unknown({"head": torch.cat((rows[:5], rows[:5] + 3))}, {})
        assert bool(((unknown >= 0) & (unknown <= 1)).all())
        assert float(unknown[5:].min()) >= float(unknown[:5].max()) - 0.5
    constant = Reference.of({"head": torch.ones(30, 4)}, by_folds({"head": torch.ones(30, 4)}, {}))
    assert float(constant.unknown({"head": torch.full((1, 4), 3.0)}, {})) > 0.9
    assert 0.2 < float(constant.unknown({"head": torch.ones(1, 4)}, {})) < 0.8


def test_inputs_that_are_not_finite_are_unknown():
    features, moments = known(4, seed=5)
    broken = {name: x.clone() for name, x in features.items()}
    broken["head"][1, 0], broken["input"][2, 3] = torch.nan, torch.inf
    unknown = reference().unknown(broken, moments)
    assert unknown[1] == unknown[2] == 1
    assert bool((unknown[[0, 3]] < 1).all())


def test_what_does_not_fit_is_named():
    fit = reference()
    features, moments = known(4)
    with pytest.raises(SizeMismatch, match='layer "head" is given rows of 8 numbers, not \\(7,\\)'):
        fit.p({**features, "head": features["head"][:, :7]}, moments)
    with pytest.raises(SizeMismatch, match='layer "head" are missing'):
        fit.p({"input": features["input"]}, moments)
    with pytest.raises(SizeMismatch, match="scores \\['entropy'\\] are missing"):
        fit.p(features, {})
    with pytest.raises(SizeMismatch, match="give the same ones everywhere"):
        Reference.of(features, [LeftOutInputs(features, features, moments), LeftOutInputs(features, features, {})])
    with pytest.raises(BadData, match="a finite row"):
        Reference.of({"head": torch.full((3, 2), torch.nan)}, [])
    with pytest.raises(NoData):
        Reference.of({}, [])
    with pytest.raises(ValueError, match="between 0 and 1"):
        alarm(torch.zeros(2), 0)
    tensors, words = to_known(fit).tensors, to_known(fit).words
    for changed in ({"version": 9}, {"layers": ["head"]}, {"layers": ["head", 1]}, {"count": 0}, {"count": 2**64}):
        bad = {**words, **changed}
        with pytest.raises(DamagedFile):
            from_known(KnownFeatures(tensors, bad))
    with pytest.raises(DamagedFile):
        from_known(KnownFeatures({**tensors, "ranks": tensors["ranks"].flip(1)}, words))


def test_a_layer_that_the_network_does_not_have_is_named():
    with (
        pytest.raises(DamagedFile, match='layer "body", which the network does not have'),
        watching(torch.nn.Linear(2, 2), ["body"], 2),
    ):
        pass


def test_memory_is_bounded_for_very_many_inputs(monkeypatch):
    """Rows are taken in parts, and parts give what the whole gives."""
    from posterity.novelty import neighbours

    space, rows = Neighbourhood.of(normal(50, 6)), normal(1000, 6, seed=1)
    whole, sizes = space.scores(rows), []
    monkeypatch.setattr(neighbours, "ROWS_AT_ONCE", 50 * 64)
    distances = Neighbourhood._distances
    monkeypatch.setattr(Neighbourhood, "_distances", lambda self, x: sizes.append(len(x)) or distances(self, x))
    torch.testing.assert_close(space.scores(rows), whole, rtol=1e-5, atol=1e-5)
    assert max(sizes) == 64


def test_ranks_interpolate_between_known_numbers_and_go_on_beyond_them():
    ranks = Ranks.of(torch.arange(1.0, 20.0))
    at = torch.tensor([1.0, 10.0, 10.5, 19.0]).double()
    torch.testing.assert_close(ranks.p(at), (20 - at) / 20, rtol=1e-12, atol=1e-12)
    beyond = ranks.p(torch.tensor([19.0, 20.0, 30.0, 1e9]).double())
    assert bool((beyond.diff() < 0).all())
    assert float(beyond[-1]) > 0
    assert bool((ranks.nats(torch.linspace(-5, 50, 200).double()).diff() >= 0).all())
    ties = Ranks.of(torch.tensor([1.0, 2.0, 2.0, 2.0, 3.0]))
    assert float(ties.p(torch.tensor([2.0]).double())) == pytest.approx(0.5, abs=1e-12)


def test_whitened_known_rows_have_unit_spread_where_rows_are_many_and_distances_are_exact_where_few():
    rows = normal(4000, 3) @ torch.diag(torch.tensor([1.0, 2.0, 0.5])).double()
    torch.testing.assert_close(Whitening.of(rows)(rows)[:, :3].T.cov(), torch.eye(3).double(), rtol=0, atol=0.1)
    few = normal(6, 20)
    whitening = Whitening.of(few)
    full = whitening.basis @ torch.diag(whitening.scales) @ whitening.basis.T + whitening.outside * (
        torch.eye(20).double() - whitening.basis @ whitening.basis.T
    )
    new = normal(5, 20, seed=1)
    exact = torch.cdist((new - whitening.mean) @ full, (few - whitening.mean) @ full)
    torch.testing.assert_close(torch.cdist(whitening(new), whitening(few)), exact, rtol=1e-6, atol=1e-6)


def test_scores_of_a_predictor_are_what_their_formulas_say():
    probs = torch.tensor([[0.5, 0.5], [1.0, 0.0]]).double()
    torch.testing.assert_close(entropy(probs), torch.tensor([2.0, 1.0]).double().log())
    torch.testing.assert_close(energy(torch.zeros(1, 4)), -torch.tensor([4.0]).log())
    logits = normal(4, 3)
    found = of_outputs(logits, Categorical())
    torch.testing.assert_close(found["entropy"], entropy(logits.softmax(-1)))
    labels = of_outputs(logits, Bernoulli())
    torch.testing.assert_close(labels["energy"], -torch.nn.functional.softplus(logits).sum(-1))
    assert of_outputs(logits, GaussianNoise()) == {}


def test_the_relative_variance_is_that_of_a_linear_model_and_grows_to_one_away_from_known_rows():
    rows = torch.cat((normal(20, 2), torch.zeros(20, 4).double()), 1)
    score = RelativeVariance.of(rows)
    size = rows.square().sum(1).mean().sqrt()
    a, b = (torch.cat((x / size, torch.full((len(x), 1), 0.3).double()), 1) for x in (rows, normal(5, 6, seed=1)))
    posterior = torch.linalg.inv(torch.eye(7).double() + a.T @ a / 0.1)
    exact = ((b @ posterior) * b).sum(1) / b.square().sum(1)
    torch.testing.assert_close(score(normal(5, 6, seed=1)), exact, rtol=1e-7, atol=1e-7)
    outside = torch.tensor([[0.0, 0, 0, 100, 0, 0]]).double()
    assert 0.99 < float(score(outside)) <= 1
    assert float(score(rows).max()) < 0.2


def test_without_features_the_scale_is_that_of_the_outputs_alone():
    features, _ = known(300)
    moments = of_outputs(normal(300, 3, seed=8), Categorical())
    fit = Reference.of(features, by_folds(features, moments)).without_features()
    assert fit is not None
    assert not fit.rows
    p = fit.p({}, of_outputs(normal(2000, 3, seed=9), Categorical()))
    assert 0.02 < float((p <= 0.05).double().mean()) < 0.09
    assert Reference.of(features, by_folds(features, {})).without_features() is None
