"""Live sources beside the memory: asked each within its time, never failing the search, and merged in."""

import logging
import math
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any, TypeVar

import anyio

from corbits_memory.core.enums import Degraded, EvidenceLevel, SearchProfile
from corbits_memory.core.limits import LIVE_SOURCE_SECONDS, SEARCH_LIMIT_MAX, TITLE_CHARS
from corbits_memory.core.merge import Merged, MergeItem, Origin, compat_merge, rank_merge
from corbits_memory.core.planning import validate_text
from corbits_memory.core.snippets import compat_snippet
from corbits_memory.ports import (
    Citation,
    LiveItem,
    LiveSource,
    OpenTarget,
    SearchItem,
    SearchQuery,
    SearchResult,
)

_log = logging.getLogger("corbits_memory.live")

NOTHING = SearchResult(items=(), evidence=EvidenceLevel.NONE)
"""The memory's part of an answer when it was not asked."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveAnswer:
    """What one source gave in time, or the flag that says why it gave nothing."""

    source_id: str
    items: tuple[LiveItem, ...] = ()
    flag: Degraded | None = None


async def ask_source(
    source: LiveSource, *, query: str, tenant_id: str, principal_id: str, limit: int
) -> LiveAnswer:
    """Ask one source; after 0.8 s its work is cancelled."""
    try:
        with anyio.fail_after(LIVE_SOURCE_SECONDS):
            found = await source.search_live(
                query=query, tenant_id=tenant_id, principal_id=principal_id, limit=limit
            )
        # An answer may have no end.
        items = tuple(_checked(item, source.id) for item in islice(found, SEARCH_LIMIT_MAX))
        return LiveAnswer(source_id=source.id, items=items)
    except TimeoutError:
        _log.warning("live source %s did not answer within %s s", source.id, LIVE_SOURCE_SECONDS)
        return LiveAnswer(source_id=source.id, flag=Degraded.LIVE_TIMEOUT)
    except Exception as error:  # noqa: BLE001 - a host's source may raise anything; search goes on without it
        # The message may hold what was asked for, so only its type is logged.
        _log.warning("live source %s failed: %s", source.id, type(error).__name__)
        return LiveAnswer(source_id=source.id, flag=Degraded.LIVE_ERROR)
    except anyio.get_cancelled_exc_class():
        if anyio.current_effective_deadline() == -math.inf:
            raise  # nobody waits for this answer any more
        # A cancellation that leaked out of the source itself.
        _log.warning("live source %s cancelled itself", source.id)
        return LiveAnswer(source_id=source.id, flag=Degraded.LIVE_ERROR)


async def gather(
    main: Callable[[], Coroutine[Any, Any, T]],
    others: Sequence[Callable[[], Coroutine[Any, Any, LiveAnswer]]],
) -> tuple[T, list[LiveAnswer]]:
    """Run all at the same time. When ``main`` raises, the others are cancelled and its error comes out."""
    answers: dict[int, LiveAnswer] = {}

    async def keep(index: int, ask: Callable[[], Coroutine[Any, Any, LiveAnswer]]) -> None:
        answers[index] = await ask()

    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        for index, ask in enumerate(others):
            tasks.start_soon(keep, index, ask)
        try:
            result = await main()
        except Exception as error:  # noqa: BLE001 - raised again below, outside the group that would wrap it
            failure = error
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return result, [answers[index] for index in range(len(others))]


def merge(
    local: SearchResult,
    answers: Sequence[LiveAnswer],
    *,
    query: SearchQuery,
    profile: SearchProfile,
    now: datetime,
) -> SearchResult:
    """One list of both sides, cut to the query's limit.

    In the profile ``default`` a score becomes the merged rank's, and only when a live source gave something;
    what it was stands in ``explain``. In ``compat`` scores are rescaled as soon as a source is mounted.
    Where live hits stand among the others there is no page after this one: sources have none.
    """
    degraded = (*local.degraded, *_flags(answers))
    compat = profile is SearchProfile.COMPAT
    if not compat and not any(answer.items for answer in answers):
        return replace(local, degraded=degraded)
    merged = _compat(local, answers, query, now) if compat else _by_rank(local, answers, query)
    evidence = _evidence(local, answers, merged, compat=compat)
    live_items = {
        (answer.source_id, index): item for answer in answers for index, item in enumerate(answer.items)
    }
    items = [
        _local_hit(local.items[entry.item.index], entry, evidence, explain=query.explain and not compat)
        if entry.item.origin is Origin.LOCAL
        else _live_hit(live_items[entry.item.source or "", entry.item.index], entry)
        for entry in merged
    ]
    more = local.more and not any(answer.items for answer in answers)
    return SearchResult(items=tuple(items), evidence=evidence, degraded=degraded, more=more)


def _compat(
    local: SearchResult, answers: Sequence[LiveAnswer], query: SearchQuery, now: datetime
) -> list[Merged]:
    live = [item for answer in answers for item in _live_candidates(answer)]
    return compat_merge(
        _local_candidates(local), live, now=now, limit=query.limit, sources=query.sources or None
    )


def _by_rank(local: SearchResult, answers: Sequence[LiveAnswer], query: SearchQuery) -> list[Merged]:
    live = [_live_candidates(answer) for answer in answers]
    return rank_merge(_local_candidates(local), live, limit=query.limit, kinds=query.kinds or None)


def _local_candidates(local: SearchResult) -> list[MergeItem]:
    return [
        MergeItem(
            origin=Origin.LOCAL,
            index=index,
            adapter=item.adapter,
            external_ref=item.external_ref,
            title=item.title,
            score=item.score,
            updated_at=item.updated_at,
            kind=item.kind,
        )
        for index, item in enumerate(local.items)
    ]


def _live_candidates(answer: LiveAnswer) -> list[MergeItem]:
    return [
        MergeItem(
            origin=Origin.LIVE,
            index=index,
            adapter=item.adapter,
            external_ref=item.external_ref,
            title=item.title,
            score=item.score,
            updated_at=item.updated_at,
            source=answer.source_id,
            kind=item.kind,
        )
        for index, item in enumerate(answer.items)
    ]


def _local_hit(item: SearchItem, merged: Merged, evidence: EvidenceLevel, *, explain: bool) -> SearchItem:
    # An item's evidence is the whole answer's.
    attribution = item.attribution and replace(item.attribution, evidence=evidence)
    parts = {**(item.explain or {}), "score_before_merge": item.score} if explain else item.explain
    return replace(item, score=merged.score, attribution=attribution, explain=parts)


def _live_hit(item: LiveItem, merged: Merged) -> SearchItem:
    return SearchItem(
        document_id=item.external_ref,
        chunk_id=None,
        title=item.title,
        snippet=item.snippet,
        score=merged.score,
        kind=item.kind,
        adapter=item.adapter,
        external_ref=item.external_ref,
        citation=item.citation,
        updated_at=item.updated_at,
    )


def _evidence(
    local: SearchResult, answers: Sequence[LiveAnswer], merged: Sequence[Merged], *, compat: bool
) -> EvidenceLevel:
    """Live hits are weak evidence. In ``compat`` they weaken the memory's own, in ``default`` they don't."""
    if not merged:
        return EvidenceLevel.NONE
    if compat and any(answer.items for answer in answers):
        return EvidenceLevel.WEAK
    shows_local = any(entry.item.origin is Origin.LOCAL for entry in merged)
    return local.evidence if shows_local and local.items else EvidenceLevel.WEAK


def _flags(answers: Sequence[LiveAnswer]) -> tuple[str, ...]:
    """Each flag once, in the order in which answers list them."""
    raised = {answer.flag for answer in answers}
    return tuple(flag.value for flag in Degraded if flag in raised)


def _checked(item: object, source_id: str) -> LiveItem:
    """The item, named after its source if it names no adapter; raises when it can't be shown."""
    if not isinstance(item, LiveItem) or not math.isfinite(item.score):
        raise ValueError("a live source must give LiveItems with finite scores")
    if item.updated_at is not None and item.updated_at.tzinfo is None:
        raise ValueError("a live item's updated_at must be an aware datetime")
    for text in (item.adapter, item.external_ref, item.title, item.snippet, item.kind):
        validate_text(text, "a live item")
    _check_citation(item.citation)
    return replace(
        item,
        adapter=item.adapter or source_id,
        title=item.title[:TITLE_CHARS],
        snippet=compat_snippet(item.snippet),
    )


def _check_citation(citation: object) -> None:
    target = citation.open if isinstance(citation, Citation) else None
    if not isinstance(citation, Citation) or not isinstance(target, OpenTarget):
        raise ValueError("a live item must have a citation that says where it opens")
    for text in (citation.adapter, citation.external_ref, target.type, target.id, target.url or ""):
        validate_text(text, "a live item's citation")
