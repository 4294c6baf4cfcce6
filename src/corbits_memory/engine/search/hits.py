"""From chunk ids to what is shown of them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from psycopg.rows import args_row

from corbits_memory.core.citation import open_target
from corbits_memory.core.enums import Channel, EvidenceLevel, VersionStatus
from corbits_memory.engine.access import visibility_parameters
from corbits_memory.engine.pool import Connection, Reading
from corbits_memory.engine.queries import load_queries
from corbits_memory.engine.vectors import VectorSpace
from corbits_memory.ports import Attribution, Citation, OpenTarget, SearchItem, Visibility


class Details(NamedTuple):
    """One chunk with its version and document: the columns of ``details`` of search.sql, in their order."""

    chunk_id: str
    text: str
    version_id: str
    version: int
    status: str
    title: str
    kind: str
    document_id: str
    adapter: str
    external_ref: str
    last_seen_at: datetime
    owner_principal_id: str
    tags: list[str]
    written: list[str]
    author: str | None
    thread: str | None
    created_by_kind: str
    generator_agent_id: str | None
    provenance: str
    source_class: str
    temporal_class: str
    occurred_at: datetime
    valid_until: datetime | None
    authority: float
    entity_ids: list[str]
    derived_from: list[str]
    supports: int
    contradicts: int


async def load_details(
    reading: Reading, visibility: Visibility, chunk_ids: Sequence[str], *, last: bool = False
) -> dict[str, Details]:
    """Details by chunk id. What the caller may not see is left out here too: the last line of access.

    ``last``: the transaction ends with it.
    """
    if not chunk_ids:
        return {}
    rows = await reading.fetch(
        load_queries("search")["details"],
        {"chunks": list(chunk_ids), **visibility_parameters(visibility)},
        args_row(Details),
        last=last,
    )
    return {
        row.chunk_id: row
        for row in rows
        if visibility.admits_version(
            active=row.status == VersionStatus.ACTIVE,
            written=row.written,
            owner=row.owner_principal_id,
            tags=row.tags,
            document_id=row.document_id,
        )
    }


async def load_vectors(
    conn: Connection, tenant_id: str, space: VectorSpace, chunk_ids: Sequence[str]
) -> dict[str, list[float]]:
    rows = await conn.execute(
        space.compose(load_queries("search")["vectors"]), {"tenant": tenant_id, "chunks": list(chunk_ids)}
    )
    return {chunk_id: [float(value) for value in embedding.to_list()] async for chunk_id, embedding in rows}


def search_item(
    details: Details,
    *,
    score: float,
    snippet: str,
    evidence: EvidenceLevel,
    channels: tuple[Channel, ...],
    explain: Mapping[str, Any] | None = None,
) -> SearchItem:
    target, target_id = open_target(details.adapter, details.external_ref, details.document_id)
    return SearchItem(
        document_id=details.document_id,
        chunk_id=details.chunk_id,
        title=details.title,
        snippet=snippet,
        score=score,
        kind=details.kind,
        adapter=details.adapter,
        external_ref=details.external_ref,
        citation=Citation(
            adapter=details.adapter,
            external_ref=details.external_ref,
            open=OpenTarget(type=target, id=target_id),
        ),
        attribution=Attribution(
            version_id=details.version_id,
            version=details.version,
            status=details.status,
            created_by_kind=details.created_by_kind,
            owner=details.owner_principal_id,
            author=details.author,
            thread=details.thread,
            generator_agent_id=details.generator_agent_id,
            provenance=details.provenance,
            source_class=details.source_class,
            temporal_class=details.temporal_class,
            occurred_at=details.occurred_at,
            valid_until=details.valid_until,
            evidence=evidence,
            supports=details.supports,
            contradicts=details.contradicts,
            derived_from=tuple(details.derived_from),
            entity_ids=tuple(details.entity_ids),
            channels=channels,
        ),
        updated_at=details.occurred_at,
        explain=explain,
        text=details.text,
    )
