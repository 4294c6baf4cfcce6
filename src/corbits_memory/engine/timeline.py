"""The verb ``list``: what is newest."""

import heapq
from datetime import datetime
from typing import Any

from psycopg.rows import namedtuple_row
from psycopg.types.json import Jsonb

from corbits_memory.core.enums import VersionStatus
from corbits_memory.engine.access import resolve_visibility, visibility_parameters, visibility_scope
from corbits_memory.engine.pool import READ_SECONDS, Connection, Database
from corbits_memory.engine.queries import load_queries
from corbits_memory.errors import InvalidInputError
from corbits_memory.ports import Access, TimelineEvent, TimelineQuery, Visibility

ENDED_VERSIONS = 100_000
"""Versions replaced since an instant that one list looks through."""
SORTED_ROWS = 4_000
"""Up to this many visible rows, all are sorted; beyond, the timeline is walked until the page is full."""


class TimelineService:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        query: TimelineQuery,
        access: Access | None = None,
    ) -> list[TimelineEvent]:
        """The newest active versions that the caller may see, newest first; with ``as_of`` those of then.

        Raises ``InvalidInputError`` for an instant since which more was replaced than one list looks through.
        """
        async with self._database.tenant(tenant_id, seconds=READ_SECONDS) as conn:
            visibility = await resolve_visibility(conn, tenant_id, principal_id, access)
            scope = {**await visibility_scope(conn, visibility), **_scope(query)}
            parameters = {
                "tenant": tenant_id,
                "scope": Jsonb(scope),
                "limit": query.limit,
                "small": SORTED_ROWS,
            }
            rows = await _rows(conn, "timeline", parameters)
            if query.as_of is not None:
                ended = await _rows(conn, "ended", _ended_parameters(tenant_id, query, visibility))
                if len(ended) and ended[0].looked_at > ENDED_VERSIONS:
                    raise InvalidInputError(
                        f"as_of lies too far back: more than {ENDED_VERSIONS} versions were replaced since"
                    )
                rows = heapq.nlargest(
                    query.limit, (*rows, *ended), key=lambda row: (row.occurred_at, row.version_id)
                )
        return [
            TimelineEvent(
                at=row.occurred_at,
                title=row.title,
                source=f"{row.adapter}:{row.external_ref}",
                tenant_id=tenant_id,
                principal_id=principal_id,
                document_id=row.document_id,
                version_id=row.version_id,
                kind=row.kind,
                owner=row.owner_principal_id,
                author=row.author,
            )
            for row in rows
            if visibility.admits_version(
                active=row.status == VersionStatus.ACTIVE,
                written=row.written,
                owner=row.owner_principal_id,
                tags=row.tags,
                document_id=row.document_id,
            )
        ]


def _scope(query: TimelineQuery) -> dict[str, Any]:
    """What ``memory.scope_predicate`` reads; an absent key is no filter."""
    after = query.after
    filters: dict[str, Any] = {
        "statuses": [VersionStatus.ACTIVE],
        "kinds": list(query.kinds),
        "occurred_after": _iso(query.occurred_after),
        "occurred_before": _iso(query.occurred_before),
        "before": None if after is None else [_iso(after.occurred_at), after.version_id],
        "versions_as_of": _iso(query.as_of),
    }
    return {name: value for name, value in filters.items() if value not in (None, [])}


def _ended_parameters(tenant_id: str, query: TimelineQuery, visibility: Visibility) -> dict[str, Any]:
    after = query.after
    return {
        "tenant": tenant_id,
        "as_of": query.as_of,
        "most": ENDED_VERSIONS,
        "limit": query.limit,
        "kinds": list(query.kinds),
        "occurred_after": query.occurred_after,
        "occurred_before": query.occurred_before,
        "before_at": None if after is None else after.occurred_at,
        "before_id": None if after is None else after.version_id,
        **visibility_parameters(visibility),
    }


def _iso(instant: datetime | None) -> str | None:
    return None if instant is None else instant.isoformat()


async def _rows(conn: Connection, name: str, parameters: dict[str, Any]) -> list[Any]:
    cursor = conn.cursor(row_factory=namedtuple_row)
    await cursor.execute(load_queries("timeline")[name], parameters)
    # Named tuples have no static type.
    return list(await cursor.fetchall())
