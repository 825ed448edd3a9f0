"""Every structured matrix agrees with its dense form, whatever the shape, seed and batch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from matrices import STRUCTURES, batches, seeds, sizes, vec

from posterity.errors import NotExact, SizeMismatch

every_structure = pytest.mark.parametrize("structure", STRUCTURES)
some = settings(max_examples=25, deadline=None)


def close(actual: torch.Tensor, expected: torch.Tensor, rtol: float = 1e-9) -> None:
    torch.testing.assert_close(actual, expected.expand_as(actual), rtol=rtol, atol=rtol * float(expected.abs().max()))


def block(out: int, inp: int, seed: int, batch: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(*batch, out, inp, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@every_structure
@some
@given(out=sizes, inp=sizes, seed=seeds, batch=batches)
def test_products_and_quadratic_forms_agree_with_dense(structure, out, inp, seed, batch):
    matrix, v = STRUCTURES[structure](out, inp, seed, batch), block(out, inp, seed, batch)
    expected = (matrix.dense() @ vec(v)).squeeze(-1).unflatten(-1, (out, inp))
    close(matrix @ v, expected)
    close(matrix.matmul(v), expected)
    close(matrix.quadratic(v), (v * expected).sum((-2, -1)))


@every_structure
@some
@given(out=sizes, inp=sizes, seed=seeds, batch=batches)
def test_solve_undoes_the_product(structure, out, inp, seed, batch):
    matrix, v = STRUCTURES[structure](out, inp, seed, batch), block(out, inp, seed, batch)
    close(matrix.solve(v), torch.linalg.solve(matrix.dense(), vec(v)).squeeze(-1).unflatten(-1, (out, inp)), 1e-8)
    close(matrix.solve(matrix @ v), v, 1e-8)


@every_structure
@some
@given(out=sizes, inp=sizes, seed=seeds, batch=batches)
def test_logdet_and_trace_agree_with_dense(structure, out, inp, seed, batch):
    matrix = STRUCTURES[structure](out, inp, seed, batch)
    dense = matrix.dense()
    assert matrix.logdet().shape == torch.Size(batch)
    torch.testing.assert_close(matrix.logdet(), torch.linalg.slogdet(dense).logabsdet, rtol=1e-9, atol=1e-9)
    close(matrix.trace(), dense.diagonal(dim1=-2, dim2=-1).sum(-1))


@every_structure
@some
@given(out=sizes, inp=sizes, seed=seeds, batch=batches)
def test_sums_and_multiples_are_exact(structure, out, inp, seed, batch):
    matrix = STRUCTURES[structure](out, inp, seed, batch)
    close((2.5 * matrix).dense(), 2.5 * matrix.dense())
    close((matrix / 4).dense(), matrix.dense() / 4)
    close((matrix + 0.5 * matrix).dense(), 1.5 * matrix.dense())
    dense = STRUCTURES["dense"](out, inp, seed + 1, batch)
    close((matrix + dense).dense(), matrix.dense() + dense.dense())
    close((dense + matrix).dense(), matrix.dense() + dense.dense())


@every_structure
def test_a_factor_per_batch_element_scales_each_matrix(structure):
    matrix = STRUCTURES[structure](2, 3, 0, (4,))
    factors = torch.tensor([1.0, 2.0, 0.5, 3.0], dtype=torch.float64)
    close((matrix * factors).dense(), matrix.dense() * factors[:, None, None])


@every_structure
def test_draws_have_the_inverse_as_covariance_and_no_mean(structure):
    matrix = STRUCTURES[structure](2, 3, 1)
    n = 200_000
    draws = matrix.sample(n, generator=torch.Generator().manual_seed(0)).flatten(1)
    covariance = torch.linalg.inv(matrix.dense())
    spread = covariance.diagonal().max()
    # Five standard errors of a mean and of a covariance entry.
    assert draws.mean(0).abs().max() < 5 * (spread / n).sqrt()
    assert (draws.T @ draws / n - covariance).abs().max() < 5 * spread * (2 / n) ** 0.5


@every_structure
def test_draws_repeat_with_the_seed_and_have_the_batch_shape(structure):
    matrix = STRUCTURES[structure](2, 3, 1, (4,))
    first, again, other = (matrix.sample(5, generator=torch.Generator().manual_seed(s)) for s in (3, 3, 4))
    assert first.shape == (5, 4, 2, 3)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@every_structure
def test_batch_elements_are_the_matrices_one_by_one(structure):
    batch = STRUCTURES[structure](3, 2, 5, (2,))
    assert batch.batch == (2,)
    v = block(3, 2, 0, ())
    for i in range(2):
        alone = torch.linalg.solve(batch.dense()[i], vec(v)).reshape(3, 2)
        close(batch.solve(v)[i], alone, 1e-8)


@every_structure
def test_moving_to_single_precision_keeps_the_matrix_but_for_rounding(structure):
    matrix = STRUCTURES[structure](3, 4, 2)
    single = matrix.to(dtype=torch.float32)
    assert single.dtype == torch.float32
    assert single.sample(2).dtype == torch.float32
    assert (single @ torch.ones(3, 4)).dtype == torch.float32
    torch.testing.assert_close(single.dense().double(), matrix.dense(), rtol=1e-5, atol=1e-5)
    assert single.to(dtype=torch.float64).dtype == torch.float64


@every_structure
def test_jitter_raises_every_eigenvalue_and_only_when_asked(structure):
    matrix = STRUCTURES[structure](2, 3, 3)
    lifted = matrix.jittered(1e-3)
    assert torch.linalg.eigvalsh(lifted.dense())[0] > torch.linalg.eigvalsh(matrix.dense())[0]
    close(matrix.jittered(0.0).dense(), matrix.dense())


@every_structure
def test_a_vector_of_the_wrong_shape_is_refused(structure):
    matrix = STRUCTURES[structure](2, 3, 0)
    with pytest.raises(SizeMismatch, match="2×3"):
        matrix.matmul(torch.zeros(3, 2, dtype=torch.float64))
    with pytest.raises(SizeMismatch, match="cannot add"):
        matrix + STRUCTURES["dense"](3, 2, 0)


@every_structure
@pytest.mark.parametrize("against", STRUCTURES)
def test_the_trace_against_another_matrix_agrees_with_dense(structure, against):
    p, q = STRUCTURES[structure](2, 3, 0, (2,)), STRUCTURES[against](2, 3, 9, (2,))
    expected = torch.linalg.solve(q.dense(), p.dense()).diagonal(dim1=-2, dim2=-1).sum(-1)
    close(q.trace_of(p), expected, 1e-8)


@every_structure
def test_whitened_vectors_have_the_inner_products_of_the_inverse(structure):
    matrix, u, v = STRUCTURES[structure](2, 3, 0, (4,)), block(2, 3, 1, (4,)), block(2, 3, 2, (4,))
    close((matrix.whiten(u) * matrix.whiten(v)).sum((-2, -1)), (u * matrix.solve(v)).sum((-2, -1)), 1e-8)


@pytest.mark.parametrize("structure", ["diagonal", "identity", "joint eigen", "kronecker", "sum of one", "sum of two"])
def test_a_matrix_is_diagonal_in_its_frame(structure):
    matrix = STRUCTURES[structure](3, 2, 0)
    frame = matrix.frame()
    both = torch.kron(frame.left, frame.right)
    close(both @ matrix.dense() @ both.mT, torch.diag(frame.values.flatten()), 1e-9)


@every_structure
def test_an_identity_adds_exactly_to_every_structure_that_can_hold_the_sum(structure):
    matrix, identity = STRUCTURES[structure](2, 3, 4), STRUCTURES["identity"](2, 3, 5)
    if structure == "joint eigen":  # its basis is not orthogonal: the identity is not diagonal there
        with pytest.raises(NotExact):
            matrix + identity
        return
    close((matrix + identity).dense(), matrix.dense() + identity.dense())
    close((identity + matrix).dense(), matrix.dense() + identity.dense())
