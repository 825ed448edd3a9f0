"""A Gaussian over blocks is the multivariate normal it stands for."""

from __future__ import annotations

import math

import pytest
import torch
from gaussians import EVERY, every, gaussian, normal, one, torchs
from matrices import pair

from posterity import Gaussian
from posterity.algebra import Kronecker, KroneckerSum, relative_error
from posterity.errors import BlockMismatch
from posterity.gaussian import Card

every_structure = pytest.mark.parametrize("structure", EVERY)


def close(actual, expected, rtol=1e-9):
    actual, expected = (torch.as_tensor(x, dtype=torch.float64) for x in (actual, expected))
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=rtol)


@every_structure
@pytest.mark.parametrize("against", EVERY)
def test_kl_is_torchs_for_every_pair_of_structures(structure, against):
    a, b = one(structure, 1), one(against, 50)
    close(a.kl(b), torch.distributions.kl_divergence(torchs(a), torchs(b)), 1e-8)


@every_structure
def test_kl_to_itself_is_zero_and_to_others_is_not_negative(structure):
    a = one(structure, 3)
    assert abs(a.kl(a)) < 1e-10
    for seed in range(10):
        assert a.kl(one(structure, seed + 100)) > 0
    # Near itself too, where rounding could show.
    for nudge in (1 + 1e-7, 1 - 1e-7):
        assert a.kl(a.tempered(nudge)) > -1e-12


@every_structure
def test_half_the_quadratic_is_the_kl_at_equal_covariance(structure):
    a = one(structure, 4)
    point = {"block": normal(2, 3, seed=77)}
    moved = Gaussian(point, a.precision)
    close(0.5 * a.quadratic(point), moved.kl(a))
    close(a.quadratic(a.mean), 0.0)


def test_kl_is_the_sum_over_blocks():
    a, b = gaussian(every(seed=1)), gaussian(every(seed=60), seed=9)
    parts = a.kl_by_block(b)
    assert tuple(parts) == a.blocks
    close(sum(parts.values()), a.kl(b))
    for name in a.blocks:
        close(parts[name], a.restricted([name]).kl(b.restricted([name])))


@every_structure
def test_log_prob_is_torchs(structure):
    a = one(structure, 5)
    point = normal(2, 3, seed=8)
    close(a.log_prob({"block": point}), torchs(a).log_prob(point.flatten()))


def test_log_prob_and_logdet_are_sums_over_blocks():
    a = gaussian(every())
    point = {name: normal(2, 3, seed=i) for i, name in enumerate(a.blocks)}
    close(a.log_prob(point), sum(a.restricted([n]).log_prob(point) for n in a.blocks))
    close(a.logdet(), sum(m.logdet() for m in a.precision.values()))
    assert a.size == 6 * len(a.blocks)


@every_structure
def test_draws_have_the_mean_and_the_covariance(structure):
    a, n = one(structure, 6), 100_000
    draws = a.sample(n, generator=torch.Generator().manual_seed(0))["block"]
    assert draws.shape == (n, 2, 3)
    covariance = torchs(a).covariance_matrix
    spread = covariance.diagonal().max()
    centred = (draws - a.mean["block"]).flatten(1)
    # Five standard errors of a mean and of a covariance entry.
    assert centred.mean(0).abs().max() < 5 * (spread / n).sqrt()
    assert (centred.T @ centred / n - covariance).abs().max() < 5 * spread * (2 / n) ** 0.5


def test_draws_repeat_with_the_seed_and_differ_between_blocks():
    a = gaussian({"x": pair(2, 3, 0), "y": pair(2, 3, 0)})
    first, again = (a.sample(4, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    assert all(torch.equal(first[name], again[name]) for name in a.blocks)
    assert not torch.allclose(first["x"] - a.mean["x"], first["y"] - a.mean["y"])


@every_structure
def test_a_temperature_multiplies_the_covariance_and_leaves_the_mean(structure):
    a = one(structure, 7)
    cold = a.tempered(0.1)
    close(torchs(cold).covariance_matrix, 0.1 * torchs(a).covariance_matrix, 1e-8)
    assert cold.mean is a.mean
    close(cold.logdet(), a.logdet() - a.size * math.log(0.1))
    close(a.tempered(1.0).kl(a), 0.0)


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan, math.inf])
def test_a_temperature_that_is_none_is_refused(temperature):
    with pytest.raises(ValueError, match="positive and finite"):
        one("kronecker").tempered(temperature)


def test_shrinking_moves_each_factor_of_every_term_towards_its_mean():
    first, second = pair(2, 3, 0), pair(2, 3, 1)
    a = gaussian({"a": KroneckerSum((first, second))})

    def moved(x):
        return 0.7 * x + 0.3 * x.diagonal().mean() * torch.eye(len(x), dtype=x.dtype)

    expected = sum(torch.kron(moved(term.left), moved(term.right)) for term in (first, second))
    close(a.shrunk(0.3).precision["a"].dense(), expected)
    assert a.shrunk(0.3).mean is a.mean
    close(a.shrunk(0.0).kl(a), 0.0)
    for wrong in (-0.1, 1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="weight to shrink by"):
            a.shrunk(wrong)


