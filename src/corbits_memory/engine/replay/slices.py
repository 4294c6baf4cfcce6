"""Works off a run, a slice at a time: on any machine, by any number of workers, however often one of them dies.

What holds at every line: a slice belongs to one worker, by a lease that ends by itself; what is written of it
stands in the generation once; it is done when all of it is written and every text that its model takes has a
vector. So a slice that somebody left halfway is gone through again, and nothing of it is made twice.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from corbits_memory.core.enums import RunStatus
from corbits_memory.engine.drafts import Row
from corbits_memory.engine.embedding import EmbeddingService, Target
from corbits_memory.engine.generations import Generation, Generations
from corbits_memory.engine.pool import Connection, Database, run_again
from corbits_memory.engine.queries import load_queries
from corbits_memory.engine.replay.catchup import CatchUp
from corbits_memory.engine.replay.mirror import Mirror, Planned, link, plan_payloads
from corbits_memory.engine.replay.runs import (
    EMPTY_SCOPE,
    RunService,
    lock_run,
    scope_parameters,
    stored_scope,
)
from corbits_memory.engine.statements import Statements
from corbits_memory.errors import (
    EmbedError,
    InvalidInputError,
    MemoryError,
    TransformConfigNotFoundError,
    TransformRunNotFoundError,
)
from corbits_memory.ports.transform import TransformScope

logger = logging.getLogger("corbits_memory.replay")

LEASE_SECONDS = 120.0
"""Renewed after each group of captures, and each batch of vectors."""
ATTEMPTS = 5
"""After so many a slice is given up; a run that has failed can be tried again."""
RETRY_SECONDS = 15.0
"""Before the second attempt; twice as long before each that follows. Also how long a worker leaves a model alone that
is away: else it would try one slice after the other, and give up all of them."""
GROUP_BYTES = 2_000_000
"""Payloads that are read, planned and written together; a larger one goes alone. Bounds a worker's memory."""
GROUP_CAPTURES = 50
EMBEDDED_TOGETHER = 128
"""Chunks handed to the model at a time: a few batches, so that several are on their way at once."""
UNREACHABLE_SECONDS = 60.0
"""Before a process looks again whether it can reach a run's model."""
CONFIG_GONE = "the run's transform config was deleted"


@dataclass(frozen=True, slots=True)
class Job:
    """A run as a worker sees it."""

    tenant_id: str
    run_id: str
    scope: TransformScope
    settings: Generation
    target: Target


@dataclass(frozen=True, slots=True)
class Slice:
    after_id: str
    last_id: str
    attempts: int
    lease: str


@dataclass(frozen=True, slots=True)
class Left:
    """What a run still has to do. ``seconds``: when to look again; None: it has ended, or waits for somebody."""

    due: int
    seconds: float | None


class SliceLostError(Exception):
    """Another worker has the slice, or its run was paused or cancelled."""


