"""Whatever a user can reach by name says what it does; the functions of `posterity` also say with what, and show how."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import pytest

import posterity as pt
from posterity.deprecated import MOVED

PARTS = [m.name for m in pkgutil.iter_modules(pt.__path__) if m.ispkg and m.name != "cli"]
PLACES = [*pt.__all__, *(f"{part}.{name}" for part, names in MOVED.items() for name in names)]
FUNCTIONS = [name for name in PLACES if inspect.isfunction(attrgetter(name)(pt))]


def public(module: Any) -> Iterator[tuple[str, Any]]:
    """Functions, classes and their own public methods and properties."""
    for name in module.__all__:
        value = getattr(module, name)
        if not inspect.isclass(value) and not inspect.isfunction(value):
            continue
        yield name, value
        if inspect.isclass(value):
            for member, inner in inspect.getmembers(value):
                function = inner.fget if isinstance(inner, property) else inner
                ours = getattr(function, "__module__", "") or ""
                if not member.startswith("_") and inspect.isroutine(function) and ours.startswith("posterity"):
                    yield f"{name}.{member}", inner


def documented(value: Any) -> bool:
    text = inspect.getdoc(value) or ""
    # A dataclass without a docstring gets its signature for one.
    return bool(text) and not (inspect.isclass(value) and text.startswith(f"{value.__name__}("))


@pytest.mark.parametrize("part", ["", *PARTS])
def test_every_public_name_and_method_has_a_docstring(part):
    module = importlib.import_module(f"posterity.{part}".rstrip("."))
    assert [name for name, value in public(module) if not documented(value)] == []


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_has_arguments_returns_and_an_example_in_its_docstring(name):
    text = inspect.getdoc(attrgetter(name)(pt)) or ""
    missing = [section for section in ("Args:", "Returns:", "Example:") if section not in text]
    assert missing == []
    assert re.search(r"^\s+>>> .*\bpt\.", text[text.index("Example:") :], re.MULTILINE)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_docstring_names_every_argument_and_no_other(name):
    function = attrgetter(name)(pt)
    text = inspect.getdoc(function) or ""
    section = re.search(r"^Args:\n(.*?)^\S", text, re.MULTILINE | re.DOTALL)
    named = re.findall(r"^    (\w+): ", section[1] if section else "", re.MULTILINE)
    assert named == list(inspect.signature(function).parameters)
