"""What finds: candidates, their neighbours, and both scores of each. In one round trip; where the indexes have much to
read and a connection is to spare, both channels at once.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

from psycopg.rows import namedtuple_row

from corbits_memory.core.enums import TemporalClass
from corbits_memory.core.ranking import Candidate
from corbits_memory.core.scoring import CandidateColumns, neighbour_places
from corbits_memory.core.text import ParsedQuery
from corbits_memory.engine.access import visibility_scope
from corbits_memory.engine.generations import Generation
from corbits_memory.engine.pool import Reading
from corbits_memory.engine.queries import load_queries
from corbits_memory.engine.search.crowded import CrowdedScopes
from corbits_memory.ports import Reranker, SearchQuery, Visibility

EXACT_ROWS = 4_000
"""Up to this many visible rows, every one is looked at; beyond, indexes answer."""
AT_ONCE_ROWS = 30_000
"""From this many rows of a tenant on, the shorter of both channels takes longer than one message more."""

T = TypeVar("T")

_TEMPORAL = {str(value): value for value in TemporalClass}
_WHO_ASKS = frozenset(
    ("generation", "statuses", "principal", "everything", "allowed", "documents", "refused", "vetoed")
)
"""Keys of a scope that are no filters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryVector:
    """A query's vector, and which model's it is."""

    model_key: str
    values: list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPlan:
    """By what a search is made: the settings of the generation that it expects to read, and its models."""

    parsed: ParsedQuery
    settings: Generation
    reranker: Reranker | None
    vector: QueryVector | None

    def check(self, searched: str | None, *, dense_ready: bool) -> None:
        """Raises :class:`OutdatedPlanError` when what was read is another generation, or of another model."""
        if searched is None:
            return
        if searched != self.settings.id or (self.vector is not None and not dense_ready):
            raise OutdatedPlanError(searched)


class OutdatedPlanError(Exception):
    """Another generation or another model has become the live one."""

    def __init__(self, searched: str) -> None:
        super().__init__(searched)
        self.searched = searched


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieved:
    """What came back. ``dense_ready``: the tenant's active model is the one that embedded the query."""

    searched: str | None
    """The generation; None where the tenant has none yet."""
    columns: CandidateColumns | None
    """The candidates and their neighbours; None when nothing was found."""
    lexical_ids: frozenset[str]
    """What each channel found; neighbours alone are in neither."""
    dense_ids: frozenset[str]
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

    def fills(self, limit: int) -> bool:
        """Whether a channel yielded all that it was asked for, so that it may know more."""
        return max(len(self.lexical_ids), len(self.dense_ids)) >= limit

    def with_past(self, rows: Sequence[Candidate]) -> "Retrieved":
        """The same and texts that were replaced since: found by their words, of which no vector is kept."""
        if not rows:
            return self
        columns = CandidateColumns.of((), {}) if self.columns is None else self.columns
        return replace(
            self,
            columns=columns.with_rows(rows),
            lexical_ids=self.lexical_ids.union(row.chunk_id for row in rows),
            partial=True,
        )


async def scope_of(reading: Reading, query: SearchQuery, visibility: Visibility) -> dict[str, Any]:
    """What memory.scope_predicate reads. An absent key is no filter, and no grant."""
    filters: dict[str, Any] = {
        "generation": query.generation,
        "statuses": ["active", "deprecated"] if query.include_deprecated or query.as_of else ["active"],
        "kinds": list(query.kinds),
        "entities": list(query.entity_ids),
        "occurred_after": _iso(query.occurred_after),
        "occurred_before": _iso(query.occurred_before),
        "attributes": dict(query.attributes),
        "valid_at": _iso(query.valid_at),
        "as_of": _iso(query.as_of),
    }
    asked = {name: value for name, value in filters.items() if value not in (None, [], {})}
    return {**await visibility_scope(reading, visibility), **asked}


def vector_parameters(vector: QueryVector | None) -> dict[str, Any]:
    if vector is None:
        return {"model_key": "", "dims": 0, "vector": None}
    # Nine digits say all that a 32-bit float holds. One format of the whole: a search waits for it.
    values = vector.values
    text = f"[{','.join(['%.9g'] * len(values))}]" % tuple(values)
    return {"model_key": vector.model_key, "dims": len(values), "vector": text}


