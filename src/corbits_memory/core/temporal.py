"""Time as a prior: events fade, deadlines rise, states and lessons stay."""

from datetime import datetime, timedelta

from corbits_memory.core.enums import TemporalClass
from corbits_memory.core.scale import PRIOR_MAX, PRIOR_MIN, clamp_prior, prior_of

HALF_LIFE_MS = 30 * 86_400_000
LOOK_AHEAD = timedelta(days=7)
"""A deadline starts to rise this long before it is due."""
DECAY_AFTER = timedelta(days=3)
"""How long an expired deadline takes to fade in the default profile."""

_MILLISECOND = timedelta(milliseconds=1)
_RISE = 0.3


def temporal_multiplier(
    temporal_class: TemporalClass,
    *,
    now: datetime,
    occurred_at: datetime,
    valid_until: datetime | None = None,
    half_life_ms: float = HALF_LIFE_MS,
) -> float:
    """0.7 to 1.3, as the original: a deadline falls from 1.3 to 0.7 at the instant it expires."""
    if temporal_class is TemporalClass.EVENT:
        return _recency(now - occurred_at, half_life_ms)
    if temporal_class is TemporalClass.DEADLINE and valid_until is not None:
        left = valid_until - now
        return PRIOR_MIN if left <= timedelta(0) else _urgency(left)
    return 1.0


def temporal_prior(
    temporal_class: TemporalClass,
    *,
    now: datetime,
    occurred_at: datetime,
    valid_until: datetime | None = None,
    half_life_ms: float = HALF_LIFE_MS,
) -> float:
    """0.7 to 1.3 without a cliff: an expired deadline fades from 1.3 to 0.7 over three days."""
    if temporal_class is TemporalClass.DEADLINE and valid_until is not None and valid_until <= now:
        gone = (now - valid_until) / DECAY_AFTER
        return clamp_prior(PRIOR_MAX - (PRIOR_MAX - PRIOR_MIN) * gone)
    return temporal_multiplier(
        temporal_class,
        now=now,
        occurred_at=occurred_at,
        valid_until=valid_until,
        half_life_ms=half_life_ms,
    )


def recency(age: timedelta, half_life_ms: float = HALF_LIFE_MS) -> float:
    """1 now or in the future, one half after each half-life."""
    return float(2.0 ** (-max(0.0, age / _MILLISECOND) / half_life_ms))


def _recency(age: timedelta, half_life_ms: float) -> float:
    return prior_of(recency(age, half_life_ms))


def _urgency(left: timedelta) -> float:
    if left >= LOOK_AHEAD:
        return 1.0
    return clamp_prior(1.0 + _RISE * (1.0 - left / LOOK_AHEAD))
