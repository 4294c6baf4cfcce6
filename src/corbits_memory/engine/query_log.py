"""Some of the questions that are asked, where an operator wants them: what generations are compared by.

Words alone, not who asked; of a tenant the newest thousand, for a week. A question that can't be kept is not, and no
search waits for it.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from corbits_memory.engine.ids import new_id
from corbits_memory.engine.pool import Database
from corbits_memory.engine.queries import load_queries
from corbits_memory.errors import MemoryError
from corbits_memory.ports import SampledQuery

logger = logging.getLogger("corbits_memory.query_log")

KEPT = 1_000
DAYS = 7
WAITING = 32
"""So many are on their way into the log at most; beyond, they are dropped."""


class QueryLog:
    """``percent`` of the questions are kept, by ``chance`` (0 to 1)."""

    def __init__(self, database: Database, *, percent: int, chance: Callable[[], float]) -> None:
        self._database = database
        self._percent = percent
        self._chance = chance
        self._queries = load_queries("query_log")
        self._writing: set[asyncio.Task[None]] = set()

    def note(self, tenant_id: str, query: str) -> None:
        """Perhaps keep a question, soon."""
        if not self._percent or not query.strip() or self._chance() * 100 >= self._percent:
            return
        if len(self._writing) >= WAITING:
            return
        task = asyncio.create_task(self._write(tenant_id, query.strip()), name="corbits-memory query log")
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def sampled(self, *, tenant_id: str, limit: int) -> Sequence[SampledQuery]:
        """Newest first."""
        async with self._database.tenant(tenant_id) as conn:
            rows = await conn.execute(self._queries["sampled"], {"tenant": tenant_id, "limit": limit})
            return [SampledQuery(query=row[0], asked_at=row[1]) for row in await rows.fetchall()]

    async def sweep(self) -> int:
        """Remove what is old, of all tenants; how many. Also where nothing is kept any more."""
        swept = 0
        async with self._database.operator() as conn:
            rows = await (await conn.execute(self._queries["expired_tenants"], {"days": DAYS})).fetchall()
        for (tenant_id,) in rows:
            async with self._database.tenant(tenant_id) as conn:
                swept += (
                    await conn.execute(self._queries["sweep"], {"tenant": tenant_id, "days": DAYS})
                ).rowcount
        return swept

    async def close(self) -> None:
        """What is on its way still gets in."""
        if self._writing:
            await asyncio.wait(self._writing, timeout=2.0)

    async def _write(self, tenant_id: str, query: str) -> None:
        parameters = {"tenant": tenant_id, "id": new_id("kqry"), "query": query, "kept": KEPT - 1}
        try:
            async with self._database.tenant(tenant_id) as conn:
                await conn.execute(self._queries["note"], parameters)
        except MemoryError as error:
            logger.warning("a question was not kept: %s", error.code)
