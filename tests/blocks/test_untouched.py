"""A network that was watched is exactly as before, also after an exception."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from watching import filled, numbers

import posterity as pt
from posterity.blocks import Recorder, find_blocks, read_blocks, run_with, watched, write_blocks
from posterity.errors import BlockMismatch


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.instance = nn.InstanceNorm2d(4, affine=True, track_running_stats=True)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True, dropout=0.5)
        self.encoder = nn.TransformerEncoderLayer(4, 2, 5, batch_first=True)
        self.out = nn.Linear(4, 3, bias=False)
        self.out_again = nn.Linear(4, 3, bias=False)
        self.out_again.weight = self.out.weight

    def forward(self, x: Tensor) -> Tensor:
        y = self.instance(torch.relu_(self.norm(self.conv(x)))).flatten(2).mT
        y = self.encoder(y + self.attention(y, y, y)[0])
        return (self.out(y) + self.out_again(y.square())).mean(1)


def made() -> nn.Module:
    """Some modules in training mode and some not; gradients here and there; hooks of the user's own."""
    model = filled(Mixed()).train()
    model.norm.eval()
    model.encoder.self_attn.eval()
    model.conv.weight.grad = numbers(4, 2, 3, 3, seed=9)
    model.out.register_forward_hook(lambda module, args, out: None)
    return model


def record(model: nn.Module) -> dict[str, object]:
    """Everything a network has that running it could change."""
    state: dict[str, object] = {"fast": torch.backends.mha.get_fastpath_enabled()}
    for name, module in model.named_modules():
        state[f"{name} mode"] = module.training
        state[f"{name} hooks"] = [
            dict(getattr(module, kind))
            for kind in vars(module)
            if "hook" in kind and getattr(module, kind) is not None and hasattr(getattr(module, kind), "items")
        ]
        state[f"{name} forward"] = module.__dict__.get("forward")
    for name, p in model.named_parameters(remove_duplicate=False):
        state[f"{name} is"] = id(p), p.requires_grad, p._version
        state[f"{name} bits"] = p.detach().clone()
        state[f"{name} grad"] = None if p.grad is None else p.grad.clone()
    for name, b in model.named_buffers():
        state[f"{name} is"] = id(b), b._version
        state[f"{name} bits"] = b.clone()
    return state


def same(before: dict[str, object], after: dict[str, object]) -> None:
    assert before.keys() == after.keys()
    for key, value in before.items():
        if isinstance(value, Tensor):
            assert torch.equal(value, after[key]), key
        else:
            assert value == after[key], key


def run(model: nn.Module, fail_at: str | None = None) -> list[str]:
    """A pass forward and back; optionally with an error on the way."""
    heard: list[str] = []

    def on_input(name: str, a: Tensor) -> None:
        if fail_at == f"input of {name}":
            raise KeyError(fail_at)

    def on_gradient(name: str, calls) -> None:
        heard.append(name)
        if fail_at == f"gradient of {name}":
            raise KeyError(fail_at)

    recorder = Recorder(5, on_input, on_gradient)
    with watched(model, find_blocks(model)) as listen:
        assert not any(m.training for m in model.modules())
        assert not torch.backends.mha.get_fastpath_enabled()
        listen(recorder)
        out = model(numbers(5, 2, 3, 3))
        recorder.backward(out, torch.ones_like(out), again=False)
        if fail_at == "user":
            raise KeyError(fail_at)
    return heard


@pytest.mark.parametrize("fast", [True, False])
def test_a_network_that_was_watched_is_as_before(fast):
    model = made()
    torch.backends.mha.set_fastpath_enabled(fast)
    try:
        before = record(model)
        assert set(run(model)) == set(find_blocks(model))
        same(before, record(model))
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


@pytest.mark.parametrize(
    "fail_at",
    ["user", "input of conv", "input of attention.in_proj", "input of out", "gradient of out", "gradient of conv"],
)
def test_a_network_is_as_before_after_an_exception(fail_at):
    model = made()
    before = record(model)
    with pytest.raises(KeyError, match=fail_at):
        run(model, fail_at)
    same(before, record(model))


def test_a_forward_of_ones_own_on_an_attention_module_is_put_back():
    model = made()
    called = []
    original = model.attention.forward

    def mine(*args, **kwargs):
        called.append(1)
        return original(*args, **kwargs)

    model.attention.forward = mine
    run(model)
    assert model.attention.__dict__["forward"] is mine
    assert "forward" not in model.encoder.self_attn.__dict__
    model(numbers(5, 2, 3, 3))
    assert called == [1]


def test_without_a_recorder_nothing_is_noted_and_the_network_runs():
    model = made()
    expected = copy.deepcopy(model).eval()(numbers(5, 2, 3, 3))
    with watched(model, find_blocks(model)) as listen:
        torch.testing.assert_close(model(numbers(5, 2, 3, 3)), expected, rtol=1e-12, atol=1e-12)
        recorder = Recorder(5, lambda name, a: None, lambda name, calls: None)
        listen(recorder)
        listen(None)
        model(numbers(5, 2, 3, 3))
        assert not recorder.calls


