"""A certificate's record, read back: every field is checked, and every number must follow from the others."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from posterity.errors import BadAudit
from posterity.pacbayes.certificate import FOLDS, FORMAT, PART, PREDICTORS, RULES, UNITS, Certificate, Holdout

LONGEST = 1 << 20
"""Characters of a record: there is room for some ten thousand blocks."""
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
"""What would move a terminal's cursor."""


def audited(text: str) -> Certificate:
    """The certificate of a record that passes the audit; else `BadAudit`."""
    if len(text) > LONGEST:
        raise BadAudit(f"the record has {len(text):,} characters, and a certificate has at most {LONGEST:,}.")
    try:
        raw = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadAudit(f"this is no certificate of posterity: it is no JSON ({_plain(str(error))}).") from None
    if not isinstance(raw, dict) or "posterity_certificate" not in raw:
        raise BadAudit("this is no certificate of posterity.")
    version = raw.pop("posterity_certificate")
    if version == 1:
        raise BadAudit("this certificate is of format 1, in which draws did not pay for choices: certify again.")
    if version != FORMAT or isinstance(version, bool):
        raise BadAudit(f"this is no certificate in format {FORMAT}.")
    found = _read(raw)
    _follows(found)
    return found


def _read(raw: dict[str, Any]) -> Certificate:
    known = Certificate.__dataclass_fields__.keys()
    # Which records had not before there were certificates of folds, and of groups.
    raw = {"folds": [], "picked": 0, "unit": "example", "assumes": [], "issued": 1} | raw
    if odd := sorted(raw.keys() ^ known, key=str):
        raise BadAudit(f"the record has the fields {[_plain(str(name)) for name in odd[:5]]} too many or too few.")
    holdout = raw["holdout"]
    if not isinstance(holdout, dict) or holdout.keys() != {"error", "bound"}:
        raise BadAudit("the hold-out comparator has an error and a bound.")
    payments = tuple(_payment(x) for x in _list(raw["payments"], "payments"))
    return Certificate(
        bound=_share(raw["bound"], "bound"),
        confidence=_share(raw["confidence"], "confidence"),
        rule=_one_of(raw["rule"], RULES, "rule"),
        predictor=_one_of(raw["predictor"], PREDICTORS, "predictor"),
        delta=_share(raw["delta"], "delta"),
        delta_draws=_share(raw["delta_draws"], "delta_draws"),
        n=_whole(raw["n"], "n", 1),
        gibbs=_share(raw["gibbs"], "gibbs"),
        upper=_share(raw["upper"], "upper"),
        holdout=Holdout(_share(holdout["error"], "hold-out error"), _share(holdout["bound"], "hold-out bound")),
        payments=payments,
        errors=_number(raw["errors"], "errors"),
        shares=tuple(_share(x, "shares") for x in _list(raw["shares"], "shares")),
        folds=tuple(_fold(x) for x in _list(raw["folds"], "folds")),
        picked=_whole(raw["picked"], "picked", 0),
        replicates=_whole(raw["replicates"], "replicates", 0),
        kl=_number(raw["kl"], "kl"),
        examples=_whole(raw["examples"], "examples", 1),
        drawn_per=_one_of(raw["drawn_per"], ("example", "batch"), "drawn_per"),
        kl_by_block={
            _text(k, "block"): _number(v, "kl_by_block") for k, v in _table(raw["kl_by_block"], "kl_by_block")
        },
        prior=_hex(raw["prior"], "prior"),
        posterior=_hex(raw["posterior"], "posterior"),
        data=_hex(raw["data"], "data"),
        checks=tuple(_text(x, "checks") for x in _list(raw["checks"], "checks")),
        unit=_one_of(raw["unit"], UNITS, "unit"),
        assumes=tuple(_text(x, "assumes") for x in _list(raw["assumes"], "assumes")),
        issued=_whole(raw["issued"], "issued", 1),
        versions={_text(k, "versions"): _text(v, "versions") for k, v in _table(raw["versions"], "versions")},
    )


def _follows(c: Certificate) -> None:
    """Every number that follows from others is the one that follows."""
    if not 0 < c.confidence < 1 or not c.delta > 0:
        raise BadAudit(f"a confidence of {c.confidence} with δ = {c.delta} says nothing.")
    if not math.isclose(c.delta + c.delta_draws, 1 - c.confidence, rel_tol=1e-9):
        raise BadAudit(f"δ and δ′ sum to {c.delta + c.delta_draws:g}, which is not 1 − {c.confidence:g}.")
    if c.examples < c.n:
        raise BadAudit(f"{c.n:,} of {c.examples:,} examples cannot be distinct.")
    if c.kl_by_block and not math.isclose(sum(c.kl_by_block.values()), c.kl, rel_tol=1e-9, abs_tol=1e-9):
        raise BadAudit(f"KL is {c.kl:g} and its blocks sum to {sum(c.kl_by_block.values()):g}.")
    if c.unit == "example" and any(errors != int(errors) for errors in (c.errors, *(errors for errors, _ in c.folds))):
        raise BadAudit("errors of examples are whole numbers.")
    if bool(c.folds) != (c.rule == "folds"):
        raise BadAudit("parts are there where the rule is that of folds, and nowhere else.")
    if c.rule == "binomial":
        _binomial(c)
    elif c.rule == "folds":
        _folds(c)
    elif c.rule in ("compression", "preferent"):
        _picked(c)
    else:
        _drawn(c)
    try:
        again = c.recomputed()
    except (ValueError, ArithmeticError) as error:
        raise BadAudit(f"the record's numbers make no bound: {error}.") from None
    if not math.isclose(again, c.bound, rel_tol=1e-9):
        raise BadAudit(f"the record states {c.bound:.6f} and its numbers give {again:.6f}: do not trust it.")


