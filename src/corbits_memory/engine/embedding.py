"""Filling in vectors: what a capture left open, what a crash left behind, what a late turn made outdated."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from psycopg.rows import dict_row

from corbits_memory.core.passages import passage_text
from corbits_memory.engine.drafts import Row
from corbits_memory.engine.pool import Database, run_again
from corbits_memory.engine.queries import load_queries
from corbits_memory.engine.vectors import Standing, VectorRegistry, VectorSpace, vector_text
from corbits_memory.errors import EmbedError, EmbedHttpError, MemoryError
from corbits_memory.ports import Embedder

logger = logging.getLogger("corbits_memory.embedding")

SLICE_CHUNKS = 64
"""How many chunks one claim takes: few enough to finish within the lease on a slow model."""
LEASE_SECONDS = 120.0
_ABOUT_THE_TEXT = (200, 400, 413, 422)
"""Statuses that one text may have caused: a refusal, or an answer with a vector that is none."""


@dataclass(frozen=True, slots=True)
class Pending:
    """How many chunks wait for a vector, and the latest reason one had to be postponed."""

    count: int
    error: str | None = None


class EmbeddingService:
    """Embeds chunks with the configured model. No transaction is open while the model works."""

    def __init__(self, database: Database, registry: VectorRegistry, embedder: Embedder | None) -> None:
        self._database = database
        self._registry = registry
        self._embedder = embedder
        self._queries = load_queries("vectors")

    async def embed_within(self, tenant_id: str, chunk_ids: Sequence[str], seconds: float) -> bool:
        """Embed just-captured chunks if it can be done in time. False: the queue has them, a worker goes on."""
        try:
            async with asyncio.timeout(seconds):
                done = await self.embed(tenant_id, chunk_ids)
        except TimeoutError:
            logger.info("vectors of %d chunks are left to the worker", len(chunk_ids))
            return False
        except MemoryError as error:
            logger.warning("embedding failed, the queue keeps %d chunks: %s", len(chunk_ids), error.code)
            return False
        return done

    async def drain(self, tenant_id: str, *, slices: int | None = None) -> int:
        """Embed what is due for a tenant; the number of chunks done. Postpones what fails, and says why."""
        if self._embedder is None:
            return 0
        try:
            if not await self._settle(tenant_id):
                return 0
        except EmbedError as error:
            await self._postpone(tenant_id, await self._claim(tenant_id), error)
            return 0
        done = 0
        while slices is None or slices > 0:
            claimed = await self._claim(tenant_id)
            if not claimed:
                break
            try:
                if not await self.embed(tenant_id, claimed):
                    break
            except EmbedError as error:
                if len(claimed) == 1 or not await self._embed_singly(tenant_id, claimed, error):
                    await self._postpone(tenant_id, claimed, error)
                    break
            done += len(claimed)
            slices = None if slices is None else slices - 1
        return done

    async def embed(self, tenant_id: str, chunk_ids: Sequence[str]) -> bool:
        """Vectors for chunks, stored and off the queue. Raises ``EmbedError`` with nothing stored.

        False, with nothing stored either: the tenant's vectors are not of this model, or not yet.
        """
        if self._embedder is None or not chunk_ids:
            return True
        space, standing = await self._registry.claim(tenant_id, self._embedder)
        if standing is not Standing.ACTIVE:
            await self._release(tenant_id, chunk_ids)
            return False
        async with self._database.tenant(tenant_id) as conn:
            cursor = conn.cursor(row_factory=dict_row)
            await cursor.execute(self._queries["passages"], {"tenant": tenant_id, "chunks": list(chunk_ids)})
            rows = await cursor.fetchall()
        if not rows:
            return True
        vectors = await self._embedder.embed([_passage(row) for row in rows], purpose="passage")
        _check_dims(vectors, space)
        return await run_again(lambda: self._store(tenant_id, space, rows, vectors))

    async def enqueue_missing(self, tenant_id: str) -> int:
        """Queue every searchable chunk that the configured model has no vector of; how many were missing.

        The model becomes the tenant's, also when a process with another one was opened later.
        """
        if self._embedder is None:
            return 0
        space, standing = await self._registry.claim(tenant_id, self._embedder, by_hand=True)
        queued = await self._enqueue_missing(tenant_id, space)
        if standing is not Standing.ACTIVE:
            await self._registry.activate(tenant_id, space)
        return queued

    async def due_tenants(self) -> list[str]:
        """Tenants with chunks to embed, and those whose change of models was interrupted."""
        if self._embedder is None:
            return []
        async with self._database.operator() as conn:
            rows = await (await conn.execute(self._queries["due_tenants"])).fetchall()
            rows += await (
                await conn.execute(self._queries["changing_tenants"], {"model_key": self._embedder.model_key})
            ).fetchall()
        return sorted({row[0] for row in rows})

    async def pending(self, tenant_id: str, principal_id: str | None = None) -> Pending:
        """How many chunks wait: a principal's own, or all of the tenant."""
        async with self._database.tenant(tenant_id) as conn:
            if principal_id is None:
                row = await (
                    await conn.execute(self._queries["pending_in_tenant"], {"tenant": tenant_id})
                ).fetchone()
                return Pending(row[0] if row else 0)
            row = await (
                await conn.execute(self._queries["pending"], {"tenant": tenant_id, "principal": principal_id})
            ).fetchone()
        return Pending(*row) if row else Pending(0)

    async def _settle(self, tenant_id: str) -> bool:
        """Bring a change of models to its end. False: the tenant's vectors are for another process to make."""
        if self._embedder is None:
            return False
        space, standing = await self._registry.claim(tenant_id, self._embedder)
        if standing is not Standing.CHOSEN:
            return standing is Standing.ACTIVE
        queued = await self._enqueue_missing(tenant_id, space)
        logger.info("another model: %d chunks of a tenant are queued to be embedded anew", queued)
        return await self._registry.activate(tenant_id, space)

    async def _enqueue_missing(self, tenant_id: str, space: VectorSpace) -> int:
        """In pages, each a transaction; twice is as good as once."""
        query = space.compose(self._queries["enqueue_missing"])
        after, queued = "", 0
        while True:
            async with self._database.tenant(tenant_id) as conn:
                row = await (await conn.execute(query, {"tenant": tenant_id, "after": after})).fetchone()
            if row is None or row[0] is None:
                return queued
            after, queued = row[0], queued + row[1]

    async def _claim(self, tenant_id: str) -> list[str]:
        async with self._database.tenant(tenant_id) as conn:
            cursor = await conn.execute(
                self._queries["claim_chunks"],
                {"tenant": tenant_id, "limit": SLICE_CHUNKS, "lease": LEASE_SECONDS},
            )
            return sorted(row[0] for row in await cursor.fetchall())

    async def _embed_singly(self, tenant_id: str, claimed: list[str], error: EmbedError) -> bool:
        """One text that a model refuses must not hold up the others. False when the model itself is away."""
        if not isinstance(error, EmbedHttpError) or error.http_status not in _ABOUT_THE_TEXT:
            return False
        for chunk_id in claimed:
            try:
                await self.embed(tenant_id, [chunk_id])
            except EmbedError as refused:
                await self._postpone(tenant_id, [chunk_id], refused)
        return True

    async def _store(
        self, tenant_id: str, space: VectorSpace, rows: list[Row], vectors: list[list[float]]
    ) -> bool:
        chunks = [row["chunk_id"] for row in rows]
        parameters = {"tenant": tenant_id, "chunks": chunks}
        async with self._database.tenant(tenant_id) as conn:
            # Else a process with the model before would take off the queue what the new table lacks.
            if not await self._registry.hold(conn, tenant_id, space):
                await conn.execute(self._queries["release_chunks"], parameters)
                return False
            parameters["enqueued"] = [row["enqueued_at"] for row in rows]
            async with conn.pipeline():
                await conn.execute(self._queries["hold_rows"], parameters)
                await conn.execute(
                    space.compose(self._queries["store_vectors"]),
                    {**parameters, "vectors": [vector_text(v) for v in vectors]},
                )
                await conn.execute(self._queries["dequeue_chunks"], parameters)
        return True

    async def _release(self, tenant_id: str, chunk_ids: Sequence[str]) -> None:
        async with self._database.tenant(tenant_id) as conn:
            await conn.execute(
                self._queries["release_chunks"], {"tenant": tenant_id, "chunks": list(chunk_ids)}
            )

    async def _postpone(self, tenant_id: str, chunk_ids: list[str], error: EmbedError) -> None:
        logger.warning("%d chunks of a tenant wait for a vector: %s", len(chunk_ids), error.code)
        async with self._database.tenant(tenant_id) as conn:
            await conn.execute(
                self._queries["postpone_chunks"],
                {"tenant": tenant_id, "chunks": chunk_ids, "error": error.message[:500]},
            )


def _passage(row: Row) -> str:
    previous = None if row["previous_text"] is None else (row["previous_author"], row["previous_text"])
    return passage_text(row["title"], row["text"], row["author"], row["occurred_at"], previous)


def _check_dims(vectors: list[list[float]], space: VectorSpace) -> None:
    wrong = next((len(vector) for vector in vectors if len(vector) != space.dims), None)
    if wrong is not None:
        raise EmbedError(
            f"The model {space.model_id} answered with {wrong} dimensions, but its table holds {space.dims}. "
            "If the endpoint now serves another model, give it another name in EMBED_MODEL and run: "
            "corbits-memory embed backfill"
        )
