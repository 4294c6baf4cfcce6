"""The one round trip that finds: candidates, their neighbours, and both scores of each."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import namedtuple_row
from psycopg.types.json import Jsonb

from corbits_memory.core.enums import TemporalClass
from corbits_memory.core.ranking import Candidate
from corbits_memory.engine.access import scope_of_visibility
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


def scope_of(query: SearchQuery, visibility: Visibility) -> dict[str, Any]:
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
    return {**scope_of_visibility(visibility), **asked}


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
    cursor = conn.cursor(row_factory=namedtuple_row)
    await cursor.execute(
        load_queries("search")["retrieve"],
        {
            "tenant": tenant_id,
            "principal": visibility.principal_id,
            "scope": Jsonb(scope_of(query, visibility)),
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
    rows: list[Any] = list(await cursor.fetchall())
    if not rows:
        return Retrieved(candidates=[], neighbours={}, seeds={}, dense_ready=False, partial=False)
    head = rows[0]
    found = [row for row in rows if row.chunk_id is not None]
    return Retrieved(
        candidates=[_candidate(row) for row in found],
        neighbours=_neighbours(found),
        seeds={row.chunk_id: (row.lexical, row.dense) for row in found if row.lexical or row.dense},
        dense_ready=head.dense_ready,
        partial=head.partial or (vector is not None and any(row.cosine is None for row in found)),
        mean=head.mean,
        deviation=head.deviation or 0.0,
        vectors=head.vectors or 0,
        known=head.known or 0.0,
    )


def _candidate(row: Any) -> Candidate:
    return Candidate(
        chunk_id=row.chunk_id,
        document_id=row.document_id,
        thread=row.thread,
        order_key=(row.occurred_at, row.thread_seq, row.chunk_id),
        author=row.author,
        ends_with_question=row.asks,
        words=row.words,
        # Divided by its own language's idf total, so that rows of several languages compare.
        bm25=row.bm25 / row.total if row.total else 0.0,
        cosine=row.cosine,
        authority=row.authority,
        temporal_class=_TEMPORAL[row.temporal_class],
        occurred_at=row.occurred_at,
        valid_until=row.valid_until,
        is_seed=row.lexical or row.dense,
        ordinal=row.ordinal,
    )


def _neighbours(rows: list[Any]) -> Neighbours:
    """Who stands how far from whom, pieced together from the windows around the candidates."""
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        if row.around is None:
            continue
        before, after = (side.split(",") if side else [] for side in row.around.split(";"))
        window = [*reversed(before), row.chunk_id, *after]
        for place, chunk_id in enumerate(window):
            beside = found.setdefault(chunk_id, {})
            for other in range(max(0, place - 3), min(len(window), place + 4)):
                if other != place:
                    beside[window[other]] = other - place
    return {
        chunk_id: tuple((offset, other) for other, offset in beside.items())
        for chunk_id, beside in found.items()
    }


def _iso(instant: datetime | None) -> str | None:
    return None if instant is None else instant.isoformat()
