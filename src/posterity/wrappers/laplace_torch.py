"""Posteriors of laplace-torch, taken over as they are and handed back.

laplace-torch keeps a precision over the vector of all parameters; here a layer's weight and bias are one matrix. What it calls
"kron" has the weight's pair of factors and a factor for the bias: in the eigenbasis of the gradients' factor that is
one frame with values, exactly. A "full" precision over several layers has no such form, because layers are independent here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from posterity.algebra import Basis, DenseMatrix, DiagonalMatrix, JointEigen, Matrix
from posterity.blocks import Block, find_blocks, named
from posterity.curvature import KFAC, Categorical, Curvature, Dense, Diagonal, Estimator, GaussianNoise, Likelihood
from posterity.data.provenance import Provenance, matrices_digest
from posterity.errors import NotConvertible, NotInstalled, TooLarge
from posterity.gaussian import Card, Gaussian
from posterity.kernel import Calibration
from posterity.laplace import Scales
from posterity.predictive.linearised import StructuredGaussian
from posterity.workflow import Fit
from posterity.workflow.plan import Plan

LARGEST = 5000
"""Parameters up to which a posterior is handed back as one dense precision."""
SAME = 1e-4
"""How far the bias's factor may be from diagonal in the weight's eigenbasis, relative to its largest value."""


def from_laplace(la: Any) -> Fit:
    """A fitted posterior of laplace-torch as a `Fit`: the same mean, precision, noise and temperature.

    Its outputs have the mean and covariance of laplace-torch's linearised predictive; probabilities differ a little, because the
    link from outputs to probabilities is another. The posterior can then be saved, certified, or become the next prior.

    Args:
        la: a fitted `laplace.Laplace(...)` over all weights ("kron", "diag") or the last layer ("kron", "diag", "full").

    Returns:
        A `Fit` around the same network.

    Raises:
        NotConvertible: if the posterior has another form, such as "full" over several layers.

    Example:
        >>> la = laplace.Laplace(model, "classification", "all", "kron"); la.fit(loader)
        >>> pt.wrappers.from_laplace(la).posterior.save("prior.safetensors")
    """
    structure = getattr(type(la), "_key", ("", ""))[1]
    if structure not in ("kron", "diag", "full"):
        raise NotConvertible(
            f'a {type(la).__name__} has no precision over weights: give one that is "kron", "diag" or "full".'
        )
    view = _View(la)
    precision, curvature = _precisions(la, view, structure)
    mean = view.matrices(la.mean)
    noise = _likelihood(la)
    estimator: Estimator = {"kron": KFAC(), "diag": Diagonal(), "full": Dense()}[structure]
    past = Provenance.unknown("it was fitted by laplace-torch, which keeps no record of its data")
    card = Card(text=f"from laplace-torch, {type(la).__name__}", count=int(la.n_data), provenance=past)
    before = la.prior_mean.expand(len(la.mean)) if la.prior_mean.numel() == 1 else la.prior_mean
    spread: dict[str, Matrix] = {n: DiagonalMatrix(m) for n, m in view.matrices(la.prior_precision_diag).items()}
    prior = Gaussian(view.matrices(before), spread).with_provenance(past)
    found = Curvature(
        curvature, -float(la.log_likelihood), int(la.n_data), estimator, noise, past, matrices_digest(mean)
    )
    posterior = Gaussian(mean, precision, card).with_provenance(past)
    plan = Plan("posterior", ("structured",), ("the posterior was taken over from laplace-torch",))
    predictor = StructuredGaussian(posterior, Calibration(), noise)
    return Fit(view.network, prior, posterior, found, Scales(), None, predictor, plan)


def to_laplace(fit: Fit) -> Any:
    """A fit's posterior over weights as a fitted object of laplace-torch, with the same mean and precision.

    Diagonal precisions stay diagonal; all others become one dense matrix, "full", block by block. A posterior over the last
    linear layer alone becomes a last-layer one. What laplace-torch calls the prior precision is half of the posterior's least
    eigenvalue, or the prior's own where that is isotropic and lower: do not tune it there.

    Args:
        fit: of `pt.posterior`, `pt.learn` or `pt.adapt`.

    Returns:
        A fitted `laplace.Laplace(...)` around the same network.

    Raises:
        NotInstalled: without laplace-torch.
        TooLarge: if a dense precision would have more than 5,000 rows.
        NotConvertible: if the posterior leaves out trainable weights and is not one linear layer.

    Example:
        >>> la = pt.wrappers.to_laplace(pt.posterior(model, data, blocks=["fc"]))
        >>> la(x, pred_type="glm", link_approx="probit")
    """
    try:
        from laplace import Laplace
    except ImportError as error:
        raise NotInstalled("laplace-torch is needed here: pip install laplace-torch.") from error
    gaussian, network = fit.posterior, fit.model
    blocks = find_blocks(network, named(gaussian.mean))
    parameters = {name: p for name, p in network.named_parameters() if p.requires_grad}
    covered = {full for block in blocks.values() for full in block.parameters.values()}
    diagonal = all(isinstance(m, DiagonalMatrix) for m in gaussian.precision.values())
    structure = "diag" if diagonal else "full"
    la: Any
    options: dict[str, Any] = {}
    if isinstance(fit.likelihood, GaussianNoise):
        assert fit.likelihood.precision is not None
        options["sigma_noise"] = fit.likelihood.precision**-0.5
    task = "regression" if options else "classification"
    if covered == set(parameters):
        order = list(parameters)
        la = Laplace(network, task, subset_of_weights="all", hessian_structure=structure, **options)
    elif len(blocks) == 1 and isinstance(next(iter(blocks.values())).modules[0], nn.Linear):
        (block,) = blocks.values()
        order = [block.parameters[role] for role, _ in block.modules[0].named_parameters()]
        options["last_layer_name"] = block.name
        la = Laplace(network, task, subset_of_weights="last_layer", hessian_structure=structure, **options)
    else:
        raise NotConvertible(
            f"the posterior leaves out {sorted(set(parameters) - covered)[:5]}: laplace-torch has posteriors over all trainable "
            "weights or one last linear layer. Freeze the others."
        )
    size = sum(parameters[name].numel() for name in order)
    if structure == "full" and size > LARGEST:
        raise TooLarge(f"a dense precision over {size:,} weights (limit {LARGEST:,}): hand over the last layer alone.")
    places = _places(blocks, parameters, order)
    mean = torch.zeros(size, dtype=torch.float64)
    total = torch.zeros(size if diagonal else (size, size), dtype=torch.float64)
    for name, index in places.items():
        mean[index] = gaussian.mean[name].double().flatten()
        matrix = gaussian.precision[name]
        if diagonal:
            total[index] = matrix.dense().diagonal().double()
        else:
            total[index[:, None], index] = matrix.dense().double()
    least = total.min() if diagonal else torch.linalg.eigvalsh(total)[0]
    floor = 0.5 * float(least)
    rest = total - floor if diagonal else total - floor * torch.eye(size, dtype=torch.float64)
    like = next(network.parameters())
    factor = float(la._H_factor)
    la.n_params, la.n_layers = size, len(order)
    la.mean, la.H = mean.to(like), (rest / factor).to(like)
    la.prior_precision, la.prior_mean = floor, 0.0
    la.n_data, la.loss = fit.curvature.count, fit.curvature.nll
    la.n_outputs = list(gaussian.mean.values())[-1].shape[0]
    network.output_size = la.n_outputs
    return la


class _View:
    """Which of a network's parameters laplace-torch's vector is made of, in its order."""

    def __init__(self, la: Any) -> None:
        last = getattr(la.model, "last_layer", None)
        if type(la)._key[0] == "last_layer":
            self.network, head = la.model.model, la.model._last_layer_name
            parameters = {f"{head}.{name}": p for name, p in last.named_parameters()}  # type: ignore[union-attr]
            self.blocks = find_blocks(self.network, named([head]))
        elif type(la)._key[0] == "all":
            self.network = la.model
            parameters = {name: p for name, p in la.model.named_parameters() if p.requires_grad}
            self.blocks = find_blocks(self.network)
        else:
            raise NotConvertible(
                f"a {type(la).__name__} is over some of the weights: only all, or a last layer, can be taken."
            )
        self.parameters: dict[str, Tensor] = parameters

    def split(self, vector: Tensor) -> dict[str, Tensor]:
        parts = vector.detach().split([p.numel() for p in self.parameters.values()])
        return {name: part.view_as(p) for (name, p), part in zip(self.parameters.items(), parts, strict=True)}

    def matrices(self, vector: Tensor) -> dict[str, Tensor]:
        parts = self.split(vector)
        return {
            name: block.layer.read({role: parts[full] for role, full in block.parameters.items()}).clone()
            for name, block in self.blocks.items()
        }


def _precisions(la: Any, view: _View, structure: str) -> tuple[dict[str, Matrix], dict[str, Matrix]]:
    """The posterior's precision, and the curvature in it, block by block."""
    factor = float(la._H_factor)
    if structure == "diag":
        whole, data = view.matrices(la.posterior_precision.double()), view.matrices(factor * la.H.double())
        return ({n: DiagonalMatrix(m) for n, m in whole.items()}, {n: DiagonalMatrix(m) for n, m in data.items()})
    if structure == "full":
        if len(view.blocks) > 1:
            raise NotConvertible(
                f'a "full" precision ties the {len(view.blocks)} layers together, and layers are independent here: fit "kron" or '
                '"diag", or the last layer alone.'
            )
        (name,), (block,) = view.blocks, view.blocks.values()
        index = _places(view.blocks, view.parameters, list(view.parameters))[name]
        turned = [m.detach().double()[index[:, None], index] for m in (la.posterior_precision, factor * la.H)]
        return tuple({name: DenseMatrix(m, block.shape)} for m in turned)  # type: ignore[return-value]
    order = list(view.parameters)
    found = {n: _kron(la, block, order, factor) for n, block in view.blocks.items()}
    return {n: pair[0] for n, pair in found.items()}, {n: pair[1] for n, pair in found.items()}


