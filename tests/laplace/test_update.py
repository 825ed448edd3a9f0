"""Bayes' rule: what goes in comes out weighted, and nothing else."""

from __future__ import annotations

import pytest
import torch
from linear_gaussian import close
from matrices import STRUCTURES, definite, semidefinite
from torch import Tensor, nn

import posterity as pt
from posterity.algebra import Basis, FlooredMatrix, JointEigen, Kronecker, KroneckerSum, Matrix
from posterity.curvature import KFAC, Categorical, Curvature
from posterity.errors import BlockMismatch, NotExact
from posterity.gaussian import Gaussian

SHAPE = (2, 3)


def rotated(seed: int) -> JointEigen:
    """What EKFAC leaves behind: orthogonal eigenvectors and values in them."""
    left, right = (torch.linalg.eigh(definite(n, seed)).eigenvectors for n in SHAPE)
    values = torch.rand(SHAPE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return JointEigen(Basis.orthogonal(left), Basis.orthogonal(right), values)


CURVATURES = {
    "kronecker": lambda: Kronecker(semidefinite(2, 1, 3), definite(3, 4)),
    "rotated": lambda: rotated(5),
    "diagonal": lambda: STRUCTURES["diagonal"](*SHAPE, 6),
    "dense": lambda: STRUCTURES["dense"](*SHAPE, 7),
}
PAIRS = [
    *[("identity", curvature) for curvature in CURVATURES],
    ("kronecker", "kronecker"),
    ("kronecker", "dense"),
    ("sum of one", "kronecker"),
    ("diagonal", "diagonal"),
    ("diagonal", "dense"),
    *[("dense", curvature) for curvature in CURVATURES],
]


def gaussian(**blocks: Matrix) -> Gaussian:
    return Gaussian({name: torch.zeros(m.shape, dtype=torch.float64) for name, m in blocks.items()}, blocks)


def curvature(**blocks: Matrix) -> Curvature:
    return Curvature(blocks, 1.5, 10, KFAC(), Categorical())


def point(prior: Gaussian) -> dict[str, Tensor]:
    return {name: torch.full_like(mean, 0.5) for name, mean in prior.mean.items()}


@pytest.mark.parametrize(("before", "data"), PAIRS)
@pytest.mark.parametrize(("alpha", "beta", "tau"), [(1.0, 1.0, 1.0), (0.3, 2.5, 0.1), (7.0, 0.0, 4.0)])
def test_the_precision_is_the_weighted_sum_over_the_temperature(before, data, alpha, beta, tau):
    prior, new = gaussian(a=STRUCTURES[before](*SHAPE, 0)), CURVATURES[data]()
    # Two pairs without a floor are exact as a sum; everything else here is exact in one frame too.
    join = "sum" if data == "kronecker" and before in ("kronecker", "sum of one") else "frame"
    posterior = pt.update(point(prior), curvature(a=new), prior, pt.Scales(alpha, beta, tau), join=join)
    expected = (beta * new.dense() + alpha * prior.precision["a"].dense()) / tau
    close(posterior.precision["a"].dense(), expected, 1e-13)
    assert torch.equal(posterior.mean["a"], point(prior)["a"])


@pytest.mark.parametrize("before", [s for s in STRUCTURES if s not in ("sum of two", "sum of three", "joint eigen")])
@pytest.mark.parametrize("nothing", ["beta is zero", "curvature is zero"])
def test_posterior_after_no_data_is_the_prior(before, nothing):
    prior = gaussian(a=STRUCTURES[before](*SHAPE, 0))
    if nothing == "beta is zero":
        posterior = pt.update(prior.mean, curvature(a=CURVATURES["dense"]()), prior, pt.Scales(beta=0))
    else:
        zero = {"diagonal": CURVATURES["diagonal"], "dense": CURVATURES["dense"]}.get(before, CURVATURES["kronecker"])()
        posterior = pt.update(prior.mean, curvature(a=zero * 0.0), prior)
    assert abs(float(posterior.kl(prior))) < 1e-10
    close(posterior.precision["a"].dense(), prior.precision["a"].dense(), 1e-14)


def test_a_prior_that_is_a_sum_is_joined_first_and_its_error_told():
    two = KroneckerSum([Kronecker(definite(2, s), definite(3, s + 9)) for s in range(2)])
    prior = gaussian(a=two)
    new = CURVATURES["kronecker"]()
    posterior = pt.update(point(prior), curvature(a=new), prior, join="sum")
    joined = prior.compress()
    close(posterior.precision["a"].dense(), joined.precision["a"].dense() + new.dense(), 1e-13)
    off = torch.linalg.norm(joined.precision["a"].dense() - two.dense()) / torch.linalg.norm(two.dense())
    assert posterior.card.compression["a"] == pytest.approx(float(off), rel=1e-6)
    assert 1e-3 < off < 1


def test_structures_without_an_exact_sum_are_refused_by_name():
    prior = gaussian(a=STRUCTURES["kronecker"](*SHAPE, 0))
    for data in ("diagonal", "rotated"):
        with pytest.raises(NotExact):
            pt.update(point(prior), curvature(a=CURVATURES[data]()), prior, join="sum")


@pytest.mark.parametrize(
    "before", ["identity", "kronecker", "sum of two", "sum of three", "joint eigen", "diagonal", "dense"]
)
@pytest.mark.parametrize("data", list(CURVATURES))
def test_in_one_frame_trace_and_floor_are_exact_and_the_log_det_never_falls(before, data):
    prior = gaussian(a=STRUCTURES[before](*SHAPE, 0)).adjusted(floor=0.5)
    new = CURVATURES[data]()
    posterior = pt.update(point(prior), curvature(a=new), prior)
    family = posterior.precision["a"]
    assert isinstance(family, FlooredMatrix)
    assert family.floor == 0.5
    close(family.trace().double(), (prior.precision["a"].trace() + new.trace()).double(), 1e-12)
    assert float(torch.linalg.eigvalsh(family.dense().double()).min()) >= 0.5 - 1e-12
    assert float(family.logdet()) >= float(prior.precision["a"].logdet()) - 1e-9


def test_a_prior_used_at_its_own_numbers_is_the_prior_given():
    prior = gaussian(a=STRUCTURES["identity"](*SHAPE, 0))
    learned = pt.update(point(prior), curvature(a=CURVATURES["kronecker"]()), prior)
    assert learned.adjusted().fingerprint() == learned.fingerprint()
    family = learned.precision["a"]
    weaker = learned.adjusted(share=0.1, floor=2.0).precision["a"]
    close(weaker.dense(), 0.1 * family.curvature.dense() + 2.0 * torch.eye(6, dtype=torch.float64), 1e-13)
    isotropic = learned.adjusted(share=0.0, floor=2.0).precision["a"]
    close(isotropic.dense(), 2.0 * torch.eye(6, dtype=torch.float64), 1e-13)


def test_scales_may_differ_from_block_to_block():
    prior = gaussian(a=STRUCTURES["identity"](*SHAPE, 0), b=STRUCTURES["identity"](*SHAPE, 1))
    data = curvature(a=CURVATURES["kronecker"](), b=CURVATURES["diagonal"]())
    scales = pt.Scales(alpha={"a": 2.0, "b": 3.0}, beta={"a": 0.5, "b": 0.0}, temperature=0.1)
    posterior = pt.update(point(prior), data, prior, scales)
    close(posterior.precision["a"].dense(), 20 * prior.precision["a"].dense() + 5 * data["a"].dense(), 1e-13)
    close(posterior.precision["b"].dense(), 30 * prior.precision["b"].dense(), 1e-13)
    assert posterior.card.scales == {"a": (2.0, 0.5, 0.1), "b": (3.0, 0.0, 0.1)}
    with pytest.raises(BlockMismatch, match=r'^alpha is given per block and not for "b": it has \[\'a\'\]\.$'):
        pt.update(point(prior), data, prior, pt.Scales(alpha={"a": 2.0}))


@pytest.mark.parametrize("name", ["alpha", "beta", "temperature"])
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_scales_that_make_no_sense_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} must be"):
        pt.Scales(**{name: value})
    with pytest.raises(ValueError, match=f"{name} must be"):
        pt.Scales(**{name: {"a": value}})


