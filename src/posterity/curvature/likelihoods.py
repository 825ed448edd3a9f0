"""What a network's outputs mean: the negative log-likelihood in summed nats, and its Fisher information by labels."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from posterity.errors import BadTargets

IGNORED = -100
"""A token with this target counts for nothing, as in torch and transformers."""


@dataclass(frozen=True)
class Likelihood(ABC):
    """p(targets | outputs). Everything is per batch, first dimension the examples."""

    @abstractmethod
    def check(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs and targets in the form the other methods take, or `BadTargets`."""

    @abstractmethod
    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Summed negative log-likelihood in nats, normalising constants included."""

    @abstractmethod
    def residual(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The gradient of `nll` by the outputs."""

    @abstractmethod
    def sampled_residual(self, outputs: Tensor, targets: Tensor, generator: Generator) -> Tensor:
        """Residuals at targets drawn from the model. (`targets` says which positions count.)"""

    @abstractmethod
    def fisher_root(self, outputs: Tensor) -> Tensor:
        """B with B Bᵀ = the Fisher information of each example's outputs: [n, outputs, rank]."""

    @abstractmethod
    def fisher_columns(self, outputs: Tensor, targets: Tensor) -> list[Tensor]:
        """Vectors whose outer products sum to the Fisher information of each example's outputs."""


