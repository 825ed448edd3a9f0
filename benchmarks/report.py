"""Tables from results files: on the terminal, and in the documentation between markers, so that figures cannot drift."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rich.table

from benchmarks.certificates import SECONDS_TARGET
from benchmarks.curvature import ORDER

Line = dict[str, Any]
GIB = 2**30


@dataclass(frozen=True)
class Table:
    """A heading and rows of text, the first column to the left and numbers to the right."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    words: int = 1
    """How many columns are words; the others are numbers."""

    def rich(self) -> rich.table.Table:
        """For the terminal."""
        table = rich.table.Table(title=self.title, title_justify="left")
        for i, column in enumerate(self.columns):
            table.add_column(column, justify="left" if i < self.words else "right")
        for row in self.rows:
            table.add_row(*(_plain(cell) for cell in row), style="bold" if "**" in "".join(row) else None)
        return table

    def markdown(self) -> str:
        """For the documentation."""
        rule = ["---" if i < self.words else "--:" for i in range(len(self.columns))]
        lines = "".join(f"| {' | '.join(row)} |\n" for row in (self.columns, rule, *self.rows))
        return f"{self.title}.\n\n{lines}"


def tables(results: Mapping[str, list[Line]]) -> dict[str, Table]:
    """All tables that the results of the parts are enough for, by the names of their markers."""
    algebra, curvature = results.get("algebra", []), results.get("curvature", [])
    networks = {"lenet5": "LeNet-5", "resnet18": "ResNet-18", "resnet50": "ResNet-50"}
    found = {
        "machine": _machine([line for lines in results.values() for line in lines]),
        "nearest": _nearest(_kind(algebra, "nearest")),
        "joint": _joint(_kind(algebra, "joint eigenbasis")),
        **{name: _network(title, _kind(curvature, name)) for name, title in networks.items()},
        "floor": _floor(curvature),
        "large": _large(results.get("large", [])),
        "predictive": _predictive(results.get("predictive", [])),
        "certificates": _certificates(results.get("certificates", [])),
        "progressive": _progressive(results.get("progressive", [])),
        "latency": _latency(results.get("latency", [])),
        "memory": _memory(results.get("memory", [])),
        "threads": _threads(results.get("serving", [])),
    }
    return {name: table for name, table in found.items() if table.rows}


def render(document: Path, results: Mapping[str, list[Line]]) -> None:
    """Replaces every table between `<!-- table: name -->` and `<!-- end -->` by what the results files say now."""
    text = document.read_text()
    for name, table in tables(results).items():
        marked = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not marked.search(text):
            raise ValueError(
                f"{document.name} has no place for the table {name!r}: add <!-- table: {name} --> … <!-- end -->"
            )
        text = marked.sub(lambda m, table=table: m[1] + table.markdown() + m[2], text)  # type: ignore[misc]
    document.write_text(text)


def _latency(lines: list[Line]) -> Table:
    rows = []
    for line in lines:
        target = line["target"]
        reached = "" if target is None else _verdict(line["times_plain"] <= target, f"≤ {target:g}×")
        times = f"{line['times_plain']:.1f}×"
        rows.append((line["network"], line["predictor"], f"{line['milliseconds']:.2f}", times, reached))
    return Table("One input", ("network", "predictor", "CPU ms", "plain network", "target"), rows, words=2)


def _memory(lines: list[Line]) -> Table:
    rows = [
        (
            line["what"],
            "refused" if line["refused"] else "held",
            f"{line['peak_bytes'] / GIB:.2f}",
            f"{line['seconds']:.1f}",
            _verdict(line["peak_bytes"] <= line["target_bytes"], f"≤ {line['target_bytes'] / GIB:g} GiB"),
        )
        for line in lines
    ]
    return Table("Posteriors that are large", ("posterior", "", "peak GiB", "CPU s", "target"), rows, words=2)


def _threads(lines: list[Line]) -> Table:
    rows = [
        (
            str(line["clients"]),
            f"{line['requests']:,}",
            str(line["errors"]),
            f"{line['requests_a_second']:.0f}",
            f"{line['median_ms']:.1f}",
            f"{line['percentile_99_ms']:.0f}",
        )
        for line in lines
    ]
    columns = ("clients", "requests", "errors", "requests a second", "median, ms", "99th percentile, ms")
    return Table("One fit, a thread for each request (wall clock, both cores shared with the clients)", columns, rows)


