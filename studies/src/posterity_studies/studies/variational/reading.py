"""Both posteriors, as they are and with the width that leave-one-out chooses."""

from __future__ import annotations

from collections.abc import Sequence

from posterity_studies.engine.comparison import Comparison
from posterity_studies.engine.declaration import Outcome, Record, Verdict

BOTH = Comparison(
    ways={
        "laplace, chosen": "Laplace, τ and T chosen",
        "laplace, plain": "Laplace, as it is",
        "variational, plain": "variational, as it is",
        "variational, chosen": "variational, τ and T chosen",
    },
    group=lambda r: f"{r.arguments['source']} → {r.arguments['target']}",
    unit=lambda r: str(r.arguments["seed"]),
    measures={"nll": "NLL"},
)


def verdict(records: Sequence[Record]) -> Verdict:
    """Upheld where, on every pair, variational beats Laplace where both are as they are, and not once τ and T are chosen."""
    sentences, held = [], True
    for group in BOTH.groups(records):
        plain = [BOTH.of(records, group, f"{name}, plain") for name in ("laplace", "variational")]
        means = [sum(found.values()) / len(found) for found in plain]
        gap = BOTH.gap(records, group, "variational, chosen").mean
        held = held and means[1] < means[0] and gap <= 0
        sentences.append(f"{group}: {means[0]:.2f} against {means[1]:.2f} as they are, {gap:+.2f} with width chosen")
    why = f"Test NLL of Laplace against the Gaussian of greatest ELBO. {'; '.join(sentences)}."
    return Verdict(Outcome.ours if held else Outcome.unsupported, why)
