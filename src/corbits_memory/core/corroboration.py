"""What other documents say about a version, counted at search time."""

import math

from corbits_memory.core.scale import clamp01, prior_of

LOG_CAP = 4
"""From this many supports (or contradictions) on, more change nothing."""


def corroboration_factor(supports: float, contradicts: float) -> float:
    """0.7 to 1.3; exactly 1 when nobody said anything or both sides weigh the same."""
    if supports == contradicts:
        return 1.0
    pro, contra = _signal(supports), _signal(contradicts)
    if pro == contra:
        return 1.0
    return prior_of(clamp01(0.5 + 0.5 * pro - 0.5 * contra))


def effective_authority(authority: float, supports: float, contradicts: float) -> float:
    """Authority after corroboration, 0 to 1."""
    return clamp01(authority * corroboration_factor(supports, contradicts))


def _signal(count: float) -> float:
    whole = max(0, math.floor(count))
    return min(1.0, math.log(1 + whole) / math.log(1 + LOG_CAP))
