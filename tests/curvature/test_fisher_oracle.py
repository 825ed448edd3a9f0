"""Every estimator against the Fisher information by brute force."""

from __future__ import annotations

import math

import pytest
import torch
from curvature_cases import (
    BUILDERS,
    EXAMPLES,
    FLAT,
    case,
    data,
    distance,
    empirical_gradients,
    fisher,
    jacobians,
    network,
    separable,
    targets,
)
from torch import nn

from posterity.algebra import DenseMatrix, DiagonalMatrix, JointEigen, Kronecker
from posterity.curvature import (
    EKFAC,
    KFAC,
    Bernoulli,
    Categorical,
    Dense,
    Diagonal,
    EmpiricalLabels,
    ExactLabels,
    GaussianNoise,
    SampledLabels,
    estimate,
)

LIKELIHOODS = [Categorical(), GaussianNoise(2.5), Bernoulli()]


def run(name, estimator, likelihood=None, **options):
    likelihood = likelihood or Categorical()
    given = options.pop("data", None) or data(name, likelihood)
    options.setdefault("generator", torch.Generator().manual_seed(0))
    return estimate(case(name).model, given, estimator, likelihood, progress=False, **options)


def same(result, expected, rtol=1e-10):
    """Equal to `rtol` of the largest entry."""
    result = result.dense() if hasattr(result, "dense") else result
    scale = float(expected.abs().max())
    torch.testing.assert_close(result, expected, rtol=rtol, atol=rtol * scale)


# --- Dense ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=str)
@pytest.mark.parametrize("name", [*FLAT, "one output", "tagger", "pixels"])
def test_dense_with_exact_labels_is_the_true_fisher(name, likelihood):
    if isinstance(likelihood, Categorical) and case(name).outputs.ndim > 2:
        pytest.skip("refused by name: see the tests of bad input")
    result = run(name, Dense(ExactLabels()), likelihood, batch_size=3)
    expected = fisher(name, likelihood)
    assert list(result.blocks) == list(expected)
    for block, matrix in expected.items():
        assert isinstance(result[block], DenseMatrix)
        same(result[block], matrix)


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=str)
@pytest.mark.parametrize("name", [n for n in BUILDERS if n != "pixels"])
def test_dense_with_data_labels_is_the_empirical_fisher(name, likelihood):
    wanted = data(name, likelihood)[1]
    if name == "tagger" and isinstance(likelihood, Categorical):
        wanted = wanted.clone()
        wanted[0, 1] = wanted[3] = -100
    result = run(name, Dense(EmpiricalLabels()), likelihood, data=(case(name).x, wanted), batch_size=3)
    for block, g in empirical_gradients(name, likelihood, wanted).items():
        same(result[block], g.T @ g)


def test_dense_with_classes_in_the_second_dimension():
    wanted = data("pixels")[1].clone()
    wanted[0, 0, 0] = -100
    result = run("pixels", Dense(EmpiricalLabels()), data=(case("pixels").x, wanted), batch_size=3)
    for block, g in empirical_gradients("pixels", Categorical(), wanted).items():
        same(result[block], g.T @ g)


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=str)
def test_one_pass_also_tells_the_summed_nll_and_the_number_of_examples(likelihood):
    from curvature_cases import by_autograd

    result = run("conv", Diagonal(), likelihood, batch_size=2)
    expected, _ = by_autograd(likelihood, case("conv").outputs, data("conv", likelihood)[1])
    assert result.nll == pytest.approx(float(expected), rel=1e-12)
    assert result.count == EXAMPLES


# --- Diagonal ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [ExactLabels(), EmpiricalLabels(), SampledLabels(2)], ids=str)
@pytest.mark.parametrize("name", BUILDERS)
def test_diagonal_is_the_diagonal_of_dense(name, labels):
    likelihood = GaussianNoise(2.0) if case(name).outputs.ndim > 2 else Categorical()
    dense, diagonal = (run(name, e(labels), likelihood, batch_size=4) for e in (Dense, Diagonal))
    for block, matrix in dense.blocks.items():
        assert isinstance(diagonal[block], DiagonalMatrix)
        same(diagonal[block].values.flatten(), matrix.dense().diagonal(), 1e-12)


# --- sums over the data -----------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [ExactLabels(), EmpiricalLabels()], ids=str)
@pytest.mark.parametrize("kind", [Dense, Diagonal, KFAC, EKFAC, lambda labels: KFAC(labels, "reduce")])
@pytest.mark.parametrize("name", ["conv", "shared", "norms", "encoder"])
def test_neither_batch_size_nor_order_matters(name, kind, labels):
    x, y = data(name)
    whole = run(name, kind(labels), batch_size=EXAMPLES)
    order = torch.randperm(EXAMPLES, generator=torch.Generator().manual_seed(5))
    for other in (
        run(name, kind(labels), batch_size=1),
        run(name, kind(labels), batch_size=3),
        run(name, kind(labels), data=(x[order], y[order]), batch_size=4),
    ):
        assert other.nll == pytest.approx(whole.nll, rel=1e-12)
        for block, matrix in whole.blocks.items():
            same(other[block], matrix.dense())


