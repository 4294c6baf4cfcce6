"""Reading query strings: each parameter once, what is empty counts as absent, numbers in decimal digits only."""

import re

from starlette.requests import Request

from corbits_memory.validation import Problems

_DIGITS = re.compile(r"[0-9]{1,16}")


def once(request: Request, problems: Problems, name: str) -> str | None:
    """The parameter's text; a repeated one is a problem."""
    given = request.query_params.getlist(name)
    if len(given) > 1:
        problems.add(name, "must be given once")
    return given[0] if given and given[0] else None


def number(
    request: Request, problems: Problems, name: str, *, low: int, high: int, rule: str | None = None
) -> int | None:
    """The parameter as an integer from ``low`` to ``high``."""
    given = once(request, problems, name)
    if given is None:
        return None
    value = int(given) if _DIGITS.fullmatch(given) else None
    if value is None or not low <= value <= high:
        problems.add(name, rule or f"must be an integer from {low:,} to {high:,}")
        return None
    return value
