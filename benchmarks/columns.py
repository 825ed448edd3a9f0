"""Columns whose width is chosen by leave-one-out beside columns whose width is chosen by validation data: accuracy and NLL.

    python -m benchmarks.columns --seeds 2 > benchmarks/results/columns.jsonl

The stream, networks, priors and steps are those of the study `continual-small`: split MNIST after NotMNIST, 10 images a
class to learn from, two priors to choose between. Validation has 25 more images a class, which leave-one-out does not look
at. "floors kept" has the same strengths in the form that `pt.learn` leaves; the study's are nearest pairs, whose floor is
lost and which hold the column less. A JSON line for every way, seed and task.
"""

from __future__ import annotations

import argparse
import json
import time

from posterity import BPNN, Task
from posterity_studies.shared.continual import judge
from posterity_studies.shared.sources import Recipe, learned_prior
from posterity_studies.shared.streams import split
from posterity_studies.studies.continual.methods import STRENGTHS, small

WAYS = ("validation", "loo", "loo, floors kept")


def run(way: str, seed: int, shots: int, steps: int, examples: int) -> list[dict[str, object]]:
    """A stream of five tasks, each judged on 200 test images."""
    stream = split("mnist", seed, shots=shots, held=25, tested=100)
    batch = min(64, 2 * shots)
    epochs = max(1, steps * batch // (2 * shots))
    training = {"epochs": epochs, "stop_after": epochs, "lr": 2e-3, "batch_size": batch, "validation": None}
    learned = learned_prior(Recipe("notmnist", examples, 1.0))
    method = small("bpnn learned", learned, training, seed)
    learner = method.learner
    assert isinstance(learner, BPNN)
    priors = list(method.priors)
    if way != "validation":
        architecture = learner.architecture
        if way == "loo, floors kept":
            priors = [learned.without("11").adjusted(share, floor) for share, floor in STRENGTHS["learned"]]
        learner = BPNN(
            architecture.template, priors[0], architecture.laterals, architecture.head, training=training, seed=seed
        )
    rows = []
    for task in stream:
        start = time.process_time()
        given = task if way == "validation" else Task(task.name, task.train, classes=task.classes)
        learner.adopt(learner.draft(given, prior=priors, progress=False))
        found, entry = judge(learner, task), learner.learned[-1]
        calibration = entry.calibration
        rows.append(
            {
                "way": way,
                "seed": seed,
                "task": task.name,
                "accuracy": found.accuracy,
                "nll": found.nll,
                "ece": found.ece,
                "tau": None if calibration is None else calibration.tau,
                "temperature": None if calibration is None else calibration.temperature,
                "seconds": time.process_time() - start,
                "shots": shots,
                "steps": steps,
                "source_examples": examples,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--shots", type=int, default=10)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--examples", type=int, default=2000, help="of the source")
    parser.add_argument("--first", type=int, default=0, help="seed to begin with")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    given = parser.parse_args()
    for seed in range(given.first, given.seeds):
        for way in given.ways:
            for row in run(way, seed, given.shots, given.steps, given.examples):
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
