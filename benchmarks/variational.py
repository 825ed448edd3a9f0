"""Variational inference beside Laplace in function space, at the same strength of the prior: test NLL after few examples.

    python -m benchmarks.variational > benchmarks/results/variational.jsonl

LeNet-5 from 2,000 images of one set to 10 a class of another, whose classes are new; 1,000 test images. The strength is the
one that leave-one-out chose for Laplace. "chosen" has the width and temperature of least leave-one-out NLL, each posterior
its own, in closed form; "plain" is the posterior as it is.
"""

from __future__ import annotations

import json
import time

import torch

import posterity as pt
from posterity.blocks import Replica
from posterity.data.batches import batches
from posterity.kernel import Calibration, LeaveOneOut, calibrate
from posterity.kernel.variational import Inference, Laplace, VariationalGaussian, infer
from posterity.lenet import lenet5
from posterity.predictive.exact import ExactLinear
from posterity_studies.shared.priors import start_at
from posterity_studies.shared.sources import Recipe, learned_prior
from posterity_studies.shared.tasks import Task

PAIRS = (("notmnist", "mnist"), ("mnist", "notmnist"))


def row(source: str, target: str, seed: int, shots: int = 10, tested: int = 1000) -> dict[str, object]:
    task = Task.of(target, shots, seed, tested=tested)
    prior = learned_prior(Recipe(source, 2000, 1.0))
    model = lenet5()
    start_at(model, prior)
    fit = pt.adapt(model, task.train, prior, progress=False)
    exact = fit.predictor
    assert isinstance(exact, ExactLinear)
    best = exact.choice.best.posterior
    found: dict[str, object] = {"source": source, "target": target, "seed": seed, "shots": shots}
    found["strength"] = None if best.strength is None else vars(best.strength)
    both: dict[str, Inference] = {"laplace": Laplace(), "variational": VariationalGaussian()}
    for name, inference in both.items():
        start = time.process_time()
        posterior = infer(best.of, best.strength, inference)
        calibration, left_out, _ = calibrate(posterior.left_out(), pt.Categorical(), best.of.targets)
        seconds = time.process_time() - start
        nll = {"plain": 0.0, "chosen": 0.0, "mean alone": 0.0}
        ways = {"plain": Calibration(), "chosen": calibration, "mean alone": Calibration(0.0, 1.0)}
        for batch in batches(task.test, 250):
            mean, covariance = posterior.moments(exact.jacobian(Replica(model), [batch]))
            for way, width in ways.items():
                log_p = LeaveOneOut(mean, covariance).log_probs(pt.Categorical(), batch.targets, width)
                nll[way] -= float(log_p.sum()) / len(task.test[1])
        found[name] = {
            **{way: round(value, 4) for way, value in nll.items()},
            "left out": round(left_out, 4),
            "evidence": round(posterior.log_evidence, 3),
            "tau": calibration.tau,
            "temperature": calibration.temperature,
            "seconds": round(seconds, 2),
        }
    return found


def main() -> None:
    torch.manual_seed(0)
    for seed in range(3):
        for source, target in PAIRS:
            print(json.dumps(row(source, target, seed)), flush=True)


if __name__ == "__main__":
    main()
