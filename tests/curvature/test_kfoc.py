"""K-FOC: the nearest pair to each batch's Fisher information, by whatever road is cheapest."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from curvature_cases import EXAMPLES, case, data, distance, separable
from torch import Tensor, nn

import posterity.blocks.base
import posterity.blocks.convolution
import posterity.curvature.kfoc as kfoc
from posterity.algebra import DiagonalMatrix, Kronecker, KroneckerSum, nearest
from posterity.blocks import Call, find_blocks
from posterity.curvature import (
    KFAC,
    KFOC,
    Categorical,
    Dense,
    Diagonal,
    EmpiricalLabels,
    ExactLabels,
    GaussianNoise,
    SampledLabels,
    estimate,
)

NAMES = ["mlp", "conv", "shared", "shared conv", "norms", "encoder", "tagger", "pixels"]
SHARP = {"tol": 1e-13, "steps": 5000}


def run(name, estimator, likelihood=None, seed=0, data_seed=0, n=EXAMPLES, **options):
    likelihood = likelihood or Categorical()
    given = options.pop("data", None) or data(name, likelihood, data_seed, n)
    options.setdefault("generator", torch.Generator().manual_seed(seed))
    model = options.pop("model", None) or case(name, data_seed, n).model
    return estimate(model, given, estimator, likelihood, progress=False, **options)


def leading_pair(dense: Tensor, shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """The nearest Kronecker product to a dense matrix, and all singular values: Van Loan's rearrangement."""
    out, inp = shape
    rearranged = dense.view(out, inp, out, inp).permute(0, 2, 1, 3).reshape(out * out, inp * inp)
    u, s, v = torch.linalg.svd(rearranged, full_matrices=False)
    return torch.kron((s[0] * u[:, 0]).view(out, out), v[0].view(inp, inp)), s


