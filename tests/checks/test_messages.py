"""What a user gives by mistake is answered in one sentence that says what to write instead."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import posterity as pt
from posterity import errors

QUICK = {"progress": False, "training": {"epochs": 2}}


def net(inputs=4, outputs=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, outputs))


def touched():
    """As if it had been trained."""
    model = net()
    with torch.no_grad():
        model[2].weight.mul_(3)
    return model


@pytest.fixture
def xy():
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(1))
    return x, x[:, :3].argmax(1)


def told(kind, call):
    """The message of an error of that kind: one line, one or two sentences, at most 300 characters."""
    with pytest.raises(kind) as caught:
        call()
    text = str(caught.value)
    assert isinstance(caught.value, errors.PosterityError)
    assert "\n" not in text
    assert len(text) <= 300
    return text


def verbs(x, y, model=None):
    """Every verb that takes a network and labelled data."""
    model = model or touched()
    prior = pt.isotropic(net(), 10.0, mean="model")
    return {
        "learn": lambda: pt.learn(model, (x, y), **QUICK),
        "adapt": lambda: pt.adapt(model, (x, y), prior, progress=False),
        "posterior": lambda: pt.posterior(model, (x, y), progress=False),
        "estimate": lambda: pt.estimate(model, (x, y), progress=False),
        "train": lambda: pt.train(model, (x, y), epochs=2, progress=False),
        "certify": lambda: pt.certify(model, *[pt.isotropic(net(), 10.0)] * 2, (x, y), progress=False),
    }


EVERY = ["learn", "adapt", "posterior", "estimate", "train", "certify"]


@pytest.mark.parametrize("verb", EVERY)
def test_nan_in_the_inputs_is_called_that(xy, verb):
    x, y = xy
    x[3, 1] = float("nan")
    text = told(errors.NotFinite, verbs(x, y)[verb])
    assert "1 NaN" in text
    assert "example 3" in text
    assert "lr" not in text


def test_nan_from_a_loader_is_found_when_its_batch_comes(xy):
    x, y = xy
    x[13, 1] = float("inf")
    loader = DataLoader(TensorDataset(x, y), batch_size=10)
    text = told(errors.NotFinite, lambda: pt.train(net(), loader, validation=None, epochs=2, progress=False))
    assert "batch 1" in text
    assert "infinite" in text
    assert "lr" not in text


def test_a_loss_that_diverges_by_itself_still_asks_for_a_lower_lr(xy):
    x, y = 1e38 * xy[0], xy[1]
    text = told(errors.NotFinite, lambda: pt.train(nn.Linear(4, 3), (x, y), validation=None, epochs=2, progress=False))
    assert "lower lr" in text


def test_nan_in_held_out_data_is_called_that(xy):
    x, y = xy
    bad = torch.full((5, 4), float("nan"))
    loader = DataLoader(TensorDataset(bad, y[:5]), batch_size=5)
    text = told(errors.NotFinite, lambda: pt.train(net(), (x, y), validation=loader, epochs=2, progress=False))
    assert "held-out batch 0 hold 20 NaN" in text


def test_nan_in_new_inputs_is_called_that(xy):
    x, _ = xy
    x[7, 0] = float("nan")
    assert "NaN" in told(errors.NotFinite, lambda: pt.predict(net(), pt.isotropic(net()), x))


def test_nan_in_the_targets_of_a_regression_is_called_that(xy):
    x, _ = xy
    y = x[:, :1].clone()
    y[2] = float("nan")
    assert "targets" in told(errors.NotFinite, lambda: pt.learn(net(4, 1), (x, y), pt.isotropic(net(4, 1)), **QUICK))


@pytest.mark.parametrize("verb", EVERY)
def test_arrays_of_numpy_are_as_good_as_tensors(xy, verb):
    x, y = xy
    assert verbs(x.double().numpy(), y.numpy())[verb]() is not None


def test_arrays_and_tensors_give_the_same_fit(xy):
    x, y = xy
    found = [
        pt.learn(net(), data, **QUICK, generator=torch.Generator().manual_seed(3)).predict(x).probs
        for data in ((x, y), (x.double().numpy(), y.numpy()))
    ]
    assert torch.equal(*found)


@pytest.mark.parametrize("form", [list, np.array, lambda v: np.array(v, dtype=object)])
def test_labels_that_are_text_name_the_classes(xy, form):
    x, y = xy
    names = ["cat", "dog", "eel"]
    fit = pt.learn(net(), (x, form([names[i] for i in y])), **QUICK)
    assert fit.posterior.card.classes == tuple(names)
    plain = pt.learn(net(), (x, y), classes=names, **QUICK)
    assert fit.predict(x).probs.shape == plain.predict(x).probs.shape == (30, 3)


def test_text_labels_follow_the_order_of_the_classes_given(xy):
    x, y = xy
    names = ["eel", "dog", "cat"]
    fit = pt.adapt(
        net(), (x, [names[i] for i in y]), pt.isotropic(net(), 10.0, mean="model"), classes=names, progress=False
    )
    same = pt.adapt(net(), (x, y), pt.isotropic(net(), 10.0, mean="model"), classes=names, progress=False)
    assert torch.allclose(fit.predict(x).probs, same.predict(x).probs, atol=1e-6)
    text = told(errors.BadTargets, lambda: pt.learn(net(), (x, [names[i] for i in y]), classes=["eel", "dog"], **QUICK))
    assert '"cat"' in text


@pytest.fixture(scope="module")
def said():
    """What every verb says to values of the wrong kind, in a process where no test checks types before it."""
    script = Path(__file__).with_name("wrong_kinds.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    rows = [line.split("|") for line in done.stdout.splitlines()]
    return {(case, verb): (kind, text) for case, verb, kind, text in rows}


ANSWERS = {
    "classification": ("WrongChoice", "write likelihood=pt.Categorical()."),
    "regression": ("WrongChoice", "write likelihood=pt.GaussianNoise()."),
    "a likelihood's class": ("WrongChoice", "write likelihood=pt.GaussianNoise(), with brackets"),
    "an estimator's class": ("WrongChoice", "write estimator=pt.KFAC(), with brackets"),
    "an estimator's name": ("WrongChoice", "write estimator=pt.KFAC()"),
    "no network": ("UnsupportedNetwork", "give a torch.nn.Module"),
    "a network's class": ("UnsupportedNetwork", "write Linear(...)"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_a_value_of_the_wrong_kind_is_answered_with_what_to_write(said, case):
    kind, words = ANSWERS[case]
    answers = {verb: answer for (one, verb), answer in said.items() if one == case}
    assert len(answers) >= 4
    for verb, (found, text) in answers.items():
        assert found == kind, (verb, text)
        assert words in text, verb


@pytest.mark.parametrize("verb", EVERY)
def test_inputs_of_another_width_name_the_layer_and_both_widths(xy, verb):
    x, y = xy
    text = told(errors.BadData, verbs(x[:, :2], y)[verb])
    assert 'layer "0" (Linear) takes 4 features and got 2' in text


def test_images_with_other_channels_name_the_layer(xy):
    model = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(8, 3))
    text = told(errors.BadData, lambda: pt.learn(model, (torch.rand(6, 1, 4, 4), torch.arange(6) % 3), **QUICK))
    assert "takes 3 channels and got 1" in text
    text = told(errors.BadData, lambda: pt.learn(model, (torch.rand(6, 3, 5, 5), torch.arange(6) % 3), **QUICK))
    assert 'layer "2" (Linear) takes 8 features and got 18' in text


@pytest.mark.parametrize("verb", EVERY)
def test_float64_inputs_say_how_to_convert_them(xy, verb):
    x, y = xy
    text = told(errors.BadData, verbs(x.double(), y)[verb])
    assert "inputs are float64 and the network is float32" in text


@pytest.mark.parametrize("verb", EVERY)
def test_integer_inputs_say_how_to_convert_them(xy, verb):
    x, y = xy
    assert ".float()" in told(errors.BadData, verbs((10 * x).long(), y)[verb])
    assert ".float() / 255" in told(errors.BadData, verbs((10 * x).to(torch.uint8), y)[verb])


def test_new_inputs_that_do_not_fit_are_told_too(xy):
    x, _ = xy
    prior = pt.isotropic(net())
    assert "takes 4 features and got 2" in told(errors.BadData, lambda: pt.predict(net(), prior, x[:, :2]))
    assert "float64" in told(errors.BadData, lambda: pt.predict(net(), prior, x.double()))
    assert ".float()" in told(errors.BadData, lambda: pt.predict(net(), prior, x.long()))


def test_a_layer_that_refuses_its_input_is_named_with_what_it_said():
    model = nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), nn.Flatten(), nn.Linear(4 * 8, 2))
    said = told(errors.BadData, lambda: pt.predict(model, pt.isotropic(model), torch.randn(3, 10)))
    assert said.startswith('layer "1" (BatchNorm1d) cannot take 4×8 float32: ')
    assert "the network was given 3×10 float32; the first number counts examples" in said


def test_a_text_is_no_input(xy):
    assert "the input is a str" in told(errors.BadData, lambda: pt.predict(net(), pt.isotropic(net()), "x"))


def test_integers_are_right_for_a_network_that_embeds_them():
    model = nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(8, 3))
    tokens = torch.randint(5, (20, 2))
    assert pt.learn(model, (tokens, tokens[:, 0] % 3), **QUICK).predict(tokens).probs.shape == (20, 3)


@pytest.mark.parametrize("verb", EVERY)
def test_a_network_in_data_parallel_is_unwrapped_by_its_owner(xy, verb):
    text = told(errors.UnsupportedNetwork, verbs(*xy, model=nn.DataParallel(net()))[verb])
    assert "network.module" in text


def test_no_names_are_no_mistake(xy):
    fit = pt.learn(net(), xy, classes=(), **QUICK)
    assert (
        pt.learn(net(), xy, prior=fit.posterior, classes=fit.posterior.card.classes, **QUICK).posterior.card.classes
        == ()
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_script_is_refused(xy):
    text = told(errors.UnsupportedNetwork, lambda: pt.learn(torch.jit.script(net()), xy, progress=False))
    assert "ScriptModule" in text


def test_inputs_beyond_the_range_of_curvature_are_named():
    x, y = 1e20 * torch.randn(60, 4, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    text = told(errors.NotFinite, lambda: pt.estimate(model, (x, y), pt.EKFAC(), progress=False))
    assert "Scale the inputs" in text


class Softly(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = net()

    def forward(self, x):
        return self.inner(x).softmax(-1)


@pytest.mark.parametrize("model", [nn.Sequential(*net(), nn.Softmax(-1)), Softly()], ids=["layer", "function"])
@pytest.mark.parametrize("verb", EVERY)
def test_a_network_that_ends_in_a_softmax_is_refused(xy, verb, model):
    assert "logits" in told(errors.UnsupportedNetwork, verbs(*xy, model=model)[verb])


def test_a_regression_may_end_in_a_softmax(xy):
    x, _ = xy
    model = nn.Sequential(*net(), nn.Softmax(-1))
    fit = pt.learn(model, (x, x[:, :3].softmax(-1)), likelihood=pt.GaussianNoise(), **QUICK)
    assert fit.predict(x).mean.shape == (30, 3)


@pytest.mark.filterwarnings("ignore")
def test_a_quantised_network_is_refused(xy):
    model = torch.ao.quantization.quantize_dynamic(net(), {nn.Linear})
    assert "before it was quantised" in told(errors.UnsupportedNetwork, lambda: pt.posterior(model, xy, progress=False))


def test_a_network_without_parameters_is_named(xy):
    assert "no parameters" in told(errors.UnsupportedNetwork, lambda: pt.learn(nn.Tanh(), xy, **QUICK))


@pytest.mark.parametrize("name", ["x.pt", "x.pth", "x.pkl", "x.ckpt"])
def test_a_name_of_a_pickled_file_says_which_to_take(tmp_path, name):
    assert "x.safetensors" in told(errors.NotStorable, lambda: pt.isotropic(net()).save(tmp_path / name))
    assert not list(tmp_path.iterdir())


def test_a_missing_folder_is_named(tmp_path):
    text = told(errors.MissingFolder, lambda: pt.isotropic(net()).save(tmp_path / "no" / "x.safetensors"))
    assert "mkdir -p" in text


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("p.safetensors", 'pt.load("p.safetensors")'),
        (torch.zeros(3), "pt.learn(model, (x, y))"),
        ((torch.zeros(3), torch.zeros(3)), "pt.adapt(model, (x, y), prior)"),
        (nn.Linear(2, 2), "pt.prior(network, inputs)"),
    ],
    ids=["path", "targets", "data", "network"],
)
def test_what_is_no_prior_is_named(xy, given, says):
    assert says in told(errors.WrongChoice, lambda: pt.learn(net(), xy, given, **QUICK))
    assert says in told(errors.WrongChoice, lambda: pt.adapt(net(), xy, given, progress=False))


def test_a_fit_has_a_posterior_to_give(xy):
    fit = pt.learn(net(), xy, **QUICK)
    assert "prior=fit.posterior" in told(errors.WrongChoice, lambda: pt.adapt(net(), xy, fit, progress=False))


def test_names_of_classes_are_as_many_as_the_labels_need(xy):
    assert "2 names" in told(errors.BadTargets, lambda: pt.learn(net(), xy, classes=["a", "b"], **QUICK))
    assert "a list of names" in told(errors.WrongChoice, lambda: pt.learn(net(), xy, classes="abc", **QUICK))


def test_targets_of_another_form_say_how_to_change_them(xy):
    x, y = xy
    one_hot = nn.functional.one_hot(y, 3)
    assert "targets.argmax(-1)" in told(errors.BadTargets, lambda: pt.learn(net(), (x, one_hot), **QUICK))
    assert "targets.squeeze(-1)" in told(errors.BadTargets, lambda: pt.learn(net(), (x, y[:, None]), **QUICK))
    assert "pt.GaussianNoise()" in told(errors.BadTargets, lambda: pt.learn(net(), (x, y.float()), **QUICK))


@pytest.mark.parametrize("verb", ["learn", "posterior"])
def test_numbers_may_stand_in_a_row_or_in_a_column(xy, verb):
    x, _ = xy
    found = []
    for y in (x[:, 0], x[:, :1]):
        model = net(outputs=1)
        if verb == "learn":
            fit = pt.learn(
                model, (x, y), likelihood=pt.GaussianNoise(), generator=torch.Generator().manual_seed(0), **QUICK
            )
        else:
            fit = pt.posterior(model, (x, y), pt.GaussianNoise(), progress=False)
        found.append(fit.predict(x).mean)
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("verb", ["learn", "posterior"])
def test_a_single_input_is_asked_to_be_a_batch(xy, verb):
    fit = pt.learn(net(), xy, **QUICK) if verb == "learn" else pt.posterior(touched(), xy, progress=False)
    assert "x[None]" in told(errors.BadData, lambda: fit.predict(xy[0][0]))


def test_groups_are_one_number_for_each_example(xy):
    prior = pt.learn(net(), xy, **QUICK).posterior
    for groups, says in ((torch.arange(5), "5 numbers"), (torch.rand(30), "whole number")):
        assert says in told(
            errors.BadData, lambda groups=groups: pt.adapt(net(), xy, prior, groups=groups, progress=False)
        )


def test_scores_are_of_probabilities(xy):
    x, y = xy
    assert "logits.softmax(-1)" in told(errors.BadData, lambda: pt.metrics.score(net()(x).detach(), y))


@pytest.mark.parametrize("verb", ["learn", "adapt", "posterior"])
def test_a_verb_that_calls_others_looks_at_its_input_once(monkeypatch, xy, verb):
    module = importlib.import_module("posterity.checks.admitted")  # the package has a function of that name
    plain, tried = module._try, []
    monkeypatch.setattr(module, "_try", lambda *given: (tried.append(given), plain(*given)))
    verbs(*xy)[verb]()
    assert len(tried) == 1
