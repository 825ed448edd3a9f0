"""NLL by width, and how often the posterior is worse than the network itself."""

from __future__ import annotations

from collections.abc import Sequence

from posterity_studies.engine.comparison import Comparison
from posterity_studies.engine.declaration import Outcome, Record, Verdict

WIDTHS = Comparison(
    ways={
        "ours": "`pt.posterior`",
        "own": "the network itself",
        "untempered": "its posterior, not narrowed",
        "best": "the width that the test data would choose",
    },
    group=lambda r: f"{r.arguments['layers']}: {r.arguments['data']}{', wrong labels' * bool(r.arguments['wrong'])}",
    unit=lambda r: str(r.arguments["seed"]),
    measures={"nll": "NLL"},
)


def verdict(records: Sequence[Record]) -> Verdict:
    """Upheld where the NLL is below the network's own on average, for all layers and for the last one."""
    sentences, held = [], True
    for layers in ("all", "last"):
        some = [r for r in records if r.arguments["layers"] == layers]
        gaps = [r.values["ours"]["nll"] - r.values["own"]["nll"] for r in some]
        if gaps:
            worse, mean = [gap for gap in gaps if gap > 0], sum(gaps) / len(gaps)
            held = held and mean < 0
            warned = sum(r.values["warned"] for r in some)
            sentences.append(
                f"{'all layers' if layers == 'all' else 'the last layer alone'}: {mean:+.2f} on average, above zero in "
                f"{len(worse)} of {len(gaps)} cases, by {max(worse, default=0):.2f} at most; {warned} of {len(some)} warn"
            )
    return Verdict(
        Outcome.ours if held else Outcome.unsupported,
        f"Test NLL of the posterior less that of the network itself. {'; '.join(sentences)}.",
    )
