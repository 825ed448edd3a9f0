"""Write how often each path to a certificate was violated, and whether that is too often, or too seldom where it is known.

python tests/pacbayes/rates.py 200                   # all paths: benchmarks/results/violations.jsonl
python tests/pacbayes/rates.py 200 "few-shot"        # one of them
python tests/pacbayes/rates.py 100 groups            # recordings cut into windows: benchmarks/results/group_violations.jsonl
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))

import recordings
from experiments import DELTAS, EXACT, PATHS, exact_rate, too_few, too_many, violations

import posterity as pt

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "violations.jsonl"
GROUPS = RESULTS.with_name("group_violations.jsonl")
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


def groups(trials: int) -> None:
    """Every path that takes groups, by the number of windows a recording has; rows that are there stay."""
    kept = [json.loads(line) for line in GROUPS.read_text().splitlines()] if GROUPS.exists() else []
    for path in recordings.PATHS:
        for windows in recordings.WINDOWS:
            if any((one["path"], one["windows"], one["trials"]) == (path, windows, trials) for one in kept):
                continue
            found = recordings.violations(path, windows, trials, START)
            made = {"path": path, "recordings": recordings.RECORDINGS, "windows": windows, "trials": trials}
            made["violated"] = dict(zip(map(str, DELTAS), found, strict=True))
            made["too many"] = [d for d, count in zip(DELTAS, found, strict=True) if too_many(count, trials, d)]
            kept.append(made | {"posterity": pt.__version__})
            print(kept[-1], flush=True)
            GROUPS.write_text("".join(json.dumps(one) + "\n" for one in kept))


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[2:] == ["groups"]:
        groups(int(sys.argv[1]))
        raise SystemExit
    names = sys.argv[2:] or list(PATHS)
    kept = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    for name in names:
        made = row(name, int(sys.argv[1]))
        print(made, flush=True)
        kept = [*(one for one in kept if one["path"] != name), made]
        RESULTS.write_text(
            "".join(json.dumps(one) + "\n" for one in sorted(kept, key=lambda o: list(PATHS).index(o["path"])))
        )