async def retrieve(
    reading: Reading,
    *,
    visibility: Visibility,
    query: SearchQuery,
    text: str,
    required: list[str],
    excluded: list[str],
    vector: QueryVector | None,
    limit: int,
    crowded: CrowdedScopes,
    second: Callable[[], AbstractAsyncContextManager[Reading | None]] = nullcontext,
) -> Retrieved:
    """Candidates for a query; ``text``, ``required`` and ``excluded`` are normalised words.

    ``second`` gives another connection's transaction of this tenant, if there is one to spare. What it reads may be a
    moment older or newer: it only finds, and what is found is judged and read on the first.
    """
    asked = await scope_of(reading, query, visibility)
    scope = json.dumps(asked, sort_keys=True)
    rows_known = crowded.rows(reading.tenant_id, scope)
    many = rows_known > 0
    parameters = {"scope": scope, "query": text, "limit": limit, "small": EXACT_ROWS}
    filtered = required or excluded or asked.keys() - _WHO_ASKS
    if rows_known >= AT_ONCE_ROWS and vector is not None and text and not filtered:
        async with second() as aside:
            if aside is not None:
                return await _retrieve_at_once(reading, aside, parameters, vector)
    rows = await reading.fetch(
        load_queries("search")["retrieve"],
        {
            "many": many,
            "required": required,
            "excluded": excluded,
            **parameters,
            **vector_parameters(vector),
        },
        namedtuple_row,
    )
    # Named tuples have no static type; the columns are those of memory.retrieve.
    row: Any = rows[0]
    if not many and (row.visible or 0) > EXACT_ROWS:
        crowded.note(reading.tenant_id, scope, row.visible)
    # All are missing where nothing was ever captured.
    return _retrieved(row, row, row, row.lexical_ids, row.dense_ids)


async def _retrieve_at_once(
    reading: Reading, aside: Reading, parameters: Mapping[str, Any], vector: QueryVector
) -> Retrieved:
    """The same over two connections: one channel each, then the scores of what both found."""
    queries = load_queries("search")
    of_vector: dict[str, Any] = {}

    async def ask_dense() -> list[Any]:
        # Written while the other channel, which takes longer, is on its way.
        of_vector.update(vector_parameters(vector))
        return await aside.fetch(
            queries["dense_channel"], {**parameters, **of_vector}, namedtuple_row, last=True
        )

    lexical, dense = await _both(
        reading.fetch(queries["lexical_channel"], parameters, namedtuple_row), ask_dense()
    )
    lex: Any = lexical[0]
    den: Any = dense[0]
    if not den.dense_ready or lex.searched != den.searched:
        # Another generation or model has just gone live: see SearchPlan.check.
        return Retrieved(
            searched=lex.searched,
            columns=None,
            lexical_ids=frozenset(),
            dense_ids=frozenset(),
            dense_ready=False,
            partial=False,
        )
    found = {
        "searched": lex.searched,
        "lexical": lex.chunk_ids,
        "languages": lex.languages,
        "queries": lex.queries,
        "totals": lex.totals,
        "dense": den.chunk_ids,
        "cosines": den.cosines or [],
    }
    rows = await reading.fetch(queries["complete"], {**parameters, **of_vector, **found}, namedtuple_row)
    return _retrieved(lex, den, rows[0], lex.chunk_ids, den.chunk_ids)


async def _both(first: Coroutine[Any, Any, T], second: Coroutine[Any, Any, T]) -> tuple[T, T]:
    """Both results, the first begun first; when one fails, both have ended."""
    tasks = asyncio.ensure_future(first), asyncio.ensure_future(second)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task.done():
                task.result()
        return tasks[0].result(), tasks[1].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _retrieved(
    lex: Any, den: Any, completed: Any, lexical_ids: list[str] | None, dense_ids: list[str] | None
) -> Retrieved:
    columns = _columns(completed) if completed.chunk_ids else None
    ready = bool(den.dense_ready)
    return Retrieved(
        searched=lex.searched,
        columns=columns,
        lexical_ids=frozenset(lexical_ids or ()),
        dense_ids=frozenset(dense_ids or ()),
        dense_ready=ready,
        # Somebody else's document that the caller may see can wait for its vector too.
        partial=bool(lex.partial) or (ready and columns is not None and None in columns.cosines),
        mean=den.mean,
        deviation=den.deviation or 0.0,
        vectors=den.vectors or 0,
        known=lex.known or 0.0,
    )


def _columns(row: Any) -> CandidateColumns:
    cosines = dict(zip(row.vector_ids or (), row.cosines or (), strict=True))
    return CandidateColumns(
        chunk_ids=row.chunk_ids,
        document_ids=row.document_ids,
        threads=row.threads,
        authors=row.authors,
        asks=row.asks,
        words=row.words,
        bm25=row.bm25,
        cosines=[cosines.get(chunk_id) for chunk_id in row.chunk_ids],
        authorities=row.authorities,
        temporal_classes=[_TEMPORAL[name] for name in row.temporal_classes],
        occurred=row.occurred,
        expires=row.expires,
        beside=neighbour_places(row.windows or (), row.chunk_ids),
    )


def _iso(instant: datetime | None) -> str | None:
    return None if instant is None else instant.isoformat()
