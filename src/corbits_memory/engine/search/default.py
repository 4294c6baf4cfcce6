"""The default profile: BM25 and vectors, completed and summed, in the context of threads."""

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from corbits_memory.core.enums import Channel, Degraded
from corbits_memory.core.evidence import ItemEvidence, default_evidence, default_item_evidence, dense_level
from corbits_memory.core.ranking import (
    DEFAULT_CONSTANTS,
    QueryContext,
    RankingConstants,
    Scored,
    calibrate_rerank,
    score_candidates,
)
from corbits_memory.core.selection import select
from corbits_memory.core.snippets import snippet
from corbits_memory.core.text import normalise, parse_query, words
from corbits_memory.engine.access import resolve_visibility
from corbits_memory.engine.pool import READ_SECONDS, Database
from corbits_memory.engine.search.hits import Details, load_details, search_item
from corbits_memory.engine.search.retrieval import QueryVector, Retrieved, retrieve
from corbits_memory.errors import RerankError, RerankQueryTooLongError
from corbits_memory.ports import Access, Reranker, SearchItem, SearchQuery, SearchResult

CANDIDATES_MIN = 50
"""Rows a channel yields; spec d §4: more gained nothing."""
POOL_MIN = 20
RERANK_MIN = 50
MODEL_FLOOR = 0.75
"""The cosine that a small tenant's sample is blended with: where e5-like models put unrelated texts."""


class DefaultProfile:
    def __init__(
        self,
        database: Database,
        reranker: Reranker | None,
        constants: RankingConstants = DEFAULT_CONSTANTS,
    ) -> None:
        self._database = database
        self._reranker = reranker
        self._constants = constants

    async def search(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        query: SearchQuery,
        access: Access | None,
        vector: QueryVector | None,
        now: datetime,
        degraded: list[str],
    ) -> SearchResult:
        parsed = parse_query(query.query)
        async with self._database.tenant(tenant_id, seconds=READ_SECONDS) as conn:
            visibility = await resolve_visibility(conn, tenant_id, principal_id, access)
            found = await retrieve(
                conn,
                tenant_id=tenant_id,
                visibility=visibility,
                query=query,
                text=normalise(parsed.text),
                required=[normalise(phrase) for phrase in parsed.phrases],
                excluded=[normalise(phrase) for phrase in parsed.excluded],
                vector=vector,
                limit=max(CANDIDATES_MIN, 2 * query.limit),
            )
            context = _context(found, parsed.text, now, self._constants)
            scored = score_candidates(found.candidates, context, self._constants, neighbours=found.neighbours)
            pool = _pool(scored, query, reranking=self._reranker is not None)
            details = await load_details(conn, tenant_id, visibility, [r.candidate.chunk_id for r in pool])
        if vector is not None and not found.dense_ready and found.candidates:
            degraded.append(Degraded.DENSE_UNAVAILABLE)
        elif vector is not None and found.partial:
            degraded.append(Degraded.DENSE_PARTIAL)
        scored = self._corroborated(scored, found, context, details)
        scored = await self._reranked(scored, found, context, details, parsed.text, degraded)
        page = select(
            [row for row in scored if row.candidate.chunk_id in details],
            query.limit,
            query.max_per_document,
            self._constants,
            texts={chunk_id: row.text for chunk_id, row in details.items()},
        )
        return self._result(page, found, details, words(parsed.text), query, degraded)

    def _corroborated(
        self,
        scored: list[Scored],
        found: Retrieved,
        context: QueryContext,
        details: Mapping[str, Details],
    ) -> list[Scored]:
        """Claims for and against are read with the texts; where there are any, the scores are made anew."""
        claimed = {key: row for key, row in details.items() if row.supports or row.contradicts}
        if not claimed:
            return scored
        found.candidates[:] = [
            dataclasses.replace(
                candidate,
                supports=claimed[candidate.chunk_id].supports,
                contradicts=claimed[candidate.chunk_id].contradicts,
            )
            if candidate.chunk_id in claimed
            else candidate
            for candidate in found.candidates
        ]
        return score_candidates(found.candidates, context, self._constants, neighbours=found.neighbours)

    async def _reranked(
        self,
        scored: list[Scored],
        found: Retrieved,
        context: QueryContext,
        details: Mapping[str, Details],
        text: str,
        degraded: list[str],
    ) -> list[Scored]:
        if self._reranker is None or not text:
            degraded.append(Degraded.RERANK_UNAVAILABLE)
            return scored
        read = [row.candidate.chunk_id for row in scored if row.candidate.chunk_id in details]
        if not read:
            return scored
        try:
            answers = await self._reranker.rerank(
                text, [f"{details[key].title}\n{details[key].text}" for key in read]
            )
        except RerankQueryTooLongError:
            degraded.append(Degraded.RERANK_QUERY_TOO_LONG)
            return scored
        except RerankError:
            degraded.append(Degraded.RERANK_UNAVAILABLE)
            return scored
        calibrated = calibrate_rerank({read[answer.index]: answer.score for answer in answers})
        return score_candidates(
            found.candidates, context, self._constants, neighbours=found.neighbours, rerank=calibrated
        )

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
        judged: list[ItemEvidence] = []
        for row in page:
            shown = details[row.candidate.chunk_id]
            item = _item_evidence(row, found, shown)
            judged.append(item)
            items.append(
                search_item(
                    shown,
                    score=row.score,
                    snippet=snippet(shown.text, terms),
                    evidence=default_item_evidence(item),
                    channels=_channels(found, row.candidate.chunk_id),
                    explain=_explain(row, found) if query.explain else None,
                )
            )
        return SearchResult(items=tuple(items), evidence=default_evidence(judged), degraded=tuple(degraded))


