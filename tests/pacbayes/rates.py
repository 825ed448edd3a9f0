"""Write how often each path to a certificate was violated, and whether that is too often, or too seldom where it is known.

python tests/pacbayes/rates.py 200                   # all paths: benchmarks/results/violations.jsonl
python tests/pacbayes/rates.py 200 "few-shot"        # one of them
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))

from experiments import DELTAS, EXACT, PATHS, exact_rate, too_few, too_many, violations

import posterity as pt

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "violations.jsonl"
START = 100_000
"""The first seed: others than the tests have."""


def row(path: str, trials: int) -> dict[str, object]:
    began = time.process_time()
    found, risks = violations(path, trials, START)
    told: dict[str, object] = {
        "path": path,
        "trials": trials,
        "violated": dict(zip(map(str, DELTAS), found, strict=True)),
    }
    told["too many"] = [delta for delta, count in zip(DELTAS, found, strict=True) if too_many(count, trials, delta)]
    if path in EXACT:
        expected = [[exact_rate(risk, EXACT[path], d) for risk in true] for d, true in zip(DELTAS, risks, strict=True)]
        told["expected"] = {str(d): round(sum(one), 1) for d, one in zip(DELTAS, expected, strict=True)}
        told["too few"] = [d for d, count, one in zip(DELTAS, found, expected, strict=True) if too_few(count, one)]
    return told | {"seconds": round(time.process_time() - began, 1), "posterity": pt.__version__}


if __name__ == "__main__":
    torch.set_num_threads(1)
    names = sys.argv[2:] or list(PATHS)
    kept = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    for name in names:
        made = row(name, int(sys.argv[1]))
        print(made, flush=True)
        kept = [*(one for one in kept if one["path"] != name), made]
        RESULTS.write_text(
            "".join(json.dumps(one) + "\n" for one in sorted(kept, key=lambda o: list(PATHS).index(o["path"])))
        )
