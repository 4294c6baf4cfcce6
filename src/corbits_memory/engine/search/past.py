"""What was replaced since an instant: no index holds it any more, so its texts are read and scored one by one."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import namedtuple_row
from psycopg.types.json import Jsonb

from corbits_memory.core.enums import TemporalClass
from corbits_memory.core.ranking import Candidate
from corbits_memory.core.text import ends_with_question, normalise, word_count
from corbits_memory.engine.access import visibility_parameters
from corbits_memory.engine.drafts import WORD_COUNT_CHARS, head_text
from corbits_memory.engine.pool import Reading
from corbits_memory.engine.queries import load_queries
from corbits_memory.engine.search.retrieval import EXACT_ROWS, scope_of
from corbits_memory.ports import SearchQuery, Visibility

PAST_ROWS = 4_000
"""Versions replaced since the instant, and chunks of them, that one search reads."""


@dataclass(frozen=True, slots=True)
class Past:
    """``partial``: more was replaced since than one search reads."""

    rows: tuple[Candidate, ...] = ()
    partial: bool = False


async def retrieve_past(
    reading: Reading,
    *,
    tenant_id: str,
    visibility: Visibility,
    query: SearchQuery,
    as_of: datetime,
    text: str,
    required: list[str],
    excluded: list[str],
    limit: int,
) -> Past:
    """The best ``limit`` of what was active at ``as_of`` and has been replaced since."""
    found: list[Any] = await reading.fetch(
        load_queries("search")["past_texts"],
        {
            "tenant": tenant_id,
            "generation": query.generation,
            "as_of": as_of,
            "most": PAST_ROWS,
            "kinds": list(query.kinds),
            "entities": list(query.entity_ids),
            "occurred_after": query.occurred_after,
            "occurred_before": query.occurred_before,
            "attributes": Jsonb(dict(query.attributes)),
            "valid_at": query.valid_at,
            **visibility_parameters(visibility),
        },
        namedtuple_row,
    )
    if not found:
        return Past()
    partial = len(found) > PAST_ROWS or found[0].looked_at > PAST_ROWS
    scores = await _scores(reading, tenant_id, visibility, query, text, required, excluded, found)
    rows = [_candidate(row, scores[row.chunk_id]) for row in found if row.chunk_id in scores]
    answering = [row for row in rows if row.bm25 > 0] if text else rows
    answering.sort(key=lambda row: (-row.bm25, -row.occurred_at.timestamp(), row.chunk_id))
    return Past(rows=tuple(answering[:limit]), partial=partial)


async def _scores(
    reading: Reading,
    tenant_id: str,
    visibility: Visibility,
    query: SearchQuery,
    text: str,
    required: list[str],
    excluded: list[str],
    found: Sequence[Any],
) -> dict[str, float]:
    scope = await scope_of(reading, query, visibility)
    scope.pop("as_of", None)
    rows = [
        {
            "id": row.chunk_id,
            "language": row.language,
            "head": normalise(head_text(row.title, row.author)),
            "body": normalise(row.text),
        }
        for row in found
    ]
    scored: list[Any] = await reading.fetch(
        load_queries("search")["past_scores"],
        {
            "tenant": tenant_id,
            "scope": Jsonb(scope),
            "generation": query.generation,
            "query": text,
            "required": required,
            "excluded": excluded,
            "small": EXACT_ROWS,
            "rows": Jsonb(rows),
        },
        namedtuple_row,
    )
    return {row.chunk_id: row.bm25 for row in scored}


def _candidate(row: Any, bm25: float) -> Candidate:
    return Candidate(
        chunk_id=row.chunk_id,
        document_id=row.document_id,
        thread=row.thread,
        author=row.author,
        ends_with_question=ends_with_question(row.text),
        words=word_count(row.text[:WORD_COUNT_CHARS]),
        bm25=bm25,
        authority=row.authority,
        temporal_class=TemporalClass(row.temporal_class),
        occurred_at=row.occurred_at,
        valid_until=row.valid_until,
    )
