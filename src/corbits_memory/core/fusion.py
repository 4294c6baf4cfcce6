"""Reciprocal rank fusion, and one row a document."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, TypeVar

RRF_CONSTANT = 60
AUTHORITY_WEIGHT = 0.5

KeyT = TypeVar("KeyT", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Fused(Generic[KeyT]):
    key: KeyT
    score: float


class DedupeRow(Protocol):
    """What deduplication reads of a row; ``rank`` is its fused or raw score, higher is better."""

    @property
    def document_id(self) -> str: ...

    @property
    def rank(self) -> float: ...

    @property
    def effective_authority(self) -> float: ...

    @property
    def occurred_at(self) -> datetime: ...


RowT = TypeVar("RowT", bound=DedupeRow)


@dataclass(frozen=True, slots=True)
class Kept(Generic[RowT]):
    """The best row of a document with the score it won by."""

    row: RowT
    score: float


def reciprocal_rank_fusion(
    channels: Sequence[Sequence[KeyT]], *, constant: int = RRF_CONSTANT
) -> list[Fused[KeyT]]:
    """Each channel's keys, best first, fused by 1/(constant + rank). Ties keep the order of encounter.

    A key that a channel repeats counts once, at its best rank.
    """
    scores: dict[KeyT, float] = {}
    for channel in channels:
        for rank, key in enumerate(dict.fromkeys(channel), start=1):
            scores[key] = scores.get(key, 0.0) + 1.0 / (constant + rank)
    fused = [Fused(key, score) for key, score in scores.items()]
    return sorted(fused, key=lambda item: -item.score)


def authority_weighted(rank: float, effective_authority: float, weight: float = AUTHORITY_WEIGHT) -> float:
    return rank * (1.0 + weight * effective_authority)


def best_per_document(rows: Sequence[RowT], *, authority_weight: float | None = None) -> list[Kept[RowT]]:
    """The best row of each document, best document first.

    Without a weight the rank alone decides. Of equal rows of one document the earlier stays; equal documents
    go by ``occurred_at``, newest first, then by order of input.
    """
    best: dict[str, Kept[RowT]] = {}
    for row in rows:
        score = row.rank
        if authority_weight is not None:
            score = authority_weighted(row.rank, row.effective_authority, authority_weight)
        held = best.get(row.document_id)
        if held is None or score > held.score:
            best[row.document_id] = Kept(row, score)
    newest_first = sorted(best.values(), key=lambda kept: kept.row.occurred_at, reverse=True)
    return sorted(newest_first, key=lambda kept: -kept.score)
