"""The compat profile: spec b to the letter. Two lists, reciprocal rank fusion, one chunk a document."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from corbits_memory.core.boosts import boost, normalise_scores
from corbits_memory.core.corroboration import effective_authority
from corbits_memory.core.diversity import MmrItem, compat_mmr
from corbits_memory.core.enums import (
    Channel,
    CreatedByKind,
    Degraded,
    EvidenceLevel,
    Provenance,
    TemporalClass,
)
from corbits_memory.core.evidence import EvidenceRow, compat_evidence, reaches
from corbits_memory.core.fusion import best_per_document, reciprocal_rank_fusion
from corbits_memory.core.snippets import compat_snippet
from corbits_memory.core.temporal import temporal_multiplier
from corbits_memory.core.tuning import MMR_POOL, RERANK_CANDIDATES, SearchTuning, channel_candidates, clamp_k
from corbits_memory.engine.access import resolve_visibility
from corbits_memory.engine.pool import READ_SECONDS, Database, Reading
from corbits_memory.engine.queries import load_queries
from corbits_memory.engine.search.hits import Details, load_details, load_vectors, search_item
from corbits_memory.engine.search.retrieval import EXACT_ROWS, SearchPlan, scope_of, vector_parameters
from corbits_memory.engine.vectors import active_space, space_by_key
from corbits_memory.errors import RerankError, RerankQueryTooLongError
from corbits_memory.ports import Access, Reranker, SearchQuery, SearchResult, Visibility


@dataclass(frozen=True, slots=True)
class Row:
    """A fused chunk. ``rank`` is its fused score, then whatever replaces it on the reranked path."""

    details: Details
    rank: float
    channels: tuple[Channel, ...]
    rerank_score: float | None = None

    @property
    def document_id(self) -> str:
        return self.details.document_id

    @property
    def occurred_at(self) -> datetime:
        return self.details.occurred_at

    @property
    def effective_authority(self) -> float:
        shown = self.details
        return effective_authority(shown.authority, shown.supports, shown.contradicts)


@dataclass(frozen=True, slots=True)
class Lists:
    """Both channels, best first, and the raw ranks of the lexical one."""

    lexical: list[str]
    ranks: list[float]
    dense: list[str]
    dense_ready: bool
    searched: str | None


class CompatProfile:
    def __init__(self, database: Database, *, language: str) -> None:
        self._database = database
        self._language = language

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
        tuning = plan.settings.tuning
        k = clamp_k(query.limit)
        async with self._database.reading(tenant_id) as reading:
            visibility = await resolve_visibility(reading, tenant_id, principal_id, access)
            # As for one page as long as this and those before it.
            wished = channel_candidates(clamp_k(len(query.shown) + k), tuning.overfetch)
            lists = await self._lists(reading, tenant_id, visibility, query, plan, wished)
            plan.check(lists.searched, dense_ready=lists.dense_ready)
            fused = reciprocal_rank_fusion([lists.lexical, lists.dense])
            details = await load_details(reading, visibility, [row.key for row in fused], last=True)
        rows = [
            Row(details[row.key], row.score, _channels(lists, row.key))
            for row in fused
            if row.key in details and not query.shown.of_document(details[row.key].document_id)
        ]
        reranked = await self._rerank(plan.reranker, rows, query, degraded)
        if reranked is None:
            kept = best_per_document(rows, authority_weight=tuning.authority_weight)[:k]
            page = [dataclasses.replace(item.row, rank=item.score) for item in kept]
        else:
            page = await self._diverse(tenant_id, plan, _boosted(reranked, now, tuning), k)
        evidence = _evidence(page, lists, details, query)
        if not reaches(evidence, query.min_evidence):
            return SearchResult(items=(), evidence=EvidenceLevel.NONE, degraded=tuple(degraded))
        left = len({row.document_id for row in rows}) > len(page)
        return SearchResult(
            items=tuple(
                search_item(
                    row.details,
                    score=row.rank,
                    snippet=compat_snippet(row.details.text),
                    evidence=evidence,
                    channels=row.channels,
                    explain=_explain(row, lists) if query.explain else None,
                )
                for row in page
            ),
            evidence=evidence if page else EvidenceLevel.NONE,
            degraded=tuple(degraded),
            more=bool(page) and (left or max(len(lists.lexical), len(lists.dense)) >= wished),
        )

    async def _lists(
        self,
        reading: Reading,
        tenant_id: str,
        visibility: Visibility,
        query: SearchQuery,
        plan: SearchPlan,
        limit: int,
    ) -> Lists:
        rows = await reading.fetch(
            load_queries("search")["compat_candidates"],
            {
                "tenant": tenant_id,
                "principal": visibility.principal_id,
                "scope": Jsonb(await scope_of(reading, query, visibility)),
                "generation": query.generation,
                "query": query.query.strip(),
                "language": self._language,
                "limit": limit,
                "small": EXACT_ROWS,
                **vector_parameters(plan.vector),
            },
            dict_row,
        )
        if not rows:
            return Lists([], [], [], dense_ready=False, searched=None)
        row = rows[0]
        return Lists(row["lexical"], row["ranks"], row["dense"], row["dense_ready"], row["searched"])

    async def _rerank(
        self, reranker: Reranker | None, rows: Sequence[Row], query: SearchQuery, degraded: list[str]
    ) -> list[Row] | None:
        """One row a document, with raw scores, best first; None when the fused path has to do."""
        if reranker is None:
            degraded.append(Degraded.RERANK_UNAVAILABLE)
            return None
        candidates = [item.row for item in best_per_document(rows)][:RERANK_CANDIDATES]
        try:
            answers = await reranker.rerank(query.query.strip(), [r.details.text for r in candidates])
        except RerankQueryTooLongError:
            degraded.append(Degraded.RERANK_QUERY_TOO_LONG)
            return None
        except RerankError:
            degraded.append(Degraded.RERANK_UNAVAILABLE)
            return None
        scores = {answer.index: answer.score for answer in answers}
        read = [
            dataclasses.replace(row, rank=scores.get(index, row.rank), rerank_score=scores.get(index))
            for index, row in enumerate(candidates)
        ]
        return sorted(read, key=lambda row: (-row.rank, row.details.chunk_id))

    async def _diverse(self, tenant_id: str, plan: SearchPlan, pool: Sequence[Row], k: int) -> list[Row]:
        keys = [row.details.chunk_id for row in pool]
        vectors: Mapping[str, list[float]] = {}
        async with self._database.tenant(tenant_id, seconds=READ_SECONDS) as conn:
            key = plan.vector.model_key if plan.vector is not None else plan.settings.model_key
            space = await (
                active_space(conn, tenant_id) if key is None else space_by_key(conn, tenant_id, key)
            )
            if space is not None:
                vectors = await load_vectors(conn, tenant_id, space, keys)
        by_key = {row.details.chunk_id: row for row in pool}
        items = [MmrItem(key=key, score=by_key[key].rank, vector=vectors.get(key)) for key in keys]
        return [by_key[item.key] for item in compat_mmr(items, k=k, lam=plan.settings.tuning.mmr_lambda)]


def _boosted(rows: Sequence[Row], now: datetime, tuning: SearchTuning) -> list[Row]:
    normalised = normalise_scores([row.rank for row in rows])
    boosted = [
        dataclasses.replace(row, rank=_boost(row.details, score, now, tuning))
        for row, score in zip(rows, normalised, strict=True)
    ]
    return sorted(boosted, key=lambda row: (-row.rank, row.details.chunk_id))[:MMR_POOL]


def _boost(shown: Details, normalised: float, now: datetime, tuning: SearchTuning) -> float:
    return boost(
        normalised,
        authority=shown.authority,
        supports=shown.supports,
        contradicts=shown.contradicts,
        temporal=temporal_multiplier(
            TemporalClass(shown.temporal_class),
            now=now,
            occurred_at=shown.occurred_at,
            valid_until=shown.valid_until,
            half_life_ms=tuning.half_life_ms,
        ),
    )


def _channels(lists: Lists, chunk_id: str) -> tuple[Channel, ...]:
    named = ((Channel.LEXICAL, lists.lexical), (Channel.DENSE, lists.dense))
    return tuple(channel for channel, found in named if chunk_id in found)


def _evidence(
    page: Sequence[Row], lists: Lists, details: Mapping[str, Details], query: SearchQuery
) -> EvidenceLevel:
    """The original's of a first page, of all that was found by words; that of a later one by its own hits."""
    documents = {row.document_id for row in page}
    return compat_evidence(
        hits=[_evidence_row(row.details, rerank_score=row.rerank_score) for row in page],
        lexical=[
            _evidence_row(details[key], ts_rank=rank)
            for key, rank in zip(lists.lexical, lists.ranks, strict=True)
            if key in details and (not query.shown or details[key].document_id in documents)
        ],
    )


def _evidence_row(shown: Details, *, ts_rank: float = 0.0, rerank_score: float | None = None) -> EvidenceRow:
    return EvidenceRow(
        authority=shown.authority,
        supports=shown.supports,
        provenance=Provenance(shown.provenance),
        created_by_kind=CreatedByKind(shown.created_by_kind),
        ts_rank=ts_rank,
        rerank_score=rerank_score,
    )


def _explain(row: Row, lists: Lists) -> dict[str, Any]:
    chunk_id = row.details.chunk_id
    place = lists.lexical.index(chunk_id) if chunk_id in lists.lexical else None
    return {
        "profile": "compat",
        "lexicalRank": None if place is None else place + 1,
        "tsRank": None if place is None else lists.ranks[place],
        "denseRank": lists.dense.index(chunk_id) + 1 if chunk_id in lists.dense else None,
        "rerankScore": row.rerank_score,
        "effectiveAuthority": row.effective_authority,
    }
