"""Different things first: maximal marginal relevance, and collapsing restatements."""

import math
import re
from collections.abc import Sequence
from operator import mul
from typing import Any, NamedTuple

from corbits_memory.core.text import words

COMPAT_MMR_LAMBDA = 0.7
NEAR_IDENTICAL = 0.9
"""Jaccard of word shingles from which two texts say the same."""
_SHINGLE_WORDS = 3
_DIGIT = re.compile(r"\d")


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
    left = sorted(items, key=lambda item: (-item.score, item.key))
    norms = {item.key: _norm(item.vector) for item in (*before, *left)}
    closest = {item.key: 0.0 for item in left}

    def note(pick: MmrItem) -> None:
        if lam < 1.0:
            for item in left:
                near = _similarity(item, norms[item.key], pick, norms[pick.key], cosine_floor)
                closest[item.key] = max(closest[item.key], near)

    for item in before:
        note(item)
    picked: list[MmrItem] = []
    while left and len(picked) < k:
        # max() keeps the first of equals, and the rest stays in order of score and key.
        best = max(left, key=lambda item: lam * item.score / scale - (1.0 - lam) * closest[item.key])
        left.remove(best)
        picked.append(best)
        note(best)
    return picked


def collapse_near_identical(texts: Sequence[str], *, threshold: float = NEAR_IDENTICAL) -> list[int]:
    """Indices of the texts to keep, in order: the first of each group that says the same.

    Case, punctuation and spacing don't count. Texts whose numbers differ are never the same ("5 years",
    "6 years"); texts without any word are the same only when equal.
    """
    kept: list[int] = []
    signatures: list[Signature] = []
    for index, text in enumerate(texts):
        signature = Signature.of(text)
        if not any(signature.says_the_same(other, threshold) for other in signatures):
            kept.append(index)
            signatures.append(signature)
    return kept


class Signature(NamedTuple):
    """What of a text is compared with other texts."""

    tokens: frozenset[str]
    shingles: frozenset[tuple[str, ...]]
    numbers: frozenset[str]
    wordless: str
    """The text itself where it has no words."""

    @classmethod
    def of(cls, text: str) -> "Signature":
        tokens = words(text)
        return cls(
            tokens=frozenset(tokens),
            shingles=_shingles(tokens),
            numbers=frozenset(token for token in tokens if not token.isalpha() and _DIGIT.search(token)),
            wordless="" if tokens else text.strip(),
        )

    def says_the_same(self, other: "Signature", threshold: float = NEAR_IDENTICAL) -> bool:
        if self.numbers != other.numbers:
            return False
        if not self.shingles and not other.shingles:
            return self.wordless == other.wordless
        mine, others = len(self.shingles), len(other.shingles)
        if min(mine, others) < threshold * max(mine, others):
            return False  # too unlike in length to be alike in words
        return jaccard(self.shingles, other.shingles) >= threshold


def _shingles(tokens: list[str]) -> frozenset[tuple[str, ...]]:
    """Every three words in a row; of fewer, all of them."""
    if len(tokens) < _SHINGLE_WORDS:
        return frozenset([tuple(tokens)] if tokens else [])
    return frozenset(zip(*(tokens[start:] for start in range(_SHINGLE_WORDS)), strict=False))


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
