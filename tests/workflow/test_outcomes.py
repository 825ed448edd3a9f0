"""Every outcome of the verbs is what it was recorded as: bit for bit on the machine that recorded, closely on any other."""

from __future__ import annotations

import json
import warnings

import pytest
import torch
from outcomes import OUTCOMES, RECORDED, SEEDS, machine, record

KNOWN = json.loads(RECORDED.read_text())
EXACT = KNOWN["machine"] == machine()
SLOW = (
    "learn, regression",
    "learn, regression, groups",
    "learn, regression, many",
    "learn, yes or no",
    "learn, prior, elbo",
)
"""Several seconds each."""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in OUTCOMES])
def test_an_outcome_is_as_it_was_recorded(name: str, seed: int) -> None:
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, known = record(OUTCOMES[name](seed), seed), KNOWN["outcomes"][f"{name} ({seed})"]
    assert found["seen"] == known["seen"]
    assert found["choices"] == known["choices"]
    if EXACT:
        # Of one input the passes for all outputs run together: what is zero but for rounding is rounded differently.
        assert found.pop("epistemic") == pytest.approx(known["epistemic"], rel=1e-9, abs=1e-12)
        assert found == {name: value for name, value in known.items() if name != "epistemic"}
    else:
        assert found["mean"] == pytest.approx(known["mean"], abs=1e-3, rel=1e-3)


def test_every_record_has_its_outcome() -> None:
    assert KNOWN["outcomes"].keys() == {f"{name} ({seed})" for name in OUTCOMES for seed in SEEDS}
