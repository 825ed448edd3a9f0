"""laplace-torch (Daxberger et al. 2021) as its documentation shows it: a posterior after training, its prior tuned."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from posterity_studies.shared.rivals.absent import library
from posterity_studies.shared.rivals.training import Pair

Weights = Literal["last_layer", "all"]
GRID = 21


def classifier(model: nn.Module, data: Pair, weights: Weights, held: Pair | None = None) -> Any:
    """A Kronecker-factored posterior (the default), its prior precision by marginal likelihood, or on held-out data."""
    with _quiet():
        made = library("laplace", "laplace-torch").Laplace(
            copy.deepcopy(model).eval(), "classification", subset_of_weights=weights, hessian_structure="kron"
        )
        made.fit(_loader(data))
        if held is None:
            made.optimize_prior_precision(method="marglik")
        else:
            made.optimize_prior_precision(method="gridsearch", val_loader=_loader(held), grid_size=GRID)
    return made


def probabilities(made: Any, x: Tensor) -> Tensor:
    """The linearised predictive with the probit link (the default), a hundred inputs at a time."""
    with _quiet():
        return torch.cat([made(part, link_approx="probit").detach() for part in x.split(100)]).float()


def regression(model: nn.Module, data: Pair, x: Tensor) -> tuple[Tensor, Tensor]:
    """Means and variances with noise: all layers, full matrix, prior and noise by marginal likelihood, as its example has it."""
    with _quiet():
        made = library("laplace", "laplace-torch").Laplace(
            copy.deepcopy(model).eval(), "regression", subset_of_weights="all", hessian_structure="full"
        )
        made.fit(_loader(data))
        log_prior, log_sigma = (torch.zeros(1, requires_grad=True) for _ in range(2))
        optimiser = torch.optim.Adam([log_prior, log_sigma], lr=0.1)
        for _ in range(100):
            optimiser.zero_grad()
            loss = -made.log_marginal_likelihood(log_prior.exp(), log_sigma.exp())
            loss.backward()
            optimiser.step()
        mean, variance = made(x)
        noise = math.exp(2 * float(log_sigma.detach()))
    return mean.detach().view(-1, 1), variance.detach().view(-1, 1) + noise


def _loader(data: Pair) -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(TensorDataset(*data), batch_size=256)


@contextmanager
def _quiet() -> Iterator[None]:
    """Its warnings speak of torch's versions, not of the fit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
