"""The one round trip that finds: candidates, their neighbours, and both scores of each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import namedtuple_row
from psycopg.types.json import Jsonb

from corbits_memory.core.enums import TemporalClass
from corbits_memory.core.ranking import Candidate
from corbits_memory.engine.access import visibility_scope
from corbits_memory.engine.pool import Connection
from corbits_memory.engine.queries import load_queries
from corbits_memory.engine.vectors import vector_text
from corbits_memory.ports import SearchQuery, Visibility

EXACT_ROWS = 4_000
"""Up to this many visible rows, every one is looked at; beyond, indexes answer."""

_TEMPORAL = {str(value): value for value in TemporalClass}
Neighbours = dict[str, tuple[tuple[int, str], ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryVector:
    """A query's vector, and which model's it is."""

    model_key: str
    values: list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieved:
    """What came back. ``dense_ready``: the tenant's active model is the one that embedded the query."""

    candidates: list[Candidate]
    neighbours: Neighbours
    seeds: dict[str, tuple[bool, bool]]
    """Found by (lexical, dense), by chunk id; neighbours alone are not in it."""
    dense_ready: bool
    partial: bool
    """Some of the caller's chunks have no vector yet."""
    mean: float | None = None
    """Of the query's cosines to a sample of the tenant's vectors."""
    deviation: float = 0.0
    vectors: int = 0
    """How many vectors that sample has."""
    known: float = 0.0
    """The share of the query's idf that the corpus knows."""


async def scope_of(conn: Connection, query: SearchQuery, visibility: Visibility) -> dict[str, Any]:
    """What memory.scope_predicate reads. An absent key is no filter, and no grant."""
    filters: dict[str, Any] = {
        "statuses": ["active", "deprecated"] if query.include_deprecated else ["active"],
        "kinds": list(query.kinds),
        "entities": list(query.entity_ids),
        "occurred_after": _iso(query.occurred_after),
        "occurred_before": _iso(query.occurred_before),
        "attributes": dict(query.attributes),
    }
    asked = {name: value for name, value in filters.items() if value not in (None, [], {})}
    return {**await visibility_scope(conn, visibility), **asked}


def vector_parameters(vector: QueryVector | None) -> dict[str, Any]:
    if vector is None:
        return {"model_key": "", "dims": 0, "vector": None}
    return {"model_key": vector.model_key, "dims": len(vector.values), "vector": vector_text(vector.values)}


async def retrieve(
    conn: Connection,
    *,
    tenant_id: str,
    visibility: Visibility,
    query: SearchQuery,
    text: str,
    required: list[str],
    excluded: list[str],
    vector: QueryVector | None,
    limit: int,
) -> Retrieved:
    """Candidates for a query; ``text``, ``required`` and ``excluded`` are normalised words."""
    cursor = conn.cursor(row_factory=namedtuple_row, binary=True)
    await cursor.execute(
        load_queries("search")["retrieve"],
        {
            "tenant": tenant_id,
            "principal": visibility.principal_id,
            "scope": Jsonb(await scope_of(conn, query, visibility)),
            "generation": query.generation,
            "query": text,
            "required": required,
            "excluded": excluded,
            "limit": limit,
            "small": EXACT_ROWS,
            **vector_parameters(vector),
        },
    )
    # Named tuples have no static type; the columns are those of memory.retrieve.
    row: Any = await cursor.fetchone()
    if row is None:
        return Retrieved(candidates=[], neighbours={}, seeds={}, dense_ready=False, partial=False)
    lexical, dense = frozenset(row.lexical_ids or ()), frozenset(row.dense_ids or ())
    return Retrieved(
        candidates=_candidates(row),
        neighbours=_neighbours(row.windows or ()),
        seeds={chunk_id: (chunk_id in lexical, chunk_id in dense) for chunk_id in lexical | dense},
        dense_ready=row.dense_ready,
        # Somebody else's document that the caller may see can wait for its vector too.
        partial=row.partial or (vector is not None and len(row.vector_ids or ()) < len(row.chunk_ids or ())),
        mean=row.mean,
        deviation=row.deviation or 0.0,
        vectors=row.vectors or 0,
        known=row.known or 0.0,
    )


def _candidates(row: Any) -> list[Candidate]:
    cosines = dict(zip(row.vector_ids or (), row.cosines or (), strict=True))
    columns = (
        row.chunk_ids, row.document_ids, row.threads, row.authors, row.asks, row.words, row.bm25,
        row.authorities, row.temporal_classes, row.occurred, row.expires,
    )  # fmt: skip
    return [
        Candidate(
            chunk_id=chunk_id,
            document_id=document_id,
            thread=thread,
            author=author,
            ends_with_question=asks,
            words=count,
            bm25=bm25,
            cosine=cosines.get(chunk_id),
            authority=authority,
            temporal_class=_TEMPORAL[temporal_class],
            occurred_at=occurred,
            valid_until=expires,
        )
        for (
            chunk_id, document_id, thread, author, asks, count, bm25, authority, temporal_class, occurred, expires,
        ) in zip(*columns, strict=True)
    ] if row.chunk_ids else []  # fmt: skip


def _neighbours(windows: Iterable[Sequence[str | None]]) -> Neighbours:
    """Who stands how far from whom, pieced together from the windows around the candidates."""
    found: dict[str, dict[str, int]] = {}
    for window in windows:
        for place, chunk_id in enumerate(window):
            if chunk_id is None:
                continue
            beside = found.setdefault(chunk_id, {})
            for other in range(max(0, place - 3), min(len(window), place + 4)):
                near = window[other]
                if near is not None and other != place:
                    beside[near] = other - place
    return {
        chunk_id: tuple((offset, other) for other, offset in beside.items())
        for chunk_id, beside in found.items()
    }


def _iso(instant: datetime | None) -> str | None:
    return None if instant is None else instant.isoformat()
