"""The default profile: BM25 and vectors, completed and summed, in the context of threads."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any

from corbits_memory.core.enums import Channel, Degraded, EvidenceLevel, MinEvidence
from corbits_memory.core.evidence import (
    ItemEvidence,
    best_evidence,
    default_item_evidence,
    dense_level,
    reaches,
)
from corbits_memory.core.limits import SEARCH_LIMIT_MAX
from corbits_memory.core.ranking import (
    QueryContext,
    RankingConstants,
    Scored,
    calibrate_rerank,
)
from corbits_memory.core.scoring import CandidateColumns, score_columns
from corbits_memory.core.selection import limit_per_document, select
from corbits_memory.core.shown import Shown
from corbits_memory.core.snippets import snippet
from corbits_memory.core.text import normalise, words
from corbits_memory.core.tuning import channel_candidates
from corbits_memory.engine.access import resolve_visibility
from corbits_memory.engine.generations import Generation
from corbits_memory.engine.pool import Database
from corbits_memory.engine.search.crowded import CrowdedScopes
from corbits_memory.engine.search.hits import Details, load_details, search_item
from corbits_memory.engine.search.past import retrieve_past
from corbits_memory.engine.search.retrieval import Retrieved, SearchPlan, retrieve
from corbits_memory.errors import RerankError, RerankQueryTooLongError
from corbits_memory.ports import Access, Reranker, SearchItem, SearchQuery, SearchResult

CANDIDATES_MIN = 50
"""Rows a channel yields; spec d §4: more gained nothing."""
POOL_MIN = 20
RERANK_MIN = 50
MODEL_FLOOR = 0.75
"""The cosine that a small tenant's sample is blended with: where e5-like models put unrelated texts."""


class DefaultProfile:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._crowded = CrowdedScopes()

    async def search(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        query: SearchQuery,
        access: Access | None,
        plan: SearchPlan,
        now: datetime,
        degraded: list[str],
    ) -> SearchResult:
        """Raises ``OutdatedPlanError``, with nothing in ``degraded``."""
        parsed, vector, constants = plan.parsed, plan.vector, plan.settings.constants
        pool: list[Scored] = []
        unread = False
        async with self._database.reading(tenant_id) as reading:
            visibility = await resolve_visibility(reading, tenant_id, principal_id, access)
            asked: dict[str, Any] = {
                "visibility": visibility,
                "query": query,
                "text": normalise(parsed.text),
                "required": [normalise(phrase) for phrase in parsed.phrases],
                "excluded": [normalise(phrase) for phrase in parsed.excluded],
                "limit": _candidates(query, plan.settings),
            }
            found = await retrieve(
                reading,
                vector=vector,
                crowded=self._crowded,
                second=partial(self._database.reading_beside, tenant_id),
                **asked,
            )
            plan.check(found.searched, dense_ready=found.dense_ready)
            if query.as_of is not None:
                now = query.as_of
                # Of the generation that was read just now, whatever has gone live since.
                asked["query"] = replace(query, generation=found.searched)
                past = await retrieve_past(reading, tenant_id=tenant_id, as_of=query.as_of, **asked)
                found = found.with_past(past.rows)
                if past.partial:
                    degraded.append(Degraded.PAST_PARTIAL)
            if found.columns is None:
                ranking, details = None, {}
            else:
                context = _context(found, found.columns, parsed.text, now, constants)
                ranking = score_columns(found.columns, context, constants)
                pool, unread = _pool(ranking.rows(), found, query, reranking=plan.reranker is not None)
                details = await load_details(
                    reading, visibility, [row.candidate.chunk_id for row in pool], last=True
                )
        if vector is not None and found.partial:
            degraded.append(Degraded.DENSE_PARTIAL)
        claims = _claims(details)
        new = [row for row in pool if not query.shown.has(row.candidate.chunk_id)]
        reranked = await self._rerank(plan.reranker, new, details, parsed.text, degraded)
        if ranking is not None and (claims or reranked):
            # Claims for and against are read with the texts; where there are any, the scores are made anew.
            ranking = score_columns(ranking.columns, context, constants, claims=claims, rerank=reranked)
            pool = list(ranking.rows())
        page = select(
            [row for row in pool if _is_wanted(row, found, details, query)],
            query.limit,
            query.max_per_document,
            constants,
            texts={chunk_id: row.text for chunk_id, row in details.items()},
            shown=query.shown,
        )
        result = self._result(page.rows, found, details, words(parsed.text), query, degraded)
        # A page without hits would come again as it is.
        more = page.more or unread or found.fills(asked["limit"])
        return replace(result, more=bool(page.rows) and more)

    async def _rerank(
        self,
        reranker: Reranker | None,
        pool: Sequence[Scored],
        details: Mapping[str, Details],
        text: str,
        degraded: list[str],
    ) -> dict[str, float] | None:
        """Calibrated scores by chunk id; None when the order stays as it is."""
        if reranker is None or not text:
            degraded.append(Degraded.RERANK_UNAVAILABLE)
            return None
        read = [row.candidate.chunk_id for row in pool if row.candidate.chunk_id in details]
        if not read:
            return None
        try:
            answers = await reranker.rerank(
                text, [f"{details[key].title}\n{details[key].text}" for key in read]
            )
        except RerankQueryTooLongError:
            degraded.append(Degraded.RERANK_QUERY_TOO_LONG)
            return None
        except RerankError:
            degraded.append(Degraded.RERANK_UNAVAILABLE)
            return None
        return calibrate_rerank({read[answer.index]: answer.score for answer in answers})

    def _result(
        self,
        page: Sequence[Scored],
        found: Retrieved,
        details: Mapping[str, Details],
        terms: Sequence[str],
        query: SearchQuery,
        degraded: list[str],
    ) -> SearchResult:
        items: list[SearchItem] = []
        levels: list[EvidenceLevel] = []
        for row in page:
            shown = details[row.candidate.chunk_id]
            level = default_item_evidence(_item_evidence(row, found, shown))
            levels.append(level)
            items.append(
                search_item(
                    shown,
                    score=row.score,
                    snippet=snippet(shown.text, terms),
                    evidence=level,
                    channels=_channels(found, row.candidate.chunk_id),
                    explain=_explain(row, found) if query.explain else None,
                )
            )
        return SearchResult(items=tuple(items), evidence=best_evidence(levels), degraded=tuple(degraded))


