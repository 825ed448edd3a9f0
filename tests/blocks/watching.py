"""One layer of every kind, and the oracle: gradients of single examples by plain automatic differentiation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from posterity.blocks import Block, Call, Recorder, find_blocks, run_with, watched

EXAMPLES = 5


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


def tokens(*shape: int, vocabulary: int, seed: int = 0) -> Tensor:
    return torch.randint(vocabulary, shape, generator=seeded(seed))


def filled(model: nn.Module, seed: int = 0) -> nn.Module:
    """The network in float64 with every parameter and statistic at an ordinary number, none at zero or one by custom."""
    model = model.double()
    generator = seeded(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.5 * torch.randn(p.shape, generator=generator, dtype=p.dtype))
        for name, b in model.named_buffers():
            if name.endswith("running_mean"):
                b.copy_(torch.randn(b.shape, generator=generator, dtype=b.dtype))
            elif name.endswith("running_var"):
                b.copy_(0.5 + torch.rand(b.shape, generator=generator, dtype=b.dtype))
    return model


def close(actual: Tensor, expected: Tensor, rtol: float = 1e-10) -> None:
    scale = float(expected.detach().abs().max()) if expected.numel() else 0.0
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=rtol * scale)


def losses(out: Tensor, dim: int = 0) -> Tensor:
    """A loss for each example, curved and different for every output: example n's output is `out.select(dim, n)`."""
    out = out.movedim(dim, 0)
    weight = numbers(*out.shape[1:], seed=77)
    return (torch.tanh(out) * weight + 0.1 * out.square()).flatten(1).sum(1)


@dataclass
class Seen:
    """What a recorder told of one batch."""

    blocks: dict[str, Block]
    inputs: dict[str, list[Tensor]]
    calls: dict[str, list[Call]]
    out: Tensor

    def gradients(self, name: str) -> Tensor:
        """Every example's gradient of a block, summed over its calls."""
        layer = self.blocks[name].layer
        return torch.stack([layer.gradients(c.a, c.s) for c in self.calls[name]]).sum(0)

    def only(self) -> tuple[Block, Tensor, Tensor]:
        """The block of a network that has one, called once."""
        ((name, block),) = self.blocks.items()
        (call,) = self.calls[name]
        return block, call.a, call.s


def watch(
    model: nn.Module,
    run: Callable[[nn.Module], Tensor],
    examples: int = EXAMPLES,
    loss: Callable[[Tensor], Tensor] = losses,
    select: Any = None,
) -> Seen:
    """Run a network under watch and send the gradient of the summed losses back."""
    blocks = find_blocks(model, select)
    inputs: dict[str, list[Tensor]] = {}
    calls: dict[str, list[Call]] = {}
    recorder = Recorder(
        examples,
        lambda name, a: inputs.setdefault(name, []).append(a),
        lambda name, found: calls.update({name: [Call(c.a, c.s) for c in found]}),
    )
    detached = {n: p.detach() for n, p in model.named_parameters()}
    with watched(model, blocks) as listen:
        listen(recorder)
        out = run_with(_Run(model, run), {f"model.{n}": p for n, p in detached.items()})
        (residual,) = torch.autograd.grad(loss(leaf := out.detach().requires_grad_()).sum(), leaf)
        recorder.backward(out, residual, again=False)
    return Seen(blocks, inputs, calls, out.detach())


class _Run(nn.Module):
    def __init__(self, model: nn.Module, run: Callable[[nn.Module], Tensor]) -> None:
        super().__init__()
        self.model, self.run = model, run
        self.train(model.training)

    def forward(self) -> Tensor:
        return self.run(self.model)


def oracle(
    model: nn.Module,
    blocks: dict[str, Block],
    run: Callable[[nn.Module], Tensor],
    examples: int = EXAMPLES,
    loss: Callable[[Tensor], Tensor] = losses,
) -> dict[str, Tensor]:
    """[n, out, inp]: the gradient of each example's loss by each block, one backward pass an example."""
    modes = {m: m.training for m in model.modules()}
    model.eval()
    each = loss(run(model))
    assert len(each) == examples
    parameters = {n: p for n, p in model.named_parameters(remove_duplicate=False) if p.requires_grad}
    result: dict[str, list[Tensor]] = {name: [] for name in blocks}
    for one in each:
        found = torch.autograd.grad(one, list(parameters.values()), retain_graph=True, allow_unused=True)
        gradients = {
            n: torch.zeros_like(p) if g is None else g for (n, p), g in zip(parameters.items(), found, strict=True)
        }
        for name, block in blocks.items():
            matrix = block.layer.read({role: gradients[full] for role, full in block.parameters.items()})
            result[name].append(matrix)
    for module, mode in modes.items():
        module.training = mode
    return {name: torch.stack(found) for name, found in result.items()}


