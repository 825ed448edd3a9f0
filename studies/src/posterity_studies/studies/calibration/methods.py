"""Baselines and the learned prior behind one interface: each method turns a small task and a strength into a predictor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from posterity.blocks import Replica
from posterity.curvature import KFOC, estimate
from posterity.data.batches import input_batches
from posterity.gaussian import Gaussian
from posterity.kernel.latent import PROBIT
from posterity.laplace import isotropic, update
from posterity.predictive.linearised import output_moments
from posterity_studies.shared.networks import fresh, with_fast_pooling
from posterity_studies.shared.priors import build_prior, start, train_to_mode
from posterity_studies.shared.tasks import Task

Strength = tuple[float, float]
"""(a, γ): the prior's precision is a · (curvature on the source) + γ · identity."""
Predictor = Callable[[Tensor, float], Tensor]
"""Inputs and a temperature to probabilities: τ of a posterior, or of the softmax where there is none."""
Fit = Callable[[Task, Gaussian, Strength, int], Predictor]

MEMBERS, DRAWS, DROPOUT, STEPS = 5, 30, 0.2, 100


@dataclass(frozen=True)
class Method:
    """A name, the strengths it may try, the temperatures likewise, and how many networks it trains in all."""

    name: str
    fit: Fit
    strengths: Sequence[Strength]
    temperatures: Sequence[float]
    trainings: int


def _plain(task: Task, learned: Gaussian, strength: Strength, seed: int) -> Predictor:
    return _softmax([_trained("zero", task, learned, strength, seed)])


def _l2sp(task: Task, learned: Gaussian, strength: Strength, seed: int) -> Predictor:
    return _softmax([_trained("mean", task, learned, strength, seed)])


def _ensemble(task: Task, learned: Gaussian, strength: Strength, seed: int) -> Predictor:
    return _softmax([_trained("zero", task, learned, strength, 1000 * m + seed) for m in range(MEMBERS)])


def _dropout(task: Task, learned: Gaussian, strength: Strength, seed: int) -> Predictor:
    """Dropout before both hidden linear layers and the last, in training and in thirty passes of prediction."""
    plain = list(with_fast_pooling(fresh(seed)))
    layers = [
        part for i, layer in enumerate(plain) for part in ([nn.Dropout(DROPOUT), layer] if i in (7, 9, 11) else [layer])
    ]
    model = nn.Sequential(*layers)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        train_to_mode(model, task.train, isotropic(model, strength[1]), seed, STEPS)

    def predict(x: Tensor, temperature: float) -> Tensor:
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(seed)
            model.train()
            return torch.stack([(model(x) / temperature).softmax(-1) for _ in range(DRAWS)]).mean(0)

    return predict


def _laplace(kind: str, only: str | None = None) -> Fit:
    """The linearised predictive of a posterior over all blocks, or over the last alone."""

    def fit(task: Task, learned: Gaussian, strength: Strength, seed: int) -> Predictor:
        model = _trained(kind, task, learned, strength, seed)
        prior = build_prior(kind, learned, *strength, seed)
        prior = prior.restricted([only]) if only else prior
        generator = torch.Generator().manual_seed(seed)
        chosen = {"blocks": [only]} if only else {}
        curvature = estimate(model, task.train, KFOC(), generator=generator, progress=False, **chosen)  # type: ignore[arg-type]
        posterior = update(model, curvature, prior, join="sum")

        def predict(x: Tensor, temperature: float) -> Tensor:
            # The inputs are kept too: what is freed may lend its address to other inputs.
            if id(x) not in seen:
                seen[id(x)] = (x, *_moments(model, posterior, x))
            _, mean, variance = seen[id(x)]
            return (mean / (1 + PROBIT * temperature * variance).sqrt()).softmax(-1)

        # Outputs' variances are proportional to τ: one pass serves every temperature.
        seen: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
        return predict

    return fit


@torch.no_grad()
def _moments(model: nn.Module, posterior: Gaussian, x: Tensor) -> tuple[Tensor, Tensor]:
    network = Replica(model)
    found = [output_moments(network, posterior, batch) for batch in input_batches(x, 250, x.device)]
    mean = torch.cat([m for m, _ in found])
    return mean, torch.cat([c.diagonal(dim1=-2, dim2=-1) for _, c in found]).to(mean.dtype)


def _trained(kind: str, task: Task, learned: Gaussian, strength: Strength, seed: int) -> nn.Sequential:
    model = start(kind, learned, seed)
    train_to_mode(model, task.train, build_prior(kind, learned, *strength, seed), seed, STEPS)
    return model.eval()


def _softmax(models: Sequence[nn.Module]) -> Predictor:
    def predict(x: Tensor, temperature: float) -> Tensor:
        with torch.no_grad():
            return torch.stack([(model(x) / temperature).softmax(-1) for model in models]).mean(0)

    return predict


ZERO = [(0.0, g) for g in (0.01, 0.1, 1.0)]
MEAN = [(0.0, g) for g in (0.1, 1.0, 10.0)]
LEARNED = [(0.01, 1.0), (0.1, 1.0), (0.1, 10.0)]
SOFT, TAUS = [1.0, 1.5, 2.5], [1.0, 0.1, 0.01]

METHODS = {
    "plain": Method("plain network", _plain, ZERO, SOFT, 3),
    "dropout": Method("MC dropout", _dropout, ZERO, SOFT, 3),
    "ensemble": Method("deep ensemble (5)", _ensemble, ZERO[:2], SOFT, 10),
    "l2sp": Method("L2-SP fine-tuning", _l2sp, MEAN, SOFT, 3),
    "last layer": Method("last-layer Laplace", _laplace("mean", "11"), MEAN, TAUS, 3),
    "zero": Method("Laplace, isotropic at zero", _laplace("zero"), ZERO, TAUS, 3),
    "mean": Method("Laplace, isotropic around the source weights", _laplace("mean"), MEAN, TAUS, 3),
    "learned": Method("Laplace, learned prior", _laplace("learned"), LEARNED, TAUS, 3),
}
