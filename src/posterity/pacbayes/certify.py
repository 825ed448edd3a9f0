"""The verb: a bound on the risk that holds with the stated probability, or a refusal by name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from posterity.algebra import (
    Basis,
    DenseMatrix,
    DiagonalMatrix,
    FlooredMatrix,
    JointEigen,
    Kronecker,
    KroneckerSum,
    Matrix,
    RotatedMatrix,
    ScaledIdentity,
)
from posterity.checks import admitted
from posterity.curvature import Categorical, Likelihood
from posterity.data import Data
from posterity.errors import InfiniteDivergence
from posterity.gaussian import Gaussian
from posterity.pacbayes.bounds import DRAWS_SHARE, Spending
from posterity.pacbayes.certificate import Certificate, Holdout
from posterity.pacbayes.examples import CertificateData
from posterity.pacbayes.methods import BoundResult, Case, Method, bounded
from posterity.pacbayes.refusals import checked
from posterity.pacbayes.register import issued
from posterity.version import __version__

NEGATIVE = 1e-6
"""How far below zero rounding may leave a divergence, for each parameter of a block."""
INVERSE = 1e-6
"""How far a basis times its inverse may miss the identity."""

ROUNDED, ORTHOGONAL, STEPS = 1e-4, 1e-9, 10
"""How far an orthogonal basis times its transpose may miss it as given, and made so again: a divergence is then off by as many
nats for each parameter. In how many steps."""

STRUCTURES = (
    Kronecker,
    KroneckerSum,
    JointEigen,
    FlooredMatrix,
    DiagonalMatrix,
    DenseMatrix,
    ScaledIdentity,
    RotatedMatrix,
)


def certify(
    model: nn.Module,
    posterior: Gaussian,
    prior: Gaussian,
    data: Data,
    confidence: float = 0.95,
    likelihood: Likelihood | None = None,
    *,
    groups: Tensor | None = None,
    methods: Sequence[Method] = ("draws",),
    passes: int | None = None,
    grid: int = 1,
    vouched: str | None = None,
    batch_size: int = 256,
    generator: torch.Generator | None = None,
    progress: bool = True,
    apart: str | None = None,
) -> Certificate:
    """Certify the risk of networks drawn from the posterior, by examples that the prior has not seen.

    The posterior may depend on the examples in any way. The prior may not: unless it was chosen among finitely many, which is
    paid for (`grid` are those that the library does not know of). Where posterior and prior are the same, one draw for each
    example makes a binomial sample (Clopper–Pearson). Else `passes` draws for every example (10, or 100 for few examples)
    estimate the Gibbs error, which is then taken from above. Of several `methods` the tightest is taken, and paid for:

        "draws"    a network drawn from the posterior, by klinv
        "excess"   the same, by how much more it errs than the network at the prior's mean
        "prior"    a network drawn from the prior
        "mean"     the network at the prior's mean

    The bound is on single draws; the average over draws is another predictor, whose error can be up to twice as large.

    Args:
        model: the network's architecture; its own weights do not matter.
        posterior: the Gaussian whose draws are certified.
        prior: a Gaussian that has not seen the data.
        data: the examples that certify.
        confidence: with which the bound holds.
        likelihood: of the outputs; `Categorical()` by default.
        groups: a number for each example, the same for those that belong together (windows of a recording, images of a
            patient). Groups are then what is independent: n is their number, and the error is that on a new group.
        methods: see above.
        passes: draws for every example.
        grid: how many priors the choice was from, beyond what the library knows of.
        vouched: a text by which you answer for a prior of unknown past; the certificate prints it.
        batch_size: examples at a time, sorted by what they are: order and batches of the data leave no trace.
        generator: of the draws. By default their seed follows from prior, posterior and examples, so that there is none to
            choose. One that is given must not have chosen or trained the posterior, and the certificate says that it was given.
        progress: whether to show a bar.
        apart: how it is known that these are other rows than the prior's, for a table of few values where values do not say.
    Returns:
        A `Certificate`: the bound, all that it is made of, and what was checked.
    Raises:
        NoCertificate: under the fitting name, if the bound would not hold.

    Example:
        >>> certificate = pt.certify(model, fit.posterior, fit.prior, data)
        >>> certificate.bound, certificate.holdout.bound
    """
    if passes is not None and passes < 1:
        raise ValueError(f"passes is at least 1, not {passes}")
    if not methods or len(set(methods)) < len(methods):
        raise ValueError(f"methods are at least one, each once, not {tuple(methods)}")
    data, _ = admitted(model, data, likelihood)
    likelihood = likelihood or Categorical()
    examples = CertificateData.of(data, batch_size, groups)
    found = checked(model, posterior, prior, examples, Spending(1 - confidence), grid, vouched, generator, apart)
    same = posterior is prior or posterior.fingerprint() == prior.fingerprint()
    posterior, prior = rebuilt(posterior), rebuilt(prior)
    kl_by_block = dict.fromkeys(prior.blocks, 0.0) if same else divergence(posterior, prior)
    spending = found.spending.paying("methods", len(methods))
    case = Case(
        model,
        found.blocks,
        posterior,
        prior,
        examples.n,
        spending,
        likelihood,
        sum(kl_by_block.values()),
        passes,
        batch_size,
        found.generator,
        progress,
    )
    readings = examples.readings()
    # Fresh draws for every method: those that chose or trained a posterior know too much of it.
    best = min((bounded(method, case, readings) for method in methods), key=lambda one: one.bound)
    beside = bounded("mean", replace(case, spending=found.spending), readings)
    drawn = best.fields["rule"] != "binomial"
    delta_draws = DRAWS_SHARE * (1 - confidence) if drawn else 0.0
    fields = best.fields | {"kl_by_block": kl_by_block if best.fields.get("kl") else {}}
    return written(
        BoundResult(best.bound, fields),
        case,
        examples,
        beside,
        found.notes,
        confidence,
        delta_draws=delta_draws,
        posterior=posterior.fingerprint(),
    )


def written(
    found: BoundResult,
    case: Case,
    examples: CertificateData,
    beside: BoundResult,
    notes: tuple[str, ...],
    confidence: float,
    *,
    delta_draws: float = 0.0,
    posterior: str = "",
) -> Certificate:
    """The certificate of a bound: what every one says of its examples, its prior and what was paid for."""
    prior = case.prior.fingerprint()
    return Certificate(
        bound=found.bound,
        confidence=confidence,
        delta=1 - confidence - delta_draws,
        delta_draws=delta_draws,
        n=examples.n,
        examples=examples.count,
        holdout=Holdout(beside.fields["gibbs"], beside.bound),
        payments=case.spending.payments,
        prior=prior,
        posterior=posterior,
        data=examples.fingerprint,
        checks=notes,
        unit="group" if examples.grouped else "example",
        assumes=examples.assumes,
        issued=issued(examples.hashes, (prior, posterior, found.bound, confidence, found.fields["predictor"])),
        versions={"posterity": __version__, "torch": str(torch.__version__)},
        **found.fields,
    )


def divergence(posterior: Gaussian, prior: Gaussian) -> dict[str, float]:
    """KL(posterior ‖ prior) by block, in nats; `InfiniteDivergence` if it is no number, or below zero by more than rounding."""
    found = {name: float(value) for name, value in posterior.kl_by_block(prior).items()}
    for name, value in found.items():
        if not math.isfinite(value) or value < -NEGATIVE * (1 + posterior.precision[name].size):
            raise InfiniteDivergence(
                f"KL(posterior ‖ prior) is {value:g} in block {name!r}: one of the two is singular there, or its numbers "
                "are beyond reason. Look at both with `posterity prior inspect`."
            )
    # Rounding can leave a posterior that equals its prior a hair below zero.
    return {name: max(0.0, value) for name, value in found.items()}


def rebuilt(gaussian: Gaussian) -> Gaussian:
    """The same, with every inverse and determinant computed again: what is drawn is what the divergence speaks of."""
    return replace(gaussian, precision={name: _rebuilt(m, name) for name, m in gaussian.precision.items()})


def _rebuilt(matrix: Matrix, name: str) -> Matrix:
    if type(matrix) not in STRUCTURES:
        raise InfiniteDivergence(
            f"the precision of block {name!r} is a {type(matrix).__name__}: a class of your own may draw other weights than its "
            f"divergence speaks of. Certificates take {', '.join(kind.__name__ for kind in STRUCTURES)}."
        )
    if isinstance(matrix, FlooredMatrix):
        return FlooredMatrix(_rebuilt(matrix.curvature, name), matrix.share, matrix.floor)
    if isinstance(matrix, RotatedMatrix):
        frame, turned = _rebuilt(matrix.frame_of, name), _basis(Basis.orthogonal(matrix.vectors), name)
        assert isinstance(frame, JointEigen)
        return RotatedMatrix(frame, matrix.index, turned.matrix)
    if not isinstance(matrix, JointEigen):
        return matrix
    left, right = (_basis(basis, name) for basis in (matrix.left, matrix.right))
    return JointEigen(left, right, matrix.values.double())


def _basis(basis: Basis, name: str) -> Basis:
    forward = basis.matrix.double()
    eye = torch.eye(forward.shape[-1], dtype=torch.float64, device=forward.device)
    if basis.is_orthogonal:
        return Basis.orthogonal(_orthogonal(forward, eye, name))
    # Columns of one length: a basis may stretch its directions as it likes, but must tell them apart.
    length = forward.norm(dim=0).clamp_min(torch.finfo(torch.float64).tiny)
    even = forward / length
    inverse = torch.linalg.inv_ex(even).inverse
    _check_distinct(float((even @ inverse - eye).abs().max()), INVERSE, name)
    return Basis(forward, inverse / length[:, None], torch.linalg.slogdet(even).logabsdet + length.log().sum())


def _orthogonal(basis: Tensor, eye: Tensor, name: str) -> Tensor:
    """The orthogonal matrix nearest to one that is so but for rounding.

    As it is, its determinant would be nearly 1 only: a hundred nats short in a million parameters. Newton's steps square that.
    """
    off = basis @ basis.mT - eye
    _check_distinct(float(off.abs().max()), ROUNDED, name)
    for _ in range(STEPS):
        if float(off.abs().max()) <= ORTHOGONAL:
            break
        basis = basis - 0.5 * off @ basis
        off = basis @ basis.mT - eye
    _check_distinct(float(off.abs().max()), ORTHOGONAL, name)
    return basis


def _check_distinct(off: float, allowed: float, name: str) -> None:
    if not off <= allowed:
        raise InfiniteDivergence(
            f"the precision of block {name!r} is given in a basis that is singular but for rounding (off by {off:.1e}): what is "
            "drawn from it could not be distinguished from what is certified. Compress the Gaussian, or learn it again."
        )
