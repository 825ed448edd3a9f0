"""Other libraries at the same work: curvature of a classifier from one pass over given data.

Each peer is driven the way that does least beside the work itself: batches are slices of tensors in memory,
sizes are given rather than counted, checks that run a second pass are off. A library that is missing, or whose
version cannot do a work, raises `AbsentError` when it is run and not when this module is imported.
"""

import importlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

from benchmarks.measure import AbsentError, summary

Work = Literal[
    "kfac-sampled",
    "kfac-exact",
    "ekfac-sampled",
    "kfoc-sampled",
    "kfoc-exact",
    "diagonal-sampled",
    "diagonal-exact",
]
Run = Callable[[nn.Module, Tensor, Tensor, int], list[Tensor]]
"""Works over images and labels in batches of a size, returns what it found, and leaves the network as it was."""


@dataclass(frozen=True)
class Peer:
    """A library doing one work."""

    name: str
    work: Work
    run: Run


@contextmanager
def quiet() -> Iterator[None]:
    # Deprecations that a peer meets inside torch, once per batch, are not the reader's to mend.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _imported(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise AbsentError(f"{module} cannot be imported: {summary(error)}") from error


def _private_copy(model: nn.Module) -> nn.Module:
    # Peers leave hooks and attributes behind, and most know only linear and convolution layers. Parameters of
    # other layers are frozen in the copy, which is how these libraries leave them out.
    model = deepcopy(model).eval()
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            parameter.requires_grad_(isinstance(module, nn.Linear | nn.Conv2d))
    return model


@dataclass(frozen=True)
class _Batches:
    """As much of a data loader as the peers ask for: it iterates, and knows its data set's length."""

    x: Tensor
    y: Tensor
    size: int

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(self.x.split(self.size), self.y.split(self.size), strict=True)

    @property
    def dataset(self) -> Tensor:
        return self.y


# --- laplace-torch ---------------------------------------------------------------------------------


def _laplace(structure: str, backend: str, *, stochastic: bool, decompose: bool = False) -> Run:
    def run(model: nn.Module, x: Tensor, y: Tensor, batch: int) -> list[Tensor]:
        laplace = _imported("laplace")
        curvature = _imported("laplace.curvature")
        if not hasattr(curvature, backend):
            raise AbsentError(f"laplace-torch is here without {backend}: the library behind that backend is missing")
        posterior = getattr(laplace, structure)(
            _private_copy(model),
            "classification",
            backend=getattr(curvature, backend),
            backend_kwargs={"stochastic": stochastic},
        )
        if decompose:
            posterior.fit(_Batches(x, y, batch))
        else:
            # The base class's pass is the same work without the eigendecompositions that end `fit`: those serve
            # the posterior, not the curvature, and on large layers outweigh it.
            laplace.ParametricLaplace.fit(posterior, _Batches(x, y, batch))
        found = posterior.H
        if isinstance(found, Tensor):
            return [found]
        groups = found.eigenvectors if decompose else found.kfacs
        return [factor for group in groups for factor in group]

    return run


# --- curvlinops ------------------------------------------------------------------------------------


def _curvlinops(operator: str, fisher_type: str) -> Run:
    def run(model: nn.Module, x: Tensor, y: Tensor, batch: int) -> list[Tensor]:
        curvlinops = _imported("curvlinops")
        if not hasattr(curvlinops, operator):
            raise AbsentError(f"this version of curvlinops has no {operator}")
        model = _private_copy(model)
        linear = getattr(curvlinops, operator)(
            model,
            nn.CrossEntropyLoss(reduction="sum"),
            [parameter for parameter in model.parameters() if parameter.requires_grad],
            list(_Batches(x, y, batch)),
            fisher_type=fisher_type,
            separate_weight_and_bias=False,
            check_deterministic=False,
            num_data=len(y),
            num_per_example_loss_terms=1,
        )
        linear.compute_kronecker_factors()
        if operator == "KFACLinearOperator":
            return [*linear._input_covariances.values(), *linear._gradient_covariances.values()]
        linear.compute_eigenvalue_correction()
        return list(linear._corrected_eigenvalues.values())

    return run


def _curvlinops_kfoc(model: nn.Module, x: Tensor, y: Tensor, batch: int) -> list[Tensor]:
    # Its development version has one, for exact labels and a single batch; no release does.
    _imported("curvlinops")
    raise AbsentError("no release of curvlinops has KFOC")


# --- backpack --------------------------------------------------------------------------------------


def _backpack(extension: str) -> Run:
    def run(model: nn.Module, x: Tensor, y: Tensor, batch: int) -> list[Tensor]:
        backpack = _imported("backpack")
        extensions = _imported("backpack.extensions")
        model = backpack.extend(_private_copy(model))
        loss = backpack.extend(nn.CrossEntropyLoss(reduction="sum"))
        quantity = getattr(extensions, extension)()
        total: list[Tensor] = []
        for images, labels in _Batches(x, y, batch):
            model.zero_grad(set_to_none=True)
            with backpack.backpack(quantity):
                loss(model(images), labels).backward()
            found: list[Tensor] = []
            for parameter in model.parameters():
                value = getattr(parameter, quantity.savefield)
                if isinstance(value, Tensor):
                    found.append(value)
                else:
                    # Output factors are sums over the batch, input factors means: their sum weighs by size.
                    outputs, *inputs = value
                    found.extend([outputs, *(factor * (len(labels) / len(y)) for factor in inputs)])
            total = [a + b for a, b in zip(total, found, strict=True)] if total else found
        return total

    return run


# --- registry --------------------------------------------------------------------------------------


def _laplace_peers(library: str, backend: str) -> list[Peer]:
    name = f"laplace-torch ({library})"
    return [
        Peer(name, "kfac-sampled", _laplace("KronLaplace", backend, stochastic=True)),
        Peer(name, "kfac-exact", _laplace("KronLaplace", backend, stochastic=False)),
        Peer(
            f"{name}, whole fit",
            "kfac-sampled",
            _laplace("KronLaplace", backend, stochastic=True, decompose=True),
        ),
        Peer(
            f"{name}, whole fit",
            "kfac-exact",
            _laplace("KronLaplace", backend, stochastic=False, decompose=True),
        ),
        Peer(name, "diagonal-sampled", _laplace("DiagLaplace", backend, stochastic=True)),
        Peer(name, "diagonal-exact", _laplace("DiagLaplace", backend, stochastic=False)),
    ]


PEERS: list[Peer] = [
    *_laplace_peers("curvlinops", "CurvlinopsGGN"),
    *_laplace_peers("asdl", "AsdlGGN"),
    *_laplace_peers("backpack", "BackPackGGN"),
    Peer("curvlinops", "kfac-sampled", _curvlinops("KFACLinearOperator", "mc")),
    Peer("curvlinops", "kfac-exact", _curvlinops("KFACLinearOperator", "type-2")),
    Peer("curvlinops", "ekfac-sampled", _curvlinops("EKFACLinearOperator", "mc")),
    Peer("curvlinops", "kfoc-sampled", _curvlinops_kfoc),
    Peer("backpack", "kfac-sampled", _backpack("KFAC")),
    Peer("backpack", "kfac-exact", _backpack("KFLR")),
    Peer("backpack", "diagonal-sampled", _backpack("DiagGGNMC")),
    Peer("backpack", "diagonal-exact", _backpack("DiagGGNExact")),
]
