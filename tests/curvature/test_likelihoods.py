"""Likelihoods: torch's own numbers, and residuals whose outer products are the Fisher information."""

from __future__ import annotations

import math

import pytest
import torch
from curvature_cases import by_autograd, output_fisher, targets

from posterity.curvature import Bernoulli, Categorical, GaussianNoise

EVERY = [Categorical(), GaussianNoise(1.0), GaussianNoise(2.5), Bernoulli()]


def outputs(shape: tuple[int, ...], scale: float = 1.5) -> torch.Tensor:
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def gram(columns: list[torch.Tensor]) -> torch.Tensor:
    return sum(c.flatten(1)[:, :, None] * c.flatten(1)[:, None, :] for c in columns)


@pytest.mark.parametrize("likelihood", EVERY, ids=str)
@pytest.mark.parametrize("shape", [(6, 4), (6, 1), (6, 3, 4)])
def test_nll_is_torchs_and_the_residual_is_its_gradient(likelihood, shape):
    f = outputs(shape)
    y = targets(likelihood, f)
    if isinstance(likelihood, Categorical) and f.ndim == 3:
        y[0, 1] = y[2] = -100
    nll, gradient = by_autograd(likelihood, f, y)
    f, y = likelihood.check(f, y)
    torch.testing.assert_close(likelihood.nll(f, y), nll, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(likelihood.residual(f, y), gradient, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("likelihood", EVERY, ids=str)
@pytest.mark.parametrize("width", [1, 2, 5])
def test_fisher_columns_multiply_out_to_the_fisher_of_the_outputs(likelihood, width):
    f = outputs((6, width))
    columns = likelihood.fisher_columns(f, targets(likelihood, f))
    torch.testing.assert_close(gram(columns), output_fisher(likelihood, f), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("likelihood", EVERY, ids=str)
@pytest.mark.parametrize("width", [1, 2, 5])
def test_the_fisher_root_multiplies_out_to_the_fisher_with_no_column_too_many(likelihood, width):
    f = outputs((6, width))
    root, fisher = likelihood.fisher_root(f), output_fisher(likelihood, f)
    torch.testing.assert_close(root @ root.mT, fisher, rtol=1e-12, atol=1e-14)
    assert root.shape[-1] == max(1, int(torch.linalg.matrix_rank(fisher, rtol=1e-9).max()))


@pytest.mark.parametrize("likelihood", [GaussianNoise(2.0), Bernoulli()], ids=str)
def test_fisher_columns_of_outputs_with_positions(likelihood):
    f = outputs((4, 2, 3))
    columns = likelihood.fisher_columns(f, targets(likelihood, f))
    assert all(c.shape == f.shape for c in columns)
    torch.testing.assert_close(gram(columns), output_fisher(likelihood, f), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_saturated_probabilities_with_exact_zeros_give_no_nan(dtype):
    far = 1e4
    f = torch.tensor(
        [[far, 0, 0, 0], [0, 0, 0, far], [0, far, far, 0], [far, 0, 0, far], [0, -far, 0, -90], [0, 0, far, far - 90]],
        dtype=dtype,
    )
    p = f.softmax(-1)
    assert (p == 0).any(-1).all()
    result = gram(Categorical().fisher_columns(f, torch.zeros(6, dtype=torch.long)))
    expected = torch.diag_embed(p.double()) - p.double()[:, :, None] * p.double()[:, None, :]
    torch.testing.assert_close(result.double(), expected, rtol=1e-6, atol=1e-7 if dtype == torch.float32 else 1e-15)
    g = torch.tensor([[far], [-far], [0.0]], dtype=dtype)
    assert torch.isfinite(gram(Bernoulli().fisher_columns(g, torch.zeros(3, 1)))).all()


@pytest.mark.parametrize("likelihood", EVERY, ids=str)
def test_sampled_residuals_have_mean_zero_and_the_fisher_for_covariance(likelihood):
    draws = 40_000
    one = outputs((2, 3))
    f = one.repeat_interleave(draws, 0)
    generator = torch.Generator().manual_seed(3)
    r = likelihood.sampled_residual(f, targets(likelihood, f), generator).view(2, draws, 3)
    expected = output_fisher(likelihood, one)
    size = expected.diagonal(dim1=-2, dim2=-1).amax()
    # Five standard errors; fourth moments of these residuals are at most three squared second ones over the least of p.
    assert r.mean(1).abs().max() < 5 * math.sqrt(size / draws)
    seconds = torch.einsum("ndk,ndl->nkl", r, r) / draws
    assert (seconds - expected).abs().max() < 5 * size * math.sqrt(3 / draws)


def test_ignored_tokens_get_no_residual_of_any_kind():
    f = outputs((4, 3, 5))
    y = targets(Categorical(), f)
    y[1, 2] = -100
    for r in (
        Categorical().residual(f, y),
        Categorical().sampled_residual(f, y, torch.Generator().manual_seed(0)),
    ):
        assert not r[1, 2].any()
        assert r[y != -100].any(-1).all()


def test_classes_may_stand_in_the_second_dimension():
    f = outputs((3, 5, 2, 4))
    y = targets(Categorical(), f)
    last, same = Categorical().check(f, y)
    assert last.shape == (3, 2, 4, 5)
    torch.testing.assert_close(Categorical().nll(last, same), torch.nn.functional.cross_entropy(f, y, reduction="sum"))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_class_indices_of_any_integer_type_are_taken(dtype):
    f = outputs((6, 4))
    y = targets(Categorical(), f)
    checked, same = Categorical().check(f, y.to(dtype))
    torch.testing.assert_close(Categorical().nll(checked, same), Categorical().nll(f, y))
    torch.testing.assert_close(Categorical().residual(checked, same), Categorical().residual(f, y))


@pytest.mark.parametrize("likelihood", [GaussianNoise(), Bernoulli()], ids=str)
def test_targets_without_the_trailing_one_are_taken(likelihood):
    f = outputs((6, 1))
    y = targets(likelihood, f)
    _, shaped = likelihood.check(f, y.squeeze(1))
    assert torch.equal(shaped, y)


@pytest.mark.parametrize("precision", [0.0, -1.0, math.nan, math.inf])
def test_a_noise_precision_that_is_none_is_refused(precision):
    with pytest.raises(ValueError, match="positive and finite"):
        GaussianNoise(precision)
