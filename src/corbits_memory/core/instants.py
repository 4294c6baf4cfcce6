"""Times as they are written and read."""

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def iso_instant(moment: datetime) -> str:
    """``2026-03-01T09:30:00.000Z``."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def retry_after_seconds(value: str | None, *, now: datetime) -> float | None:
    """Seconds to wait, from either form of a Retry-After header; None when it is absent or unreadable."""
    if value is None:
        return None
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value.strip()):
        return float(value)
    try:
        when = parsedate_to_datetime(value)
    except ValueError:
        return None
    aware = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max(0.0, (aware - now).total_seconds())