def _binomial(c: Certificate) -> None:
    if c.delta_draws or c.shares or c.kl:
        raise BadAudit("a binomial certificate has no KL, no shares, and spends nothing on draws.")
    if c.errors > c.n:
        raise BadAudit(f"{c.errors:,} errors in {c.n:,} {c.unit}s.")
    # Where there are copies, errors of all examples are rounded up to so many of the distinct ones.
    if not c.errors / c.n - 1 / c.n < c.gibbs <= c.errors / c.n * (1 + 1e-9) or c.upper != c.gibbs:
        raise BadAudit(f"{c.errors:,} errors in {c.n:,} examples are no error of {c.gibbs:g}.")


def _folds(c: Certificate) -> None:
    if c.delta_draws or c.shares or c.kl or c.replicates:
        raise BadAudit("a certificate of folds has no KL, no shares, no replicates, and spends nothing on draws.")
    one = c.predictor == PART
    if (len(c.folds) != 1 if one else len(c.folds) < 2) or any(errors > n for errors, n in c.folds):
        raise BadAudit("there is one part that tests, or at least two, each with no more errors than examples.")
    sums = tuple(map(sum, zip(*c.folds, strict=True)))
    grouped = c.unit == "group"
    counted = sums[1] < c.n if one else sums[1] == c.n and c.predictor == FOLDS
    if not (math.isclose(sums[0], c.errors, abs_tol=1e-9) and counted and (grouped or c.examples == c.n)):
        raise BadAudit(f"the parts hold {sums[0]:,} errors in {sums[1]:,} examples, not {c.errors:,} in {c.n:,}.")
    error = sum(errors / n for errors, n in c.folds) / len(c.folds)
    if not math.isclose(error, c.gibbs, rel_tol=1e-9, abs_tol=1e-12) or c.upper != c.gibbs:
        raise BadAudit(f"the parts have a mean error of {error:g}, not {c.gibbs:g}.")


def _picked(c: Certificate) -> None:
    if c.delta_draws or c.shares or c.kl or c.replicates:
        raise BadAudit(
            "a certificate of what was picked has no KL, no shares, no replicates, and spends nothing on draws."
        )
    if c.picked >= c.n or c.errors > c.n - c.picked or (c.rule == "preferent" and c.errors):
        raise BadAudit(
            f"{c.picked:,} picked of {c.n:,} and {c.errors:,} errors on the others make no bound by {c.rule}."
        )


def _drawn(c: Certificate) -> None:
    if not c.delta_draws > 0 or c.replicates < 1:
        raise BadAudit("draws need replicates, and a share of δ.")
    if c.rule == "klinv":
        if c.errors or c.shares:
            raise BadAudit("a certificate by klinv counts no errors and has no shares.")
        from posterity.pacbayes.bounds import klinv

        upper = klinv(c.gibbs, math.log(c.grid / c.delta_draws) / c.replicates)
        if not math.isclose(upper, c.upper, rel_tol=1e-9):
            raise BadAudit(f"the Gibbs error is at most {c.upper:.6f} in the record, and {upper:.6f} by its numbers.")
    elif len(c.shares) != 2 or not c.shares[1] <= c.shares[0] or c.errors > c.n:
        raise BadAudit("a certificate by excess has two shares, the second no larger than the first.")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("a name appears twice in one object")
    return result


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _plain(text: str) -> str:
    """Text that a terminal may print."""
    return CONTROL.sub("�", text)[:200]


def _wrong(value: Any, name: str, wanted: str) -> BadAudit:
    return BadAudit(f"{name} is {_plain(repr(value))[:60]}, and should be {wanted}.")


def _number(value: Any, name: str) -> float:
    if type(value) not in (int, float) or not 0 <= value < 1e300:
        raise _wrong(value, name, "a finite number that is not negative")
    return float(value)


def _share(value: Any, name: str) -> float:
    if type(value) not in (int, float) or not 0 <= value <= 1:
        raise _wrong(value, name, "a number from 0 to 1")
    return float(value)


def _whole(value: Any, name: str, least: int) -> int:
    if type(value) is not int or not least <= value < 2**53:
        raise _wrong(value, name, f"a whole number from {least}")
    return value


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or len(value) > 5000:
        raise _wrong(value, name, "text")
    if CONTROL.search(value):
        raise BadAudit(f"{name} has characters that would command a terminal: {_plain(value)[:60]!r}.")
    return value


def _hex(value: Any, name: str) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[0-9a-f]{0,64}", value):
        raise _wrong(value, name, "a fingerprint")
    return value


def _one_of(value: Any, choices: tuple[str, ...], name: str) -> str:
    if value not in choices:
        raise _wrong(value, name, "one of " + ", ".join(choices))
    return str(value)


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list) or len(value) > 10_000:
        raise _wrong(value, name, "a list")
    return value


def _table(value: Any, name: str) -> list[tuple[Any, Any]]:
    if not isinstance(value, dict) or len(value) > 100_000:
        raise _wrong(value, name, "an object")
    return list(value.items())


def _fold(value: Any) -> tuple[float, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise _wrong(value, "folds", "a list of (errors, units)")
    return _number(value[0], "folds"), _whole(value[1], "folds", 1)


def _payment(value: Any) -> tuple[str, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise _wrong(value, "payments", "a list of (what, from how many)")
    return _text(value[0], "payments"), _whole(value[1], "payments", 2)
