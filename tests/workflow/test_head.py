"""`pt.head`: features and few labels in, a fit like any other out."""

import logging
import threading

import numpy as np
import pytest
import torch
from test_head_classes import clusters

import posterity as pt
from posterity.errors import BadData, BadTargets, NoData, SizeMismatch, WrongChoice

NAMES = ("ant", "bee", "cat")


def animals(each=8, classes=3, d=12, noise=1.5, seed=0):
    x, y = clusters(classes=classes, each=each, d=d, noise=noise, seed=seed)
    return x.float(), y, [NAMES[c] for c in y.tolist()]


@pytest.fixture(scope="module")
def fit():
    x, _, names = animals()
    return pt.head(x, names)


def new(each=20):
    x, y, names = animals(each=8 + each)
    return x[24:], y[24:], names[24:]


def test_text_comes_back_as_text_and_probabilities_sum_to_one(fit):
    x, _y, names = new()
    found = fit.predict(x)
    torch.testing.assert_close(found.probs.sum(1), torch.ones(len(x)))
    right = sum(a == b for a, b in zip(found.classes, names, strict=True)) / len(names)
    assert 0.6 < right <= 1
    assert fit.classes == NAMES
    torch.testing.assert_close(found.epistemic + found.aleatoric, torch.special.entr(found.probs).sum(1))
    assert bool((found.unknown >= 0).all())
    assert bool((found.unknown <= 1).all())


def test_inputs_far_from_all_that_is_known_are_unknown(fit):
    known, far = fit.predict(new()[0]).unknown, fit.predict(-3 * new()[0]).unknown
    assert pt.metrics.ood_auroc(known, far) > 0.8


def test_arrays_memory_maps_and_tensors_make_the_same_fit(fit, tmp_path):
    x, _, names = animals()
    np.save(tmp_path / "x.npy", x.numpy())
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    probe = new()[0]
    for features in (x.numpy(), mapped):
        torch.testing.assert_close(pt.head(features, np.array(names)).predict(probe).probs, fit.predict(probe).probs)
    assert pt.head(mapped, names).ask(mapped[:10] + 1, 2).shape == (2,)


def test_whole_numbers_are_classes_and_floating_ones_are_numbers(fit):
    x, y, _ = animals()
    probe = new()[0]
    by_number = pt.head(x, y)
    assert by_number.classes == ("0", "1", "2")
    torch.testing.assert_close(by_number.predict(probe).probs, fit.predict(probe).probs)
    numbers = pt.head(x, x[:, 0] + 0.1 * torch.randn(len(x), generator=torch.Generator().manual_seed(0)))
    assert isinstance(numbers.likelihood, pt.GaussianNoise)
    error = numbers.predict(probe).mean[:, 0] - probe[:, 0]
    assert 0 < float(error.square().mean()) < 0.5 * float(probe[:, 0].var())