def _predictive(lines: list[Line]) -> Table:
    """Predictives by the image, so that a peer measured on a few can be compared."""
    rows = []
    ours = next(
        (x["seconds"] / x["examples"] for x in lines if x["work"] == "linearised" and x["name"] == "posterity"), None
    )
    for line in lines:
        if line["seconds"] is None:
            rows.append((line["work"], line["name"], line["detail"], *("–",) * 4))
            continue
        each = line["seconds"] / line["examples"]
        against = f"{each / ours:.0f}×" if ours and line["work"] == "linearised" and line["name"] != "posterity" else ""
        forwards = f"{line['ratio']:.2f}×"
        rows.append(
            (
                line["work"],
                line["name"],
                line["detail"],
                forwards,
                f"{1000 * each:.2f}",
                f"{line['peak_bytes'] / 2**20:.0f}",
                against,
            )
        )
    columns = ("predictive", "library", "", "100 plain forwards", "ms an image", "MiB added", "slower than ours")
    return Table("LeNet-5, ten classes: 100 draws, or linearised", columns, rows, words=3)


def _large(lines: list[Line]) -> Table:
    rows = []
    for line in lines:
        target = "" if line["target"] is None else _verdict(line["figure"] <= line["target"], f"≤ {line['target']:g}")
        reference = "" if line["reference_seconds"] is None else f"{line['reference_seconds']:.2f}"
        added = f"{line['added_bytes'] / GIB:.2f}" if line["added_bytes"] else ""
        rows.append(
            (
                line["work"],
                line["detail"],
                f"{line['figure']:.2f} {line['unit']}",
                f"{line['seconds']:.2f}",
                reference,
                added,
                target,
            )
        )
    columns = ("work", "", "figure", "CPU s", "reference, CPU s", "peak GiB added", "target")
    return Table("ResNet-50, one thread", columns, rows, words=2)


def _certificates(lines: list[Line]) -> Table:
    rows = []
    for line in lines:
        forwards = line["work"] == "replicates"
        if line["seconds"] is None:
            rows.append((line["work"], line["detail"], *("–",) * 3))
            continue
        if forwards:
            target = _verdict(line["ratio"] <= line["target_ratio"], f"≤ {line['target_ratio']:g} plain passes")
        elif line["work"] == "tune":
            target = _verdict(line["seconds"] <= SECONDS_TARGET, f"≤ {SECONDS_TARGET:g} s")
        else:
            target = ""
        rows.append((line["work"], line["detail"], f"{line['ratio']:.2f}×", f"{line['seconds']:.3f}", target))
    columns = ("work", "", "plain passes over the data", "CPU s", "target")
    about = f": {lines[0]['examples']:,} images, batch {lines[0]['batch']}" if lines else ""
    return Table(f"LeNet-5{about}", columns, rows, words=2)


def _progressive(lines: list[Line]) -> Table:
    """Column by column, in the unit of the target."""
    rows = []
    for line in lines:
        if line["seconds"] is None:
            rows.append((line["network"], line["work"], "–", "–", line["detail"]))
            continue
        each = 1000 * line["seconds"] / (line["examples"] / line["batch"])
        rows.append(
            (line["network"], line["work"], f"{line['ratio']:.2f}×", f"{each:.1f}", line["detail"].split(" ")[0])
        )
    columns = ("network", "training", "t forwards + 1 backward", "ms a batch", "count without memory")
    return Table("Training column t, by the batch", columns, rows, words=2)


def _kind(lines: list[Line], kind: str) -> list[Line]:
    return [line for line in lines if line["key"][0] == kind]


def _machine(lines: list[Line]) -> Table:
    seen = {}
    for line in lines:
        machine, versions = line["machine"], line["versions"]
        seen[machine["cpu"], machine["threads"], machine["system"], machine["python"], *versions.items()] = line
    rows = []
    for line in seen.values():
        machine = line["machine"]
        where = f"{machine['cpu']}, {machine['cores']} cores, {machine['threads']} thread used, {machine['system']}"
        packages = ", ".join(f"{name} {version}" for name, version in line["versions"].items())
        rows.append((where, f"Python {machine['python']}, {packages}"))
    return Table("Measured on", ("machine", "versions"), rows, words=2)


def _nearest(lines: list[Line]) -> Table:
    rows = []
    for line in lines:
        memory = line["peak_bytes"] / line["pair_bytes"]
        rows.append(
            (
                line["dtype"],
                f"{1e3 * line['seconds']:.2f}",
                f"{1e3 * line['power_seconds']:.2f}",
                f"{line['ratio']:.1f}×",
                _verdict(line["ratio"] >= line["target_ratio"], f"≥ {line['target_ratio']:g}×"),
                f"{memory:.4f}",
                _verdict(memory <= line["target_memory"], f"≤ {line['target_memory']:g}"),
            )
        )
    columns = ("terms in", "`nearest`, ms", "power method, ms", "faster by", "target", "peak / one pair", "target")
    return Table("nearest: K = 3, M = 120, N = 401, beside 100 steps of the power method", columns, rows)