def check_gradients(
    model: nn.Module,
    run: Callable[[nn.Module], Tensor],
    examples: int = EXAMPLES,
    loss: Callable[[Tensor], Tensor] = losses,
    select: Any = None,
    may_vanish: bool = False,
) -> Seen:
    """Every block's gradients, by hook and by automatic differentiation; and watching does not change the outputs."""
    seen = watch(model, run, examples, loss, select)
    modes = {m: m.training for m in model.modules()}
    close(seen.out, run(model.eval()).detach())
    for module, mode in modes.items():
        module.training = mode
    expected = oracle(model, seen.blocks, run, examples, loss)
    for name in seen.blocks:
        assert may_vanish or float(expected[name].abs().max()) > 0, name
        close(seen.gradients(name), expected[name])
    return seen


Case = tuple[Callable[[], nn.Module], Callable[[int], Tensor]]


def _images(channels: int, *size: int) -> Callable[[int], Tensor]:
    return lambda n: numbers(n, channels, *size, seed=3)


def _words(vocabulary: int, *shape: int) -> Callable[[int], Tensor]:
    return lambda n: tokens(n, *shape, vocabulary=vocabulary, seed=3)


LINEAR: dict[str, Case] = {
    "linear": (lambda: nn.Linear(4, 3), _images(4)),
    "linear without bias": (lambda: nn.Linear(4, 3, bias=False), _images(4)),
    "linear over time": (lambda: nn.Linear(4, 3), _images(6, 4)),
    "linear over time without bias": (lambda: nn.Linear(4, 3, bias=False), _images(6, 4)),
    "linear over a grid": (lambda: nn.Linear(4, 3), _images(2, 3, 4)),
    "linear with one output": (lambda: nn.Linear(4, 1), _images(4)),
}

CONVOLUTIONS: dict[str, Case] = {
    "conv1d": (lambda: nn.Conv1d(2, 3, 3), _images(2, 8)),
    "conv1d stride padding dilation": (
        lambda: nn.Conv1d(2, 3, 3, stride=2, padding=3, dilation=2),
        _images(2, 9),
    ),
    "conv1d same even": (lambda: nn.Conv1d(2, 3, 4, padding="same"), _images(2, 7)),
    "conv1d depthwise": (lambda: nn.Conv1d(3, 6, 3, groups=3, padding=1), _images(3, 6)),
    "conv2d": (lambda: nn.Conv2d(2, 3, 3), _images(2, 6, 5)),
    "conv2d without bias": (lambda: nn.Conv2d(2, 3, 3, bias=False), _images(2, 6, 5)),
    "conv2d one by one": (lambda: nn.Conv2d(4, 3, 1), _images(4, 3, 3)),
    "conv2d one by one with stride": (lambda: nn.Conv2d(4, 3, 1, stride=2), _images(4, 5, 4)),
    "conv2d stride": (lambda: nn.Conv2d(2, 3, 3, stride=2), _images(2, 8, 7)),
    "conv2d stride down only": (lambda: nn.Conv2d(2, 3, 3, stride=(2, 1)), _images(2, 8, 7)),
    "conv2d stride across only": (lambda: nn.Conv2d(2, 3, 3, stride=(1, 2)), _images(2, 8, 7)),
    "conv2d padding": (lambda: nn.Conv2d(2, 3, (3, 2), padding=(1, 2)), _images(2, 5, 4)),
    "conv2d same odd": (lambda: nn.Conv2d(2, 3, (3, 5), padding="same"), _images(2, 5, 6)),
    "conv2d same even": (lambda: nn.Conv2d(2, 3, (4, 2), padding="same"), _images(2, 5, 6)),
    "conv2d same dilated": (lambda: nn.Conv2d(2, 3, (2, 3), padding="same", dilation=(3, 2)), _images(2, 6, 7)),
    "conv2d valid": (lambda: nn.Conv2d(2, 3, 3, padding="valid"), _images(2, 5, 6)),
    "conv2d dilation": (lambda: nn.Conv2d(2, 3, 2, dilation=(2, 3)), _images(2, 6, 7)),
    "conv2d dilation across only": (lambda: nn.Conv2d(2, 3, 2, dilation=(1, 2)), _images(2, 6, 7)),
    "conv2d groups": (lambda: nn.Conv2d(4, 6, 3, groups=2, padding=1), _images(4, 5, 4)),
    "conv2d depthwise": (lambda: nn.Conv2d(3, 3, 3, groups=3, bias=False, stride=2), _images(3, 7, 6)),
    "conv2d depthwise multiplied": (lambda: nn.Conv2d(3, 6, 3, groups=3), _images(3, 5, 5)),
    "conv2d reflect": (lambda: nn.Conv2d(2, 3, 3, padding=2, padding_mode="reflect"), _images(2, 5, 4)),
    "conv2d circular": (lambda: nn.Conv2d(2, 3, 3, padding=(1, 2), padding_mode="circular"), _images(2, 5, 4)),
    "conv2d replicate same": (
        lambda: nn.Conv2d(2, 3, (2, 3), padding="same", padding_mode="replicate"),
        _images(2, 5, 4),
    ),
    "conv2d everything": (
        lambda: nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(2, 1), dilation=(1, 2), groups=2),
        _images(4, 8, 6),
    ),
    "conv3d": (lambda: nn.Conv3d(2, 3, (2, 3, 2), padding=(0, 1, 1)), _images(2, 3, 4, 3)),
    "conv3d stride dilation groups": (
        lambda: nn.Conv3d(2, 4, 2, stride=(1, 2, 1), dilation=(2, 1, 2), groups=2, bias=False),
        _images(2, 4, 4, 5),
    ),
    "conv3d same even": (lambda: nn.Conv3d(1, 2, (2, 2, 3), padding="same"), _images(1, 3, 4, 3)),
}

