"""Frames with values in one pass beside the estimators they come from: cost, trace, and consistency with the data.

    python -m benchmarks.framed > benchmarks/results/framed.jsonl

LeNet-5 after 2,000 NotMNIST images. `lambda` is `pt.metrics.consistency` of the posterior under a prior of precision 1 around the
network:
below 1 for an exact posterior over all blocks, below the number of blocks (5) for one that is exact in each. CPU seconds of one
estimate are over 2,000 images with one label drawn for each, the lesser of two runs.
"""

from __future__ import annotations

import json
import time

import torch

import posterity as pt
from posterity.curvature import Estimator
from posterity.lenet import lenet5
from posterity_studies.shared.priors import start_at
from posterity_studies.shared.sources import Recipe, data_set, learned_prior

ESTIMATORS = {
    "KFAC": lambda labels: pt.KFAC(labels),
    "K-FOC": lambda labels: pt.KFOC(labels),
    "EKFAC": lambda labels: pt.EKFAC(labels),
    "frame of KFAC, values of all": lambda labels: pt.curvature.OwnFrame(labels, pt.KFAC()),
    "frame of K-FOC, values of all": lambda labels: pt.curvature.OwnFrame(labels, pt.KFOC()),
}


def main() -> None:
    model = lenet5()
    start_at(model, learned_prior(Recipe("notmnist", 2000, 1.0)))
    x, y = data_set("notmnist").train
    kept = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:2000]
    x, y = x[kept], y[kept]
    prior = pt.isotropic(model, 1.0, mean="model")

    def estimated(estimator: Estimator, n: int) -> pt.curvature.Curvature:
        dice = torch.Generator().manual_seed(1)
        return pt.estimate(model, (x[:n], y[:n]), estimator, generator=dice, progress=False)

    def consistent(found: pt.curvature.Curvature, n: int) -> float:
        return pt.metrics.consistency(model, pt.update(model, found, prior), (x[:n], y[:n]), examples=100)

    for name, make in ESTIMATORS.items():
        seconds = []
        for _ in range(2):
            start = time.process_time()
            found = estimated(make(pt.curvature.SampledLabels(1)), 2000)
            seconds.append(time.process_time() - start)
        row = {
            "estimator": name,
            "seconds": round(min(seconds), 3),
            "trace": {block: float(f"{float(found[block].trace()):.6g}") for block in found.blocks},
            "lambda, 2,000 images, sampled labels": round(consistent(found, 2000), 3),
            "lambda, 100 images, sampled labels": round(
                consistent(estimated(make(pt.curvature.SampledLabels(1)), 100), 100), 3
            ),
            "lambda, 100 images, exact labels": round(
                consistent(estimated(make(pt.curvature.ExactLabels()), 100), 100), 3
            ),
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