@dataclass(frozen=True)
class Categorical(Likelihood):
    """Outputs are logits over classes, in the last dimension (or in the second, as torch's image losses have it)."""

    def check(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        if targets.is_floating_point() or targets.dtype == torch.bool:
            raise BadTargets(
                f"Categorical needs class indices, the targets are {targets.dtype}: convert them with .long(), or give "
                "likelihood=pt.GaussianNoise() if they are numbers to predict."
            )
        if outputs.ndim < 2:
            raise BadTargets(
                f"Categorical needs outputs (batch, classes), not {tuple(outputs.shape)}: add a class dimension."
            )
        if outputs.shape[:-1] != targets.shape:
            if outputs.ndim < 3 or outputs.shape[:1] + outputs.shape[2:] != targets.shape:
                raise BadTargets(
                    f"outputs of shape {tuple(outputs.shape)} and targets of shape {tuple(targets.shape)} do not fit "
                    "Categorical: targets must have the outputs' shape without the class dimension"
                    + _remedy(outputs, targets)
                )
            outputs = outputs.movedim(1, -1)
        counted = targets[targets != IGNORED] if outputs.ndim > 2 else targets
        classes = outputs.shape[-1]
        if counted.numel() and (int(counted.min()) < 0 or int(counted.max()) >= classes):
            raise BadTargets(
                f"labels reach from {int(counted.min())} to {int(counted.max())} and the network has {classes} outputs: "
                f"labels must lie in 0..{classes - 1}."
            )
        return outputs, targets.long()

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(
            outputs.reshape(-1, outputs.shape[-1]), targets.reshape(-1), reduction="sum", ignore_index=IGNORED
        )

    def residual(self, outputs: Tensor, targets: Tensor) -> Tensor:
        p = outputs.softmax(-1)
        index = targets.clamp_min(0)[..., None]
        residual = p.scatter_add(-1, index, -torch.ones_like(index, dtype=p.dtype))
        return residual.masked_fill((targets == IGNORED)[..., None], 0)

    def sampled_residual(self, outputs: Tensor, targets: Tensor, generator: Generator) -> Tensor:
        p = outputs.softmax(-1)
        # The exponential race (Gumbel's trick): one pass, no cumulative sums.
        noise = torch.empty(p.shape, dtype=p.dtype, device=generator.device).exponential_(generator=generator)
        drawn = (p / noise.to(p.device)).argmax(-1)
        return self.residual(outputs, drawn.masked_fill(targets == IGNORED, IGNORED))

    def fisher_root(self, outputs: Tensor) -> Tensor:
        """The Cholesky factor of diag(p) − p pᵀ in closed form.

        It has one column fewer than classes: what is common to all logits tells nothing. Of one class it is zero.
        """
        p = outputs.softmax(-1)
        if p.shape[-1] == 1:
            return torch.zeros_like(p)[..., None]
        tiny = torch.finfo(p.dtype).tiny
        left = p.flip(-1).cumsum(-1).flip(-1)  # left[k] = p[k] + p[k+1] + …
        rest = left[..., 1:]
        size = (p[..., :-1] * rest / left[..., :-1].clamp_min(tiny)).sqrt()
        root = (-p[..., :, None] * (size / rest.clamp_min(tiny))[..., None, :]).tril(-1)
        root.diagonal(dim1=-2, dim2=-1).copy_(size)
        return root

    def fisher_columns(self, outputs: Tensor, targets: Tensor) -> list[Tensor]:
        if outputs.ndim > 2:
            raise BadTargets(
                f"Exact labels for outputs of shape {tuple(outputs.shape)} would take a backward pass per position and class: "
                "use SampledLabels(n)."
            )
        return list(self.fisher_root(outputs).unbind(-1))


class IndependentOutputs(Likelihood):
    """Each output has a Fisher information of its own, and none is tied to another."""

    @abstractmethod
    def deviation(self, outputs: Tensor) -> Tensor:
        """The root of each output's Fisher information."""

    def fisher_root(self, outputs: Tensor) -> Tensor:
        return torch.diag_embed(self.deviation(outputs))

    def fisher_columns(self, outputs: Tensor, targets: Tensor) -> list[Tensor]:
        """One column for each output, zero elsewhere."""
        sizes = self.deviation(outputs)
        columns = torch.diag_embed(sizes.reshape(len(sizes), -1)).unbind(-1)
        return [column.reshape(sizes.shape).contiguous() for column in columns]


@dataclass(frozen=True)
class GaussianNoise(IndependentOutputs):
    """Targets are outputs plus normal noise of a precision (one over the variance), for any number of outputs.

    Without a precision, verbs that learn find it from the data; all others take 1. With `per_input=True` the noise depends on the
    input: the network has two outputs for each target, all means first and then all log variances.
    """

    precision: float | None = None
    per_input: bool = False

    def __new__(cls, precision: float | None = None, per_input: bool = False) -> GaussianNoise:
        """Noise that depends on the input is a likelihood of its own."""
        return object.__new__(NoisePerInput if per_input else cls)

    def __post_init__(self) -> None:
        if self.per_input and self.precision is not None:
            raise ValueError("noise that depends on the input comes from the network: give no precision with it")
        if self.precision is not None and not (self.precision > 0 and math.isfinite(self.precision)):
            raise ValueError(f"a noise precision is positive and finite, not {self.precision}")

    @property
    def value(self) -> float:
        """The precision that is computed with."""
        return 1.0 if self.precision is None else self.precision

    @property
    def is_learned(self) -> bool:
        """Whether one number for the noise is still to be found."""
        return self.precision is None

    def predicted(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean of the targets, what weights leave open of it, and the noise, where outputs are normal."""
        return mean, variance, torch.full_like(mean, 1 / self.value)

    def refitted(self, mean_nll: float, outputs: int) -> GaussianNoise:
        """The noise of greatest likelihood, from the mean NLL an example under this one: no further pass over the data."""
        squared = (mean_nll / outputs - 0.5 * math.log(2 * math.pi / self.value)) * 2 / self.value
        return GaussianNoise(1 / max(squared, 1e-8))

    def check(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return _same_shape("GaussianNoise", outputs, targets)

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        constant = 0.5 * math.log(2 * math.pi / self.value)
        return 0.5 * self.value * (outputs - targets).square().sum() + constant * outputs.numel()

    def residual(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.value * (outputs - targets)

    def sampled_residual(self, outputs: Tensor, targets: Tensor, generator: Generator) -> Tensor:
        z = torch.randn(outputs.shape, dtype=outputs.dtype, device=generator.device, generator=generator)
        return self.value**0.5 * z.to(outputs.device)

    def deviation(self, outputs: Tensor) -> Tensor:
        return torch.full_like(outputs, self.value**0.5)


@dataclass(frozen=True)
class NoisePerInput(GaussianNoise):
    """Outputs are means and, behind them, log variances of normal targets: `GaussianNoise(per_input=True)`."""

    per_input: bool = True

    @property
    def is_learned(self) -> bool:
        return False

    def check(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        targets = targets.reshape(len(targets), -1).to(torch.promote_types(targets.dtype, torch.float32))
        if outputs.ndim != 2 or outputs.shape[1] != 2 * targets.shape[1]:
            raise BadTargets(
                f"noise that depends on the input needs {2 * targets.shape[1]} outputs for {targets.shape[1]} targets (means, "
                f"then log variances), and the network's outputs are {tuple(outputs.shape)}."
            )
        return outputs, targets

    def predicted(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        (m, s), (own, of_noise) = mean.chunk(2, -1), variance.chunk(2, -1)
        return m, own, (s + 0.5 * of_noise).exp()

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        m, s = outputs.chunk(2, -1)
        return 0.5 * ((m - targets).square() * (-s).exp() + s + math.log(2 * math.pi)).sum()

    def residual(self, outputs: Tensor, targets: Tensor) -> Tensor:
        m, s = outputs.chunk(2, -1)
        away = (m - targets) * (-0.5 * s).exp()
        return torch.cat([away * (-0.5 * s).exp(), 0.5 * (1 - away.square())], -1)

    def sampled_residual(self, outputs: Tensor, targets: Tensor, generator: Generator) -> Tensor:
        m, s = outputs.chunk(2, -1)
        z = torch.randn(m.shape, dtype=m.dtype, device=generator.device, generator=generator).to(m.device)
        return torch.cat([z * (-0.5 * s).exp(), 0.5 * (1 - z.square())], -1)

    def deviation(self, outputs: Tensor) -> Tensor:
        """The Fisher information is 1/σ² for a mean, one half for a log variance."""
        _, s = outputs.chunk(2, -1)
        return torch.cat([(-0.5 * s).exp(), torch.full_like(s, 0.5**0.5)], -1)


@dataclass(frozen=True)
class Bernoulli(IndependentOutputs):
    """Outputs are logits of independent yes-or-no targets, one or many."""

    def check(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        outputs, targets = _same_shape("Bernoulli", outputs, targets)
        if bool(((targets < 0) | (targets > 1)).any()):
            raise BadTargets(
                f"Bernoulli targets lie between 0 and 1; these reach from {targets.min()} to {targets.max()}."
            )
        return outputs, targets

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(outputs, targets.to(outputs.dtype), reduction="sum")

    def residual(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.sigmoid() - targets

    def sampled_residual(self, outputs: Tensor, targets: Tensor, generator: Generator) -> Tensor:
        p = outputs.sigmoid()
        u = torch.rand(p.shape, dtype=p.dtype, device=generator.device, generator=generator).to(p.device)
        return p - (u < p).to(p.dtype)

    def deviation(self, outputs: Tensor) -> Tensor:
        p = outputs.sigmoid()
        return (p * (1 - p)).sqrt()


def _remedy(outputs: Tensor, targets: Tensor) -> str:
    if outputs.shape == targets.shape:
        return "; of one-hot rows, give targets.argmax(-1)."
    return "; give targets.squeeze(-1)." if targets.shape == (*outputs.shape[:-1], 1) else "."


def _same_shape(name: str, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    if outputs.shape != targets.shape and outputs.shape == (*targets.shape, 1):
        targets = targets[..., None]
    if outputs.shape != targets.shape:
        raise BadTargets(
            f"{name} needs outputs and targets of one shape, not {tuple(outputs.shape)} and {tuple(targets.shape)}: "
            "broadcasting them would silently mix examples."
        )
    # Targets are not rounded to the half precision that a network may run in.
    return outputs, targets.to(torch.promote_types(outputs.dtype, torch.float32))


@dataclass(frozen=True)
class Labels(ABC):
    """A choice of labels, as the vectors that are sent back through the network."""

    @abstractmethod
    def vectors(self, of: Likelihood, outputs: Tensor, targets: Tensor, generator: Generator) -> Iterable[Tensor]:
        """Vectors r over the outputs with E Σ r rᵀ = the Fisher information of each example's outputs."""


@dataclass(frozen=True)
class SampledLabels(Labels):
    """n labels drawn from the model for each example: unbiased for every n, less noise with more (averaged, not summed)."""

    n: int = 1

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"SampledLabels(n) needs n of at least 1, not {self.n}")

    def vectors(self, of: Likelihood, outputs: Tensor, targets: Tensor, generator: Generator) -> Iterable[Tensor]:
        return (of.sampled_residual(outputs, targets, generator) / self.n**0.5 for _ in range(self.n))


@dataclass(frozen=True)
class ExactLabels(Labels):
    """The expectation over the model's labels, in closed form: as many backward passes as the outputs have dimensions."""

    def vectors(self, of: Likelihood, outputs: Tensor, targets: Tensor, generator: Generator) -> Iterable[Tensor]:
        return of.fisher_columns(outputs, targets)


@dataclass(frozen=True)
class EmpiricalLabels(Labels):
    """The labels of the data: the "empirical Fisher", cheap and biased."""

    def vectors(self, of: Likelihood, outputs: Tensor, targets: Tensor, generator: Generator) -> Iterable[Tensor]:
        return [of.residual(outputs, targets)]


@dataclass(frozen=True)
class AutomaticLabels(Labels):
    """Exact where that takes one backward pass (one output, two classes), one sampled label where it takes more."""

    def vectors(self, of: Likelihood, outputs: Tensor, targets: Tensor, generator: Generator) -> Iterable[Tensor]:
        by_example = outputs[0].numel() if len(outputs) else 0
        one_pass = outputs.ndim == 2 and by_example == 2 if isinstance(of, Categorical) else by_example == 1
        chosen: Labels = ExactLabels() if one_pass else SampledLabels(1)
        return chosen.vectors(of, outputs, targets, generator)
