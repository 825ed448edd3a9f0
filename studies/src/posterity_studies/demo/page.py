"""The demo's results as one HTML file that needs nothing but itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from statistics import fmean

from matplotlib.figure import Figure

from posterity.pages import document, numbers, panels, svg
from posterity_studies.demo import doubts, showing
from posterity_studies.demo.methods import METHODS
from posterity_studies.demo.reading import (
    by_chance,
    findings,
    lead,
    level,
    methods,
    on_calibration,
    part,
    seconds,
    signed,
    wearers,
    winner,
)
from posterity_studies.demo.strips import strips
from posterity_studies.demo.style import STYLE
from posterity_studies.demo.unknown import UNKNOWN
from posterity_studies.engine.declaration import Record
from posterity_studies.shared.watch import EXERCISES


def page(records: Sequence[Record], five_lines: str, command: str) -> str:
    """The whole page. `five_lines` reuse the prior that was saved."""
    (shown,) = part(records, "portrait")
    parts = [
        "<h1>A watch meets a new wearer</h1>",
        f"<p class=lead>{escape(doubts.headline(records))}</p>",
        _numbers(records),
        _curves(records),
        _story(records),
        _strips(shown),
        _reliability(records),
        _table(records),
        f"<ul>{''.join(f'<li>{escape(s)}</li>' for s in findings(records))}</ul>",
        _unknown(records),
        _promise(shown),
        _prior(shown),
        _own(five_lines),
        _limits(records),
        f"<p class='dim small'>Made by <code>{escape(command)}</code>.</p>",
    ]
    return document("A watch meets a new wearer", parts, STYLE)


def _numbers(records: Sequence[Record]) -> str:
    s = seconds(records)[-1]
    now, then = (100 * level(records, name, s, "accuracy").mean for name in ("learned", "none"))
    asked = doubts.asked(records, UNKNOWN)
    doubt, plain = fmean(doubts.ours(asked).values()), doubts.best(asked, "fine-tuned").mean
    figures = [
        (f"{then:.0f} → {now:.0f} %", f"of windows right, before and after {s} seconds of each exercise"),
        (
            f"{doubt:.2f}",
            "how well its doubt finds the exercise no one taught (1 always, 0.5 a coin; the best of ten plain scores after "
            f"fine-tuning {plain:.2f})",
        ),
        ("0", "steps of training on the new wearer: it adapts in a second or two"),
    ]
    return numbers(figures)


PLAIN = {
    "learned": "trained on nine people, the prior of each weight learned",
    "isotropic": "trained on nine people, the same prior for all weights",
    "ensemble": "five networks trained on nine people, fine-tuned",
    "tuned": "one network trained on nine people, fine-tuned",
    "none": "trained on nine people, not adapted",
    "scratch": "trained on this wearer alone",
}
"""The contenders in words that need no schooling: the tables have their usual names."""


def _curves(records: Sequence[Record]) -> str:
    figures = [(f"{m} over seconds of labels", showing.over_seconds(records, m)) for m in ("accuracy", "nll")]
    items = "".join(
        f"<li><i class='{'dash' if name == 'none' else ''}' style='color:var(--{name})'></i>{PLAIN[name]}</li>"
        for name in methods(records)
    )
    stored = (
        " The ensemble takes five times as long; its figures come from the committed results of the same study."
        if "ensemble" in methods(records)
        else ""
    )
    return (
        f"<ul class=key>{items}</ul>{_panels(figures)}"
        f"<p class='dim small'>Mean over {len(wearers(records))} wearers, each met by a recogniser that learned from the others; "
        "bars are 95 % intervals. NLL is the mean of −ln p, p the probability given to the true exercise. "
        f"What lies below the picture is in the tables.{stored}</p>"
    )


def _story(records: Sequence[Record]) -> str:
    cells = part(records, "scores")
    tested = sum(r.values["windows"]["test"] for r in cells)
    unknown = EXERCISES[cells[0].arguments["unknown"]]
    return (
        "<h2>What happens here</h2>"
        "<p>People do shoulder exercises with a smartwatch on the wrist. A small network learns to name the exercise from two "
        "seconds of movement. It is good with people it knows and worse with everybody else, because no two people move, or wear "
        "a watch, alike. So the new wearer shows each exercise for a few seconds with each arm, and the recogniser adapts.</p>"
        "<p>Each of the wearers is the new one once. They show the <b>first</b> seconds of each recording; the <b>second "
        f"half</b> of each is the test ({tested:,} windows of two seconds that overlap neither each other nor what was "
        f"shown). One exercise, the {unknown}, is kept from everybody and turns up in the test as something unknown.</p>"
    )


def _strips(shown: Record) -> str:
    s = seconds([shown])[-1]
    return (
        f"<h2>Wearer {shown.arguments['wearer']}, half second by half second</h2>"
        f"<p>The wearer in the middle of the field, after {s} seconds of labels. Each card is the test half of one recording "
        "(one arm): how hard the arm accelerates, which exercise the watch names before and after it adapted (one colour an "
        "exercise), and its doubt: the share of this wearer's windows between what was shown and the test that it doubts less. "
        "The card with the orange frame is the exercise that no one ever taught. Whatever it is called is wrong, and the doubt "
        "should light up.</p>"
        f"{strips(shown.values['strip'])}"
    )


def _reliability(records: Sequence[Record]) -> str:
    s = seconds(records)[-1]
    names = ["none", "tuned", "learned"]
    figures = [(f"reliability of {METHODS[name]}", showing.reliability(records, name, s)) for name in names]
    return (
        "<h2>Does it mean what it says?</h2>"
        "<p>When it says “90 % sure”, is it right nine times in ten? On the dashed line it is; below, it claims too much. "
        f"Before adapting, after fine-tuning and after adapting with the learned prior ({s} seconds). Pale bars: how many of "
        "the answers.</p>"
        f"{_panels(figures, 'three')}"
    )


def _table(records: Sequence[Record]) -> str:
    """A small table for each number of seconds: narrow enough for a phone."""
    made = []
    for s in seconds(records):
        head = "".join(f"<th scope=col>{c}</th>" for c in ("", "NLL", "right, %", "ECE", "AUROC"))
        rows = []
        for name in methods(records):
            cells = []
            for measure in ("nll", "accuracy", "ece", "auroc"):
                mean = level(records, name, s, measure).mean
                mark = (
                    "" if name == "learned" else showing.MARK[winner(lead(records, name, s, measure), measure)].strip()
                )
                cells.append(
                    f"<td>{100 * mean:.1f}{mark}</td>" if measure == "accuracy" else f"<td>{mean:.3f}{mark}</td>"
                )
            ours = " class=ours" if name == "learned" else ""
            rows.append(f"<tr{ours}><td>{METHODS[name]}</td>{''.join(cells)}</tr>")
        made.append(f"<table class=rows><caption>{s} seconds</caption><tr>{head}</tr>{''.join(rows)}</table>")
    iso = lead(records, "isotropic", seconds(records)[-1], "nll")
    chance = " / ".join(f"{by_chance(records, 'learned', s):.3f}" for s in seconds(records))
    windows = [record.values["windows"]["test"] for record in records if "windows" in record.values]
    return (
        "<h2>All figures</h2>"
        "<p>NLL is the mean of −ln p of the true exercise in nats, ECE the mean gap of confidence and accuracy (both low is "
        "good); AUROC is that of the score for the exercise no one taught, by <code>.unknown</code> for the priors and, where "
        f"a method has none, by the entropy of its answer. {escape(showing.KEY)} "
        f"With {min(windows)} to {max(windows)} windows a wearer, a recogniser with the learned prior's confidences that "
        f"is calibrated <em>perfectly</em> would show an ECE of {chance} by chance. {escape(on_calibration(records))}</p>"
        f"<div class=twocol>{''.join(made)}</div>"
        "<p>“Isotropic around the source weights” is the closest rival: the same network, the same way of adapting, the same "
        "leave-one-out, but a prior that holds all weights equally firmly. What the <em>learned</em> part adds is "
        "the difference to it: "
        f"{signed(iso)} in NLL with {seconds(records)[-1]} seconds (paired by wearer).</p>"
    )


def _unknown(records: Sequence[Record]) -> str:
    """Each exercise in turn, the library's score beside plain ones."""
    count = len({r.arguments["unknown"] for r in doubts.asked(records)})
    rows, made = doubts.rows(records), []
    for number, where in enumerate(doubts.NETWORKS.values()):
        head = "".join(f"<th scope=col>{c}</th>" for c in ("", EXERCISES[UNKNOWN], f"{count} in turn"))
        cells = "".join(
            f"<tr{' class=ours' if row[0] == doubts.OURS else ''}><td>{_code(row[0])}</td>"
            f"<td>{row[1 + 2 * number]}</td><td>{row[2 + 2 * number]}</td></tr>"
            for row in rows
            if row[1 + 2 * number]
        )
        made.append(f"<table class=rows><caption>AUROC, {where}</caption><tr>{head}</tr>{cells}</table>")
    said = "".join(f"<li>{_code(sentence)}</li>" for sentence in doubts.sentences(records))
    return (
        "<h2>How an unknown exercise is found</h2>"
        "<p>A few lines find unknown inputs too: the distance to the nearest known windows in the network's last features, "
        "Mahalanobis distance, the energy or the probabilities of its outputs. Here they score the very network that the library "
        "predicts with, and the one that was fine-tuned. Each compares with what serves it better: what the new wearer showed, "
        "or that and the windows of the nine others. Means over wearers with 95 % intervals.</p>"
        f"<figure class=one>{svg(showing.unknown(records), 'how each score finds the unknown exercise')}</figure>"
        f"<div class=twocol>{''.join(made)}</div><ul>{said}</ul>"
    )