def _kron(la: Any, block: Block, order: list[str], factor: float) -> tuple[Matrix, Matrix]:
    """One layer's factors as one frame with values: the frame of the weight's, in which the bias's factor is diagonal too."""
    numbers = {role: order.index(full) for role, full in block.parameters.items()}
    factors = {role: [f.detach().double() for f in la.H_facs.kfacs[k]] for role, k in numbers.items()}
    deltas = la.prior_precision.detach().double().expand(len(order))
    if len(factors["weight"]) != 2:
        raise NotConvertible(f'the factors of block "{block.name}" are no pair: fit "diag" instead.')
    # As the eigenvalues of laplace-torch: those that rounding made negative are zero.
    (left, U), (right, V) = (_eigen(f) for f in factors["weight"])
    delta = deltas[numbers["weight"]]
    scale = factor**0.5
    data = factor * torch.outer(left, right)
    values = torch.outer(scale * left + delta.sqrt(), scale * right + delta.sqrt()) if la.damping else data + delta
    if "bias" in factors:
        turned = U.mT @ factors["bias"][0] @ U
        column = turned.diagonal()
        if float((turned - torch.diag(column)).abs().max()) > SAME * float(column.abs().max()):
            raise NotConvertible(
                f'in block "{block.name}" the factor of the bias has other eigenvectors than the weight\'s: no frame holds both. '
                "Fit with the CurvlinopsGGN backend."
            )
        extra = factor * column.clamp_min(0)[:, None]
        data, values = torch.cat((data, extra), 1), torch.cat((values, extra + deltas[numbers["bias"]]), 1)
        V = torch.block_diag(V, torch.ones(1, 1, dtype=V.dtype))
    frame = Basis.orthogonal(U), Basis.orthogonal(V)
    return JointEigen(*frame, values), JointEigen(*frame, data)


def _eigen(factor: Tensor) -> tuple[Tensor, Tensor]:
    if factor.ndim == 1:
        return factor.clamp_min(0), torch.eye(len(factor), dtype=factor.dtype)
    values, vectors = torch.linalg.eigh((factor + factor.mT) / 2)
    return values.clamp_min(0), vectors


def _places(blocks: Mapping[str, Block], parameters: Mapping[str, Tensor], order: list[str]) -> dict[str, Tensor]:
    """Where the entries of each block's matrix, row by row, are in the vector of all parameters."""
    numbers, start = {}, 0
    for name in order:
        size = parameters[name].numel()
        numbers[name] = torch.arange(start, start + size, dtype=torch.float64).view_as(parameters[name])
        start += size
    return {
        name: block.layer.read({role: numbers[full] for role, full in block.parameters.items()}).flatten().long()
        for name, block in blocks.items()
    }


def _likelihood(la: Any) -> Likelihood:
    if la.likelihood == "classification":
        return Categorical()
    if la.likelihood == "regression" and la.sigma_noise.numel() == 1:
        return GaussianNoise(float(la.sigma_noise) ** -2)
    raise NotConvertible(f"the likelihood {la.likelihood} has no counterpart here.")
