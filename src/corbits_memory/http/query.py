"""Reads the query string: what is empty counts as absent, what is not a list comes once."""

import re

from corbits_memory.core.limits import SAFE_INTEGER
from corbits_memory.http.calls import Call
from corbits_memory.validation import Problems

_DIGITS = re.compile(r"[0-9]{1,16}")


def digits(text: str) -> int | None:
    """A number of decimal digits that JSON can hold; None for anything else."""
    value = int(text) if _DIGITS.fullmatch(text) else None
    return value if value is not None and value <= SAFE_INTEGER else None


def once(call: Call, problems: Problems, name: str) -> str | None:
    given = [value for value in call.request.query_params.getlist(name) if value]
    if len(given) > 1:
        problems.add(name, "must be given once")
    return given[0] if given else None


def number(
    call: Call, problems: Problems, name: str, *, low: int, high: int, rule: str | None = None
) -> int | None:
    """The parameter in decimal digits, from ``low`` to ``high``; None without it."""
    given = once(call, problems, name)
    if given is None:
        return None
    value = digits(given)
    if value is None or not low <= value <= high:
        problems.add(name, rule or f"must be an integer from {low:,} to {high:,}")
        return None
    return value


def flag(call: Call, problems: Problems, name: str) -> bool:
    given = once(call, problems, name)
    if given not in {None, "true", "false"}:
        problems.add(name, "must be true or false")
    return given == "true"


def words(call: Call, problems: Problems, name: str, allowed: tuple[str, ...]) -> list[str]:
    """Words of a list, with commas or repeated."""
    given = [
        word.strip() for value in call.request.query_params.getlist(name) for word in value.split(",") if word
    ]
    if any(word not in allowed for word in given):
        problems.add(name, f"must be some of: {', '.join(allowed)}")
    return given