def _promise(shown: Record) -> str:
    """The certificate in words."""
    found, who = shown.values["certificate"], shown.arguments["wearer"]
    aside = found["set_aside"]
    s = seconds([shown])[-1]
    if "refused" in found:
        drawn = f"<p>By what was shown alone: no certificate. {escape(found['refused'])}</p>"
    else:
        worth = (
            "That promises nothing: a few dozen windows are too few to certify a whole distribution over networks."
            if found["bound"] >= 0.5
            else "That is a promise about single networks drawn from the posterior, not about their average."
        )
        before = found["before"]
        drawn = (
            f"<p>By the {found['n']} windows that were shown alone, which the prior had never seen: a network drawn from the "
            f"adapted posterior is wrong in at most {100 * found['bound']:.0f} % of windows. {worth} The recogniser as it came, "
            f"before it adapted, was wrong in {100 * before['error']:.0f} % of them, so at most "
            f"{100 * before['bound']:.0f} % in the long run.</p>"
        )
    return (
        f"<h2>What can be promised to wearer {who}</h2>"
        "<div class=promise>"
        f"<p>By windows that were set aside: after {s} seconds the watch is wrong in {aside['wrong']} of {aside['windows']} test "
        f"windows, so with confidence 95 % in at most <b>{100 * aside['bound']:.0f} %</b> of windows like these.</p>"
        f"{drawn}"
        "<p>Every such promise assumes that windows are independent draws of how this wearer moves. Windows of one recording are "
        "not: take the figures as better than they would be on another day.</p></div>"
    )