@pytest.mark.parametrize("name", ["alpha", "temperature"])
def test_only_beta_may_be_zero(name):
    assert pt.Scales(beta=0.0).of("x") == (1.0, 0.0, 1.0)
    with pytest.raises(ValueError, match="must be positive"):
        pt.Scales(**{name: 0.0})


def test_one_factor_on_all_three_scales_changes_nothing():
    prior, data = gaussian(a=STRUCTURES["kronecker"](*SHAPE, 0)), curvature(a=CURVATURES["kronecker"]())
    one, other = (pt.update(point(prior), data, prior, pt.Scales(2 * c, 3 * c, 5 * c)) for c in (1.0, 17.0))
    close(one.precision["a"].dense(), other.precision["a"].dense(), 1e-13)


def test_what_does_not_fit_is_named():
    prior = gaussian(fc=STRUCTURES["identity"](*SHAPE, 0))
    same = CURVATURES["kronecker"]()
    with pytest.raises(BlockMismatch) as caught:
        pt.update(point(prior), curvature(other=same), prior)
    assert str(caught.value) == (
        "the prior has a block \"fc\" and the curvature has not (it has ['other']): estimate it too, or drop the block with "
        'prior.without("fc").'
    )
    with pytest.raises(BlockMismatch) as caught:
        pt.update(point(prior), curvature(fc=STRUCTURES["kronecker"](3, 2, 0)), prior)
    assert str(caught.value) == (
        'block "fc" is 2×3 in the prior and 3×2 in the curvature: estimate it on the network that the prior is for, or drop '
        'the block with prior.without("fc").'
    )
    with pytest.raises(BlockMismatch, match=r"blocks \['fc'\] are missing in the point given"):
        pt.update({}, curvature(fc=same), prior)
    with pytest.raises(BlockMismatch, match='block "fc" is 2×3 in the Gaussian and 3×3 in the other'):
        pt.update({"fc": torch.zeros(3, 3)}, curvature(fc=same), prior)
    with pytest.raises(BlockMismatch, match=r"the network has none of the Gaussian's blocks \['fc'\]"):
        pt.update(nn.Sequential(nn.Linear(2, 2)), curvature(fc=same), prior)


def test_the_card_tells_what_was_learned_from():
    prior, data = gaussian(a=STRUCTURES["identity"](*SHAPE, 0)), curvature(a=CURVATURES["kronecker"]())
    once = pt.update(point(prior), data, prior)
    twice = pt.update(point(prior), data, once)
    assert (prior.card.count, once.card.count, twice.card.count) == (0, 10, 20)
    assert once.card.likelihood == "Categorical()"
    assert once.card.estimator == repr(KFAC())