@pytest.mark.parametrize("numbers", [False, True])
def test_a_saved_head_opens_without_a_network_and_says_the_same(numbers, tmp_path):
    x, _, names = animals()
    made = pt.head(x, x[:, 0] if numbers else names, groups=torch.arange(24) // 2)
    made.save(tmp_path / "a.fit")
    again = pt.load(tmp_path / "a.fit")
    probe = new()[0]
    for name in ("mean", "epistemic", "unknown"):
        torch.testing.assert_close(
            getattr(again.predict(probe), name), getattr(made.predict(probe), name), rtol=0, atol=0
        )
    labels = probe[:6, 0] if numbers else new()[2][:6]
    pair = (m.tell(probe[:6], labels, groups=torch.arange(6)).predict(probe).mean for m in (made, again))
    torch.testing.assert_close(*pair, rtol=0, atol=0)


def test_a_head_saved_without_examples_predicts_the_same_and_takes_no_labels(fit, tmp_path):
    fit.save(tmp_path / "a.fit", examples=False)
    again = pt.load(tmp_path / "a.fit")
    x, _, names = new()
    torch.testing.assert_close(again.predict(x).probs, fit.predict(x).probs, rtol=0, atol=0)
    for use in (lambda: again.tell(x, names), lambda: again.worth(5)):
        with pytest.raises(BadData, match="saved without them"):
            use()
    row = animals()[0][3].double()
    parts = [t for t in pt.workflow.file.read_manifest(tmp_path / "a.fit").tensors.values() if t.ndim == 2]
    assert not any(t.shape[1] == 12 and bool((t.double() - row).abs().sum(1).lt(1e-2).any()) for t in parts)


def test_labels_that_are_told_make_the_fit_that_all_labels_make(fit):
    x, _, names = animals()
    more, _, theirs = new(each=4)
    told = fit.tell(more, theirs)
    whole = pt.head(torch.cat([x, more]), names + theirs)
    torch.testing.assert_close(told.predict(more).probs, whole.predict(more).probs, rtol=0, atol=1e-6)
    assert fit.curvature.count == 24
    assert told.curvature.count == 36


def test_a_class_that_is_new_may_be_told(fit):
    more = torch.full((2, 12), 3.0) + torch.randn(2, 12, generator=torch.Generator().manual_seed(0))
    told = fit.tell(more, ["bat", "bat"])
    assert told.classes == ("ant", "bat", "bee", "cat")
    assert told.predict(more).classes == ["bat", "bat"]


def test_rows_that_were_fitted_to_are_not_asked_for(fit):
    x, _, _ = animals()
    pool = torch.cat([x, new()[0]])
    assert set(fit.ask(pool, 60).tolist()) == set(range(24, 84))
    with pytest.raises(NoData, match="give more inputs"):
        fit.ask(x, 1)
    with pytest.raises(BadData, match="give k from 1 to 60"):
        fit.ask(pool, 61)


def test_numbers_are_asked_for_where_they_say_most():
    x, _, _ = animals()
    numbers = pt.head(x, x[:, 0])
    pool = torch.cat([x[:5] * 1.001, -4 * new()[0]])
    assert bool((numbers.ask(pool, 3) >= 5).all())
    with pytest.raises(WrongChoice, match="predicts numbers"):
        numbers.worth(3)


def test_the_worth_of_labels_has_an_interval(fit):
    found = fit.worth(30)
    assert 0 <= found.low <= found.gain <= found.high < found.nll


def test_names_speak_for_a_class_without_a_label_and_that_is_reported(caplog):
    x, y, names = animals(noise=1.0)
    table = {name: x[y == c].mean(0).tolist() for c, name in enumerate(NAMES)}
    prior = pt.words(lambda texts: [table[text] for text in texts], NAMES)
    known = (y < 2).nonzero().flatten()
    with caplog.at_level(logging.WARNING, "posterity"):
        made = pt.head(x[known], [names[i] for i in known.tolist()], prior=prior)
    assert "without a label, known by the prior alone: cat" in caplog.text
    assert "cat" in repr(made)
    found = made.predict(x[y == 2])
    assert found.classes.count("cat") >= 6


def test_texts_may_say_more_than_the_names():
    prior = pt.words(lambda texts: [[float(len(text)), 1.0] for text in texts], {"a": "aa", "b": "bbbb"})
    assert prior.names == ("a", "b")


def test_an_earlier_head_hands_rows_down_to_classes_of_the_same_name(tmp_path):
    x, _, names = animals(each=40, d=40, noise=2.5)
    pt.head(x[:90], names[:90]).save(tmp_path / "earlier.fit")
    earlier = pt.load(tmp_path / "earlier.fit")
    for prior in (earlier, earlier.posterior):
        made = pt.head(x[90:99], names[90:99], prior=prior)
        assert "around the prior" in made.plan.reasons[0]
        assert made.posterior.provenance.count == 99
    other = ["bee" if name == "bee" else "yak" for name in names[90:99]]
    assert pt.head(x[90:99], other, prior=earlier).classes == ("bee", "yak")
    with pytest.raises(WrongChoice, match="none is shared"):
        pt.head(x[90:99], [name * 2 for name in names[90:99]], prior=earlier)


def test_threads_say_what_one_says(fit):
    x = new()[0]
    alone, found = fit.predict(x).probs, []
    threads = [threading.Thread(target=lambda: found.append(fit.predict(x).probs)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(alone, probs) for probs in found)
    assert len(found) == 4


@pytest.mark.parametrize("unknown", [True, False])
def test_the_module_says_what_the_fit_says_and_is_exported(fit, unknown):
    x, said = new()[0], fit.predict(new()[0])
    module = fit.module(unknown=unknown)
    program = torch.export.export(module, (x,), dynamic_shapes=({0: torch.export.Dim("n", min=2)},))
    for found in (module(x), program.module()(x[:7])):
        torch.testing.assert_close(found[0], said.probs[: len(found[0])])
        assert len(found) == 1 + unknown
        if unknown:
            torch.testing.assert_close(found[1], said.unknown[: len(found[1])])


def test_a_head_is_certified_by_examples_that_its_prior_has_not_seen(fit):
    x, y, _ = new()
    found = fit.certify((x, y), progress=False)
    assert 0 < found.bound <= 1
    with pytest.raises(pt.errors.Overlap):
        pt.certify(fit.model, fit.posterior, fit.posterior, animals()[:2], progress=False)


def test_draws_of_outputs_are_kept_where_they_are_wanted(fit):
    draws = fit.predict(new()[0], keep_draws=True, samples=7).draws
    assert draws is not None
    assert draws.shape == (7, 60, 3)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (lambda x, y: (x.index_fill(1, torch.tensor([2]), torch.inf), y), BadData, "column 2 of the features"),
        (lambda x, y: ([["a", 1.0]] * 24, y), BadData, "features are <U"),
        (lambda x, y: ([[1.0], [2.0, 3.0]], y), BadData, "no matrix"),
        (lambda x, y: (x, y[:-1]), SizeMismatch, "24 rows of features and 23 labels"),
        (lambda x, y: (x[:, 0], y), BadData, "give a matrix"),
        (lambda x, y: (x, ["ant"] * 24), BadTargets, "one class"),
        (lambda x, y: (x, [None, *y[1:]]), BadTargets, "label 0 is None"),
        (lambda x, y: (x, torch.arange(24) % 3 + 1), BadTargets, r"these are 1, 2, 3"),
        (lambda x, y: (x, torch.zeros(24, 2)), BadTargets, "one for each row"),
        (lambda x, y: (x[:0], y[:0]), NoData, "no labelled example"),
    ],
)
def test_bad_features_and_labels_are_named(change, error, says):
    x, _, names = animals()
    with pytest.raises(error, match=says):
        pt.head(*change(x, names))


