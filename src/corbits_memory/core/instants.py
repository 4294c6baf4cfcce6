"""Times as they are written."""

from datetime import UTC, datetime


def iso_instant(moment: datetime) -> str:
    """``2026-03-01T09:30:00.000Z``."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
