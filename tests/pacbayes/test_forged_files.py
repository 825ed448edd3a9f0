"""Files that say another thing than they are: behind a right seal, a certificate speaks of what is drawn, or is refused."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_holes import D, certify, linear
from torch import nn

import posterity as pt
from posterity.algebra import (
    Basis,
    DenseMatrix,
    DiagonalMatrix,
    FlooredMatrix,
    JointEigen,
    Kronecker,
    KroneckerSum,
    RotatedMatrix,
)
from posterity.errors import InfiniteDivergence, PosterityError
from posterity.pacbayes.certify import divergence, rebuilt

sys.path.insert(0, str(Path(__file__).parents[1] / "gaussian"))

from crafting import joined, split


def turned(n: int) -> torch.Tensor:
    return torch.linalg.qr(torch.randn(n, n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)).Q


def definite(n: int) -> torch.Tensor:
    q = turned(n)
    return q @ torch.diag(torch.linspace(0.5, 4.0, n, dtype=torch.float64)) @ q.mT


def skewed(n: int) -> Basis:
    matrix = torch.eye(n, dtype=torch.float64) + 0.3 * turned(n)
    return Basis(matrix, torch.linalg.inv(matrix), torch.linalg.slogdet(matrix).logabsdet)


def structures(out: int, inp: int):
    values = torch.rand(out, inp, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.5
    pair = Kronecker(definite(out), definite(inp))
    frame = JointEigen(Basis.orthogonal(turned(out)), Basis.orthogonal(turned(inp)), values)
    return {
        "pair": pair,
        "sum": KroneckerSum([pair, Kronecker(definite(out).flip(0, 1), definite(inp).flip(0, 1))]),
        "frame": frame,
        "joint": JointEigen(skewed(out), skewed(inp), values),
        "diagonal": DiagonalMatrix(values),
        "dense": DenseMatrix(definite(out * inp), (out, inp)),
        "floored": FlooredMatrix(frame, 0.7, 0.3),
        "turned": FlooredMatrix(RotatedMatrix(frame, torch.arange(1, out * inp), turned(out * inp - 1)), 0.7, 0.3),
    }


KINDS = tuple(structures(2, 3))


def made(kind: str) -> tuple[nn.Module, pt.Gaussian, pt.Gaussian]:
    model = linear(3)
    prior = pt.isotropic(model, 2.0)
    precision = {name: structures(*matrix.shape)[kind] for name, matrix in prior.precision.items()}
    return model, replace(prior, precision=precision), prior


def dense_kl(posterior: pt.Gaussian, prior: pt.Gaussian) -> float:
    """KL by the dense matrices, whatever the structures say of their determinants and inverses."""
    total = 0.0
    for name in prior.blocks:
        q, p = posterior.precision[name].dense().double(), prior.precision[name].dense().double()
        shift = (posterior.mean[name] - prior.mean[name]).double().flatten()
        trace = torch.linalg.solve(q, p).trace()
        total += float(0.5 * (trace - len(q) + torch.logdet(q) - torch.logdet(p) + shift @ p @ shift))
    return total


@pytest.mark.parametrize("kind", KINDS)
def test_every_structure_is_certified_by_its_own_divergence(kind):
    model, posterior, prior = made(kind)
    x, y = D[0][:, :3], D[1]
    assert certify(model, posterior, prior, (x, y), passes=1).kl == pytest.approx(dense_kl(posterior, prior), rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_forged_tensor_is_refused_or_is_what_is_certified(kind, tmp_path):
    """Columns, rows and single numbers of every tensor scaled, turned, or made no number, behind a right seal."""
    _, posterior, prior = made(kind)
    posterior.save(tmp_path / "p.safetensors")
    content = (tmp_path / "p.safetensors").read_bytes()
    outer, inner, body = split(content)
    refused = taken = 0
    for k in range(40):
        chance = random.Random(f"{kind} {k}")
        name = chance.choice([n for n in outer if n != "__metadata__" and outer[n]["dtype"] == "F64"])
        start, stop = outer[name]["data_offsets"]
        numbers = torch.frombuffer(bytearray(body[start:stop]), dtype=torch.float64).clone()
        numbers = numbers.view(outer[name]["shape"] or [1])
        some = [numbers, numbers[chance.randrange(len(numbers))]]
        if numbers.ndim > 1:
            some.append(numbers[:, chance.randrange(numbers.shape[1])])
        chance.choice(some).mul_(chance.choice([-1.0, 0.0, 1e-3, 0.5, 3.0, 1e3, float("inf"), float("nan")]))
        forged = joined(outer, inner, body[:start] + numbers.numpy().tobytes() + body[stop:])
        (tmp_path / "forged.safetensors").write_bytes(forged)
        try:
            found = rebuilt(pt.load(tmp_path / "forged.safetensors"))
            shown = sum(divergence(found, prior).values())
        except PosterityError:
            refused += 1
            continue
        taken += 1
        assert shown == pytest.approx(dense_kl(found, prior), rel=1e-5, abs=1e-6)
        for block, matrix in found.precision.items():
            drawn = torch.linalg.inv(matrix.dense().double())
            frame = matrix.solve(torch.eye(matrix.size, dtype=torch.float64).view(-1, *matrix.shape)).reshape(
                drawn.shape
            )
            assert torch.allclose(frame, drawn, rtol=1e-4, atol=1e-8 * float(drawn.abs().max())), block
    assert refused > 0
    assert taken > 0


@pytest.mark.parametrize("wrap", [lambda m: m, lambda m: FlooredMatrix(m, 1.0, 0.5)], ids=["frame", "floored"])
@pytest.mark.parametrize("scale", [3.0, 1e-3])
def test_a_basis_that_only_claims_to_be_orthogonal_is_refused(wrap, scale):
    """Stretched columns would make the divergence small and the draws another thing."""
    model, posterior, prior = made("frame")
    forged = {}
    for name, matrix in posterior.precision.items():
        stretched = matrix.left.matrix.clone()
        stretched[:, 0] *= scale
        forged[name] = wrap(replace(matrix, left=Basis.orthogonal(stretched)))
    with pytest.raises(InfiniteDivergence, match="singular but for rounding"):
        certify(model, replace(posterior, precision=forged), prior, (D[0][:, :3], D[1]))


@pytest.mark.parametrize("where", ["left", "right", "turned"])
def test_a_basis_a_little_too_short_does_not_make_the_divergence_smaller(where):
    """Each column shorter by 5e-5 would leave as many nats out for each parameter: a hundred in two million."""
    _, posterior, prior = made("turned")
    short = {}
    for name, matrix in posterior.precision.items():
        curvature, by = matrix.curvature, {"left": 1.0, "right": 1.0, "turned": 1.0} | {where: 1 - 4.9e-5}
        frame = curvature.frame_of
        bases = (Basis.orthogonal(basis.matrix * by[s]) for s, basis in (("left", frame.left), ("right", frame.right)))
        again = RotatedMatrix(JointEigen(*bases, frame.values), curvature.index, curvature.vectors * by["turned"])
        short[name] = FlooredMatrix(again, matrix.share, matrix.floor)
    found = rebuilt(replace(posterior, precision=short))
    assert sum(divergence(found, prior).values()) == pytest.approx(dense_kl(posterior, prior), rel=1e-9)
    assert dense_kl(found, prior) == pytest.approx(dense_kl(posterior, prior), rel=1e-9)
