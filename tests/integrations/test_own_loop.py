"""The prior's penalty in a training loop of one's own."""

from __future__ import annotations

import torch
from torch import nn

import posterity as pt
from posterity.blocks import find_blocks, read_blocks


def learned() -> tuple[nn.Module, pt.Gaussian]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    data = (torch.randn(20, 3, dtype=torch.float64), torch.arange(20) % 2)
    prior = pt.posterior(model, data, precision=1.0, progress=False).posterior
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return model, prior


def test_the_penalty_is_half_the_quadratic_with_its_gradient():
    model, prior = learned()
    penalty = pt.laplace.PriorPenalty(prior, model)()
    point = read_blocks(model, find_blocks(model))
    torch.testing.assert_close(penalty, 0.5 * prior.quadratic(point))
    penalty.backward()
    for name, matrix in prior.precision.items():
        force = matrix.matmul(point[name] - prior.mean[name])
        torch.testing.assert_close(model[int(name)].weight.grad, force[:, :-1])
        torch.testing.assert_close(model[int(name)].bias.grad, force[:, -1])


def test_the_penalty_of_named_weights_is_a_function():
    model, prior = learned()
    penalty = pt.laplace.PriorPenalty(prior, model)
    own = {name: p.detach() for name, p in model.named_parameters()}
    found = torch.func.grad(lambda p: penalty(p))(own)
    penalty().backward()
    for name, p in model.named_parameters():
        torch.testing.assert_close(found[name], p.grad)
    # Weights that are not named are the network's own.
    torch.testing.assert_close(penalty({"0.bias": own["0.bias"]}), penalty(own))