def test_bad_priors_are_named():
    x, _, names = animals()
    narrow = pt.words(lambda texts: torch.eye(3)[: len(texts)], NAMES)
    with pytest.raises(SizeMismatch, match="embedded in 3 numbers, and the features have 12 columns"):
        pt.head(x, names, prior=narrow)
    wide = pt.words(lambda texts: torch.eye(12)[: len(texts)], NAMES[:2])
    with pytest.raises(BadTargets, match='"cat" is none of the names'):
        pt.head(x, names, prior=wide)
    with pytest.raises(BadTargets, match="the labels are numbers"):
        pt.head(x, x[:, 0], prior=wide)
    with pytest.raises(WrongChoice, match="prior is a str"):
        pt.head(x, names, prior="names")


@pytest.mark.parametrize("each", [1, 2])
def test_constant_columns_more_features_than_examples_and_one_label_a_class(each):
    x, _, names = animals(each=each, d=40)
    made = pt.head(torch.cat([x, torch.full((len(x), 3), 7.0)], 1), names)
    assert bool(made.predict(torch.cat([x, torch.full((len(x), 3), 7.0)], 1)).probs.isfinite().all())


def test_other_fits_have_no_pool_to_ask_from():
    torch.manual_seed(0)
    x, y, _ = animals()
    made = pt.learn(torch.nn.Linear(12, 3), (x, y), training={"epochs": 1}, progress=False)
    with pytest.raises(WrongChoice, match=r"fit\.ask is for heads on features"):
        made.ask(x, 1)


def test_groups_must_go_on_as_they_began(fit):
    x, _, names = new(each=2)
    with pytest.raises(BadData, match="belong to no groups"):
        fit.tell(x, names, groups=torch.arange(6))
    grouped = pt.head(*(part for k, part in enumerate(animals()) if k != 1), groups=torch.arange(24) // 3)
    with pytest.raises(BadData, match="give groups= for these too"):
        grouped.tell(x, names)


def test_a_thousand_classes_are_fitted_and_predicted_within_memory():
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(1000, 24, generator=draw)
    made = pt.head(x, torch.arange(1000) % 500)
    assert made.predict(x[:300]).probs.shape == (300, 500)
