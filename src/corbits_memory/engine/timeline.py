"""The verb ``list``: what is newest."""

from corbits_memory.engine.pool import READ_SECONDS, Database
from corbits_memory.engine.queries import load_queries
from corbits_memory.ports import TimelineEvent


class TimelineService:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(
        self, *, tenant_id: str, principal_id: str, limit: int, kinds: tuple[str, ...] = ()
    ) -> list[TimelineEvent]:
        """The newest active versions that the caller may see, newest first."""
        async with self._database.tenant(tenant_id, seconds=READ_SECONDS) as conn:
            rows = await conn.execute(
                load_queries("timeline")["timeline"],
                {
                    "tenant": tenant_id,
                    "principal": principal_id,
                    "limit": limit,
                    "kinds": list(kinds) or None,
                },
            )
            return [
                TimelineEvent(
                    at=at,
                    title=title,
                    source=f"{adapter}:{external_ref}",
                    tenant_id=tenant_id,
                    principal_id=principal_id,
                    document_id=document_id,
                    version_id=version_id,
                    kind=kind,
                    owner=owner,
                    author=author,
                )
                async for at, title, adapter, external_ref, document_id, version_id, kind, owner, author in rows
            ]