@pytest.mark.parametrize("labels", [SampledLabels(1), SampledLabels(3), EmpiricalLabels(), ExactLabels()], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_kfoc_of_one_batch_is_the_leading_singular_pair_of_the_rearranged_fisher(name, labels):
    likelihood = GaussianNoise(2.0) if case(name).outputs.ndim > 2 else Categorical()
    dense, pair = (run(name, e, likelihood) for e in (Dense(labels), KFOC(labels, **SHARP)))
    for block in separable(dense.blocks, case(name).model):
        assert isinstance(pair[block], Kronecker)
        expected, spectrum = leading_pair(dense[block].dense(), pair[block].shape)
        best = float(spectrum[1:].norm() / spectrum.norm())
        assert distance(pair[block], dense[block]) == pytest.approx(best, rel=1e-9, abs=1e-7)
        if spectrum[1] < 0.99 * spectrum[0]:
            assert distance(pair[block], expected) < 1e-8


@pytest.mark.parametrize("tol", [1e-8, KFOC().tol, 10.0])
@pytest.mark.parametrize("name", NAMES)
def test_kfoc_is_no_further_from_the_batch_fisher_than_kfac(name, tol):
    """Also when it stops after a single step (tol = 10)."""
    closer = 0
    for seed in range(4):
        dense, kfac, pair = (run(name, e, seed=seed, data_seed=seed) for e in (Dense(), KFAC(), KFOC(tol=tol)))
        for block in separable(dense.blocks, case(name, seed).model):
            ours, theirs = distance(pair[block], dense[block]), distance(kfac[block], dense[block])
            assert ours <= theirs * (1 + 1e-9) + 1e-9
            closer += ours < 0.99 * theirs
    assert closer > 3


@pytest.mark.parametrize("name", NAMES)
def test_the_default_tolerance_gives_the_best_error_to_four_digits(name):
    dense, rough, sharp = (run(name, e) for e in (Dense(), KFOC(), KFOC(**SHARP)))
    for block in separable(dense.blocks, case(name).model):
        best = distance(sharp[block], dense[block])
        assert -1e-9 <= distance(rough[block], dense[block]) - best <= 1e-4 * max(best, 1e-3)


def test_a_single_linear_example_is_met_exactly():
    x, y = (part[:1] for part in data("mlp"))
    dense, kfac, pair = (run("mlp", e, data=(x, y)) for e in (Dense(), KFAC(), KFOC()))
    for block in dense.blocks:
        assert distance(pair[block], dense[block]) < 1e-12
        assert distance(pair[block], kfac[block]) < 1e-12


@pytest.mark.parametrize("name", ["norms", "encoder"])
def test_norm_layers_stay_diagonal(name):
    diagonal, pair = (run(name, e, batch_size=3) for e in (Diagonal(), KFOC()))
    norms = set(diagonal.blocks) - set(separable(diagonal.blocks, case(name).model))
    assert norms
    for block in norms:
        assert isinstance(pair[block], DiagonalMatrix)
        torch.testing.assert_close(pair[block].values, diagonal[block].values, rtol=1e-12, atol=0)


# --- the two roads ----------------------------------------------------------------------------------


def calls_of(layer: nn.Module, *shapes: tuple[int, ...], seed: int = 0) -> tuple:
    """A block with random inputs and output gradients, a call for every shape."""
    generator = torch.Generator().manual_seed(seed)
    block = find_blocks(nn.Sequential(layer.double()))["0"]
    calls = []
    for shape in shapes:
        a = torch.randn(shape, generator=generator, dtype=torch.float64)
        out = layer(a)
        calls.append(Call(a, torch.randn(out.shape, generator=generator, dtype=torch.float64)))
    return block, calls


def written_out(pair: kfoc.RowPair) -> Tensor:
    return torch.kron(pair.left.T @ pair.left, pair.right.T @ pair.right)


LAYERS = {
    "linear": (lambda: nn.Linear(3, 4), [(5, 3)]),
    "linear without bias": (lambda: nn.Linear(3, 4, bias=False), [(5, 3)]),
    "linear over time": (lambda: nn.Linear(3, 2), [(5, 4, 3)]),
    "linear twice": (lambda: nn.Linear(3, 2), [(5, 3), (5, 3)]),
    "linear on two lengths": (lambda: nn.Linear(3, 2), [(5, 4, 3), (5, 2, 3)]),
    "convolution": (lambda: nn.Conv2d(2, 3, 2), [(5, 2, 4, 4)]),
    "strided convolution": (lambda: nn.Conv2d(2, 3, 3, stride=2, padding=1), [(5, 2, 5, 5)]),
    "grouped convolution": (lambda: nn.Conv1d(4, 6, 3, groups=2), [(5, 4, 6)]),
    "convolution on two sizes": (lambda: nn.Conv2d(2, 2, 2), [(5, 2, 4, 4), (5, 2, 3, 3)]),
}


@pytest.mark.parametrize("layer", LAYERS)
def test_both_roads_lead_to_the_same_pair(layer):
    build, shapes = LAYERS[layer]
    block, calls = calls_of(build(), *shapes)
    first = written_out(kfoc._in_the_span(*kfoc.rows(block, calls), tol=1e-14, steps=5000))
    second = torch.kron(*kfoc._over_gradients(block, calls, tol=1e-14, steps=5000))
    assert distance(first, second) < 1e-9
    g = torch.cat(list(posterity.blocks.base.gradients(block, calls))).flatten(1)
    expected, _ = leading_pair(g.T @ g, block.shape)
    assert distance(first, expected) < 1e-9


@pytest.mark.parametrize("layer", LAYERS)
def test_both_roads_take_the_same_steps(layer):
    """So that where a tolerance stops them does not depend on the road."""
    build, shapes = LAYERS[layer]
    block, calls = calls_of(build(), *shapes)
    span = written_out(kfoc._in_the_span(*kfoc.rows(block, calls), tol=0.0, steps=2))
    factors = torch.kron(*kfoc._over_gradients(block, calls, tol=0.0, steps=2))
    assert distance(span, factors) < 1e-12


@pytest.mark.parametrize("name", ["conv", "shared conv", "encoder", "tagger", "mlp"])
@pytest.mark.parametrize("budget", [0, 1 << 40])
def test_neither_chunk_size_nor_budget_changes_the_result(name, budget, monkeypatch):
    estimators = (KFOC(SampledLabels(2), **SHARP), Dense(), Diagonal(), KFAC())
    before = [run(name, e) for e in estimators]
    monkeypatch.setattr(posterity.blocks.base, "CHUNK", 1)
    monkeypatch.setattr(posterity.blocks.convolution, "CHUNK", 1)
    monkeypatch.setattr(kfoc, "BUDGET", budget)
    for old, new in zip(before, [run(name, e) for e in estimators], strict=True):
        for block, matrix in old.blocks.items():
            assert distance(new[block], matrix) < 1e-8


def test_gradients_come_in_pieces_of_bounded_size(monkeypatch):
    block, calls = calls_of(nn.Linear(3, 4), (7, 2, 3))
    whole = torch.cat(list(posterity.blocks.base.gradients(block, calls)))
    monkeypatch.setattr(posterity.blocks.base, "CHUNK", 3 * 16)
    pieces = list(posterity.blocks.base.gradients(block, calls))
    assert [len(p) for p in pieces] == [3, 3, 1]
    torch.testing.assert_close(torch.cat(pieces), whole)


# --- scales -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [0, kfoc.BUDGET])
@pytest.mark.parametrize("scale", [1e-24, 1e-12, 1e12, 1e24])
def test_the_scale_of_gradients_only_scales_the_result(scale, budget, monkeypatch):
    """In float32 fourth powers of gradients would leave its range."""
    monkeypatch.setattr(kfoc, "BUDGET", budget)
    model = deepcopy(case("conv").model).float()
    x, _ = data("conv")

    def pairs(precision: float) -> dict[str, Tensor]:
        given = (x.float(), torch.zeros(EXAMPLES, 3))
        generator = torch.Generator().manual_seed(0)
        likelihood = GaussianNoise(precision)
        result = estimate(model, given, KFOC(), likelihood, batch_size=3, generator=generator, progress=False)
        return {k: torch.kron(m.left.double(), m.right.double()) / precision for k, m in result.blocks.items()}

    expected = pairs(1.0)
    for block, matrix in pairs(scale).items():
        assert distance(matrix, expected[block]) < 1e-4


def test_gradients_of_zero_give_a_pair_of_zero():
    class Saturated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return 0 * self.fc(x) + torch.tensor([1e4, 0, 0])

    result = run("mlp", KFOC(), model=Saturated(), data=(torch.randn(5, 4), torch.zeros(5, dtype=torch.long)))
    assert not result["fc"].dense().any()


# --- several batches --------------------------------------------------------------------------------


def test_pairs_in_rows_are_joined_to_the_nearest_pair_of_their_sum():
    generator = torch.Generator().manual_seed(0)

    def rows(n: int) -> kfoc.RowPair:
        sizes = (n, 3), (n, 4)
        return kfoc.RowPair(*(torch.randn(size, generator=generator, dtype=torch.float64) for size in sizes))

    def pair(part: kfoc.RowPair) -> Kronecker:
        return Kronecker(part.left.T @ part.left, part.right.T @ part.right)

    parts = [rows(n) for n in (5, 1, 2)]
    first = kfoc.joined(None, parts)
    assert distance(first, nearest(KroneckerSum([pair(p) for p in parts]))) < 1e-12
    second = kfoc.joined(first, parts[:2])
    assert distance(second, nearest(KroneckerSum([first, *map(pair, parts[:2])]))) < 1e-12


def test_a_vanishing_batch_changes_nothing():
    x, _ = data("mlp")
    some = run("mlp", KFOC(EmpiricalLabels()), GaussianNoise(), data=[(x[:3], case("mlp").outputs[:3] + 1)])
    with_zero = [
        (x[3:], case("mlp").outputs[3:]),
        (x[:3], case("mlp").outputs[:3] + 1),
        (x[3:5], case("mlp").outputs[3:5]),
    ]
    result = run("mlp", KFOC(EmpiricalLabels()), GaussianNoise(), data=with_zero)
    for block, matrix in some.blocks.items():
        assert distance(result[block], matrix) < 1e-10


@pytest.mark.parametrize("batch_size", [2, 8])
@pytest.mark.parametrize("name", ["mlp", "conv", "shared", "tagger"])
def test_many_batches_stay_close_to_the_total_fisher(name, batch_size):
    """Greedy merging costs something: less than half of the best pair's distance. From batches of two KFAC can be closer."""
    estimators = (Dense(EmpiricalLabels()), KFAC(EmpiricalLabels()), KFOC(EmpiricalLabels()))
    dense, kfac, pair = (run(name, e, batch_size=batch_size, n=32) for e in estimators)
    for block in dense.blocks:
        _, spectrum = leading_pair(dense[block].dense(), pair[block].shape)
        best = float(spectrum[1:].norm() / spectrum.norm())
        error = distance(pair[block], dense[block])
        assert best - 1e-9 <= error <= 1.5 * best
        assert error <= distance(kfac[block], dense[block]) * (1.02 if batch_size > 2 else 1.2)


def test_factors_are_positive_semidefinite():
    for name in NAMES:
        result = run(name, KFOC(), batch_size=2)
        for block in separable(result.blocks, case(name).model):
            for factor in (result[block].left, result[block].right):
                values = torch.linalg.eigvalsh(factor)
                assert values[0] >= -1e-12 * values[-1]


@pytest.mark.parametrize("shape", [(3, 2, 5), (2, 6, 5)], ids=["fewer outputs than inputs", "more"])
def test_every_way_of_iterating_finds_the_same_pair(shape):
    inp, out, size = shape
    torch.manual_seed(0)
    model = torch.nn.Conv2d(inp, out, 3).double()
    (block,) = find_blocks(model).values()
    calls = [Call(torch.randn(4, inp, size, size).double(), torch.randn(4, out, size - 2, size - 2).double())]
    rows = kfoc._in_the_span(*kfoc.rows(block, calls), 1e-12, 500)
    expected = (rows.left.T @ rows.left)[:, None, :, None] * (rows.right.T @ rows.right)[None, :, None, :]
    for way in (kfoc._over_gradients, kfoc._over_pairs):
        left, right = way(block, calls, 1e-12, 500)
        torch.testing.assert_close(left[:, None, :, None] * right[None, :, None, :], expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("layer", ["linear", "linear over time", "linear twice", "convolution", "grouped convolution"])
def test_labels_of_one_example_together_are_as_many_examples(layer):
    """Every label's gradients with the input read once, and the same with the input repeated."""
    build, shapes = LAYERS[layer]
    block, calls = calls_of(build(), *shapes)
    draw = torch.Generator().manual_seed(1)
    passes = [[Call(c.a, torch.randn(c.s.shape, generator=draw, dtype=c.s.dtype)) for c in calls] for _ in range(3)]
    found = kfoc.nearest_to_batch(block, passes, 1e-13, 5000)
    left, right = kfoc._over_gradients(block, kfoc._joined(passes), 1e-13, 5000)
    dense = written_out(found) if isinstance(found, kfoc.RowPair) else torch.kron(found.left, found.right)
    assert distance(dense, torch.kron(left, right)) < 1e-9