def _context(found: Retrieved, text: str, now: datetime, constants: RankingConstants) -> QueryContext:
    low = None
    if found.mean is not None:
        share = min(1.0, found.vectors / constants.sample_min)
        low = share * (found.mean - constants.sample_sd * found.deviation) + (1.0 - share) * MODEL_FLOOR
    return QueryContext(
        now=now,
        # Each row's BM25 comes divided by its language's idf total; a query without lexemes has none.
        idf_total=1.0
        if any(candidate.bm25 > 0 for candidate in found.candidates) or found.known > 0
        else 0.0,
        query_words=frozenset(words(text)),
        cosine_lo=low,
        default_lo=MODEL_FLOOR,
    )


def _pool(scored: Sequence[Scored], query: SearchQuery, *, reranking: bool) -> list[Scored]:
    """The rows worth reading: enough for the page after restatements collapse, best of each document first."""
    most = max(RERANK_MIN if reranking else POOL_MIN, 3 * query.limit)
    counts: dict[str, int] = {}
    pool = []
    for row in scored:
        count = counts.get(row.candidate.document_id, 0)
        if count < query.max_per_document:
            counts[row.candidate.document_id] = count + 1
            pool.append(row)
            if len(pool) == most:
                break
    return pool


def _item_evidence(row: Scored, found: Retrieved, shown: Details) -> ItemEvidence:
    dense = None
    if found.mean is not None:
        dense = dense_level(row.candidate.cosine, mean=found.mean, sd=found.deviation)
    return ItemEvidence(
        lexical=row.lexical,
        dense=dense,
        authority=row.candidate.authority,
        supports=shown.supports,
        contradicts=shown.contradicts,
    )


def _channels(found: Retrieved, chunk_id: str) -> tuple[Channel, ...]:
    lexical, dense = found.seeds.get(chunk_id, (False, False))
    named = ((Channel.LEXICAL, lexical), (Channel.DENSE, dense))
    return tuple(channel for channel, hit in named if hit)


def _explain(row: Scored, found: Retrieved) -> dict[str, Any]:
    return {
        "profile": "default",
        "lexical": row.lexical,
        "dense": row.dense,
        "cosine": row.candidate.cosine,
        "foundBy": [str(channel) for channel in _channels(found, row.candidate.chunk_id)],
        "parts": dict(row.parts),
    }
