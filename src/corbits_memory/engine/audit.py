"""The audit: written with what it tells of, read a page at a time. Rows are only ever added."""

from psycopg.rows import dict_row

from corbits_memory.core import ids
from corbits_memory.core.enums import AuditAction, AuditOutcome, AuditTarget
from corbits_memory.engine.ids import new_id
from corbits_memory.engine.pool import READ_SECONDS, Connection, Database
from corbits_memory.engine.queries import load_queries
from corbits_memory.ports import AuditEvent, AuditPage


async def record(
    conn: Connection,
    tenant_id: str,
    *,
    actor_id: str,
    action: AuditAction,
    target_type: AuditTarget,
    target_id: str,
    outcome: AuditOutcome = AuditOutcome.DONE,
    amount: int | None = None,
) -> None:
    """Add an event to the transaction of ``conn``. ``target_id`` must be an id of something that exists."""
    await conn.execute(
        load_queries("audit")["record"],
        {
            "tenant": tenant_id,
            "id": new_id(ids.AUDIT_EVENT),
            "actor": actor_id,
            "action": action,
            "target_type": target_type,
            "target": target_id,
            "outcome": outcome,
            "amount": amount,
        },
    )


class AuditService:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(
        self, *, tenant_id: str, limit: int, before: str | None = None, target_id: str | None = None
    ) -> AuditPage:
        """The newest ``limit`` events older than ``before``."""
        parameters = {"tenant": tenant_id, "before": before, "target": target_id, "limit": limit}
        async with self._database.tenant(tenant_id, seconds=READ_SECONDS) as conn:
            cursor = conn.cursor(row_factory=dict_row)
            await cursor.execute(load_queries("audit")["page"], parameters)
            rows = await cursor.fetchall()
        events = tuple(
            AuditEvent(
                **{
                    **row,
                    "action": AuditAction(row["action"]),
                    "target_type": AuditTarget(row["target_type"]),
                    "outcome": AuditOutcome(row["outcome"]),
                }
            )
            for row in rows[:limit]
        )
        return AuditPage(events=events, before=events[-1].id if len(rows) > limit else None)