class SliceWorker:
    def __init__(
        self,
        database: Database,
        runs: RunService,
        embedding: EmbeddingService,
        generations: Generations,
        catch_up: CatchUp,
        *,
        clock: Callable[[], datetime],
    ) -> None:
        self._database = database
        self._runs = runs
        self._embedding = embedding
        self._generations = generations
        self._catch_up = catch_up
        self._clock = clock

    async def work(
        self,
        tenant_id: str,
        run_id: str,
        *,
        slices: int | None = None,
        on_claimed: Callable[[], Awaitable[None]] | None = None,
    ) -> Left:
        """Work on a run for so many slices, or as long as some are due; end the run after its last.

        ``on_claimed`` is called when there was a slice, before it is worked on: others may look for the next.
        """
        try:
            if not await self._runs.cut(tenant_id=tenant_id, run_id=run_id):
                return Left(0, None)
            job = await self._job(tenant_id, run_id)
        except TransformRunNotFoundError:
            return Left(0, None)
        except TransformConfigNotFoundError:
            await self._end(tenant_id, run_id, RunStatus.FAILED, CONFIG_GONE)
            return Left(0, None)
        except InvalidInputError as error:
            await self._end(tenant_id, run_id, RunStatus.FAILED, f"the run's config: {error.message}")
            return Left(0, None)
        if job is None:
            return Left(0, UNREACHABLE_SECONDS)
        while slices is None or slices > 0:
            claimed = await self._claim(tenant_id, run_id)
            if claimed is None:
                break
            if on_claimed is not None:
                await on_claimed()
            if not await self._do(job, claimed):
                return Left(0, RETRY_SECONDS)
            slices = None if slices is None else slices - 1
        return await self._finish(job)

    async def _job(self, tenant_id: str, run_id: str) -> Job | None:
        async with self._database.tenant(tenant_id) as conn:
            run = await lock_run(conn, tenant_id, run_id)
            settings = await self._generations.get(tenant_id, run["generation"], conn)
        target = await self._embedding.target_of(tenant_id, run["model_key"])
        if target is None:
            logger.warning("a run's embedding model can't be reached by this process")
            return None
        return Job(tenant_id, run_id, stored_scope(run), settings, target)

    # --- one slice ---

    async def _claim(self, tenant_id: str, run_id: str) -> Slice | None:
        lease = secrets.token_hex(8)
        async with self._database.tenant(tenant_id) as conn:
            rows = await Statements(conn, tenant_id, "transform", run=run_id).fetch(
                "claim_slice", lease=lease, seconds=LEASE_SECONDS
            )
        return (
            None if not rows else Slice(rows[0]["after_id"], rows[0]["last_id"], rows[0]["attempts"], lease)
        )

    async def _do(self, job: Job, part: Slice) -> bool:
        """False: the model is away."""
        try:
            if part.attempts > ATTEMPTS:
                raise MemoryError("every worker that took this slice died with it")
            captures = await self._captures(job, part)
            for group in _groups(captures):
                await self._copy(job, part, group)
                await self._embed(job, part, group)
            await self._end_slice(job, part, [row["id"] for row in captures])
        except SliceLostError:
            await self._release(job, part, uncounted=True)
        except asyncio.CancelledError:
            await asyncio.shield(self._release(job, part, uncounted=True))
            raise
        except MemoryError as error:
            logger.warning("a slice of a run failed for the %d. time: %s", part.attempts, error.code)
            await self._release(job, part, error=error)
            return not isinstance(error, EmbedError)
        return True

    async def _captures(self, job: Job, part: Slice) -> list[Row]:
        async with self._database.tenant(job.tenant_id) as conn:
            return await Statements(conn, job.tenant_id, "replay").fetch(
                "captures_in_scope",
                after=part.after_id,
                last=part.last_id,
                limit=None,
                **scope_parameters(job.scope),
            )

    async def _copy(self, job: Job, part: Slice, captures: Sequence[str]) -> None:
        async with self._database.tenant(job.tenant_id) as conn:
            payloads = await Statements(conn, job.tenant_id, "replay", generation=job.run_id).fetch(
                "payloads_to_plan", captures=list(captures)
            )
        planned = await asyncio.to_thread(
            plan_payloads, payloads, job.settings.cutting, tenant_id=job.tenant_id, now=self._clock()
        )
        del payloads
        await run_again(lambda: self._write(job, part, captures, planned))

    async def _write(self, job: Job, part: Slice, captures: Sequence[str], planned: Planned) -> None:
        async with self._database.tenant(job.tenant_id) as conn:
            live = await _hold_live(conn, job.tenant_id)
            await self._hold(conn, job, part)
            mirror = Mirror(
                conn, job.tenant_id, job.settings, job.scope, live=live, lease_seconds=LEASE_SECONDS
            )
            mirrored = await mirror.copy_captures(captures, planned)
            if mirrored.problems:
                await Statements(conn, job.tenant_id, "transform", run=job.run_id).run(
                    "note_skips",
                    captures=list(mirrored.problems),
                    problems=list(mirrored.problems.values()),
                )

    async def _embed(self, job: Job, part: Slice, captures: Sequence[str]) -> None:
        """Vectors of what was written now, and of what an attempt before this one left without."""
        async with self._database.tenant(job.tenant_id) as conn:
            rows = await Statements(conn, job.tenant_id, "transform", run=job.run_id).fetch(
                "waiting_chunks", captures=list(captures)
            )
        chunks = [row["chunk_id"] for row in rows]
        for start in range(0, len(chunks), EMBEDDED_TOGETHER):
            async with self._database.tenant(job.tenant_id) as conn:
                await self._hold(conn, job, part)
            await self._embedding.embed_or_postpone(
                job.tenant_id, chunks[start : start + EMBEDDED_TOGETHER], job.target
            )

    async def _hold(self, conn: Connection, job: Job, part: Slice) -> None:
        """Renew the lease; nobody else takes the slice before this transaction ends."""
        held = await Statements(conn, job.tenant_id, "transform", run=job.run_id).fetch(
            "hold_slice", last=part.last_id, lease=part.lease, seconds=LEASE_SECONDS
        )
        if not held:
            raise SliceLostError

    async def _end_slice(self, job: Job, part: Slice, captures: Sequence[str]) -> None:
        async with self._database.tenant(job.tenant_id) as conn:
            await Statements(conn, job.tenant_id, "transform", run=job.run_id).run(
                "end_slice", last=part.last_id, lease=part.lease, captures=list(captures)
            )

    async def _release(
        self, job: Job, part: Slice, *, error: MemoryError | None = None, uncounted: bool = False
    ) -> None:
        given_up = error is not None and part.attempts >= ATTEMPTS
        async with self._database.tenant(job.tenant_id) as conn:
            await Statements(conn, job.tenant_id, "transform", run=job.run_id).run(
                "release_slice",
                last=part.last_id,
                lease=part.lease,
                error=None if error is None else error.message[:500],
                seconds=0.0 if error is None else RETRY_SECONDS * 2.0 ** (part.attempts - 1),
                uncounted=int(uncounted),
                given_up=given_up,
            )

    # --- the end of a run ---

    async def _finish(self, job: Job) -> Left:
        async with self._database.tenant(job.tenant_id) as conn:
            (left,) = await Statements(conn, job.tenant_id, "transform", run=job.run_id).fetch("open_slices")
        if left["pending"]:
            return Left(left["due"], max(0.0, float(left["seconds"] or 0.0)))
        await self._link(job)
        await self._embedding.drain_generation(job.tenant_id, job.run_id, job.target)
        await self._catch_up.catch_up(job.tenant_id, job.settings, job.scope, job.target)
        async with self._database.tenant(job.tenant_id) as conn:
            run = await lock_run(conn, job.tenant_id, job.run_id)
            statements = Statements(conn, job.tenant_id, "transform", run=job.run_id)
            (outcome,) = await statements.fetch("run_outcome")
            if run["status"] != RunStatus.RUNNING or outcome["pending"]:
                return Left(0, None)
            problem = _problem(outcome)
            await statements.run(
                "end_run", status=RunStatus.COMPLETED if problem is None else RunStatus.FAILED, error=problem
            )
        logger.info("a run has ended: %s", "completed" if problem is None else "failed")
        return Left(0, None)

    async def _link(self, job: Job) -> None:
        """What claims say of what they were made from, between copies."""
        after: str | None = ""
        while after is not None:
            async with self._database.tenant(job.tenant_id) as conn:
                live = await _hold_live(conn, job.tenant_id)
                after = await link(
                    Statements(conn, job.tenant_id, "replay", generation=job.run_id, live=live),
                    Statements(conn, job.tenant_id, "capture"),
                    after=after,
                )

    async def _end(self, tenant_id: str, run_id: str, status: RunStatus, problem: str) -> None:
        async with self._database.tenant(tenant_id) as conn:
            await Statements(conn, tenant_id, "transform", run=run_id).run(
                "end_run", status=status, error=problem
            )


async def _hold_live(conn: Connection, tenant_id: str) -> str:
    """The live generation; a promotion waits until this transaction ends."""
    row = await (await conn.execute(load_queries("capture")["lock_tenant"], {"tenant": tenant_id})).fetchone()
    return "" if row is None else str(row[0])


def _groups(captures: Sequence[Row]) -> Iterator[list[str]]:
    group: list[str] = []
    size = 0
    for row in captures:
        if group and (len(group) == GROUP_CAPTURES or size + row["bytes"] > GROUP_BYTES):
            yield group
            group, size = [], 0
        group.append(row["id"])
        size += row["bytes"]
    if group:
        yield group


def _problem(outcome: Row) -> str | None:
    """Why a run is not complete; None: it is."""
    if not outcome["captures"]:
        return EMPTY_SCOPE
    failed = int(outcome["failed"]) + int(outcome["skipped"])
    if not failed:
        return None
    first = outcome["error"] or outcome["skip"]
    return f"{failed}/{int(outcome['captures'])} raw_capture row(s) failed to re-derive; first error: {first}"
