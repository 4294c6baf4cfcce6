"""Promote and demote: a generation is caught up, then one short transaction moves the pointer, and the model along.

While the pointer moves nobody writes, for the tenant's row is held alone; reads go on. What was written since the
generation was last caught up is copied within that transaction, and it is only begun when that is little: so
neither way loses an add, brings back what was forgotten, or holds writers up for long.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import psycopg

from corbits_memory.core.enums import AuditAction, AuditTarget, RunStatus
from corbits_memory.engine import audit
from corbits_memory.engine.drafts import Row
from corbits_memory.engine.embedding import EmbeddingService, Target
from corbits_memory.engine.feed import append_promotion
from corbits_memory.engine.generations import Generation, Generations
from corbits_memory.engine.pool import Connection, Database, run_again
from corbits_memory.engine.replay.catchup import PAGE_EVENTS, CatchUp
from corbits_memory.engine.replay.runs import lock_run, stored_scope
from corbits_memory.engine.search.retrieval import EXACT_ROWS
from corbits_memory.engine.statements import Statements
from corbits_memory.engine.statistics import StatisticsService
from corbits_memory.engine.vectors import VectorRegistry, active_space, space_by_key
from corbits_memory.errors import (
    DatabaseError,
    TransformPromoteError,
    TransformRunNotFoundError,
    UnavailableError,
)
from corbits_memory.ports.transform import TransformScope

logger = logging.getLogger("corbits_memory.replay")

LAST_EVENTS = PAGE_EVENTS
LAST_BYTES = 500_000
"""What is copied while writers wait is at most so much; more is caught up before, again."""
LOCK_MILLISECONDS = 50
"""How long the tenant's row is waited for at a time: writers that come later wait behind."""
ROUNDS = 200
"""Attempts to find a moment with little to catch up and no long write; each takes a fraction of a second."""
PAUSE_SECONDS = 0.05
LAST_SLICES = 8
"""Claims of the queue that are worked off before a promotion answers; a worker does what is left."""
LIVE_ALREADY = "this generation is live already"


@dataclass(frozen=True, slots=True)
class Move:
    """From the live generation to another; ``demoted``: back to what the run had taken the place of."""

    run_id: str
    to: Generation
    scope: TransformScope
    model_key: str | None
    target: Target | None
    demoted: bool
    allow_partial: bool