@pytest.mark.parametrize("kind", [Dense, Diagonal])
@pytest.mark.parametrize("name", FLAT)
def test_a_batch_is_the_sum_of_its_examples(name, kind):
    x, y = data(name)
    whole = run(name, kind(ExactLabels()))
    single = [run(name, kind(ExactLabels()), data=(x[i : i + 1], y[i : i + 1])) for i in range(EXAMPLES)]
    assert whole.nll == pytest.approx(sum(s.nll for s in single), rel=1e-12)
    for block, matrix in whole.blocks.items():
        same(matrix, sum(s[block].dense() for s in single))


# --- KFAC -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [SampledLabels(1), EmpiricalLabels()], ids=str)
def test_kfac_is_exact_for_a_linear_layer_and_one_example(labels):
    x, y = (part[:1] for part in data("mlp"))
    kfac, dense = (run("mlp", e(labels), data=(x, y)) for e in (KFAC, Dense))
    for block, matrix in dense.blocks.items():
        same(kfac[block], matrix.dense())


def gradients_of(layer: nn.Module, model: nn.Module, x: torch.Tensor, y: torch.Tensor):
    """Input and output gradient of every call of a layer, at the labels of the data, by a plain backward pass."""
    calls = []

    def hook(module, args, out):
        out = out.clone().requires_grad_()
        out.retain_grad()
        calls.append((args[0].detach(), out))
        return out

    handle = layer.register_forward_hook(hook)
    model.eval()
    try:
        nn.functional.cross_entropy(model(x), y, reduction="sum").backward()
    finally:
        handle.remove()
        model.train()
        model.zero_grad(set_to_none=True)
    return [(a, out.grad) for a, out in calls]


def one_more(rows: torch.Tensor) -> torch.Tensor:
    return torch.cat((rows, torch.ones_like(rows[..., :1])), -1)


@pytest.mark.parametrize("batch_size", [3, 100])
@pytest.mark.parametrize(("name", "layer"), [("mlp", "0"), ("shared", "shared"), ("encoder", "layer.linear1")])
def test_kfac_of_a_linear_layer_is_the_formula(name, layer, batch_size):
    model, (x, y) = network(name), data(name)
    calls = gradients_of(model.get_submodule(layer), model, x, y)
    rows = one_more(torch.cat([a.flatten(1, -2) if a.ndim > 2 else a[:, None] for a, _ in calls], 1))
    grads = torch.cat([s.flatten(1, -2) if s.ndim > 2 else s[:, None] for _, s in calls], 1)
    _check_both(name, layer, rows, grads, batch_size)


@pytest.mark.parametrize("batch_size", [3, 100])
@pytest.mark.parametrize(("name", "layer"), [("conv", "body.0"), ("conv", "body.2"), ("shared conv", "shared")])
def test_kfac_of_a_convolution_is_the_formula(name, layer, batch_size):
    model, (x, y) = network(name), data(name)
    module = model.get_submodule(layer)
    calls = gradients_of(module, model, x, y)
    patches = [
        nn.functional.unfold(a, module.kernel_size, padding=module.padding, stride=module.stride).mT for a, _ in calls
    ]
    grads = torch.cat([s.flatten(2).mT for _, s in calls], 1)
    _check_both(name, layer, one_more(torch.cat(patches, 1)), grads, batch_size)


def _check_both(name, layer, rows, grads, batch_size):
    """L = Σ_n Σ_t s sᵀ and R = the mean of a aᵀ over examples and positions; reduced: of Σ_t s, and of the mean of a."""
    n, t = rows.shape[:2]
    expand = run(name, KFAC(EmpiricalLabels()), batch_size=batch_size)[layer]
    assert isinstance(expand, Kronecker)
    same(expand.left, torch.einsum("nti,ntj->ij", grads, grads))
    same(expand.right, torch.einsum("nti,ntj->ij", rows, rows) / (n * t))
    reduce = run(name, KFAC(EmpiricalLabels(), "reduce"), batch_size=batch_size)[layer]
    s, a = grads.sum(1), rows.mean(1)
    same(reduce.left, s.T @ s)
    same(reduce.right, a.T @ a / n)


def test_expand_and_reduce_agree_where_there_is_one_position_and_differ_where_there_are_more():
    for name, agree in (("mlp", True), ("conv", False)):
        first, second = (run(name, KFAC(ExactLabels(), sharing)) for sharing in ("expand", "reduce"))
        block = next(iter(first.blocks))
        assert (distance(first[block], second[block]) < 1e-12) is agree


