"""LeNet-5 with the strength that leave-one-out chose for Laplace, and both posteriors with it."""

from __future__ import annotations

import time
from typing import Any

import torch

import posterity as pt
from posterity.blocks import Replica
from posterity.data.batches import batches
from posterity.kernel import Calibration, LeaveOneOut, calibrate
from posterity.kernel.variational import Inference, Laplace, VariationalGaussian, infer
from posterity.lenet import lenet5
from posterity.predictive.exact import ExactLinear
from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.priors import start_at
from posterity_studies.shared.sources import Recipe, learned_prior
from posterity_studies.shared.tasks import Task


def source(arguments: Arguments) -> Recipe:
    return Recipe(arguments["source"], 2000, 1.0)


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    task = Task.of(arguments["target"], arguments["shots"], arguments["seed"], tested=arguments["tested"])
    prior, model = learned_prior(source(arguments)), lenet5()
    start_at(model, prior)
    # Asked for by its details, the exact posterior stands alone.
    exact = pt.adapt(model, task.train, prior, inference=Laplace(), progress=False).predictor
    assert isinstance(exact, ExactLinear)
    best = exact.choice.best.posterior
    values: dict[str, Any] = {"strength": None if best.strength is None else vars(best.strength)}
    both: dict[str, Inference] = {"laplace": Laplace(), "variational": VariationalGaussian()}
    for name, inference in both.items():
        start = time.process_time()
        posterior = infer(best.of, best.strength, inference)
        calibration, left_out, _ = calibrate(posterior.left_out(), pt.Categorical(), best.of.targets)
        seconds = time.process_time() - start
        widths = {"plain": Calibration(), "chosen": calibration, "mean alone": Calibration(0.0, 1.0)}
        nll = dict.fromkeys(widths, 0.0)
        for batch in batches(task.test, 250):
            mean, covariance = posterior.moments(exact.jacobian(Replica(model), [batch]))
            for way, width in widths.items():
                log_p = LeaveOneOut(mean, covariance).log_probs(pt.Categorical(), batch.targets, width)
                nll[way] -= float(log_p.sum()) / len(task.test[1])
        values |= {f"{name}, {way}": {"nll": round(value, 4)} for way, value in nll.items()}
        values[name] = {
            "left out": round(left_out, 4),
            "evidence": round(posterior.log_evidence, 3),
            "tau": calibration.tau,
            "temperature": calibration.temperature,
            "seconds": round(seconds, 2),
        }
    return values
