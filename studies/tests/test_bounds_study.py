"""The published grid search: by the mean over draws, on the paper's grid."""

from dataclasses import replace

import torch
from torch import nn

from posterity.curvature import KFOC, estimate
from posterity.laplace import isotropic, train
from posterity_studies.studies.bounds.cells import TEMPERATURES, averaged_search


def test_the_published_search_takes_the_warmest_of_the_most_accurate():
    """Six far clusters: every width up to some is right everywhere, and the widest of those is taken."""
    torch.manual_seed(0)
    y = torch.arange(60) % 6
    angle = y * torch.pi / 3
    x = 10 * torch.stack((angle.cos(), angle.sin()), 1) + 0.3 * torch.randn(60, 2)
    model = nn.Sequential(nn.Linear(2, 6))
    prior = isotropic(model, 1.0)
    train(model, (x, y), prior, validation=None, epochs=50, lr=0.05, progress=False)
    curvature = estimate(model, (x, y), KFOC(), progress=False)
    found = averaged_search(prior, model, curvature, (x, y), 20, torch.Generator().manual_seed(0))
    assert found.of("0")[2] == max(TEMPERATURES)
    # One draw so wide that it is as good as a guess: colder ones are right, and are taken.
    hardly = replace(curvature, blocks={name: matrix * 1e-12 for name, matrix in curvature.blocks.items()})
    found = averaged_search(isotropic(model, 1e-9), model, hardly, (x, y), 1, torch.Generator().manual_seed(3))
    assert found.of("0")[2] < max(TEMPERATURES)
