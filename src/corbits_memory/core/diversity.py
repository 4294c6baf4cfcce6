"""Different things first: maximal marginal relevance."""

import math
from collections.abc import Sequence
from operator import mul
from typing import Any, NamedTuple

COMPAT_MMR_LAMBDA = 0.7


class MmrItem(NamedTuple):
    """One candidate. ``tokens`` stand in for the vector where either side has none."""

    key: str
    score: float
    vector: Sequence[float] | None = None
    tokens: frozenset[str] = frozenset()


def cosine(left: Sequence[float], right: Sequence[float]) -> float:
    """Cosine similarity; 0 when either vector is empty or zero."""
    return _cosine(left, _norm(left), right, _norm(right))


def jaccard(left: frozenset[Any], right: frozenset[Any]) -> float:
    """Shared share of two sets; 0 when both are empty."""
    if not left or not right:
        return 0.0
    shared = len(left & right)
    return shared / (len(left) + len(right) - shared)


def compat_mmr(items: Sequence[MmrItem], *, k: int, lam: float = COMPAT_MMR_LAMBDA) -> list[MmrItem]:
    """The original's rule: score − λ · closest pick, so that a larger λ means more diversity.

    Items without a vector come after all others, by score; the whole is cut to ``k``.
    """
    pool = [(item, item.vector, _norm(item.vector)) for item in items if item.vector is not None]
    without = sorted((item for item in items if item.vector is None), key=lambda item: -item.score)
    closest: list[float | None] = [None] * len(pool)
    left = list(range(len(pool)))
    picked: list[MmrItem] = []
    while left and len(picked) < k:
        best = max(left, key=lambda index: pool[index][0].score - lam * (closest[index] or 0.0))
        left.remove(best)
        item, vector, norm = pool[best]
        picked.append(item)
        for index in left:
            similarity = _cosine(pool[index][1], pool[index][2], vector, norm)
            held = closest[index]
            closest[index] = similarity if held is None else max(held, similarity)
    return [*picked, *without][:k]


def mmr(
    items: Sequence[MmrItem],
    *,
    k: int,
    lam: float,
    cosine_floor: float = 0.0,
    cap: float | None = None,
    before: Sequence[MmrItem] = (),
) -> list[MmrItem]:
    """Greedy λ · relevance − (1 − λ) · similarity to the closest pick. λ 1 is relevance alone.

    Relevance is the score over ``cap`` (the best score when None). Cosines are read from ``cosine_floor``
    (unrelated) to 1 (equal), since a model's unrelated texts may lie far above 0. Where either side has no
    vector their tokens are compared, so that such an item competes at its true score. Ties: score, then key.
    ``before`` were picked earlier: what is like them comes later, and they don't come again.
    """
    best_score = cap if cap is not None else max((item.score for item in items), default=0.0)
    scale = best_score if best_score > 0 else 1.0
    left = [_Open(item, lam * item.score / scale) for item in sorted(items, key=lambda i: (-i.score, i.key))]
    picks = [(item, _norm(item.vector)) for item in before]
    picked: list[MmrItem] = []
    while left and len(picked) < k:
        best, value = left[0], -math.inf
        for row in left:
            if row.most <= value:
                break  # nor are those after it worth more
            # What it is known to be like only grows, so most rows need not be compared with all picks.
            while lam < 1.0 and row.compared < len(picks) and row.most - (1.0 - lam) * row.closest > value:
                pick, norm = picks[row.compared]
                near = _similarity(row.item, row.norm, pick, norm, cosine_floor)
                row.closest = max(row.closest, near)
                row.compared += 1
            worth = row.most - (1.0 - lam) * row.closest
            if worth > value:  # of equals the first, in order of score and key
                best, value = row, worth
        left.remove(best)
        picked.append(best.item)
        picks.append((best.item, best.norm))
    return picked


class _Open:
    """A candidate that isn't picked yet."""

    __slots__ = ("closest", "compared", "item", "most", "norm")

    def __init__(self, item: MmrItem, most: float) -> None:
        self.item = item
        self.most = most
        """Its worth if it were like none of the picks."""
        self.norm = _norm(item.vector)
        self.compared = 0
        """With how many of the picks, the first of them."""
        self.closest = 0.0


def _similarity(
    left: MmrItem, left_norm: float, right: MmrItem, right_norm: float, cosine_floor: float
) -> float:
    if left.vector is None or right.vector is None:
        return jaccard(left.tokens, right.tokens)
    similarity = _cosine(left.vector, left_norm, right.vector, right_norm)
    return max(0.0, similarity - cosine_floor) / max(1.0 - cosine_floor, 1e-9)


def _norm(vector: Sequence[float] | None) -> float:
    return math.hypot(*vector) if vector else 0.0


def _cosine(left: Sequence[float], left_norm: float, right: Sequence[float], right_norm: float) -> float:
    scale = left_norm * right_norm  # may be 0 for tiny vectors too
    if not scale or len(left) != len(right):
        return 0.0
    return float(sum(map(mul, left, right))) / scale