# --- reading and writing -------------------------------------------------------------------------------


def test_matrices_that_were_read_do_not_move_with_the_network():
    model = made()
    blocks = find_blocks(model)
    matrices = read_blocks(model, blocks)
    kept = {name: matrix.clone() for name, matrix in matrices.items()}
    with torch.no_grad():
        for p in model.parameters():
            p.add_(1)
    assert all(torch.equal(matrices[name], kept[name]) for name in blocks)
    assert not any(matrix.requires_grad for matrix in matrices.values())
    assert not torch.equal(read_blocks(model, blocks)["out"], kept["out"])


def moved(model: nn.Module, seed: int) -> dict[str, Tensor]:
    matrices = read_blocks(model, find_blocks(model))
    return {name: m + 0.1 * numbers(*m.shape, seed=seed + i) for i, (name, m) in enumerate(matrices.items())}


def loaded(model: nn.Module, parameters: dict[str, Tensor]) -> nn.Module:
    """A copy with those parameters in it."""
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for name, value in parameters.items():
            twin.get_parameter(name).copy_(value)
    return twin


def test_writing_is_functional_and_the_network_untouched():
    model = made().eval()
    blocks = find_blocks(model)
    before = record(model)
    matrices = moved(model, 1)
    parameters = write_blocks(blocks, matrices)
    x = numbers(5, 2, 3, 3)
    out = run_with(model, parameters, (x,))
    assert torch.equal(out, torch.func.functional_call(model, parameters, (x,)))
    twin = loaded(model, parameters)
    torch.testing.assert_close(out, twin(x), rtol=1e-12, atol=1e-12)
    assert (out - model(x)).abs().max() > 1e-3
    same(before, record(model))
    again = read_blocks(twin, find_blocks(twin))
    assert all(torch.equal(again[name], matrices[name]) for name in blocks)


def test_draws_written_at_once_run_under_vmap():
    model = made().eval()
    blocks = find_blocks(model)
    draws = [moved(model, 10 * i) for i in range(3)]
    parameters = write_blocks(blocks, {name: torch.stack([d[name] for d in draws]) for name in blocks})
    x = numbers(5, 2, 3, 3)
    outs = torch.vmap(lambda p: run_with(model, p, (x,)))(parameters)
    for draw, out in zip(draws, outs, strict=True):
        torch.testing.assert_close(out, loaded(model, write_blocks(blocks, draw))(x), rtol=1e-10, atol=1e-10)


def test_writing_some_blocks_leaves_the_others_out():
    model = made()
    blocks = find_blocks(model)
    assert write_blocks(blocks, {"conv": numbers(*blocks["conv"].shape)}).keys() == {"conv.weight", "conv.bias"}
    assert write_blocks(blocks, {}) == {}


def test_a_module_under_two_names_keeps_its_parameters():
    """torch.func.functional_call alone would leave the tensors of the call in it."""
    fc = filled(nn.Linear(4, 4))
    norm = filled(nn.BatchNorm1d(4))
    model = nn.Sequential(fc, norm, nn.Tanh(), fc, norm).eval()
    other = nn.Linear(4, 4).double()
    other.weight = fc.weight
    model.append(other)
    before = record(model)
    matrices = {"0": numbers(4, 5)}
    tensors = write_blocks(find_blocks(model, "0"), matrices) | {"1.running_mean": numbers(4, seed=4)}
    x = numbers(5, 4)
    found = run_with(model, tensors, (x,))
    same(before, record(model))
    twin = loaded(model, {"0.weight": matrices["0"][:, :4], "0.bias": matrices["0"][:, 4]})
    twin[1].running_mean.copy_(tensors["1.running_mean"])
    torch.testing.assert_close(found, twin(x), rtol=1e-12, atol=1e-12)


def test_an_estimate_leaves_a_module_under_two_names_alone():
    fc = nn.Linear(4, 4)
    model = nn.Sequential(fc, nn.Tanh(), fc)
    before = record(model)
    data = torch.randn(6, 4), torch.randint(4, (6,))
    pt.estimate(model, data, pt.KFAC(), progress=False)
    same(before, record(model))
    assert isinstance(fc.weight, nn.Parameter)


def test_running_with_a_parameter_the_network_does_not_have_is_refused():
    with pytest.raises(BlockMismatch, match=r"fc\.weight"):
        run_with(made(), {"fc.weight": numbers(1, 1)}, (numbers(5, 2, 3, 3),))


def test_matrices_that_do_not_fit_are_refused():
    blocks = find_blocks(made())
    with pytest.raises(BlockMismatch, match=r'block "conv" is 4×19 in the network and the matrix given is 4×18'):
        write_blocks(blocks, {"conv": numbers(7, 4, 18)})
    with pytest.raises(BlockMismatch, match=r'no block "fc" .*conv'):
        write_blocks(blocks, {"fc": numbers(1, 1)})
