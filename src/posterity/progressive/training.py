"""A new column, trained to the mode of its posterior, with steps in the prior's own coordinates.

Steps are short where the prior is narrow and as usual where it is wide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from posterity.algebra import (
    DiagonalMatrix,
    FlooredMatrix,
    JointEigen,
    Kronecker,
    KroneckerSum,
    Matrix,
    RotatedMatrix,
    ScaledIdentity,
    is_large,
    leading,
)
from posterity.blocks import Block, evaluating, find_blocks, named
from posterity.curvature import Likelihood
from posterity.data import Data
from posterity.data.batches import batches, is_pair
from posterity.gaussian import Gaussian
from posterity.laplace import History, PriorPenalty, train
from posterity.laplace.polish import polish
from posterity.laplace.prior import diagonal
from posterity.laplace.train import Optimiser
from posterity.progressive.memory import POOL
from posterity.progressive.network import Network
from posterity.progressive.task import Task

MEMORY_LIMIT = 1 << 30
"""Bytes that may be spent on what earlier columns hand on."""


EPOCHS = 100
"""Of a column's training, where the user says nothing."""


def train_column(
    network: Network,
    task: Task,
    prior: Gaussian | None,
    memory_limit: int,
    seed: int,
    options: Mapping[str, Any],
    head: str,
) -> History:
    """Train the last of some columns. What the earlier ones hand on is kept where that can be: see `Network.remember`.

    `options` are those of `train`, and `head_first`: whether the head (the block of this name) is fitted before all else.
    """
    # A column is built where it is to start: laterals and heads have no counterpart at their prior's mean.
    data, options = task.train, dict[str, Any](epochs=EPOCHS, start="model") | dict(options)
    if options.get("device") is not None:
        network.to(options["device"])
    if options.pop("head_first", False):
        fit_head(network, head, data, task.likelihood, prior)
    # Every draw of the pool runs once for all examples, which takes epochs to pay off; weights that are not drawn, only one.
    worth = options["epochs"] > (1 if network.draws is None else POOL)
    if memory_limit and worth and not options.get("augment"):
        data, options["validation"] = _remembered(network, data, options.get("validation"), memory_limit)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)  # for dropout, which takes no generator
            dice = torch.Generator().manual_seed(seed)
            return train(network.train(), data, prior, task.likelihood, groups=task.groups, generator=dice, **options)
    finally:
        network.forget()


def _remembered(network: Network, data: Data, validation: Any, memory_limit: int) -> tuple[Data, Any]:
    """Numbers of examples for the examples themselves, where these are tensors and there is room."""
    held = [validation] if is_pair(validation) else []
    if not is_pair(data) or not (held or validation is None or isinstance(validation, float)):
        return data, validation
    x, y = data
    device = next(network.parameters()).device
    if not network.remember([part.to(device) for part in (x, *(x for x, _ in held))], memory_limit):
        return data, validation
    numbers = torch.arange(len(x) + sum(len(y) for _, y in held))
    return (numbers[: len(x)], y), (numbers[len(x) :], held[0][1]) if held else validation


Turn = tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]
"""A gradient into the coordinates of the steps, and a step back."""


def prior_adam(network: nn.Module, prior: Gaussian, lr: float) -> Optimiser:
    """Adam in coordinates where the prior's standard deviation is the unit, wherever that is less than one.

    Adam moves every weight by about its learning rate, however steep the loss. The prior of a lateral connection, a cold
    posterior, may hold weights to a millionth: a step of the usual length would cost more nats than all the data can tell, and
    training would never leave the start, the best it has seen. In these coordinates a step costs the same under every prior.
    Four small products a block and step. Large blocks, whose products cost more than a step, take their leading eigenvectors
    where these are known, else the diagonal alone.
    """
    parameters = dict(network.named_parameters(remove_duplicate=False))
    blocks = find_blocks(network, named(prior.mean))
    own = [
        (
            {role: parameters[full] for role, full in block.parameters.items()},
            block,
            _turn(prior.precision[name], network),
        )
        for name, block in blocks.items()
    ]
    return lambda trained: PriorAdam(trained, own, lr)


