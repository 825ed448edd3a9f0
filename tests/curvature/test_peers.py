"""Someone else's code gives the same: curvlinops' KFAC in both settings, BackPACK's KFLR and diagonal.

Skipped only where those packages are not installed.
"""

from __future__ import annotations

import pytest
import torch
from curvature_cases import case, data, distance, network
from torch import Tensor, nn

from posterity.algebra import Kronecker
from posterity.curvature import (
    KFAC,
    Bernoulli,
    Categorical,
    Diagonal,
    EmpiricalLabels,
    ExactLabels,
    GaussianNoise,
    estimate,
)


def by_block(model: nn.Module, dense: Tensor) -> dict[str, Tensor]:
    """Diagonal blocks of a matrix over all parameters, from (weight, then bias) to the rows of [weight | bias]."""
    start, found = 0, {}
    for name, module in model.named_modules():
        if not isinstance(module, (nn.Linear, nn.Conv2d)):
            continue
        out, inp = module.weight.flatten(1).shape
        size = out * (inp + 1)
        order = torch.cat((torch.arange(out * inp).view(out, inp), out * inp + torch.arange(out)[:, None]), 1).flatten()
        found[name] = dense[start : start + size, start : start + size][order][:, order]
        start += size
    return found


@pytest.mark.parametrize("sharing", ["expand", "reduce"])
@pytest.mark.parametrize("name", ["mlp", "conv"])
@pytest.mark.parametrize(
    ("likelihood", "loss", "factor"),
    [
        (Categorical(), nn.CrossEntropyLoss(reduction="sum"), 1.0),
        (GaussianNoise(1.0), nn.MSELoss(reduction="sum"), 0.5),  # torch's loss leaves out the half of the square
        (Bernoulli(), nn.BCEWithLogitsLoss(reduction="sum"), 1.0),
    ],
    ids=str,
)
@pytest.mark.parametrize("labels", [ExactLabels(), EmpiricalLabels()], ids=str)
def test_kfac_is_curvlinops(name, sharing, likelihood, loss, factor, labels):
    curvlinops = pytest.importorskip("curvlinops")
    model = network(name).eval()
    x, y = data(name, likelihood)
    batches = [(x[:4], y[:4]), (x[4:], y[4:])]
    operator = curvlinops.KFACLinearOperator(
        model,
        loss,
        list(model.parameters()),
        batches,
        fisher_type="type-2" if labels == ExactLabels() else "empirical",
        kfac_approx=sharing,
        separate_weight_and_bias=False,
        check_deterministic=False,
    )
    size = sum(p.numel() for p in model.parameters())
    theirs = by_block(model, operator @ torch.eye(size, dtype=torch.float64))
    # The loss enters twice in gradients of data labels, once in the curvature of its expectation.
    scale = factor if labels == ExactLabels() else factor**2
    ours = estimate(model, batches, KFAC(labels, sharing), likelihood, progress=False)
    for block, matrix in theirs.items():
        assert isinstance(ours[block], Kronecker)
        assert distance(ours[block], scale * matrix) < 1e-10, block


def backpacked(name: str, likelihood, *extensions):
    """BackPACK's quantities after one backward pass over the whole data."""
    backpack = pytest.importorskip("backpack")
    losses = {Categorical: nn.CrossEntropyLoss, GaussianNoise: nn.MSELoss}
    if name == "mlp":
        model: nn.Module = network(name).eval()
    else:
        ours = network(name).eval()
        model = nn.Sequential(*ours.body, nn.Flatten(), ours.head)
    model = backpack.extend(model)
    loss = backpack.extend(losses[type(likelihood)](reduction="sum"))
    x, y = data(name, likelihood)
    with backpack.backpack(*(getattr(backpack.extensions, e)() for e in extensions)):
        loss(model(x), y).backward()
    layers = [m for m in model.modules() if isinstance(m, (nn.Linear, nn.Conv2d))]
    blocks = list(estimate(case(name).model, (x, y), Diagonal(), likelihood, progress=False).blocks)
    return dict(zip(blocks, layers, strict=True))


CASES = [(Categorical(), 1.0), (GaussianNoise(1.0), 0.5)]


@pytest.mark.parametrize("name", ["mlp", "conv"])
@pytest.mark.parametrize(("likelihood", "factor"), CASES, ids=str)
def test_the_exact_diagonal_is_backpacks(name, likelihood, factor):
    layers = backpacked(name, likelihood, "DiagGGNExact")
    ours = estimate(case(name).model, data(name, likelihood), Diagonal(ExactLabels()), likelihood, progress=False)
    for block, layer in layers.items():
        theirs = torch.cat((layer.weight.diag_ggn_exact.flatten(1), layer.bias.diag_ggn_exact[:, None]), 1)
        torch.testing.assert_close(ours[block].values, factor * theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["mlp", "conv"])
@pytest.mark.parametrize(("likelihood", "factor"), CASES, ids=str)
def test_kfac_of_weights_is_backpacks_kflr(name, likelihood, factor):
    """Weights alone: BackPACK keeps the bias apart. For a convolution it sums gradient rows over positions (as "reduce")
    and the second moments of input rows (as "expand" but for the average).
    """
    layers = backpacked(name, likelihood, "KFLR")
    expand, reduce = (
        estimate(case(name).model, data(name, likelihood), KFAC(ExactLabels(), sharing), likelihood, progress=False)
        for sharing in ("expand", "reduce")
    )
    for block, layer in layers.items():
        left, right = layer.weight.kflr
        pair = torch.kron(reduce[block].left, expand[block].right[:-1, :-1])
        positions = {"body.0": 16, "body.2": 4}.get(block, 1)
        assert distance(positions * pair, factor * torch.kron(left, right)) < 1e-10


@pytest.mark.parametrize("name", ["mlp", "conv"])
def test_the_empirical_diagonal_is_backpacks_summed_squares(name):
    layers = backpacked(name, Categorical(), "SumGradSquared")
    ours = estimate(case(name).model, data(name), Diagonal(EmpiricalLabels()), progress=False)
    for block, layer in layers.items():
        theirs = torch.cat((layer.weight.sum_grad_squared.flatten(1), layer.bias.sum_grad_squared[:, None]), 1)
        torch.testing.assert_close(ours[block].values, theirs, rtol=1e-10, atol=1e-12)
