"""The verb ``list``: what is newest."""

from typing import Any

from psycopg.rows import namedtuple_row
from psycopg.types.json import Jsonb

from corbits_memory.core.enums import VersionStatus
from corbits_memory.engine.access import resolve_visibility, visibility_scope
from corbits_memory.engine.pool import READ_SECONDS, Database
from corbits_memory.engine.queries import load_queries
from corbits_memory.ports import Access, TimelineEvent

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
        limit: int,
        kinds: tuple[str, ...] = (),
        access: Access | None = None,
    ) -> list[TimelineEvent]:
        """The newest active versions that the caller may see, newest first."""
        async with self._database.tenant(tenant_id, seconds=READ_SECONDS) as conn:
            visibility = await resolve_visibility(conn, tenant_id, principal_id, access)
            scope: dict[str, Any] = {
                **await visibility_scope(conn, visibility),
                "statuses": [VersionStatus.ACTIVE],
                **({"kinds": list(kinds)} if kinds else {}),
            }
            cursor = conn.cursor(row_factory=namedtuple_row)
            await cursor.execute(
                load_queries("timeline")["timeline"],
                {"tenant": tenant_id, "scope": Jsonb(scope), "limit": limit, "small": SORTED_ROWS},
            )
            rows: list[Any] = list(await cursor.fetchall())
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
            if visibility.admits(owner=row.owner_principal_id, tags=row.tags, document_id=row.document_id)
        ]
