"""The estimators keep scikit-learn's rules, and their sets hold the truth as often as promised."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import posterity as pt
from posterity.errors import (
    BadData,
    DamagedFile,
    NotAFit,
    NotHeldOut,
    NotWritable,
    OtherNetwork,
    Overlap,
    UnknownPast,
)
from posterity.predictive.sets import split_threshold

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed (posterity-torch[scikit-learn])")
from sklearn.base import clone  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

QUICK = {"epochs": 20, "polish_steps": 20}
# So few steps end before the mode, and training says so.
pytestmark = pytest.mark.filterwarnings("ignore:training ended")


def small(kind: type, **options):
    return kind(hidden_sizes=(4,), training=QUICK, random_state=0, **options)


# --- scikit-learn's own checks -----------------------------------------------------------------------


def exceptions(estimator) -> dict[str, str]:
    """Checks that cannot pass, and why."""
    return {
        "check_sample_weight_equivalence_on_dense_data": "it shuffles the repeated examples, and training depends on order; "
        "in the same order counts and repeats are the same (test_weights_are_counts)",
    }


@pytest.mark.slow
@parametrize_with_checks(
    [small(pt.PosteriorClassifier), small(pt.PosteriorRegressor)], expected_failed_checks=exceptions
)
def test_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


# --- use in scikit-learn -----------------------------------------------------------------------------


def two_moons(n: int, seed: int = 0):
    random = np.random.RandomState(seed)
    y = random.randint(2, size=n)
    angle = np.pi * random.rand(n)
    X = np.stack((np.cos(angle) * (1 - 2 * y) + y, np.sin(angle) * (1 - 2 * y) + 0.5 * y), 1)
    return X + 0.15 * random.randn(n, 2), np.where(y == 1, "upper", "lower")


def test_a_classifier_takes_names_and_gives_probabilities_in_their_order():
    X, y = two_moons(60)
    model = small(pt.PosteriorClassifier).fit(X, y)
    probabilities = model.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-6)
    assert list(model.classes_) == ["lower", "upper"]
    assert (model.predict(X) == model.classes_[probabilities.argmax(1)]).all()
    assert model.score(X, y) > 0.8
    assert np.isfinite(model.unknown(X)).all()


def test_the_same_seed_gives_the_same_predictions_and_leaves_the_global_one_alone():
    X, y = two_moons(30)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first, again = (small(pt.PosteriorClassifier).fit(X, y).predict_proba(X) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert torch.equal(before, torch.get_rng_state())


def test_pipelines_cross_validation_grids_clones_and_pickles_work():
    X, y = two_moons(30)
    model = make_pipeline(StandardScaler(), small(pt.PosteriorClassifier))
    assert len(cross_val_score(model, X, y, cv=2, scoring="neg_log_loss")) == 2
    grid = GridSearchCV(small(pt.PosteriorClassifier), {"hidden_sizes": [(2,), (4,)]}, cv=2).fit(X, y)
    assert grid.best_params_["hidden_sizes"] in [(2,), (4,)]
    again = pickle.loads(pickle.dumps(grid.best_estimator_))
    np.testing.assert_allclose(again.predict_proba(X), grid.predict_proba(X))
    assert clone(grid.best_estimator_).get_params()["training"] == QUICK


def test_weights_are_counts():
    X, y = two_moons(20)
    counts = np.arange(20) % 3
    weighted = small(pt.PosteriorClassifier).fit(X, y, sample_weight=counts)
    index = np.repeat(np.arange(20), counts)
    repeated = small(pt.PosteriorClassifier).fit(X[index], y[index])
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-6)
    with pytest.raises(BadData, match="whole numbers"):
        small(pt.PosteriorClassifier).fit(X, y, sample_weight=np.full(20, 0.5))


def test_a_network_of_ones_own_and_a_prior_by_estimator_by_value_and_by_file(tmp_path):
    def network(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(inputs, 3), nn.ReLU(), nn.Linear(3, outputs))

    X, y = two_moons(60)
    source = small(pt.PosteriorClassifier, network=network).fit(X, y)
    source.fit_.posterior.save(tmp_path / "source.safetensors")
    few, labels = two_moons(8, seed=1)
    by_estimator = small(pt.PosteriorClassifier, network=network, prior=source).fit(few, labels)
    np.testing.assert_array_equal(by_estimator.mean_, source.mean_)
    source.save(tmp_path / "source.fit")
    # A file says how its inputs were scaled, and they are scaled alike: also where standardising is asked for.
    for prior in (source.fit_.posterior, str(tmp_path / "source.safetensors"), tmp_path / "source.fit"):
        for standardise in (None, True):
            found = small(pt.PosteriorClassifier, network=network, prior=prior, standardise=standardise)
            np.testing.assert_allclose(
                found.fit(few, labels).predict_proba(few), by_estimator.predict_proba(few), atol=1e-5
            )
    scaled = (few - source.mean_) / source.scale_
    by_hand = small(pt.PosteriorClassifier, network=network, prior=source.fit_.posterior, standardise=False)
    np.testing.assert_allclose(
        by_hand.fit(scaled, labels).predict_proba(scaled), by_estimator.predict_proba(few), atol=1e-5
    )
    # Its head was handed down: eight examples are as good as the source's sixty.
    assert by_estimator.score(X, y) > 0.75


def test_examples_of_the_prior_are_known_again_however_inputs_are_scaled(tmp_path):
    """The prior has seen them: no certificate by them, whether its file says how they were scaled or not."""
    X, y = two_moons(40)
    few, labels = X[:12], y[:12]
    source = small(pt.PosteriorClassifier).fit(X, y)
    source.fit_.posterior.save(tmp_path / "source.safetensors")
    prior = pt.load(tmp_path / "source.safetensors")
    for known, refusal in ((prior, Overlap), (replace(prior, card=replace(prior.card, recipe="")), UnknownPast)):
        model = small(pt.PosteriorClassifier, prior=known, standardise=True).fit(few, labels)
        index = torch.as_tensor(np.searchsorted(model.classes_, labels))
        with pytest.raises(refusal):
            model.fit_.certify((model._tensor(few), index), passes=2, progress=False)


def test_a_label_that_is_missing_leaves_a_kept_head_in_its_order():
    random = np.random.RandomState(0)
    y = random.choice(["a", "b", "c"], 60)
    X = np.eye(3)[np.searchsorted(["a", "b", "c"], y)] + 0.1 * random.randn(60, 3)
    source = small(pt.PosteriorClassifier).fit(X, y)
    few = np.flatnonzero(y != "a")[:10]
    model = small(pt.PosteriorClassifier, prior=source, head="keep").fit(X[few], y[few])
    assert list(model.classes_) == ["a", "b", "c"]
    assert model.predict_proba(X).shape == (60, 3)
    assert model.score(X, y) > 0.9


def test_a_regressor_predicts_in_the_units_of_its_targets():
    random = np.random.RandomState(0)
    X = random.randn(60, 2)
    y = 1000 + 50 * X[:, 0] + 5 * random.randn(60)
    model = small(pt.PosteriorRegressor).fit(X, y)
    mean, deviation = model.predict(X, return_std=True)
    assert model.score(X, y) > 0.9
    assert 3 < deviation.mean() < 15
    assert np.abs(mean.mean() - y.mean()) < 5


# --- coverage ----------------------------------------------------------------------------------------


def test_the_threshold_is_the_rank_that_split_conformal_prediction_asks_for():
    scores = torch.arange(1.0, 10.0)
    assert split_threshold(scores, 0.9) == 9
    assert split_threshold(scores, 0.8) == 8
    assert split_threshold(scores, 0.95) == np.inf
    with pytest.raises(ValueError, match="between 0 and 1"):
        split_threshold(scores, 1.0)


@pytest.mark.parametrize("coverage", [0.7, 0.9])
def test_sets_cover_as_often_as_promised_and_not_more_often(coverage):
    """One network, and 400 draws of held-out and new examples: coverage is that of exchangeable scores, on average."""
    X, y = two_moons(40)
    model = small(pt.PosteriorClassifier).fit(X, y)
    pool, labels = two_moons(3000, seed=7)
    labels = (labels == "upper").astype(int)
    probabilities = model.predict_proba(pool + 0.3)  # a shifted network: wrong often enough
    random, found, n = np.random.RandomState(0), [], 30
    for _ in range(400):
        index = random.permutation(len(pool))[: n + 50]
        held, new = index[:n], index[n:]
        limit = split_threshold(torch.as_tensor(1 - probabilities[held, labels[held]]), coverage)
        sets = 1 - probabilities[new] <= limit
        found.append(sets[np.arange(50), labels[new]].mean())
    error = 4 * np.std(found) / np.sqrt(len(found))
    assert coverage - error < np.mean(found) < coverage + 1 / (n + 1) + error


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_the_estimators_cover_as_often_as_promised(kind):
    found = []
    for seed in range(40):
        X, y = two_moons(80, seed=seed)
        new, truth = two_moons(200, seed=1000 + seed)
        if kind == "classes":
            flip = np.random.RandomState(seed).rand(280) < 0.2
            every = np.concatenate((y, truth))
            every[flip] = np.where(every[flip] == "upper", "lower", "upper")
            y, truth = every[:80], every[80:]
            model = small(pt.PosteriorClassifier, held_out=0.5).fit(X, y)
            sets = model.predict_set(new, 0.8)
            found.append(sets[np.arange(200), np.searchsorted(model.classes_, truth)].mean())
        else:
            model = small(pt.PosteriorRegressor, held_out=0.5).fit(X[:, :1], X[:, 1])
            low, high = model.predict_set(new[:, :1], 0.8).T
            found.append(((low <= new[:, 1]) & (new[:, 1] <= high)).mean())
        assert model.n_held_out_ == 40
    error = 4 * np.std(found) / np.sqrt(len(found))
    # The most probable class is always in a set, which can only add to the coverage.
    assert 0.8 - error < np.mean(found) < 0.8 + 1 / 41 + 0.02 + error


def test_without_held_out_examples_no_coverage_is_promised():
    X, y = two_moons(30)
    model = small(pt.PosteriorClassifier).fit(X, y)
    with pytest.raises(NotHeldOut, match=r"held_out=0\.2"):
        model.predict_set(X)
    more, labels = two_moons(25, seed=2)
    sets = model.conformalize(more, labels).predict_set(X, 0.8)
    assert sets.shape == (30, 2)
    assert sets.any(1).all()
    assert model.n_held_out_ == 25
    with pytest.raises(BadData, match="not fitted"):
        model.conformalize(more, np.full(25, "left"))


def noisy(n, seed=0):
    """Labels that no input tells: a set has to hold both classes most of the time."""
    random = np.random.RandomState(seed)
    return random.randn(n, 3), random.choice(["no", "yes"], n)


@pytest.mark.parametrize("how", ["weights", "copies", "noisy copies"])
def test_copies_of_one_example_are_never_on_both_sides(how):
    """Each of 30 examples five times: sets by them cover what is promised only if no copy was fitted."""
    covered, moved = [], np.random.RandomState(0)
    for seed in range(6):
        X, y = noisy(30, seed)
        model = small(pt.PosteriorClassifier, held_out=0.5)
        if how == "weights":
            model.fit(X, y, sample_weight=np.full(30, 5))
        else:
            noise = 0.02 * (how == "noisy copies") * moved.randn(150, 3)
            model.fit(np.repeat(X, 5, 0) + noise, np.repeat(y, 5))
        times = 5 if how == "noisy copies" else 1
        assert len(np.unique(model.held_groups_)) == 15
        assert model.n_held_out_ == model.fit_.posterior.provenance.count == 15 * times
        new, truth = noisy(200, 100 + seed)
        sets = model.predict_set(new, 0.8)
        covered.append(sets[np.arange(200), np.searchsorted(model.classes_, truth)].mean())
    assert 0.72 < np.mean(covered) <= 0.95


def persons(count, rows, seed):
    """Rows of some persons, alike but no near copies, with one label each that no input tells."""
    random = np.random.RandomState(seed)
    X, y = noisy(count, seed)
    X = np.repeat(X, rows, 0) + 0.3 * random.randn(count * rows, 3)
    return X, np.repeat(y, rows), np.repeat([f"person {k}" for k in range(count)], rows)


def test_groups_are_on_one_side_and_count_once():
    """Twenty rows of each of thirty persons: sets for new persons cover what is promised, only if persons are held out whole."""
    covered, alone = [], []
    for seed in range(6):
        X, y, who = persons(30, 20, seed)
        new, truth = noisy(200, 100 + seed)
        for found, groups in ((covered, who), (alone, None)):
            model = small(pt.PosteriorClassifier, held_out=0.5).fit(X, y, groups=groups)
            sets = model.predict_set(new, 0.8)
            found.append(sets[np.arange(200), np.searchsorted(model.classes_, truth)].mean())
            if groups is not None:
                assert len(np.unique(model.held_groups_)) == 15
                assert model.n_held_out_ == 300
    assert 0.72 < np.mean(covered) <= 0.97
    assert np.mean(alone) < 0.72
    more = persons(25, 4, 50)
    model.conformalize(*more)
    assert len(np.unique(model.held_groups_)) == 25
    with pytest.raises(BadData, match="groups has 99"):
        model.conformalize(*more[:2], more[2][:99])


@pytest.mark.parametrize("kind", [pt.PosteriorClassifier, pt.PosteriorRegressor])
def test_examples_that_were_fitted_promise_no_coverage(kind):
    X, y = noisy(40)
    y = y if kind is pt.PosteriorClassifier else X[:, 0] * 3
    model = small(kind).fit(X[:30], y[:30])
    with pytest.raises(NotHeldOut, match="30 of these 40 examples were fitted"):
        model.conformalize(X, y)
    assert model.conformalize(X[30:], y[30:]).n_held_out_ == 10
    # Nor do they in other numbers: sets by them would hold the truth half of the time.
    chance = np.random.RandomState(1)
    for again in (X[:30].round(2), X[:30].astype(np.float16), X[:30] + 0.02 * chance.randn(30, 3)):
        with pytest.raises(NotHeldOut, match="copies of such"):
            model.conformalize(again, y[:30])
    # Noisy copies of new examples are held out once.
    many = np.repeat(X[30:], 5, 0) + 0.02 * chance.randn(50, 3)
    model.conformalize(np.concatenate((many, chance.randn(30, 3))), np.concatenate((np.repeat(y[30:], 5), y[:30])))
    assert len(np.unique(model.held_groups_[:50])) <= 10


def test_rows_of_few_values_are_no_copies_by_that():
    random = np.random.RandomState(0)
    X, y = random.randint(2, size=(200, 3)).astype(float), random.choice(["no", "yes"], 200)
    model = small(pt.PosteriorClassifier).fit(X[:100], y[:100])
    assert model.conformalize(X[100:], y[100:]).n_held_out_ == 100


def test_mapie_wraps_the_classifier():
    mapie = pytest.importorskip("mapie.classification", reason="MAPIE is not installed (posterity-torch[examples])")
    X, y = two_moons(120)
    model = small(pt.PosteriorClassifier).fit(X[:40], y[:40])
    wrapped = mapie.SplitConformalClassifier(model, confidence_level=0.8, conformity_score="lac", prefit=True)
    theirs = wrapped.conformalize(X[40:80], y[40:80]).predict_set(X[80:])[1][:, :, 0]
    ours = model.conformalize(X[40:80], y[40:80]).predict_set(X[80:], 0.8)
    # The same sets, but that ours always hold the most probable class.
    assert (theirs <= ours).all()
    assert (ours.sum(1) - theirs.sum(1) <= 1).all()
    assert (theirs == ours)[theirs.any(1)].all()


def test_importing_posterity_imports_no_other_library():
    names = ["sklearn", "laplace", "transformers", "peft", "lightning", "mapie", "matplotlib", "pandas"]
    code = f"import sys, posterity; print([n for n in {names} if n in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    monkeypatch.delattr(pt.wrappers, "scikit_learn", raising=False)
    monkeypatch.delitem(sys.modules, "posterity.wrappers.scikit_learn", raising=False)
    with pytest.raises(ImportError, match=r"pip install 'scikit-learn>=1.6'"):
        _ = pt.PosteriorClassifier


# --- files -------------------------------------------------------------------------------------------


def after_a_prior(X, y):
    """A classifier that averages with trained networks, and holds some examples out."""
    source = small(pt.PosteriorClassifier).fit(*two_moons(40, seed=5))
    return small(pt.PosteriorClassifier, prior=source, held_out=0.3).fit(X, y)


@pytest.mark.parametrize("make", [lambda X, y: small(pt.PosteriorClassifier).fit(X, y), after_a_prior])
def test_a_classifier_that_was_saved_predicts_the_same(make, tmp_path):
    X, y = two_moons(24)
    model = make(X, y)
    model.save(tmp_path / "model")
    again = pt.PosteriorClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert list(again.classes_) == ["lower", "upper"]
    assert (again.prior is None) == (model.prior is None)
    assert again.n_held_out_ == model.n_held_out_
    if model.n_held_out_:
        np.testing.assert_array_equal(again.predict_set(X, 0.8), model.predict_set(X, 0.8))
    np.testing.assert_array_equal(again.unknown(X), model.unknown(X))


@pytest.mark.parametrize("quick", [True, False])
def test_a_regressor_that_was_saved_predicts_the_same_and_can_be_saved_again(quick, tmp_path):
    random = np.random.RandomState(0)
    X = random.randn(12, 2)
    options = {} if quick else {"training": None}
    model = small(pt.PosteriorRegressor).set_params(**options).fit(X, 3 * X[:, 0] + 50)
    assert model.fit_.plan.ways[0] == ("one network" if quick else "network aside")
    model.save(tmp_path / "model")
    again = pt.PosteriorRegressor.load(tmp_path / "model")
    again.save(tmp_path / "model", overwrite=True)
    third = pt.PosteriorRegressor.load(tmp_path / "model")
    for mine, saved in zip(model.predict(X, return_std=True), third.predict(X, return_std=True), strict=True):
        np.testing.assert_array_equal(saved, mine)


def test_a_file_that_was_changed_or_is_something_else_is_refused(tmp_path):
    X, y = two_moons(24)
    path = tmp_path / "model"
    model = small(pt.PosteriorClassifier, network=lambda i, o: nn.Linear(i, o)).fit(X, y)
    model.save(path)
    with pytest.raises(NotWritable, match="is there already"):
        model.save(path)
    with pytest.raises(NotAFit, match=r"open it with `pt\.PosteriorClassifier\.load`"):
        pt.PosteriorRegressor.load(path)
    with pytest.raises(OtherNetwork, match="network of your own"):
        pt.PosteriorClassifier.load(path)
    with pytest.raises(OtherNetwork, match="not the one that was learned"):
        pt.PosteriorClassifier.load(path, network=lambda i, o: nn.Linear(i, o + 1))
    again = pt.PosteriorClassifier.load(path, network=nn.Linear)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    model.fit_.save(tmp_path / "fit")
    with pytest.raises(NotAFit, match="no estimator"):
        pt.PosteriorClassifier.load(tmp_path / "fit")
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(DamagedFile, match="seal"):
        pt.PosteriorClassifier.load(path, network=nn.Linear)
