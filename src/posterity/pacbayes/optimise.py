"""A posterior of least certificate: its mean and its eigen-scales trained on the bound itself (PAC-Bayes with backprop)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from posterity.algebra import Basis, DiagonalMatrix, JointEigen, Matrix
from posterity.bars import bar
from posterity.blocks import Block, evaluating, find_blocks, named
from posterity.checks import admitted
from posterity.curvature import Categorical, Likelihood
from posterity.data import Data
from posterity.data.provenance import Provenance
from posterity.errors import NotFinite
from posterity.gaussian import Gaussian
from posterity.gaussian.spread import FrameSpread, Spread
from posterity.laplace.run import BatchSource
from posterity.pacbayes.bounds import klinv
from posterity.pacbayes.draws import DrawnNetwork
from posterity.pacbayes.gibbs import zero_one

FORGET = 0.02
"""How fast the running estimates of loss and error follow the batches."""


def optimise_posterior(
    model: nn.Module,
    posterior: Gaussian,
    prior: Gaussian,
    data: Data,
    likelihood: Likelihood | None = None,
    *,
    confidence: float = 0.95,
    epochs: int = 20,
    lr: float = 1e-3,
    lr_scales: float = 0.02,
    batch_size: int = 256,
    generator: torch.Generator | None = None,
    progress: bool = True,
) -> Gaussian:
    """The posterior moved and reshaped for the least klinv bound, from where it is (the Laplace posterior, say).

    Free are every block's mean and the variances along its own eigenvectors; KL to the prior is exact whatever the prior's
    structure. Each step goes down the slope of klinv(q, KL/n) at the present Gibbs error q and KL, with the loss standing in
    for the error in proportion. Weights are drawn again for every example. The prior is not touched, so the bound holds for the
    result as for any posterior: `certify` it with fresh draws.

    Args:
        model: the network's architecture; its own weights do not matter.
        posterior: where to start.
        prior: of the bound. It must not have seen the data.
        data: to train on, and to certify with.
        likelihood: of the outputs; `Categorical()` by default.
        confidence: of the bound that is made small.
        epochs: over the data.
        lr: Adam's learning rate for the means.
        lr_scales: the same for the logarithms of the variances.
        batch_size: of a step.
        generator: of the order of the examples and of the draws.
        progress: whether to show a bar.
    Returns:
        Another posterior over the same blocks.
    Raises:
        NotFinite: if the loss or KL is no number: lower the learning rate.

    Example:
        >>> better = pt.pacbayes.optimise_posterior(model, fit.posterior, fit.prior, data)
        >>> pt.certify(model, better, fit.prior, data).bound
    """
    data, _ = admitted(model, data, likelihood)
    like = next(model.parameters())
    blocks = find_blocks(model, named(posterior.mean))
    free = {name: FreeBlock(posterior, prior, name, like) for name in blocks}
    descent = Descent(likelihood or Categorical(), confidence, epochs, lr, lr_scales, batch_size, generator, progress)
    descent.run(model, blocks, free, data)
    return moved(posterior, free, prior.provenance.joined(Provenance.of(data)))


def moved(posterior: Gaussian, free: Mapping[str, FreeBlock], seen: Provenance) -> Gaussian:
    """The posterior where the descent has left its blocks."""
    mean = {name: f.mean.detach().to(posterior.mean[name]) for name, f in free.items()}
    found = replace(posterior, mean=mean, precision={name: f.precision() for name, f in free.items()})
    return found.with_provenance(posterior.provenance.joined(seen))


@dataclass(frozen=True)
class Descent:
    """How the bound is made small: Adam with a learning rate that falls like a cosine."""

    likelihood: Likelihood
    confidence: float
    epochs: int
    lr: float
    lr_scales: float
    batch_size: int
    generator: torch.Generator | None
    progress: bool
    certifying: int | None = None
    """Examples that the bound will count, where they are not those of the data."""
    price: float = 1.0
    """By which KL is multiplied in the objective: less than 1 where the bound is a part of another one."""
    planned: float = 0.0
    """KL for which the slope is taken while KL is smaller: near none it is so steep that no posterior leaves its prior."""
    optimiser: Callable[[Any], torch.optim.Optimizer] = torch.optim.Adam
    """Makes one from groups of parameters with learning rates of their own."""

    def run(
        self,
        model: nn.Module,
        blocks: dict[str, Block],
        free: Mapping[str, FreeBlock],
        data: Data,
        each_epoch: Callable[[int], None] | None = None,
    ) -> None:
        """Move the blocks down the slope of the bound. `each_epoch` is called at the start of every epoch."""
        like = next(model.parameters())
        source = BatchSource(
            data, self.batch_size, self.generator or torch.Generator().manual_seed(torch.seed() % 2**62)
        )
        n, steps = source.count, self.epochs * math.ceil(source.count / self.batch_size)
        optim = self.optimiser(
            [
                {"params": [f.mean for f in free.values()], "lr": self.lr},
                {"params": [x for f in free.values() for x in f.scales()], "lr": self.lr_scales},
            ]
        )
        cooling = torch.optim.lr_scheduler.LambdaLR(
            optim, lambda step: 0.5 * (1 + math.cos(math.pi * min(1, step / steps)))
        )
        slope = _Slope(self.certifying or n, 1 - self.confidence, self.price, self.planned)
        bars = bar()
        bars.disable = not self.progress
        with evaluating(model):
            first = next(iter(source)).to(like.device)
            look = DrawnNetwork(model, blocks, {name: f.spread() for name, f in free.items()})
            per_example = look.look(first)
            with bars:
                task = bars.add_task("optimising the bound", total=self.epochs)
                for epoch in range(self.epochs):
                    if each_epoch is not None:
                        each_epoch(epoch)
                    for batch in source.epoch(epoch):
                        batch = batch.to(like.device)
                        look.spreads = {name: f.spread() for name, f in free.items()}
                        outputs = (look.outputs if per_example else look.whole)(batch, self.generator)
                        outputs, targets = self.likelihood.check(outputs, batch.targets)
                        loss = self.likelihood.nll(outputs, targets) / batch.count
                        kl = torch.stack([f.kl() for f in free.values()]).sum()
                        error = float(zero_one(self.likelihood, outputs.detach(), targets).mean())
                        optim.zero_grad()
                        slope(loss, error, kl).backward()
                        optim.step()
                        cooling.step()
                    bars.update(task, advance=1, description=f"optimising the bound  {slope}")


class FreeBlock:
    """One block's mean and variances in its own frame, and their divergence from the prior.

    tr(P Q⁻¹) needs the diagonal of P in Q's frame alone: no common eigenbasis, and still nothing approximated.
    """

    def __init__(self, posterior: Gaussian, prior: Gaussian, name: str, like: Tensor) -> None:
        q, p = posterior.precision[name], prior.precision[name]
        self.frame = q.frame()
        variance = 1 / self.frame.values
        self.prior_diagonal = p.diagonal_in(self.frame.left, self.frame.right).to(like.device)
        self.constant = float(q.logdet() + variance.log().sum() - p.logdet()) - variance.numel()
        self.prior_mean, self.prior = prior.mean[name].to(like), p.to(like.device, like.dtype)
        self.mean = posterior.mean[name].to(like).clone().requires_grad_()
        self.log_variance = variance.log().to(like.device).requires_grad_()
        self.like = like
        fixed = Spread.of(self.mean.detach(), q, like)
        assert isinstance(fixed, FrameSpread)  # the posterior has a frame: see above
        self.fixed = fixed

    def scales(self) -> list[Tensor]:
        """What is free beside the mean."""
        return [self.log_variance]

    def spread(self) -> Spread:
        return FrameSpread(self.mean, self.fixed.left, self.fixed.right, (0.5 * self.log_variance).exp().to(self.like))

    def kl(self) -> Tensor:
        shift = self.mean - self.prior_mean
        variance = self.log_variance.exp()
        spread = (self.prior_diagonal * variance).sum() - self.log_variance.sum() + self.constant
        return 0.5 * (spread + self.prior.quadratic(shift))

    def precision(self) -> Matrix:
        values = (-self.log_variance.detach()).exp()
        if self.frame.is_identity:
            return DiagonalMatrix(values)
        left, right = (
            Basis(torch.linalg.inv(x), x, -torch.linalg.slogdet(x).logabsdet)
            for x in (self.frame.left, self.frame.right)
        )
        return JointEigen(left, right, values)


class _Slope:
    """The objective of a step: klinv's tangent at the present error and KL, with loss · (error/loss) for the error."""

    def __init__(self, n: int, delta: float, price: float = 1.0, planned: float = 0.0) -> None:
        self.n, self.delta, self.price, self.planned = n, delta, price, planned
        self.error = self.loss = self.bound = math.nan
        self.kl = math.nan

    def __call__(self, loss: Tensor, error: float, kl: Tensor) -> Tensor:
        now, self.kl = float(loss.detach()), float(kl.detach())
        if not (math.isfinite(now) and math.isfinite(self.kl)):
            raise NotFinite(f"the loss is {now} and KL is {self.kl} while optimising the bound: lower lr.")
        if math.isnan(self.loss):
            self.loss, self.error = now, error
        self.loss += FORGET * (now - self.loss)
        self.error += FORGET * (error - self.error)
        q = min(max(self.error, 1 / self.n), 0.95)
        cost = (max(self.planned, self.kl) + math.log(2 * math.sqrt(self.n) / self.delta)) / self.n
        self.bound = p = min(klinv(q, cost), 1 - 1e-9)
        # d klinv/dc = 1 / (d kl(q‖p)/dp), and d klinv/dq = −(d kl/dq) / (d kl/dp).
        by_cost = 1 / ((1 - q) / (1 - p) - q / p)
        by_error = (math.log((1 - q) / (1 - p)) - math.log(q / p)) * by_cost
        return by_error * (q / max(self.loss, 1e-12)) * loss + self.price * by_cost * kl / self.n

    def __str__(self) -> str:
        return f"Gibbs error {self.error:.4f}  KL {self.kl:,.0f}  bound about {self.bound:.4f}"
