"""A prior whose force is taken in turns leads to the same mode; the start counts as a candidate for the best weights."""

import copy

import pytest
import torch
from torch import nn

import posterity as pt
from posterity.algebra import FlooredMatrix, Kronecker, eigenframe
from posterity.gaussian import Gaussian
from posterity.laplace.prior import PriorPenalty


class Sum(nn.Module):
    """Linear in its weights, so that there is one mode."""

    def __init__(self):
        super().__init__()
        self.plain, self.squared = nn.Linear(6, 3), nn.Linear(6, 3, bias=False)

    def forward(self, x):
        return self.plain(x) + self.squared(x.square())


def problem():
    torch.manual_seed(0)
    model = Sum().double()
    x = torch.randn(60, 6, dtype=torch.float64)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long()
    precision, mean = {}, {}
    for name, (out, inp) in {"plain": (3, 7), "squared": (3, 6)}.items():
        left, right = (torch.randn(2 * n, n, dtype=torch.float64) for n in (out, inp))
        pair = Kronecker(left.T @ left / out, right.T @ right / inp)
        precision[name], mean[name] = FlooredMatrix(pair, 1.0, 0.1), 0.3 * torch.randn(out, inp, dtype=torch.float64)
    return model, (x, y), Gaussian(mean, precision)


def objective(model, data, prior):
    x, y = data
    point = pt.blocks.read_blocks(model, pt.blocks.find_blocks(model))
    nll = nn.functional.cross_entropy(model(x), y, reduction="sum")
    return float(nll.detach() + 0.5 * prior.quadratic(point))


def test_the_mode_is_the_same_whether_forces_are_taken_in_turns():
    found = {}
    for every in (1, 4):
        model, data, prior = problem()
        rates = ((1e-1, 100), (3e-2, 100), (3e-3, 60))
        for lr, epochs in rates:
            pt.train(
                model, data, prior, validation=None, epochs=epochs, batch_size=60, lr=lr, start="model", stop_after=10**6,
                halve_after=10**6, prior_every=every, progress=False,
            )  # fmt: skip
        found[every] = objective(model, data, prior)
    model, data, prior = problem()
    pt.train(model, data, prior, validation=None, epochs=0, polish_steps=500, start="model", progress=False)
    mode = objective(model, data, prior)
    assert found[1] == pytest.approx(mode, abs=1e-3)
    assert found[4] == pytest.approx(mode, abs=3e-3)


def test_forces_that_lag_are_closer_where_eigenvectors_are_known():
    off = {}
    for known in (False, True):
        model, _, prior = problem()
        if known:
            assert all(eigenframe(matrix) for matrix in prior.precision.values())  # computed here, and kept
        penalty, exact = PriorPenalty(prior, model, every=3), PriorPenalty(prior, model)
        for _ in range(3):
            penalty.forces()
        torch.manual_seed(1)
        with torch.no_grad():
            for p in model.parameters():
                p.add_(0.01 * torch.randn_like(p))
        late, now = penalty.forces()[0], exact.forces()[0]
        off[known] = sum(float((late[n] - now[n]).norm()) for n in now)
    assert off[True] < 1e-9 < off[False]


def test_forces_are_exact_where_weights_stand_still_and_close_where_they_move():
    model, _, prior = problem()
    penalty, exact = PriorPenalty(prior, model, every=3), PriorPenalty(prior, model)
    truth, half = exact.forces()
    for _ in range(3):
        found, value = penalty.forces()
        assert value == pytest.approx(half, rel=1e-12)
        assert all(torch.allclose(found[name], truth[name]) for name in truth)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.01 * torch.randn_like(p))
    late, now = penalty.forces()[0], exact.forces()[0]
    moved = sum(float((late[n] - now[n]).norm()) for n in now)
    ignored = sum(float((truth[n] - now[n]).norm()) for n in now)
    assert 0 < moved < ignored


def test_gradients_are_those_of_the_quadratic():
    model, (x, y), prior = problem()
    twin = copy.deepcopy(model)
    pt.train(
        model, (x, y), prior, validation=None, epochs=1, batch_size=60, start="model", progress=False,
        optimiser=lambda ps: torch.optim.SGD(ps, lr=0.1),
    )  # fmt: skip
    nll = nn.functional.cross_entropy(twin(x), y)
    blocks = pt.blocks.find_blocks(twin)
    half = 0.0
    for name, block in blocks.items():
        own = {role: dict(twin.named_parameters())[full] for role, full in block.parameters.items()}
        half = half + 0.5 * prior.precision[name].quadratic(block.layer.read(own) - prior.mean[name])
    (nll + half / 60).backward()
    for p, q in zip(twin.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(p.detach() - 0.1 * p.grad, q.detach(), rtol=1e-9, atol=1e-9)


def test_a_run_with_forces_in_turns_goes_on_to_the_same_bits(tmp_path):
    ends = []
    for kill in (False, True):
        model, data, prior = problem()
        options = {"validation": None, "batch_size": 20, "prior_every": 5, "start": "model", "progress": False}
        path = tmp_path / f"{kill}.pt"
        if kill:
            pt.train(
                model, data, prior, epochs=2, checkpoint=path, generator=torch.Generator().manual_seed(1), **options
            )
        pt.train(model, data, prior, epochs=4, checkpoint=path, generator=torch.Generator().manual_seed(1), **options)
        ends.append([p.detach().clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*ends, strict=True))


def test_the_start_is_kept_where_no_epoch_does_better():
    model, data, prior = problem()
    pt.train(model, data, prior, validation=None, epochs=0, polish_steps=200, start="model", progress=False)
    before = [p.detach().clone() for p in model.parameters()]
    history = pt.train(
        model, data, prior, validation=data, epochs=3, lr=3.0, start="model", evaluation_batch_size=7, progress=False
    )
    assert history.best == -1
    assert history.final is history.start
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
