"""The words of the field: the glossary of CONTRIBUTING.md, held over the library, the pages and the studies' titles."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BANNED = re.compile(
    r"(?<![a-z])(told|telling|anew|nobody|strange|stranger|strangest|strangeness|doors|surprises?|surprising|surprised)(?![a-z])"
    r"|of the answers are right|(answers|others) are right|right answers"
    r"|being deserved|a number that holds|knows? (no one else|the nine)|unlike anything"
    r"|isotropic at the mean|mean surprise|speaks? for neither|left out of what|not on none",
    re.IGNORECASE,
)
FILES = [
    "README.md",
    "SECURITY.md",
    "CITATION.cff",
    "Makefile",
    "mkdocs.yml",
    "pyproject.toml",
    *(
        str(path.relative_to(ROOT))
        for folder in ("src", "docs", "examples", "benchmarks", "studies/src")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".py", ".md", ".css", ".js", ".ipynb") and "results" not in path.parts
    ),
]


@pytest.mark.parametrize("file", FILES)
def test_a_file_has_none_of_the_words_that_the_glossary_replaces(file):
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    # The picture of a notebook is text too.
    found = [f"{n}: {m[0]}" for n, line in enumerate(lines, 1) if len(line) < 5000 for m in BANNED.finditer(line)]
    assert found == []


NO_NOUN = re.compile(
    "_?(Admitted|Around|Asked|Averaged|Checked|Chosen|Empirical|Exact|Fitted|Floored|Found|Framed|Free|Given|HandedDown|Known"
    "|Learned|Linearised|Made|Memorised|Observed|Partial|Past|Predicting|Raw|Refined|Remembered|Sampled|Saved|Scaled|Shared"
    "|Stored|Summed|Tuned|Turned|Unfrozen|Valued|Variational|Wish)"
)
"""Participles and adjectives that were names of classes."""


@pytest.mark.parametrize("folder", ["src", "studies/src", "benchmarks", "examples"])
def test_classes_are_called_by_nouns_and_no_two_of_the_library_alike(folder):
    names = [
        node.name
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    assert [name for name in names if NO_NOUN.fullmatch(name)] == []
    if folder == "src":
        assert sorted(name for name, count in Counter(names).items() if count > 1) == []


def test_the_pattern_finds_what_it_is_for():
    assert BANNED.search("It is told by nobody.")
    assert BANNED.search("def _told_apart(")
    assert not BANNED.search("The toolkit reports it; no one else does.")