EMBEDDINGS: dict[str, Case] = {
    "embedding": (lambda: nn.Embedding(7, 3), _words(7)),
    "embedding over time": (lambda: nn.Embedding(7, 3), _words(7, 6)),
    "embedding over a grid": (lambda: nn.Embedding(7, 3), _words(7, 2, 4)),
    "embedding with padding": (lambda: nn.Embedding(4, 3, padding_idx=2), _words(4, 6)),
    "embedding of short integers": (lambda: nn.Embedding(7, 3), lambda n: _words(7, 6)(n).int()),
}

NORMS: dict[str, Case] = {
    "layer norm": (lambda: nn.LayerNorm(4), _images(4)),
    "layer norm over time": (lambda: nn.LayerNorm(4), _images(6, 4)),
    "layer norm of two dimensions": (lambda: nn.LayerNorm((3, 4)), _images(2, 3, 4)),
    "layer norm without bias": (lambda: nn.LayerNorm(4, bias=False), _images(6, 4)),
    "rms norm": (lambda: nn.RMSNorm(4), _images(6, 4)),
    "rms norm of two dimensions": (lambda: nn.RMSNorm((3, 4), eps=1e-3), _images(2, 3, 4)),
    "group norm": (lambda: nn.GroupNorm(2, 4), _images(4, 3, 5)),
    "group norm without pixels": (lambda: nn.GroupNorm(2, 4), _images(4)),
    "batch norm without pixels": (lambda: nn.BatchNorm1d(4), _images(4)),
    "batch norm 1d": (lambda: nn.BatchNorm1d(4), _images(4, 6)),
    "batch norm 2d": (lambda: nn.BatchNorm2d(3), _images(3, 4, 5)),
    "batch norm 3d": (lambda: nn.BatchNorm3d(2), _images(2, 2, 3, 2)),
    "synchronised batch norm": (lambda: nn.SyncBatchNorm(3), _images(3, 4, 5)),
    "instance norm 1d": (lambda: nn.InstanceNorm1d(3, affine=True), _images(3, 6)),
    "instance norm 2d": (lambda: nn.InstanceNorm2d(3, affine=True), _images(3, 4, 5)),
    "instance norm with statistics": (
        lambda: nn.InstanceNorm2d(3, affine=True, track_running_stats=True),
        _images(3, 4, 5),
    ),
}

SEPARABLE = LINEAR | CONVOLUTIONS | EMBEDDINGS
EVERY = SEPARABLE | NORMS


def build(case: Case, examples: int = EXAMPLES) -> tuple[nn.Module, Tensor]:
    make, data = case
    return filled(nn.Sequential(make())), data(examples)


def cut(x: Tensor, sizes: Iterable[int]) -> list[Tensor]:
    return list(x.split(list(sizes)))
