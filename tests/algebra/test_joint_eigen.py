"""βF + αP in the joint eigenbasis is βF + αP, for every α and β, to rounding."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matrices import definite, pair, seeds, semidefinite, singular_pair, sizes

from posterity.algebra import Basis, JointEigen, Kronecker

scales = st.floats(1e-3, 1e3)


@settings(max_examples=60, deadline=None)
@given(out=sizes, inp=sizes, seed=seeds, alpha=scales, beta=scales)
def test_every_combination_agrees_with_dense(out, inp, seed, alpha, beta):
    prior, curvature = pair(out, inp, seed), singular_pair(out, inp, seed + 5)
    joint = prior.joint(curvature)
    total = joint.combine(alpha, beta)
    expected = beta * curvature.dense() + alpha * prior.dense()
    torch.testing.assert_close(total.dense(), expected, rtol=1e-9, atol=1e-9 * float(expected.abs().max()))
    torch.testing.assert_close(total.logdet(), torch.linalg.slogdet(expected).logabsdet, rtol=1e-9, atol=1e-8)


def test_the_reference_is_the_prior_and_the_values_alone_give_the_traces_of_the_bound():
    prior, curvature = pair(3, 4, 0), singular_pair(3, 4, 1)
    joint = prior.joint(curvature)
    torch.testing.assert_close(joint.combine(1.0, 0.0).dense(), prior.dense())
    alpha, beta = 0.3, 2.0
    inverse = torch.linalg.inv(beta * curvature.dense() + alpha * prior.dense())
    values = beta * joint.values + alpha
    torch.testing.assert_close((joint.values / values).sum(), (curvature.dense() @ inverse).trace())
    torch.testing.assert_close((1 / values).sum(), (prior.dense() @ inverse).trace())
    ratio = torch.logdet(beta * curvature.dense() + alpha * prior.dense()) - torch.logdet(prior.dense())
    torch.testing.assert_close(values.log().sum(), ratio)


@pytest.mark.parametrize("scale", [1e-10, 1e10])
def test_scales_far_apart_do_no_harm(scale):
    prior, curvature = pair(3, 4, 0), singular_pair(3, 4, 1)
    lopsided = Kronecker(prior.left * scale, prior.right / scale).joint(
        Kronecker(curvature.left / scale, curvature.right * scale)
    )
    torch.testing.assert_close(lopsided.combine(2.0, 3.0).dense(), 3 * curvature.dense() + 2 * prior.dense())


def test_orthogonal_bases_hold_an_eigenvalue_corrected_kronecker_product():
    left, right = (torch.linalg.eigh(definite(n, n)).eigenvectors for n in (3, 4))
    values = torch.rand(3, 4, dtype=torch.float64) + 0.5
    matrix = JointEigen(Basis.orthogonal(left), Basis.orthogonal(right), values)
    torch.testing.assert_close(torch.linalg.eigvalsh(matrix.dense()), values.flatten().sort().values)
    torch.testing.assert_close(matrix.combine(0.25, 1.0).dense(), matrix.dense() + 0.25 * torch.eye(12).double())


def test_rank_deficient_curvature_has_exact_zeros_not_small_negatives():
    joint = pair(6, 6, 0).joint(Kronecker(semidefinite(6, 1, 1), semidefinite(6, 2, 2)))
    assert (joint.values >= 0).all()
    assert (joint.values > 1e-9).sum() == 2


def test_a_curvature_rounded_to_single_precision_is_accepted_beside_an_ill_conditioned_prior():
    basis = torch.linalg.eigh(definite(6, 0)).eigenvectors
    thin = basis @ torch.diag(torch.logspace(-6, 0, 6, dtype=torch.float64)) @ basis.mT
    rounded = Kronecker(semidefinite(6, 2, 3).float(), semidefinite(6, 2, 4).float())
    total = Kronecker(thin, thin).joint(rounded).combine()
    assert torch.isfinite(total.logdet())
