"""Term statistics and vector samples of large tenants, in epochs."""

import logging

from corbits_memory.engine.pool import Database
from corbits_memory.engine.queries import load_queries
from corbits_memory.engine.search.retrieval import EXACT_ROWS

logger = logging.getLogger("corbits_memory.statistics")


class StatisticsService:
    """Counts anew what has outgrown its counts. Interrupted or run twice at once, it does no harm."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = load_queries("statistics")

    async def refresh_stale(self) -> int:
        """Recount every tenant that needs it; how many did."""
        async with self._database.operator() as conn:
            rows = await (
                await conn.execute(self._queries["stale_tenants"], {"small": EXACT_ROWS})
            ).fetchall()
        for (tenant_id,) in rows:
            await self.refresh(tenant_id)
        return len(rows)

    async def refresh_counted(self, tenant_id: str) -> None:
        """Recount a tenant if it was ever counted: small ones need no counts."""
        async with self._database.tenant(tenant_id) as conn:
            row = await (await conn.execute(self._queries["counted"], {"tenant": tenant_id})).fetchone()
        if row is not None:
            await self.refresh(tenant_id)

    async def refresh(self, tenant_id: str) -> None:
        parameters = {"tenant": tenant_id}
        async with self._database.tenant(tenant_id) as conn:
            # Two counts of one tenant at once would meet on term_stat's key.
            await conn.execute(
                "SELECT pg_advisory_xact_lock(hashtext('memory.term_stat'), hashtext(%s))", [tenant_id]
            )
            for query in ("forget_terms", "count_terms", "draw_sample", "stamp"):
                await conn.execute(self._queries[query], parameters)
        logger.info("term statistics of a tenant counted anew")
