"""A model passed in comes out exactly as it was, whatever happens in between."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from curvature_cases import BUILDERS, case, data, inputs, network
from torch import Tensor, nn

from posterity.curvature import (
    EKFAC,
    KFAC,
    KFOC,
    Categorical,
    Dense,
    Diagonal,
    EmpiricalLabels,
    ExactLabels,
    GaussianNoise,
    SampledLabels,
    estimate,
)
from posterity.errors import NotFinite, PosterityError


def snapshot(model: nn.Module) -> dict[str, object]:
    """Everything of a network that a careless pass could change."""
    state: dict[str, object] = {}
    for name, p in model.named_parameters():
        grad = None if p.grad is None else p.grad.clone()
        state[f"parameter {name}"] = (p.detach().clone(), id(p), p.data_ptr(), p.requires_grad, grad, id(p.grad))
    for name, b in model.named_buffers():
        state[f"buffer {name}"] = (b.clone(), id(b), b.data_ptr())
    for name, m in model.named_modules():
        hooks = (dict(m._forward_hooks), dict(m._forward_pre_hooks), dict(m._backward_hooks))
        state[f"module {name}"] = (m.training, hooks, sorted(k for k in m.__dict__ if not k.startswith("__")))
    state["fast path"] = torch.backends.mha.get_fastpath_enabled()
    return state


def equal(a: object, b: object) -> bool:
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and torch.equal(a.nan_to_num(12345.0), b.nan_to_num(12345.0))
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    return a == b


def assert_untouched(before: dict[str, object], model: nn.Module) -> None:
    after = snapshot(model)
    assert before.keys() == after.keys()
    changed = [k for k in before if not equal(before[k], after[k])]
    assert not changed


def prepared(name: str) -> nn.Module:
    """Modes and trainable parameters mixed, gradients on some parameters."""
    model = network(name)
    for i, module in enumerate(model.modules()):
        module.training = i % 2 == 0
    for i, p in enumerate(model.parameters()):
        if i % 2 == 0:
            p.grad = torch.randn_like(p)
    return model


@pytest.mark.parametrize("estimator", [KFAC(), KFAC(sharing="reduce"), KFOC(), EKFAC(), Diagonal(), Dense()], ids=str)
@pytest.mark.parametrize("name", [n for n in BUILDERS if n != "one output"])
def test_nothing_of_the_model_changes(name, estimator):
    model = prepared(name)
    before = snapshot(model)
    estimate(model, data(name), estimator, batch_size=3, progress=False)
    assert_untouched(before, model)


@pytest.mark.parametrize("labels", [ExactLabels(), EmpiricalLabels(), SampledLabels(2)], ids=str)
def test_gradients_set_before_are_neither_used_nor_changed(labels):
    model = prepared("conv")
    before = snapshot(model)
    with_grads = estimate(
        model, data("conv"), Dense(labels), generator=torch.Generator().manual_seed(0), progress=False
    )
    assert_untouched(before, model)
    model.zero_grad(set_to_none=True)
    without = estimate(model, data("conv"), Dense(labels), generator=torch.Generator().manual_seed(0), progress=False)
    for block, matrix in with_grads.blocks.items():
        assert torch.equal(matrix.dense(), without[block].dense())


def test_training_mode_does_not_enter_the_result():
    model = network("norms")
    results = [
        estimate(model.train(mode), data("norms"), Dense(ExactLabels()), progress=False) for mode in (True, False)
    ]
    for block, matrix in results[0].blocks.items():
        assert torch.equal(matrix.dense(), results[1][block].dense())


def test_dropout_is_off_during_the_pass():
    model = nn.Sequential(nn.Linear(4, 50), nn.Dropout(0.5), nn.Linear(50, 3)).double()
    first, second = (estimate(model, data("mlp"), Diagonal(ExactLabels()), progress=False) for _ in range(2))
    assert torch.equal(first["0"].values, second["0"].values)
    assert first.nll == second.nll


@pytest.mark.parametrize("estimator", [KFAC(), KFOC(), EKFAC(), Diagonal(), Dense(ExactLabels())], ids=str)
@pytest.mark.parametrize("name", ["norms", "encoder"])
def test_nothing_changes_when_a_loss_is_not_a_number(name, estimator):
    model = prepared(name)
    before = snapshot(model)
    x, y = data(name, n=9)
    x = x.clone()
    x[6] = torch.nan
    with pytest.raises(NotFinite, match="batch 3"):
        # Batches, which no one has looked at before they come.
        estimate(model, list(zip(x.split(2), y.split(2), strict=True)), estimator, progress=False)
    assert_untouched(before, model)


class Stumbling(nn.Module):
    """Raises at the third call, from the middle of the network."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.left = 2

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.first(x))[:, None]
        h = self.attention(h, h, h)[0]
        if not self.left:
            raise RuntimeError("stumbled")
        self.left -= 1
        return self.last(h.squeeze(1))


