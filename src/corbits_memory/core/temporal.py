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
_LOOK_AHEAD_MS = LOOK_AHEAD / _MILLISECOND
_DECAY_AFTER_MS = DECAY_AFTER / _MILLISECOND
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
        return prior_of(recency(now - occurred_at, half_life_ms))
    if temporal_class is TemporalClass.DEADLINE and valid_until is not None:
        left = valid_until - now
        return PRIOR_MIN if left <= timedelta(0) else _urgency(left / LOOK_AHEAD)
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
    return prior_at(
        temporal_class,
        age_ms=(now - occurred_at) / _MILLISECOND,
        left_ms=None if valid_until is None else (valid_until - now) / _MILLISECOND,
        half_life_ms=half_life_ms,
    )


def prior_at(
    temporal_class: TemporalClass,
    *,
    age_ms: float,
    left_ms: float | None = None,
    half_life_ms: float = HALF_LIFE_MS,
) -> float:
    """:func:`temporal_prior` of an age and of the time left until ``valid_until``, in milliseconds."""
    if temporal_class is TemporalClass.EVENT:
        return prior_of(half_lives(age_ms, half_life_ms))
    if temporal_class is TemporalClass.DEADLINE and left_ms is not None:
        if left_ms <= 0:
            return clamp_prior(PRIOR_MAX + (PRIOR_MAX - PRIOR_MIN) * left_ms / _DECAY_AFTER_MS)
        return _urgency(left_ms / _LOOK_AHEAD_MS)
    return 1.0


def recency(age: timedelta, half_life_ms: float = HALF_LIFE_MS) -> float:
    """1 now or in the future, one half after each half-life."""
    return half_lives(age / _MILLISECOND, half_life_ms)


def half_lives(age_ms: float, half_life_ms: float) -> float:
    """:func:`recency` of an age in milliseconds."""
    return float(2.0 ** (-max(0.0, age_ms) / half_life_ms))


def _urgency(share_left: float) -> float:
    """``share_left``: the time left as a share of the look-ahead."""
    return 1.0 if share_left >= 1.0 else clamp_prior(1.0 + _RISE * (1.0 - share_left))