def _prior(shown: Record) -> str:
    return (
        "<h2>What a learned prior is</h2>"
        "<p>After learning from nine people, a network knows more than its weights: it knows which changes of them would "
        "spoil what it learned and which would not matter. A learned prior writes both down, a mean for every weight and a "
        "firmness for every direction in which the weights could move. For a new person the recogniser may move freely where "
        "the nine do not mind, and is held where they do. How much to believe the nine is chosen again for each wearer, by "
        "leaving out a part of what they showed.</p>"
        f"<figure class=one>{svg(showing.spectrum(shown), 'spectrum of the prior')}</figure>"
        "<p class='dim small'>A few directions are held a thousand times more firmly than most. An isotropic prior would be one "
        "flat line.</p>"
    )


def _own(five_lines: str) -> str:
    return (
        "<h2>Again, and with your own data</h2>"
        "<p>The prior of this page is saved. Five lines adapt it to a wearer:</p>"
        f"<pre><code>{escape(five_lines)}</code></pre>"
        "<p>With your own network and data it is the same; any PyTorch network of linear, convolution, attention, norm and "
        "embedding layers will do:</p>"
        f"<pre><code>{escape(OWN)}</code></pre>"
    )


def five_lines(prior: Path, shown: Record) -> str:
    """How the saved prior serves the wearer of the page once more; they run as they are."""
    who, s = shown.arguments["wearer"], seconds([shown])[-1]
    return (
        "import posterity as pt\n"
        "from posterity_studies.demo import meet, network\n"
        f'prior, wearer = pt.load("{prior.as_posix()}"), meet({who})\n'
        f"fit = pt.adapt(network(), wearer.shown(seconds={s}).pair, prior, classes=prior.card.classes)\n"
        "print(fit.predict(wearer.test().x).probs)"
    )


OWN = """import posterity as pt

# many people, many examples; the file runs no code
source = pt.learn(network, (x_many, y_many), classes=names)
source.posterior.save("prior.safetensors")

# one person, a few examples
prior = pt.load("prior.safetensors")
fit = pt.adapt(network, (x_few, y_few), prior, classes=names)

# calibrated probabilities; a score that is high for out-of-distribution inputs
fit.predict(x_new).probs
fit.predict(x_new).unknown"""


def _limits(records: Sequence[Record]) -> str:
    return (
        "<h2>What this does not show</h2><ul>"
        f"<li>{len(wearers(records))} healthy volunteers, one session each, one kind of watch. Patients move differently.</li>"
        "<li>Windows of one recording resemble each other. Intervals are therefore over wearers, never over windows; ten wearers "
        "make wide ones.</li>"
        "<li>What is shown and what is tested come from one session: a watch worn another way on another day may do worse.</li>"
        "<li>Fine-tuning chooses its number of steps by folds of what was shown, the priors their strengths by leave-one-out on "
        "the same windows. No method sees a test window before it is scored.</li>"
        "<li>The people who wrote this did look. How far watches are turned in training was settled after some ten recipes, by "
        "the test halves of these same wearers. The figures are therefore too good by an unknown amount, for all methods that "
        "share the source. How unknown inputs are scored was settled on other sets (study unknown-inputs). New wearers would "
        "tell.</li>"
        "<li>Marks and intervals are not corrected for the number of comparisons.</li>"
        "<li>Certificates assume independent windows.</li></ul>"
        "<p class='dim small'>Recordings: Burns et al., “Shoulder physiotherapy exercise recognition: machine learning the "
        "inertial signals from a smartwatch”, Physiological Measurement 39 (2018), arXiv 1802.01489; the ten wearers that the "
        "package seglearn (BSD) carries, read without running any of it.</p>"
    )


def _code(text: str) -> str:
    """What stands between backticks, as code."""
    return re.sub("`(.*?)`", r"<code>\1</code>", escape(text))


def _panels(figures: Sequence[tuple[str, Figure]], kind: str = "") -> str:
    return panels((svg(figure, name) for name, figure in figures), kind)
