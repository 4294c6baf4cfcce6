"""A reader of the feed as a process of its own: ``python -m tests.engine.feed_reader URL TENANT PRINCIPAL AFTER``.

Prints a line an entry (number, version) and remembers nothing: where to go on is the business of who starts it.
"""

import asyncio
import sys

from corbits_memory.config import EngineConfig
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.plane import Memory


async def main(url: str, tenant: str, principal: str, after: str) -> None:
    config = EngineConfig(database_url=url, run_worker=False, db_pool_max=2)
    async with Memory(PostgresDocumentStore(config, embedder=None, reranker=None)) as memory:
        async for entry in memory.follow(tenant_id=tenant, principal_id=principal, after=int(after)):
            print(entry.seq, entry.version_id, flush=True)  # noqa: T201 - its output


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
