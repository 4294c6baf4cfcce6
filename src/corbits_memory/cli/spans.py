"""Times as people type them."""

import re
from datetime import UTC, datetime, timedelta

import typer

_SPAN = re.compile(r"(\d{1,6})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def ends_at(given: str) -> datetime:
    """``30d`` from now, or an ISO date or time (UTC where no zone is given)."""
    span = _SPAN.fullmatch(given.strip().lower())
    if span is not None:
        return datetime.now(UTC) + timedelta(**{_UNITS[span[2]]: int(span[1])})
    try:
        moment = datetime.fromisoformat(given.strip())
    except ValueError:
        raise typer.BadParameter("--expires must be like 30d or 12h, or a date like 2027-01-31") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
