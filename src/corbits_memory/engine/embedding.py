"""Filling in vectors: what a capture left open, what a crash left behind, what a late turn made outdated."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from psycopg.rows import TupleRow, dict_row
from psycopg.sql import Composed

from corbits_memory.core.passages import passage_text
from corbits_memory.engine.directory import ModelDirectory
from corbits_memory.engine.drafts import Row
from corbits_memory.engine.generations import Generation, Generations
from corbits_memory.engine.pool import Database, run_again
from corbits_memory.engine.queries import load_queries
from corbits_memory.engine.vectors import (
    Claim,
    Role,
    Standing,
    VectorRegistry,
    VectorSpace,
    space_by_key,
    vector_text,
    wrong_dims,
)
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


@dataclass(frozen=True, slots=True)
class ModelChange:
    """A change of models: names, and how many live chunks the new one still has to embed.

    ``scanned``: all of them are counted already.
    """

    before: str
    after: str
    missing: int
    scanned: bool


@dataclass(frozen=True, slots=True)
class Target:
    """Whose vectors are made, and where they go, as long as the model has this role."""

    embedder: Embedder
    space: VectorSpace
    role: Role = Role.ACTIVE


class EmbeddingService:
    """Embeds chunks, each with the model of its generation. No transaction is open while the model works.

    The live generation has the configured model, unless a replay that was promoted brought its own.
    """

    def __init__(
        self,
        database: Database,
        registry: VectorRegistry,
        embedder: Embedder | None,
        *,
        generations: Generations,
        directory: ModelDirectory,
    ) -> None:
        self._database = database
        self._registry = registry
        self._embedder = embedder
        self._generations = generations
        self._directory = directory
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
        """Embed what is due for a tenant; the number of chunks done. Postpones what fails, and says why.

        The live generation comes first, then those that were replayed or archived.
        """
        live = await self._generations.live(tenant_id)
        if live is None:
            return 0
        done = await self._drain_live(tenant_id, live, slices)
        left = None if slices is None else slices - -(-done // SLICE_CHUNKS)
        for generation, model_key in await self._due_generations(tenant_id):
            if left is not None and left <= 0:
                break
            target = await self.target_of(tenant_id, model_key)
            if target is not None:
                await self._settle_refill(tenant_id, generation, target)
                more = await self.drain_generation(tenant_id, generation, target, slices=left)
                left = None if left is None else left - -(-more // SLICE_CHUNKS)
                done += more
        return done

    async def target_of(self, tenant_id: str, model_key: str) -> Target | None:
        """Where vectors of a generation that isn't live go; None when this process can't make them."""
        embedder = await self._directory.of_key(tenant_id, model_key)
        async with self._database.tenant(tenant_id) as conn:
            space = await space_by_key(conn, tenant_id, model_key)
        return None if embedder is None or space is None else Target(embedder, space, Role.OTHER)

    async def drain_generation(
        self, tenant_id: str, generation: str, target: Target, *, slices: int | None = None
    ) -> int:
        """Embed what is due of a generation; the number of chunks done."""
        done = 0
        refill = target.role is Role.CHOSEN
        while slices is None or slices > 0:
            claimed = await self._claim(tenant_id, generation, refill=refill)
            if not claimed:
                break
            try:
                if not await self.embed_into(tenant_id, claimed, target):
                    break
            except EmbedError as error:
                if len(claimed) == 1 or not await self._embed_singly(tenant_id, claimed, error, target):
                    await self._postpone(tenant_id, claimed, error)
                    break
            done += len(claimed)
            slices = None if slices is None else slices - 1
        return done

    async def embed(self, tenant_id: str, chunk_ids: Sequence[str]) -> bool:
        """Vectors for live chunks, stored and off the queue. Raises ``EmbedError`` with nothing stored.

        False, with nothing stored either: the tenant's vectors are not of this model, or not yet.
        """
        if not chunk_ids:
            return True
        live = await self._generations.live(tenant_id)
        target = None if live is None else await self._live_target(tenant_id, live)
        if target is None:
            await self._release(tenant_id, chunk_ids)
            return False
        return await self.embed_into(tenant_id, chunk_ids, target)

    async def embed_or_postpone(self, tenant_id: str, chunk_ids: Sequence[str], target: Target) -> None:
        """:meth:`embed_into`; a text that the model refuses stays in the queue, and holds up no other.

        Raises ``EmbedError`` when the model itself is away, with nothing stored.
        """
        try:
            await self.embed_into(tenant_id, chunk_ids, target)
        except EmbedError as error:
            if not await self._embed_singly(tenant_id, list(chunk_ids), error, target):
                raise

    async def embed_into(self, tenant_id: str, chunk_ids: Sequence[str], target: Target) -> bool:
        """:meth:`embed` for chunks of any generation whose model the target is."""
        space = target.space
        async with self._database.tenant(tenant_id) as conn:
            cursor = conn.cursor(row_factory=dict_row)
            await cursor.execute(self._queries["passages"], {"tenant": tenant_id, "chunks": list(chunk_ids)})
            rows = await cursor.fetchall()
        if not rows:
            return True
        vectors = await target.embedder.embed([passage_of(row) for row in rows], purpose="passage")
        _check_dims(vectors, space)
        return await run_again(lambda: self._store(tenant_id, target, rows, vectors))

    async def enqueue_missing(self, tenant_id: str) -> int:
        """Queue every live chunk that the tenant's model has no vector of; how many were missing.

        The configured model becomes the tenant's, also when a process with another one was opened later; but not
        in place of a model that a promoted replay brought.
        """
        if self._embedder is None:
            return 0
        live = await self._generations.live(tenant_id)
        if live is not None and live.pinned:
            target = await self._live_target(tenant_id, live)
            return 0 if target is None else await self._enqueue_missing(tenant_id, target.space)
        claim = await self._registry.claim(tenant_id, self._embedder, by_hand=True)
        queued = await self._scan(tenant_id, claim)
        if claim.standing is Standing.CHOSEN:
            await self._registry.take_over(tenant_id, claim.space)
        return queued

    async def take_over_now(self, tenant_id: str) -> bool:
        """End a change to the configured model, whatever it lacks. False: none is under way."""
        live = await self._generations.live(tenant_id)
        if self._embedder is None or live is None:
            return False
        claim = await self._registry.claim(tenant_id, self._embedder)
        if claim.standing is not Standing.CHOSEN:
            return False
        if not claim.scanned:
            await self._scan(tenant_id, claim)
        taken = await self._registry.take_over(tenant_id, claim.space, unfilled=True)
        if taken:
            await self._settle_refill(tenant_id, live.id, Target(self._embedder, claim.space))
        return taken

    async def change(self, tenant_id: str) -> ModelChange | None:
        """The change of models that is under way; None where there is none."""
        async with self._database.tenant(tenant_id) as conn:
            row = await (await conn.execute(self._queries["model_change"], {"tenant": tenant_id})).fetchone()
        return (
            None if row is None else ModelChange(before=row[0], after=row[1], scanned=row[2], missing=row[3])
        )

    async def due_tenants(self) -> list[str]:
        """Tenants with chunks to embed, and those whose vectors are of a model that this process replaces."""
        if self._embedder is None and not self._directory.builds:
            return []
        async with self._database.operator() as conn:
            rows = await (await conn.execute(self._queries["due_tenants"])).fetchall()
            if self._embedder is not None and self._registry.opened_at is not None:
                mine = {"model_key": self._embedder.model_key, "opened": self._registry.opened_at}
                rows += await (await conn.execute(self._queries["changing_tenants"], mine)).fetchall()
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

    async def _drain_live(self, tenant_id: str, live: Generation, slices: int | None) -> int:
        try:
            if live.pinned or self._embedder is None:
                target = await self._live_target(tenant_id, live)
                return 0 if target is None else await self._fill(tenant_id, live, target, slices)
            claim = await self._registry.claim(tenant_id, self._embedder)
        except EmbedError as error:
            await self._postpone(tenant_id, await self._claim(tenant_id, live.id), error)
            return 0
        if claim.standing is Standing.RETIRED:
            return 0
        if not claim.scanned:
            queued = await self._scan(tenant_id, claim)
            logger.info("another model: %d chunks of a tenant are queued to be embedded anew", queued)
        if claim.standing is Standing.ACTIVE:
            return await self._fill(tenant_id, live, Target(self._embedder, claim.space), slices)
        return await self._change(tenant_id, live, claim, self._embedder, slices)

    async def _fill(self, tenant_id: str, live: Generation, target: Target, slices: int | None) -> int:
        await self._settle_refill(tenant_id, live.id, target)
        return await self.drain_generation(tenant_id, live.id, target, slices=slices)

    async def _change(
        self, tenant_id: str, live: Generation, claim: Claim, embedder: Embedder, slices: int | None
    ) -> int:
        """New chunks for the model that serves, as far as it can be reached; then a refill for the chosen one, which
        takes over when none is left."""
        done = 0
        serving = await self._serving(tenant_id, claim)
        if serving is not None:
            done = await self.drain_generation(tenant_id, live.id, serving, slices=slices)
        left = None if slices is None else slices - -(-done // SLICE_CHUNKS)
        chosen = Target(embedder, claim.space, Role.CHOSEN)
        done += await self.drain_generation(tenant_id, live.id, chosen, slices=left)
        if await self._registry.take_over(tenant_id, claim.space):
            # What is new and could not be embedded by the model before.
            rest = await self.drain_generation(tenant_id, live.id, Target(embedder, claim.space), slices=left)
            done += rest
        return done

    async def _live_target(self, tenant_id: str, live: Generation) -> Target | None:
        """None: the vectors of the live generation are for another process to make."""
        if live.pinned and live.model_key is not None:
            target = await self.target_of(tenant_id, live.model_key)
            return None if target is None else replace(target, role=Role.ACTIVE)
        if self._embedder is None:
            return None
        claim = await self._registry.claim(tenant_id, self._embedder, recent=True)
        if claim.standing is Standing.CHOSEN:
            return await self._serving(tenant_id, claim)
        return Target(self._embedder, claim.space) if claim.standing is Standing.ACTIVE else None

    async def _serving(self, tenant_id: str, claim: Claim) -> Target | None:
        """The model that searches read until the chosen one takes over; None when this process can't reach it."""
        target = None if claim.serving is None else await self.target_of(tenant_id, claim.serving)
        return None if target is None else replace(target, role=Role.ACTIVE)

    async def _scan(self, tenant_id: str, claim: Claim) -> int:
        queued = await self._enqueue_missing(tenant_id, claim.space, refill=claim.standing is Standing.CHOSEN)
        await self._registry.note_scanned(tenant_id, claim.space)
        return queued

    async def _settle_refill(self, tenant_id: str, generation: str, target: Target) -> None:
        """What a change of models left behind that came to no end."""
        query = target.space.compose(self._queries["settle_refill"])
        while True:
            async with self._database.tenant(tenant_id) as conn:
                held = await self._registry.hold(conn, tenant_id, target.space, target.role)
                if held is None or held.refill:
                    return
                row = await (
                    await conn.execute(query, {"tenant": tenant_id, "generation": generation})
                ).fetchone()
            if row is None or not row[0]:
                return

    async def _due_generations(self, tenant_id: str) -> list[tuple[str, str]]:
        async with self._database.tenant(tenant_id) as conn:
            rows = await conn.execute(self._queries["due_generations"], {"tenant": tenant_id})
            return [(row[0], row[1]) for row in await rows.fetchall()]

    async def _enqueue_missing(self, tenant_id: str, space: VectorSpace, *, refill: bool = False) -> int:
        """In pages, each a transaction; twice is as good as once."""
        query = space.compose(self._queries["enqueue_missing"])
        after, queued = "", 0
        while True:
            page = {"tenant": tenant_id, "after": after, "refill": refill}
            row = await run_again(partial(self._page_of_missing, tenant_id, query, page))
            if row is None or row[0] is None:
                return queued
            after, queued = row[0], queued + row[1]
            for chunk in row[2]:
                passed = {"tenant": tenant_id, "chunk": chunk, "refill": refill}
                queued += await run_again(partial(self._enqueue_passed, tenant_id, passed))

    async def _page_of_missing(
        self, tenant_id: str, query: Composed, page: Mapping[str, object]
    ) -> TupleRow | None:
        async with self._database.tenant(tenant_id) as conn:
            return await (await conn.execute(query, page)).fetchone()

    async def _enqueue_passed(self, tenant_id: str, passed: Mapping[str, object]) -> int:
        async with self._database.tenant(tenant_id) as conn:
            return (await conn.execute(self._queries["enqueue_passed"], passed)).rowcount

    async def _claim(self, tenant_id: str, generation: str, *, refill: bool = False) -> list[str]:
        async with self._database.tenant(tenant_id) as conn:
            cursor = await conn.execute(
                self._queries["claim_chunks"],
                {
                    "tenant": tenant_id,
                    "generation": generation,
                    "refill": refill,
                    "limit": SLICE_CHUNKS,
                    "lease": LEASE_SECONDS,
                },
            )
            return sorted(row[0] for row in await cursor.fetchall())

    async def _embed_singly(
        self, tenant_id: str, claimed: list[str], error: EmbedError, target: Target
    ) -> bool:
        """One text that a model refuses must not hold up the others. False when the model itself is away."""
        if not isinstance(error, EmbedHttpError) or error.http_status not in _ABOUT_THE_TEXT:
            return False
        for chunk_id in claimed:
            try:
                await self.embed_into(tenant_id, [chunk_id], target)
            except EmbedError as refused:
                await self._postpone(tenant_id, [chunk_id], refused)
        return True

    async def _store(
        self, tenant_id: str, target: Target, rows: list[Row], vectors: list[list[float]]
    ) -> bool:
        space = target.space
        chunks = [row["chunk_id"] for row in rows]
        parameters = {"tenant": tenant_id, "chunks": chunks}
        async with self._database.tenant(tenant_id) as conn:
            # Else a process with the model before would take off the queue what the new table lacks.
            held = await self._registry.hold(conn, tenant_id, space, target.role)
            if held is None:
                await conn.execute(self._queries["release_chunks"], parameters)
                return False
            parameters["enqueued"] = [row["enqueued_at"] for row in rows]
            async with conn.pipeline():
                await conn.execute(self._queries["hold_rows"], parameters)
                await conn.execute(
                    space.compose(self._queries["store_vectors"]),
                    {**parameters, "vectors": [vector_text(v) for v in vectors]},
                )
                if held.refill:
                    await conn.execute(self._queries["refill_chunks"], parameters)
                else:
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


def passage_of(row: Row) -> str:
    """What is embedded for a row of ``passages``."""
    previous = None if row["previous_text"] is None else (row["previous_author"], row["previous_text"])
    return passage_text(row["title"], row["text"], row["author"], row["occurred_at"], previous)


def _check_dims(vectors: list[list[float]], space: VectorSpace) -> None:
    wrong = next((len(vector) for vector in vectors if len(vector) != space.dims), None)
    if wrong is not None:
        raise EmbedError(wrong_dims(wrong, space))
