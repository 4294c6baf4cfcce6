"""Term statistics and vector samples of large tenants, in epochs."""

import logging

from corbits_memory.engine.pool import Database
from corbits_memory.engine.search.retrieval import EXACT_ROWS
from corbits_memory.engine.statements import Statements

logger = logging.getLogger("corbits_memory.statistics")


class StatisticsService:
    """Counts anew what has outgrown its counts. Interrupted or run twice at once, it does no harm."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def refresh_stale(self) -> int:
        """Recount every tenant that needs it; how many did."""
        async with self._database.operator() as conn:
            rows = await Statements(conn, "", "statistics").fetch("stale_tenants", small=EXACT_ROWS)
        for row in rows:
            await self.refresh(row["tenant_id"])
        return len(rows)

    async def refresh_counted(self, tenant_id: str) -> None:
        """Recount a tenant if it was ever counted: small ones need no counts."""
        async with self._database.tenant(tenant_id) as conn:
            counted = await Statements(conn, tenant_id, "statistics").fetch("counted")
        if counted:
            await self.refresh(tenant_id)

    async def refresh(self, tenant_id: str) -> None:
        """Count the live generation, and it alone."""
        async with self._database.tenant(tenant_id) as conn:
            statements = Statements(conn, tenant_id, "statistics")
            await statements.run("hold")
            live = await statements.fetch("live")
            if not live:
                return
            generation = live[0]["live_generation"]
            await statements.run("forget_terms", generation=None)
            await statements.run("count_terms", generation=generation)
            await statements.run("draw_sample")
            (counted,) = await statements.fetch("count_rows", generation=generation)
            await statements.run("stamp", generation=generation, rows_counted=counted["count"])
        logger.info("term statistics of a tenant counted anew")

    async def count_ahead(self, tenant_id: str, generation: str) -> None:
        """Count a generation that is about to be live: searches need its counts from the first moment on.

        They are of no epoch yet: :meth:`refresh` has to follow when it is live, and an erasure before that drops them.
        A tenant that was never counted is left so: erasures wait for no count of its terms.
        """
        async with self._database.tenant(tenant_id) as conn:
            statements = Statements(conn, tenant_id, "statistics", generation=generation)
            if await statements.fetch("counted"):
                await statements.run("hold")
                await statements.run("forget_terms")
                await statements.run("count_terms")
