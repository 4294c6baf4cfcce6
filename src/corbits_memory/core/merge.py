"""Merging the memory's own hits with those of live sources."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from corbits_memory.core.fusion import RRF_CONSTANT
from corbits_memory.core.temporal import recency

RELEVANCE_SHARE, RECENCY_SHARE = 0.85, 0.15
UNKNOWN_RECENCY = 0.5
LOCAL = "local"
"""The name of the memory itself in ``sources``."""


class Origin(StrEnum):
    LOCAL = "local"
    LIVE = "live"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeItem:
    """One hit of either side. ``index`` is its place in the caller's own list of that side."""

    origin: Origin
    index: int
    adapter: str
    external_ref: str
    title: str
    score: float
    updated_at: datetime | None = None
    source: str | None = None
    """Provider id of a live item; ``sources`` filters by it (default merge)."""
    kind: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.adapter, self.external_ref


@dataclass(frozen=True, slots=True)
class Merged:
    item: MergeItem
    score: float


def compat_merge(
    local: Sequence[MergeItem],
    live: Sequence[MergeItem],
    *,
    now: datetime,
    limit: int,
    sources: Collection[str] | None = None,
) -> list[Merged]:
    """The original's: scores over each side's maximum, mixed with recency, local copies win.

    ``sources`` names ``local`` and live **adapters**; None or empty is all.
    """
    if sources:
        local = local if LOCAL in sources else []
        live = [item for item in live if item.adapter in sources]
    merged = {entry.item.key: entry for entry in _rescaled(live, now)}
    merged.update({entry.item.key: entry for entry in _rescaled(local, now)})
    return sorted(merged.values(), key=_compat_order)[:limit]


def rank_merge(
    local: Sequence[MergeItem],
    live: Sequence[Sequence[MergeItem]],
    *,
    limit: int,
    sources: Collection[str] | None = None,
    kinds: Collection[str] | None = None,
) -> list[Merged]:
    """The default profile's: reciprocal ranks over the final lists, one list a live source.

    Each side's own order survives and no score is compared with another's scale. ``sources`` names ``local``
    and provider **ids**; ``kinds`` binds live items too (local ones are filtered already). A thing found on
    several sides is shown once, as the local copy, with the ranks added up. Ties: local first, then the
    better rank, then the order of the sources.
    """
    if sources:
        local = local if LOCAL in sources else []
        live = [[item for item in items if item.source in sources] for items in live]
    if kinds:
        live = [[item for item in items if item.kind in kinds] for items in live]
    scores: dict[tuple[str, str], float] = {}
    shown: dict[tuple[str, str], tuple[int, MergeItem]] = {}
    for items in (local, *live):
        for rank, item in enumerate(_first_of_each(items), start=1):
            scores[item.key] = scores.get(item.key, 0.0) + 1.0 / (RRF_CONSTANT + rank)
            shown.setdefault(item.key, (rank, item))
    ordered = sorted(
        shown.items(),
        key=lambda entry: (-scores[entry[0]], entry[1][1].origin is not Origin.LOCAL, entry[1][0]),
    )
    return [Merged(item, scores[key]) for key, (_, item) in ordered[:limit]]


def live_recency(updated_at: datetime | None, now: datetime) -> float:
    """1 now or in the future, one half at 30 days and when unknown."""
    return UNKNOWN_RECENCY if updated_at is None else recency(now - updated_at)


def _rescaled(items: Sequence[MergeItem], now: datetime) -> list[Merged]:
    highest = max((item.score for item in items), default=0.0)
    return [
        Merged(
            item,
            RELEVANCE_SHARE * (item.score / highest if highest > 0 else 0.0)
            + RECENCY_SHARE * live_recency(item.updated_at, now),
        )
        for item in items
    ]


def _compat_order(merged: Merged) -> tuple[float, bool, str, str]:
    title = merged.item.title
    return -merged.score, merged.item.origin is not Origin.LOCAL, title.casefold(), title


def _first_of_each(items: Sequence[MergeItem]) -> list[MergeItem]:
    first: dict[tuple[str, str], MergeItem] = {}
    for item in items:
        first.setdefault(item.key, item)
    return list(first.values())
