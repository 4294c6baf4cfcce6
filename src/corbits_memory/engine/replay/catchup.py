"""Brings a generation that is not live in line with what the feed has told of since: adds, edits, expiry, erasure."""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime

from corbits_memory.engine.embedding import EmbeddingService, Target
from corbits_memory.engine.generations import Generation
from corbits_memory.engine.pool import Connection, Database, run_again
from corbits_memory.engine.queries import load_queries
from corbits_memory.engine.replay.mirror import Mirror, Planned, plan_payloads
from corbits_memory.engine.statements import Statements
from corbits_memory.ports.transform import TransformScope

logger = logging.getLogger("corbits_memory.replay")

PAGE_EVENTS = 20
"""Events that one transaction catches up: it holds their documents meanwhile."""


class CatchUp:
    """Each page is a transaction; where it ends stands in the generation's row, so that none is left out."""

    def __init__(
        self, database: Database, embedding: EmbeddingService, *, clock: Callable[[], datetime]
    ) -> None:
        self._database = database
        self._embedding = embedding
        self._clock = clock

    async def catch_up(
        self, tenant_id: str, settings: Generation, scope: TransformScope, target: Target | None
    ) -> None:
        """Until nothing is left to catch up with, or little keeps coming."""
        while await self._page(tenant_id, settings, scope) == PAGE_EVENTS:
            pass
        if target is not None:
            await self._embedding.drain_generation(tenant_id, settings.id, target)

    async def _page(self, tenant_id: str, settings: Generation, scope: TransformScope) -> int:
        # Planned before anything is held: a long document takes seconds.
        async with self._database.tenant(tenant_id) as conn:
            statements = Statements(conn, tenant_id, "replay", generation=settings.id)
            payloads = await statements.fetch("payloads_behind", limit=PAGE_EVENTS)
        planned = await asyncio.to_thread(
            plan_payloads, payloads, settings.cutting, tenant_id=tenant_id, now=self._clock()
        )

        async def write() -> int:
            async with self._database.tenant(tenant_id) as conn:
                row = await (
                    await conn.execute(load_queries("capture")["lock_tenant"], {"tenant": tenant_id})
                ).fetchone()
                if row is None or row[0] == settings.id:
                    return 0
                return await self.page_in(conn, tenant_id, settings, scope, live=row[0], planned=planned)

        return await run_again(write)

    async def page_in(
        self,
        conn: Connection,
        tenant_id: str,
        settings: Generation,
        scope: TransformScope,
        *,
        live: str,
        planned: Planned | None = None,
    ) -> int:
        """One page, in a transaction that holds the tenant's row; how many events it had."""
        statements = Statements(conn, tenant_id, "replay", generation=settings.id)
        rows = await statements.fetch("lock_generation")
        if not rows:
            return 0
        events = await statements.fetch("changed_documents", after=rows[0]["caught_seq"], limit=PAGE_EVENTS)
        if not events:
            return 0
        documents = sorted({row["document_id"] for row in events if row["document_id"] is not None})
        if documents:
            mirror = Mirror(conn, tenant_id, settings, scope, live=live)
            await mirror.copy_documents(documents, planned or Planned(), self._clock())
        await statements.run("caught_up", seq=events[-1]["seq"])
        return len(events)
