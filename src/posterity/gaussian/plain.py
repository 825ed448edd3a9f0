"""Plain values (JSON) of dataclasses, and back: an annotation says what a value may be, and nothing else is believed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from posterity.errors import DamagedFile

LARGEST = 2**63 - 1
NOT_STORED = {"stored": False}
"""The metadata of a field that does not go into files."""


@dataclass(frozen=True)
class Rule:
    """What a value must be beside its type, and how an error says so. Annotations of `int` and `float` may carry one."""

    holds: Callable[[Any], bool]
    wanted: str


def between(least: int, most: int) -> Rule:
    """A whole number in a range."""
    return Rule(lambda x: least <= x <= most, f"a whole number from {least} to {most}")


def one_of(*choices: str) -> Rule:
    """A text that must be one of the given words."""
    return Rule(lambda x: x in choices, f"one of {', '.join(choices)}")


Natural = Annotated[int, between(0, LARGEST)]
Positive = Annotated[int, between(1, LARGEST)]


def plain(value: Any) -> Any:
    """A dataclass, or what is in one, as JSON has it: an object with a name for each field, and lists for tuples."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            return {name: plain(item) for name, item in value.items()}
        case tuple() | list():
            return [plain(item) for item in value]
    if is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value) if f.metadata != NOT_STORED}
    return float(value)


def read(kind: Any, found: Any, where: str) -> Any:
    """A value of this type from JSON, or `DamagedFile` where anything is not what the annotation says."""

    def checked(holds: bool, wanted: str) -> None:
        if not holds:
            shown = repr(found)
            raise DamagedFile(f"{where} is {shown[:60]}{'…' if len(shown) > 60 else ''}, and should be {wanted}.")

    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        value, rule = read(inner[0], found, where), inner[1]
        checked(rule.holds(value), rule.wanted)
        return value
    if origin in (Union, UnionType):  # what may be missing
        return None if found is None else read(inner[0], found, where)
    if origin is Mapping:
        checked(isinstance(found, dict), "an object")
        return {name: read(inner[1], item, f"{where}[{name!r}]") for name, item in found.items()}
    if origin is tuple or issubclass(kind, tuple):
        inner = inner or tuple(_types(kind).values())
        checked(isinstance(found, list), "a list")
        inner = inner[:1] * len(found) if inner[-1] is ... else inner
        checked(len(found) == len(inner), f"a list of {len(inner)}")
        items = [read(one, item, f"{where}[{i}]") for i, (one, item) in enumerate(zip(inner, found, strict=True))]
        return tuple(items) if origin else kind(*items)
    if is_dataclass(kind):
        types = _types(kind)  # type: ignore[arg-type]
        checked(isinstance(found, dict), "an object")
        if odd := sorted(found.keys() ^ types.keys()):
            raise DamagedFile(f"{where} has the fields {odd[:5]} too many or too few.")
        return kind(**{name: read(one, found[name], f"{where}: {name}") for name, one in types.items()})  # type: ignore[operator]
    if kind is float:
        number = type(found) in (int, float) and 0 <= found <= sys.float_info.max
        checked(number, "a finite number that is not negative")
        return float(found)
    checked(type(found) is kind, {str: "text", bool: "true or false", int: "a whole number"}[kind])
    return found


@cache
def _types(kind: Any) -> dict[str, Any]:
    """The annotation of each field that goes into files."""
    left_out = {f.name for f in fields(kind) if f.metadata == NOT_STORED} if is_dataclass(kind) else ()
    return {name: one for name, one in get_type_hints(kind, include_extras=True).items() if name not in left_out}


def parse(text: str) -> Any:
    """JSON in its narrow sense: no name twice, no NaN, no nesting without end."""
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except RecursionError:
        raise DamagedFile("the header is nested too deeply.") from None
    except ValueError as error:
        raise DamagedFile(f"the header is no JSON: {error}.") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("a name appears twice in one object")
    return result


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")
