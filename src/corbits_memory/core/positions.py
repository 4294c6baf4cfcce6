"""Where a page of the timeline ended, as text that a client hands back."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_TEXT = re.compile(r"(-?\d{1,18})\.([!-~]{1,256})")


@dataclass(frozen=True, slots=True)
class TimelinePosition:
    """After this version, of those that are ordered by ``occurred_at`` and id, newest first."""

    occurred_at: datetime
    version_id: str

    def __str__(self) -> str:
        return f"{(self.occurred_at - _EPOCH) // _MICROSECOND}.{self.version_id}"


def parse_position(text: str) -> TimelinePosition | None:
    """The position that :class:`TimelinePosition` writes so; None for anything else."""
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    try:
        return TimelinePosition(_EPOCH + int(found[1]) * _MICROSECOND, found[2])
    except OverflowError:
        return None
