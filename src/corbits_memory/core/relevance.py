"""How good an answer is, and how far two answers agree. Relevance is binary; what is found has no repeats."""

import math
from collections.abc import Collection, Sequence
from statistics import StatisticsError, correlation


def recall(found: Sequence[str], relevant: Collection[str], k: int) -> float:
    """The share of the relevant (at least one) among the first ``k``."""
    return len(set(found[:k]).intersection(relevant)) / len(relevant)


def reciprocal_rank(found: Sequence[str], relevant: Collection[str]) -> float:
    """1 over the rank of the first relevant; 0 without one."""
    return next((1.0 / rank for rank, ref in enumerate(found, 1) if ref in relevant), 0.0)


def ndcg(found: Sequence[str], relevant: Collection[str], k: int = 10) -> float:
    """Discounted gain of the first ``k`` over that of an ideal order."""
    gain = sum(1.0 / math.log2(rank + 1) for rank, ref in enumerate(found[:k], 1) if ref in relevant)
    ideal = sum(1.0 / math.log2(rank + 1) for rank in range(1, min(k, len(relevant)) + 1))
    return gain / ideal


def overlap(one: Sequence[str], other: Sequence[str], k: int = 10) -> float:
    """What the first ``k`` of both share, over the longer; two empty answers agree."""
    first, second = set(one[:k]), set(other[:k])
    return len(first & second) / max(len(first), len(second)) if first or second else 1.0


def rank_correlation(one: Sequence[str], other: Sequence[str]) -> float | None:
    """Spearman's, of the order of what both found: 1 the same, -1 reversed; None with fewer than two in common."""
    places = {ref: place for place, ref in enumerate(other)}
    shared = [places[ref] for ref in one if ref in places]
    ranks = [sorted(shared).index(place) for place in shared]
    try:
        return correlation(range(len(ranks)), ranks)
    except StatisticsError:
        return None


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` (0 to 1) of the values lie, by nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))]