@pytest.mark.parametrize("structure", EVERY)
def test_shrinking_keeps_the_trace_and_lifts_the_least_eigenvalue(structure):
    before = one(structure, 7)
    after = before.shrunk(0.4)
    for name in before.blocks:
        old, new = (torch.linalg.eigvalsh(g.precision[name].dense()) for g in (before, after))
        close(new.sum(), old.sum())
        assert new[0] >= old[0] * (1 - 1e-9)
        # The frame of a joint decomposition is not orthogonal: identity is not what its values are moved towards.
        assert new[-1] <= old[-1] * (1 + 1e-9) or structure == "joint eigen"


def test_without_and_restricted_choose_blocks():
    a = gaussian({"a": pair(2, 3, 0), "b": pair(1, 2, 1), "c": pair(3, 3, 2)}, card=Card(text="kept"))
    assert a.without("b").blocks == ("a", "c")
    assert a.without("a", "c").blocks == ("b",)
    assert a.restricted(["c", "a"]).blocks == ("c", "a")
    assert a.restricted(iter(["c"])).card.text == "kept"
    assert a.blocks == ("a", "b", "c")
    for wrong in (lambda: a.without("d"), lambda: a.restricted(["a", "d"])):
        with pytest.raises(BlockMismatch, match=r"\['d'\].*\['a', 'b', 'c'\]"):
            wrong()


def test_compress_joins_sums_tells_the_error_and_leaves_the_rest():
    a = gaussian(every(3, 4), card=Card(compression={"earlier": 0.5}))
    small = a.compress()
    assert small.is_compressed
    assert not a.is_compressed
    for name, matrix in a.precision.items():
        joined = small.precision[name]
        if name in small.card.compression:
            assert isinstance(joined, Kronecker)
            close(small.card.compression[name], relative_error(matrix, joined))
            off = torch.linalg.matrix_norm(matrix.dense() - joined.dense()) / torch.linalg.matrix_norm(matrix.dense())
            close(small.card.compression[name], off, 1e-6)
        else:
            assert joined is matrix
    assert {"kronecker", "dense", "diagonal", "identity"}.isdisjoint(small.card.compression)
    assert {"sum of two", "sum of three", "joint eigen", "earlier"} <= small.card.compression.keys()
    assert small.mean is a.mean


def test_compressing_a_sum_of_one_pair_gives_up_nothing():
    a = gaussian({"b": KroneckerSum([pair(3, 2, 0)])})
    close(a.compress().kl(a), 0.0)
    assert a.is_compressed


def test_a_mean_and_a_precision_that_do_not_fit_are_refused():
    with pytest.raises(BlockMismatch, match=r"\['b'\] have a mean or a precision, and not both"):
        Gaussian({"a": torch.zeros(2, 3)}, {"a": pair(2, 3, 0), "b": pair(2, 3, 0)})
    with pytest.raises(BlockMismatch, match='block "a" has a mean of 3×2 and a precision over 2×3'):
        Gaussian({"a": torch.zeros(3, 2)}, {"a": pair(2, 3, 0)})


def test_a_point_or_another_gaussian_that_does_not_fit_is_refused():
    a = gaussian({"a": pair(2, 3, 0), "b": pair(2, 2, 0)})
    with pytest.raises(BlockMismatch, match=r"blocks \['b'\] are missing"):
        a.quadratic({"a": torch.zeros(2, 3)})
    wrong = {"a": torch.zeros(2, 4), "b": torch.zeros(2, 2)}
    with pytest.raises(BlockMismatch, match=r'block "a" is 2×3 in the Gaussian and 2×4 in the other.*without\("a"\)'):
        a.log_prob(wrong)
    for one_way in (lambda: a.kl(a.without("b")), lambda: a.without("b").kl(a)):
        with pytest.raises(BlockMismatch, match=r"blocks \['b'\] are missing"):
            one_way()


def test_moving_to_single_precision_keeps_it_but_for_rounding():
    a = gaussian(every())
    single = a.to(dtype=torch.float32)
    assert {mean.dtype for mean in single.mean.values()} == {torch.float32}
    assert {matrix.dtype for matrix in single.precision.values()} == {torch.float32}
    assert {draw.dtype for draw in single.sample(2).values()} == {torch.float32}
    assert single.quadratic(a.mean).dtype == torch.float64
    close(single.kl(a), 0.0, 1e-4)
    assert a.mean["dense"].dtype == torch.float64
    assert a.to("cpu").mean["dense"].device.type == "cpu"


def test_draws_have_the_dtype_of_the_mean():
    a = Gaussian({"b": torch.zeros(2, 3)}, {"b": pair(2, 3, 0)})
    assert a.sample(2)["b"].dtype == torch.float32


def test_it_says_what_it_is():
    assert repr(one("kronecker")) == "Gaussian(6 parameters, {block: Kronecker 2×3})"