@pytest.mark.parametrize("estimator", [KFAC(), KFOC(), EKFAC(), Diagonal(), Dense()], ids=str)
def test_nothing_changes_when_the_network_raises(estimator):
    model = Stumbling().double()
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    before = snapshot(model)
    with pytest.raises(RuntimeError, match="stumbled"):
        estimate(model, data("mlp"), estimator, batch_size=2, progress=False)
    assert_untouched(before, model)


def test_nothing_changes_when_the_data_raises():
    model, (x, y) = prepared("norms"), data("norms")

    def failing():
        yield x, y
        raise OSError("the disk is gone")

    before = snapshot(model)
    with pytest.raises(OSError, match="disk"):
        estimate(model, failing(), KFAC(), progress=False)
    assert_untouched(before, model)


class Counting(nn.Module):
    """A buffer that is written to in evaluation mode too."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("seen", torch.zeros(4), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.seen = self.seen + x.detach().sum(0)
        return self.fc(x)


def test_buffers_written_in_the_forward_pass_are_as_before():
    model = Counting()
    before = snapshot(model)
    estimate(model, (torch.randn(6, 4), torch.zeros(6, dtype=torch.long)), KFAC(), batch_size=2, progress=False)
    assert_untouched(before, model)


def test_frozen_parameters_stay_frozen_and_are_no_blocks():
    model = network("conv")
    model.body[0].requires_grad_(False)
    before = snapshot(model)
    result = estimate(model, data("conv"), Dense(ExactLabels()), progress=False)
    assert list(result.blocks) == ["body.2", "head"]
    assert_untouched(before, model)
    whole = estimate(network("conv"), data("conv"), Dense(ExactLabels()), progress=False)
    for block, matrix in result.blocks.items():
        torch.testing.assert_close(matrix.dense(), whole[block].dense())


def test_inputs_and_targets_are_not_written_to():
    for name in ("norms", "tagger", "encoder"):
        x, y = data(name)
        kept = x.clone(), y.clone()
        estimate(network(name), (x, y), KFOC(), batch_size=3, progress=False)
        assert torch.equal(x, kept[0])
        assert torch.equal(y, kept[1])
        assert not x.requires_grad


@pytest.mark.parametrize("around", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("name", ["conv", "norms", "encoder"])
def test_whatever_gradient_mode_is_on_around_the_call_changes_nothing(name, around):
    model = network(name)
    plain = estimate(model, data(name), KFOC(ExactLabels()), batch_size=3, progress=False)
    with around():
        x, y = (part.clone() for part in data(name))  # made under inference mode, as a caller's would be
        before = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        result = estimate(model, (x, y), KFOC(ExactLabels()), batch_size=3, progress=False)
        assert (torch.is_grad_enabled(), torch.is_inference_mode_enabled()) == before
    for block, matrix in plain.blocks.items():
        assert torch.equal(result[block].dense(), matrix.dense())
        assert not result[block].dense().requires_grad
        assert not result[block].dense().is_inference()


class Gated(nn.Module):
    """Multiplies by its own input, which autograd then has to keep."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.fc(x) * x)


def test_inputs_made_in_inference_mode_can_be_kept_for_the_backward_pass():
    model = Gated().double()
    plain = estimate(model, data("mlp"), Diagonal(ExactLabels()), progress=False)
    with torch.inference_mode():
        x, y = (part.clone() for part in data("mlp"))
        quiet = estimate(model, (x, y), Diagonal(ExactLabels()), progress=False)
    after = estimate(model, (x, y), Diagonal(ExactLabels()), progress=False)
    for result in (quiet, after):
        assert torch.equal(result["fc"].values, plain["fc"].values)


def test_a_deep_copy_gives_the_same_and_models_can_be_copied_and_saved_afterwards():
    model = network("encoder")
    first = estimate(model, data("encoder"), KFAC(ExactLabels()), progress=False)
    second = estimate(deepcopy(model), data("encoder"), KFAC(ExactLabels()), progress=False)
    for block, matrix in first.blocks.items():
        assert torch.equal(matrix.dense(), second[block].dense())


def test_inputs_that_ask_for_gradients_get_none():
    x = inputs("mlp").requires_grad_()
    estimate(case("mlp").model, (x, data("mlp")[1]), KFOC(), batch_size=3, progress=False)
    assert x.grad is None


def test_an_unfit_likelihood_leaves_the_model_alone():
    model = prepared("norms")
    before = snapshot(model)
    for likelihood in (GaussianNoise(), Categorical()):
        with pytest.raises(PosterityError):
            estimate(model, (data("norms")[0], torch.full((7, 2), 1.0)), KFAC(), likelihood, progress=False)
    assert_untouched(before, model)