class PriorAdam(torch.optim.Optimizer):
    """Adam on the matrices of blocks, each in its own coordinates; parameters outside of all blocks take plain steps."""

    def __init__(
        self,
        trained: Iterable[nn.Parameter],
        blocks: list[tuple[dict[str, nn.Parameter], Block, Turn]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        super().__init__(trained, {"lr": lr, "betas": betas, "eps": eps})
        self.blocks = blocks
        inside = {id(p) for own, _, _ in blocks for p in own.values()}
        self.loose = [p for group in self.param_groups for p in group["params"] if id(p) not in inside]

    def step(self, closure: Any = None) -> Any:
        """One step; the closure gives the gradients."""
        loss = None if closure is None else closure()
        with torch.no_grad():
            for own, block, (inwards, outwards) in self.blocks:
                grads = {role: p.grad for role, p in own.items()}
                if all(g is not None for g in grads.values()):
                    gradient = inwards(block.layer.read(grads))  # type: ignore[arg-type]
                    change = block.layer.write(outwards(self._adam(own["weight"], gradient)))
                    for role, p in own.items():
                        p.sub_(change[role].reshape(p.shape))
            for p in self.loose:
                if p.grad is not None:
                    p.sub_(self._adam(p, p.grad))
        return loss

    def _adam(self, key: nn.Parameter, gradient: Tensor) -> Tensor:
        """The step of Kingma and Ba, with its memory under one of the block's parameters."""
        group, state = self.param_groups[0], self.state[key]
        if not state:
            state |= {"step": torch.zeros(()), "mean": torch.zeros_like(gradient), "square": torch.zeros_like(gradient)}
        (first, second), state["step"] = group["betas"], state["step"] + 1
        state["mean"].lerp_(gradient, 1 - first)
        state["square"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
        n = float(state["step"])
        root = (state["square"] / (1 - second**n)).sqrt_().add_(group["eps"])
        return group["lr"] / (1 - first**n) * state["mean"] / root


def _turn(precision: Matrix, network: nn.Module) -> Turn:
    like = next(network.parameters())
    if isinstance(precision, ScaledIdentity | DiagonalMatrix):
        values = precision.scale if isinstance(precision, ScaledIdentity) else precision.values
        short = values.double().rsqrt().clamp_max(1).to(like)
        return _shortened(short)
    if is_large(*precision.shape):
        if first := leading(precision, like):
            shorten = partial(first.power, -0.5, 1.0)
            return shorten, shorten
        return _shortened(diagonal(precision).clamp_min(1).rsqrt().to(like))
    if isinstance(precision, FlooredMatrix) and isinstance(precision.curvature, JointEigen | RotatedMatrix):
        frame = precision.curvature.plain() if isinstance(precision.curvature, RotatedMatrix) else precision.curvature
        values = precision.share * frame.values.double() + precision.floor
        left, right = frame.left.matrix.to(like), frame.right.matrix.to(like)
        return _turned(left, right, values.clamp_min(1).rsqrt().to(like))
    pair = precision.terms[0] if isinstance(precision, KroneckerSum) and len(precision.terms) == 1 else precision
    if not isinstance(pair, Kronecker):
        return (lambda g: g), (lambda u: u)
    (a, left), (b, right) = (torch.linalg.eigh(side.double()) for side in (pair.left, pair.right))
    spread = (a[:, None] * b[None, :]).clamp_min(1).rsqrt().to(like)
    return _turned(left.to(like), right.to(like), spread)


def _shortened(short: Tensor) -> Turn:
    return (lambda g: g * short), (lambda u: u * short)


def _turned(left: Tensor, right: Tensor, spread: Tensor) -> Turn:
    return (lambda g: (left.mT @ g @ right) * spread), (lambda u: left @ (u * spread) @ right.mT)


STEPS = 100
"""Of L-BFGS: the problem is convex, and features are computed once."""


def fit_head(
    network: nn.Module, path: str, data: Data, likelihood: Likelihood, prior: Gaussian | None, batch_size: int = 256
) -> None:
    """Bring the head at `path` to the mode of its own posterior, all other weights as they are.

    A column starts at the weights of a source, and its head at random ones. Trained together, the head's first gradients change
    the source's weights before the head has learned anything; steps that are short enough not to would never train the head.
    """
    head = network.get_submodule(path)
    features, targets = _features(network, head, data, batch_size)
    parameters = [p for p in head.parameters() if p.requires_grad]
    own = None if prior is None or path not in prior.mean else PriorPenalty(prior.restricted([path]), network)
    checked = likelihood.check(head(features).detach(), targets)[1]

    def objective() -> float:
        for p in parameters:
            p.grad = None
        loss = likelihood.nll(head(features), checked) + (0.0 if own is None else own())
        loss.backward()
        return float(loss.detach())

    with torch.enable_grad():
        polish(parameters, objective, STEPS)
    for p in parameters:
        p.grad = None


@torch.no_grad()
def _features(network: nn.Module, head: nn.Module, data: Data, batch_size: int) -> tuple[Tensor, Tensor]:
    """What the head is given, with earlier columns at their means."""
    given: list[Tensor] = []
    targets: list[Tensor] = []
    handle = head.register_forward_pre_hook(lambda _, args: given.append(args[0]))
    device = next(network.parameters()).device
    try:
        with evaluating(network):
            for batch in batches(data, batch_size):
                batch = batch.to(device)
                batch.outputs(network)
                targets.append(batch.targets)
    finally:
        handle.remove()
    return torch.cat(given), torch.cat(targets)
