"""How many rows each stage looks at, and the ranges of what a transform may tune."""

import math
from dataclasses import dataclass

from corbits_memory.core.diversity import COMPAT_MMR_LAMBDA
from corbits_memory.core.fusion import AUTHORITY_WEIGHT
from corbits_memory.core.limits import ENGINE_LIMIT_MAX
from corbits_memory.core.temporal import HALF_LIFE_MS

OVERFETCH_DEFAULT, OVERFETCH_MIN, OVERFETCH_MAX = 5.0, 3.0, 10.0
CHANNEL_CANDIDATES_MAX = 500
EF_SEARCH_MIN, EF_SEARCH_MAX = 40, 1000
RERANK_CANDIDATES = 50
MMR_POOL = 20
MS_PER_DAY = 86_400_000
HALF_LIFE_DAYS_MIN, HALF_LIFE_DAYS_MAX = 1.0 / 24, 36_500.0
AUTHORITY_WEIGHT_MAX = 10.0


class InvalidTuningError(ValueError):
    """A tuning value is out of its range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchTuning:
    """What a transform config may change in a profile, checked."""

    authority_weight: float = AUTHORITY_WEIGHT
    recency_half_life_days: float = HALF_LIFE_MS / MS_PER_DAY
    mmr_lambda: float = COMPAT_MMR_LAMBDA
    overfetch: float = OVERFETCH_DEFAULT

    def __post_init__(self) -> None:
        _check("authorityWeight", self.authority_weight, 0.0, AUTHORITY_WEIGHT_MAX)
        _check("recencyHalfLifeDays", self.recency_half_life_days, HALF_LIFE_DAYS_MIN, HALF_LIFE_DAYS_MAX)
        _check("mmrLambda", self.mmr_lambda, 0.0, 1.0)
        _check("overfetch", self.overfetch, 0.0, 1_000.0)

    @property
    def half_life_ms(self) -> float:
        return self.recency_half_life_days * MS_PER_DAY


def clamp_k(limit: float) -> int:
    """Hits the engine is asked for: 1 to 100."""
    return min(max(1, math.floor(limit)), ENGINE_LIMIT_MAX)


def channel_candidates(k: int, multiplier: float = OVERFETCH_DEFAULT) -> int:
    """Rows a channel yields for ``k`` hits; the multiplier is kept within 3 to 10."""
    kept = min(max(multiplier, OVERFETCH_MIN), OVERFETCH_MAX)
    return min(math.floor(k * kept), CHANNEL_CANDIDATES_MAX)


def ef_search(candidates: float) -> int:
    """``hnsw.ef_search`` that can yield this many candidates: 40 to 1000; 40 when not finite."""
    if not math.isfinite(candidates):
        return EF_SEARCH_MIN
    return min(max(math.floor(candidates), EF_SEARCH_MIN), EF_SEARCH_MAX)


def _check(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise InvalidTuningError(f"{name} is {value}; it must be from {low:g} to {high:g}")
