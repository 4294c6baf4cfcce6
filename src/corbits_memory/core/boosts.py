"""The boosted score of the compat profile's reranked path."""

from collections.abc import Sequence

from corbits_memory.core.corroboration import corroboration_factor, effective_authority
from corbits_memory.core.scale import prior_of


def normalise_scores(scores: Sequence[float]) -> list[float]:
    """Min-max to 0..1 over the batch; all 1 when they are alike."""
    if not scores:
        return []
    low, high = min(scores), max(scores)
    if low == high:
        return [1.0] * len(scores)
    return [(score - low) / (high - low) for score in scores]


def authority_multiplier(authority: float) -> float:
    """0.7 to 1.3 of an effective authority; 1 at one half."""
    return prior_of(authority)


def boost(normalised: float, *, authority: float, supports: int, contradicts: int, temporal: float) -> float:
    """A normalised score times authority, corroboration and time. ``authority`` is the one of capture."""
    effective = effective_authority(authority, supports, contradicts)
    return (
        normalised * authority_multiplier(effective) * corroboration_factor(supports, contradicts) * temporal
    )