def test_exact_labels_enter_the_input_factor_once():
    exact, empirical = (run("conv", KFAC(labels))["body.0"] for labels in (ExactLabels(), EmpiricalLabels()))
    same(exact.right, empirical.right)
    exact, empirical = (run("conv", KFAC(labels, "reduce"))["body.0"] for labels in (ExactLabels(), EmpiricalLabels()))
    same(exact.right, empirical.right)


# --- EKFAC ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [ExactLabels(), EmpiricalLabels(), SampledLabels(1), SampledLabels(3)], ids=str)
@pytest.mark.parametrize("name", FLAT)
def test_ekfac_is_no_further_from_the_fisher_of_the_same_labels_than_kfac(name, labels):
    dense, kfac, ekfac = (run(name, e(labels), batch_size=3) for e in (Dense, KFAC, EKFAC))
    for block in separable(dense.blocks, case(name).model):
        assert isinstance(ekfac[block], JointEigen)
        assert distance(ekfac[block], dense[block]) <= distance(kfac[block], dense[block]) * (1 + 1e-10)
        # The trace is kept exactly, whatever the basis.
        assert float(ekfac[block].trace()) == pytest.approx(float(dense[block].trace()), rel=1e-10)


@pytest.mark.parametrize("kind", [KFAC, EKFAC, lambda labels: KFAC(labels, "reduce")])
@pytest.mark.parametrize("name", ["norms", "encoder"])
def test_every_estimator_keeps_the_diagonal_of_norm_layers(name, kind):
    diagonal, result = (run(name, e(ExactLabels()), batch_size=3) for e in (Diagonal, kind))
    norms = set(diagonal.blocks) - set(separable(diagonal.blocks, case(name).model))
    assert norms
    for block in norms:
        assert isinstance(result[block], DiagonalMatrix)
        same(result[block].values, diagonal[block].values)


# --- sampled labels ---------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize(
    ("name", "likelihood"), [("mlp", Categorical()), ("conv", GaussianNoise(2.5)), ("mlp", Bernoulli())]
)
def test_the_mean_over_sampled_labels_is_exact_and_n_does_not_inflate(name, likelihood, n):
    copies = 400
    x, y = data(name, likelihood)
    many = (x.repeat(copies, *[1] * (x.ndim - 1)), y.repeat(copies, *[1] * (y.ndim - 1)))
    sampled = run(name, Dense(SampledLabels(n)), likelihood, data=many)
    expected = fisher(name, likelihood)
    for block, matrix in expected.items():
        mean = sampled[block].dense() / copies
        # An entry's variance over one draw is at most about 2 F_ii F_jj (normal residuals) or, for labels, the fourth moment.
        assert distance(mean, matrix) < 5 * math.sqrt(3 / (copies * n))
        assert float(mean.trace()) == pytest.approx(float(matrix.trace()), rel=5 * math.sqrt(3 / (copies * n)))


def test_more_sampled_labels_come_closer():
    expected = fisher("mlp", Categorical())["0"]

    def spread(n: int) -> float:
        draws = [
            run("mlp", Dense(SampledLabels(n)), generator=torch.Generator().manual_seed(s))["0"].dense()
            for s in range(40)
        ]
        return math.fsum(distance(d, expected) ** 2 for d in draws) / 40

    assert 16 * 0.5 < spread(1) / spread(16) < 16 * 2


def test_sampled_labels_do_not_look_at_the_targets():
    x, y = data("mlp")
    first, second = (run("mlp", Dense(SampledLabels(1)), data=(x, labels)) for labels in (y, (y + 1) % 3))
    assert torch.equal(first["0"].dense(), second["0"].dense())
    assert first.nll != second.nll


def test_sampled_tokens_are_unbiased_and_ignored_ones_count_for_nothing():
    copies, (x, y) = 400, data("tagger")
    y = y.clone()
    y[:, 1] = -100
    result = run("tagger", Dense(SampledLabels(1)), data=(x.repeat(copies, 1), y.repeat(copies, 1)))
    p = case("tagger").outputs.softmax(-1)
    middle = torch.diag_embed(p) - p[..., :, None] * p[..., None, :]
    kept = [0, 2]
    for block, j in jacobians("tagger").items():
        j = j.unflatten(1, (3, 3))[:, kept]
        matrix = torch.einsum("ntkp,ntkl,ntlq->pq", j, middle[:, kept], j)
        assert distance(result[block].dense() / copies, matrix) < 5 * math.sqrt(3 / copies)


def test_targets_helper_spans_all_classes():
    assert set(targets(Categorical(), torch.zeros(100, 3)).tolist()) == {0, 1, 2}