class Promoter:
    def __init__(
        self,
        database: Database,
        *,
        generations: Generations,
        embedding: EmbeddingService,
        registry: VectorRegistry,
        statistics: StatisticsService,
        catch_up: CatchUp,
        clock: Callable[[], datetime],
    ) -> None:
        self._database = database
        self._generations = generations
        self._embedding = embedding
        self._registry = registry
        self._statistics = statistics
        self._catch_up = catch_up
        self._clock = clock

    async def promote(
        self, *, tenant_id: str, actor_id: str, generation: str, allow_partial: bool = False
    ) -> None:
        """Make a run's generation the live one; the one before is kept. Its model comes along.

        ``allow_partial``: also when live documents are not in it, because of the run's scope or because their
        payloads could not be read. Raises ``TransformRunNotFoundError`` and ``TransformPromoteError``.
        """
        async with self._database.tenant(tenant_id) as conn:
            if generation == "live":
                raise TransformPromoteError(LIVE_ALREADY)
            try:
                run = await lock_run(conn, tenant_id, generation)
            except TransformRunNotFoundError:
                if generation == await self._live(conn, tenant_id):
                    raise TransformPromoteError(LIVE_ALREADY) from None
                raise
            _check_promotable(run, allow_partial=allow_partial)
            settings = await self._generations.get(tenant_id, generation, conn)
        target = await self._embedding.target_of(tenant_id, run["model_key"])
        if target is None:
            raise TransformPromoteError(
                "no embedding endpoint of the run's model can be reached by this process; configure it"
            )
        move = Move(
            generation,
            settings,
            stored_scope(run),
            run["model_key"],
            target,
            demoted=False,
            allow_partial=allow_partial,
        )
        await self._move(tenant_id, actor_id, move)

    async def demote(self, *, tenant_id: str, actor_id: str, generation: str) -> None:
        """Make what a run's generation took the place of the live one again, with all that came since.

        Raises ``TransformRunNotFoundError`` and ``TransformPromoteError``.
        """
        async with self._database.tenant(tenant_id) as conn:
            run = await lock_run(conn, tenant_id, generation)
            archived = await self._archived(conn, tenant_id, run)
            settings = await self._generations.get(tenant_id, archived, conn)
        key = run["archived_live_model_key"]
        target = None if key is None else await self._embedding.target_of(tenant_id, key)
        await self._move(
            tenant_id,
            actor_id,
            # Whatever its scope was: what came since is added to it, wherever it came from.
            Move(
                generation,
                settings,
                TransformScope(),
                key,
                target,
                demoted=True,
                allow_partial=True,
            ),
        )

    async def _move(self, tenant_id: str, actor_id: str, move: Move) -> None:
        # With vectors at first; then quickly, so that little is left when writers are made to wait.
        await self._catch_up.catch_up(tenant_id, move.to, move.scope, move.target)
        rows = await self._searchable(tenant_id, move)
        if rows > EXACT_ROWS:
            # Without counts each search would count its words itself, as long as it takes to count all.
            await self._statistics.count_ahead(tenant_id, move.to.id)
        for _ in range(ROUNDS):
            await self._catch_up.catch_up(tenant_id, move.to, move.scope, None)
            try:
                done = await run_again(lambda: self._flip(tenant_id, actor_id, move, rows))
            except DatabaseError as error:
                if not isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
                    raise
                done = False
            if done:
                logger.info("a tenant's live generation is another one now")
                # What was written last has no vectors yet.
                await self._embedding.drain(tenant_id, slices=LAST_SLICES)
                await self._count_anew(tenant_id, rows)
                return
            await asyncio.sleep(PAUSE_SECONDS)
        raise UnavailableError(
            "So much is written in this tenant that its generation can't be caught up with; try again later."
        )

    async def _searchable(self, tenant_id: str, move: Move) -> int:
        """The rows that will be live. Counted before anybody waits: near enough, for it only guides statistics."""
        async with self._database.tenant(tenant_id) as conn:
            # Nobody waits for it, and searches need the other cores.
            await conn.execute("SET LOCAL max_parallel_workers_per_gather = 0")
            statements = Statements(conn, tenant_id, "replay", generation=move.to.id)
            if not move.allow_partial:
                live = await self._live(conn, tenant_id)
                (left,) = await statements.fetch("left_out", live=live)
                if left["count"]:
                    raise TransformPromoteError(
                        f"{left['count']} live documents are not in this generation and would be gone from the "
                        "memory; promote it as partial if that is meant",
                        details={"leftOut": left["count"]},
                    )
            (row,) = await statements.fetch("searchable_rows")
        return int(row["count"])

    async def _flip(self, tenant_id: str, actor_id: str, move: Move, rows: int) -> bool:
        """Move the pointer. False: there is too much to catch up with first."""
        async with self._database.tenant(tenant_id) as conn:
            await conn.execute(f"SET LOCAL lock_timeout = {LOCK_MILLISECONDS:d}".encode())
            statements = Statements(conn, tenant_id, "replay", generation=move.to.id)
            (tenant,) = await statements.fetch("lock_tenant_alone")
            (behind,) = await statements.fetch("behind", limit=LAST_EVENTS + 1)
            if behind["events"] > LAST_EVENTS or behind["bytes"] > LAST_BYTES:
                return False
            run = await lock_run(conn, tenant_id, move.run_id)
            if move.demoted:
                await self._archived(conn, tenant_id, run)
            else:
                _check_promotable(run, allow_partial=move.allow_partial)
            live = tenant["live_generation"]
            await self._catch_up.page_in(conn, tenant_id, move.to, move.scope, live=live)
            space = await active_space(conn, tenant_id)
            active = None if space is None else space.model_key
            await statements.run("point_live", searchable=rows)
            await self._registry.switch(conn, tenant_id, move.model_key)
            await audit.record(
                conn,
                tenant_id,
                actor_id=actor_id,
                action=AuditAction.DEMOTE if move.demoted else AuditAction.PROMOTE,
                target_type=AuditTarget.GENERATION,
                target_id=move.run_id,
            )
            if move.demoted:
                await statements.run("run_demoted", run=move.run_id)
            else:
                await statements.run("run_promoted", run=move.run_id, archived=live, model_key=active)
            await append_promotion(conn, tenant_id)
            await Statements(conn, tenant_id, "replay").run(
                "archive_generation", generation=live, model_key=active
            )
        return True

    async def _live(self, conn: Connection, tenant_id: str) -> str | None:
        rows = await Statements(conn, tenant_id, "replay").fetch("live_generation")
        return None if not rows else str(rows[0]["live_generation"])

    async def _archived(self, conn: Connection, tenant_id: str, run: Row) -> str:
        """What a promoted run took the place of; raises ``TransformPromoteError`` unless there is a way back."""
        if run["promoted_at"] is None or run["generation"] != await self._live(conn, tenant_id):
            raise TransformPromoteError("this generation is not the one that is promoted")
        key = run["archived_live_model_key"]
        if key is not None and await space_by_key(conn, tenant_id, key) is None:
            raise TransformPromoteError(
                "the embedding model of the generation before is not registered any more; nothing was changed"
            )
        return str(run["archived_live_generation"])

    async def _count_anew(self, tenant_id: str, rows: int) -> None:
        """Terms of a large corpus; a worker would do it minutes later."""
        if rows > EXACT_ROWS:
            await self._statistics.refresh(tenant_id)
        else:
            await self._statistics.refresh_counted(tenant_id)


def _check_promotable(run: Row, *, allow_partial: bool) -> None:
    if run["promoted_at"] is not None:
        raise TransformPromoteError("this run is promoted already")
    # All that could be read was: what is missing is what somebody says may be.
    readable = run["status"] == RunStatus.FAILED and run["skipped_count"] and not run["cancelled"]
    if run["status"] != RunStatus.COMPLETED and not (allow_partial and readable and not run["failed_slices"]):
        raise TransformPromoteError(
            f"the run is {run['status']}, not completed"
            + (": " + str(run["error"]) if run["status"] == RunStatus.FAILED else "")
        )
