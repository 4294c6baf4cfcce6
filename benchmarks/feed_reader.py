"""One reader of the feed as a process: ``python -m benchmarks.feed_reader URL TENANT PRINCIPAL AFTER``.

Prints a line an entry: its number, its version, and when it came.
"""

import asyncio
import sys
import time

from corbits_memory.config import EngineConfig
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.plane import Memory


async def main(url: str, tenant: str, principal: str, after: str) -> None:
    config = EngineConfig(database_url=url, run_worker=False, db_pool_max=2)
    async with Memory(PostgresDocumentStore(config, embedder=None, reranker=None)) as memory:
        async for entry in memory.follow(tenant_id=tenant, principal_id=principal, after=int(after)):
            sys.stdout.write(f"{entry.seq} {entry.version_id} {time.time()}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