def _joint(lines: list[Line]) -> Table:
    sides = [str(side) for side in lines[0]["sides"]] if lines else []
    rows = [
        (
            line["operation"],
            line["cost"],
            *(f"{1e3 * seconds:.3g}" for seconds in line["seconds"]),
            f"{line['exponent']:.2f}",
            str(line["power"]),
        )
        for line in lines
    ]
    columns = ("operation", "cost", *(f"M = N = {side}, ms" for side in sides), "fitted power", "power of the cost")
    return Table("JointEigen by size", columns, rows, words=2)


def _network(title: str, lines: list[Line]) -> Table:
    rows = []
    lines = sorted(lines, key=lambda line: ORDER.index(line["work"]))
    for line in lines:
        own = line["name"] == "posterity"
        name = f"**{line['name']}**" if own else line["name"]
        if line["status"] != "measured":
            rows.append((line["work"], name, f"{line['status']}: {line['detail']}", "", "", "", "", ""))
            continue
        verdicts = []
        if line["target_ratio"] is not None:
            verdicts.append(_verdict(line["ratio"] <= line["target_ratio"], f"≤ {line['target_ratio']:g}×"))
        if line["target_bytes"] is not None:
            limit = line["target_bytes"]
            verdicts.append(_verdict(line["peak_bytes"] <= limit, f"≤ {limit / GIB:g} GiB"))
        rows.append(
            (
                line["work"],
                name,
                f"{line['ratio']:.2f}×",
                f"{line['seconds']:.2f}",
                f"{line['reference_seconds']:.2f}",
                f"{line['peak_bytes'] / GIB:.2f}",
                str(line["repeats"]),
                ", ".join(verdicts),
            )
        )
    about = f": {lines[0]['examples']:,} images, batch {lines[0]['batch']}" if lines else ""
    columns = ("work", "library", "plain epochs", "CPU s", "plain epoch, CPU s", "peak GiB", "runs", "target")
    return Table(title + about, columns, rows, words=2)


PART_NAMES = {
    ("kfac-sampled", "inputs"): "input moments, row bands",
    ("kfac-sampled", "gradients"): "gradient moments",
    ("kfoc-sampled", "gradients"): "gradients or Grams, iterations, joining",
    ("diagonal-sampled", "gradients"): "gradients, squared and summed",
}
NEGLIGIBLE = 0.01
"""Parts below this share of a pass are not shown one by one."""


def _floor(lines: list[Line]) -> Table:
    rates, parts = _kind(lines, "rates"), _kind(lines, "part")
    if not rates or not parts:
        return Table("Where LeNet-5's time goes", (), [])
    flops, bandwidth = rates[0]["flops"], rates[0]["bytes"]
    passes: dict[str, list[Line]] = {}
    for part in parts:
        passes.setdefault(part["work"], []).append(part)
    (plain,), (network,) = passes.pop("plain epoch", [None]), passes.pop("every estimator", [None])
    if plain is None or network is None:
        return Table("Where LeNet-5's time goes", (), [])

    def floor(part: Line) -> float:
        return part["examples"] * max(2 * part["multiply_adds"] / flops, part["bytes"] / bandwidth)

    def row(work: str, name: str, layer: str, group: list[Line]) -> tuple[str, ...]:
        count, size, seconds = (sum(p[field] for p in group) for field in ("multiply_adds", "bytes", "seconds"))
        least = sum(map(floor, group))
        return (
            work,
            name,
            layer,
            f"{count:,}" if count else "",
            f"{size:,}" if size else "",
            f"{least:.3f}" if least else "",
            f"{seconds:.3f}",
            f"{seconds / plain['seconds']:.2f}",
        )

    rows = [row(p["work"], p["part"], p["layer"], [p]) for p in (plain, network, *passes.pop("patches", []))]
    for work, group in passes.items():
        whole = sum(p["seconds"] for p in (network, *group))
        places: dict[tuple[str, str], list[Line]] = {}
        for part in group:
            layer = "fc1–fc3" if part["layer"].startswith("fc") else part["layer"]
            name: str = PART_NAMES.get((work, part["part"])) or part["part"]
            places.setdefault((name, layer), []).append(part)
        shown = {k: v for k, v in places.items() if sum(p["seconds"] for p in v) >= NEGLIGIBLE * whole}
        rows += [row(work, name, layer, found) for (name, layer), found in shown.items()]
        rows.append(row(work, "**all, with the network's pass**", "all", [network, *group]))
    title = f"Where LeNet-5's time goes ({flops / 1e9:.0f} Gflop/s in a product, {bandwidth / 1e9:.1f} GB/s in a copy)"
    columns = (
        "pass",
        "part",
        "layer",
        "multiply-adds an image",
        "bytes an image",
        "floor, s",
        "measured, CPU s",
        "plain epochs",
    )
    return Table(title, columns, rows, words=3)


def _verdict(reached: bool, target: str) -> str:
    return f"{target} reached" if reached else f"{target} **short**"


def _plain(text: str) -> str:
    return text.replace("**", "").replace("`", "")
