"""Gaussians over small blocks of every structure, and a way to tell whether two are the same to the last bit."""

from __future__ import annotations

import torch
from matrices import STRUCTURES, definite, pair, turned
from torch import Tensor

from posterity import Gaussian
from posterity.algebra import Basis, JointEigen, Matrix
from posterity.data.provenance import Choice, Provenance
from posterity.gaussian import Card
from posterity.gaussian.parts import take_apart


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def orthogonal(out: int, inp: int, seed: int) -> JointEigen:
    """EKFAC's form: eigenvectors as LAPACK leaves them, column by column."""
    left, right = (torch.linalg.eigh(definite(n, seed + n)).eigenvectors for n in (out, inp))
    return JointEigen(Basis.orthogonal(left), Basis.orthogonal(right), normal(out, inp, seed=seed).square() + 0.1)


EVERY = {**STRUCTURES, "orthogonal eigen": orthogonal, "turned": turned}


def every(out: int = 2, inp: int = 3, seed: int = 0) -> dict[str, Matrix]:
    return {name: build(out, inp, seed + i) for i, (name, build) in enumerate(EVERY.items())}


def gaussian(precision: dict[str, Matrix], seed: int = 0, card: Card | None = None) -> Gaussian:
    means = {name: normal(*matrix.shape, seed=seed + i) for i, (name, matrix) in enumerate(precision.items())}
    return Gaussian(means, precision, card or Card())


def one(structure: str, seed: int = 0, out: int = 2, inp: int = 3) -> Gaussian:
    return gaussian({"block": EVERY[structure](out, inp, seed)}, seed)


def torchs(g: Gaussian, name: str = "block") -> torch.distributions.MultivariateNormal:
    return torch.distributions.MultivariateNormal(
        g.mean[name].double().flatten(), precision_matrix=g.precision[name].dense().double()
    )


CARD = Card(
    text='Ten digits, "as they were written".\nВсе цифры. {"sha256":"0000"} 数',
    licence="Apache-2.0",
    architecture="f00f",
    likelihood="Categorical()",
    estimator="KFOC()",
    count=60_000,
    precision=1e-8,
    scales={"0": (1.0, 0.1, 1 / 3), "kept elsewhere": (0.0, 2.0, 1e-19)},
    compression={"0": 1.25e-3},
    seed=2**64 - 1,
    provenance=Provenance(
        torch.tensor([[-(2**63)] * 6, [-5] * 6, [-5] * 5 + [3], [0] * 6, [2**63 - 1] * 6]),
        ("it was trained elsewhere",),
        ("ImageNet weights, says 小",),
        (Choice("the strength", 9, torch.tensor([[1, 2, 3, 4, 5, 6]])), Choice("the prior", None, unknown=True)),
    ),
    versions={"torch": "2.9"},
)


def same(a: Gaussian, b: Gaussian) -> bool:
    """Names, order, structures, card and every bit of every tensor."""
    if a.blocks != b.blocks or a.card != b.card:
        return False
    pairs = [(a.mean[name], b.mean[name]) for name in a.blocks]
    pairs.append((a.provenance.hashes, b.provenance.hashes))
    for name in a.blocks:
        (kind, ours), (other, theirs) = take_apart(a.precision[name]), take_apart(b.precision[name])
        if kind != other or ours.keys() != theirs.keys():
            return False
        pairs += [(ours[role], theirs[role]) for role in ours]
    return all(x.dtype == y.dtype and x.shape == y.shape and torch.equal(x, y) for x, y in pairs)


__all__ = ["CARD", "EVERY", "every", "gaussian", "normal", "one", "orthogonal", "pair", "same", "torchs"]