def _candidates(query: SearchQuery, settings: Generation) -> int:
    """Rows that a channel yields: as for one page as long as this and those before it."""
    length = len(query.shown) + query.limit
    wished = 2 * length
    if settings.overfetch is not None:
        wished = channel_candidates(length, settings.overfetch)
    return max(CANDIDATES_MIN, wished)


def _context(
    found: Retrieved, columns: CandidateColumns, text: str, now: datetime, constants: RankingConstants
) -> QueryContext:
    low = None
    if found.mean is not None:
        share = min(1.0, found.vectors / constants.sample_min)
        low = share * (found.mean - constants.sample_sd * found.deviation) + (1.0 - share) * MODEL_FLOOR
    return QueryContext(
        now=now,
        # Each row's BM25 comes divided by its language's idf total; a query without lexemes has none.
        idf_total=1.0 if found.known > 0 or any(value > 0 for value in columns.bm25) else 0.0,
        query_words=frozenset(words(text)),
        cosine_lo=low,
        default_lo=MODEL_FLOOR,
    )


def _claims(details: Mapping[str, Details]) -> dict[str, tuple[int, int]]:
    return {
        key: (row.supports, row.contradicts)
        for key, row in details.items()
        if row.supports or row.contradicts
    }


def _pool(
    scored: Iterable[Scored], found: Retrieved, query: SearchQuery, *, reranking: bool
) -> tuple[list[Scored], bool]:
    """The rows worth reading, and whether that left any out.

    They are enough for the page after restatements collapse, best of each document first, and what was shown.
    """
    shown = query.shown
    if query.min_evidence is not None:
        scored = _by_evidence(scored, found, query.min_evidence, shown)
    most = max(RERANK_MIN if reranking else POOL_MIN, 3 * (len(shown) + query.limit)) - len(shown)
    left = min(most, 3 * max(query.limit, SEARCH_LIMIT_MAX))
    pool, unread = [], False
    for row in limit_per_document(scored, query.max_per_document, shown):
        if shown.has(row.candidate.chunk_id):
            pool.append(row)
        elif left:
            pool.append(row)
            left -= 1
        else:
            unread = True
            if not shown:
                break
    # Of a least evidence the order was another.
    return sorted(pool, key=lambda row: (-row.score, row.candidate.chunk_id)), unread


def _is_wanted(row: Scored, found: Retrieved, details: Mapping[str, Details], query: SearchQuery) -> bool:
    """Whether it may be on a page, or was."""
    chunk_id = row.candidate.chunk_id
    if chunk_id not in details:
        return False
    if query.min_evidence is None or query.shown.has(chunk_id):
        return True
    return reaches(default_item_evidence(_item_evidence(row, found, details[chunk_id])), query.min_evidence)


def _by_evidence(
    scored: Iterable[Scored], found: Retrieved, least: MinEvidence, shown: Shown
) -> Iterable[Scored]:
    """Rows that are evidence enough as they stand, then those that are if others speak for them."""
    enough, perhaps = [], []
    for row in scored:
        own = ItemEvidence(
            lexical=row.lexical, dense=_dense_level(row, found), authority=row.candidate.authority
        )
        if shown.has(row.candidate.chunk_id) or reaches(default_item_evidence(own), least):
            enough.append(row)
        elif reaches(default_item_evidence(replace(own, authority=1.0)), least):
            perhaps.append(row)
    return chain(enough, perhaps)


def _item_evidence(row: Scored, found: Retrieved, shown: Details) -> ItemEvidence:
    return ItemEvidence(
        lexical=row.lexical,
        dense=_dense_level(row, found),
        authority=row.candidate.authority,
        supports=shown.supports,
        contradicts=shown.contradicts,
    )


def _dense_level(row: Scored, found: Retrieved) -> float | None:
    if found.mean is None:
        return None
    return dense_level(row.candidate.cosine, mean=found.mean, sd=found.deviation)


def _channels(found: Retrieved, chunk_id: str) -> tuple[Channel, ...]:
    named = ((Channel.LEXICAL, found.lexical_ids), (Channel.DENSE, found.dense_ids))
    return tuple(channel for channel, ids in named if chunk_id in ids)


def _explain(row: Scored, found: Retrieved) -> dict[str, Any]:
    return {
        "profile": "default",
        "lexical": row.lexical,
        "dense": row.dense,
        "cosine": row.candidate.cosine,
        "foundBy": [str(channel) for channel in _channels(found, row.candidate.chunk_id)],
        "parts": dict(row.parts),
    }
