"""Is it alive, would it answer, how is it doing."""

import asyncio
import logging
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from corbits_memory.engine.pool import Database
from corbits_memory.engine.replica import Replica
from corbits_memory.errors import MemoryError, UnavailableError
from corbits_memory.http.errors import REQUEST_ID, error_answer, request_id_of
from corbits_memory.plane import Memory
from corbits_memory.server import metrics

_log = logging.getLogger("corbits_memory.server.health")

READY_SECONDS = 5.0
PENDING_COUNTED_MAX = 1_000_000

SECOND_LOCK_OFF = (
    "row-level security is off: the database login may not take the role corbits_memory_app. "
    "Grant it that role, or let a login that may create roles run: corbits-memory db migrate"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The endpoints about the host itself. They need no token and tell nothing of any tenant."""

    memory: Memory
    database: Database
    metrics: metrics.Metrics
    replica: Replica | None = None

    def routes(self) -> list[Route]:
        return [
            Route("/healthz", self.alive),
            Route("/readyz", self.ready),
            Route("/metrics", self.measure),
        ]

    async def alive(self, request: Request) -> Response:
        """The process answers; nothing is asked of the database."""
        return _told(request, {"status": "ok"})

    async def ready(self, request: Request) -> Response:
        try:
            async with asyncio.timeout(READY_SECONDS):
                await self.memory.ready()
                await self._ask_database()
        except TimeoutError:
            return error_answer(request, UnavailableError(f"no answer within {READY_SECONDS:.0f} s"))
        except MemoryError as error:
            return error_answer(request, UnavailableError(f"not ready: {error.message}"))
        locked = self.database.second_lock
        told: dict[str, object] = {"status": "ready", "rowLevelSecurity": locked}
        warnings = [] if locked else [SECOND_LOCK_OFF]
        if self.replica is not None:
            told["readReplica"] = self.replica.problem is None
            warnings += [self.replica.problem] if self.replica.problem is not None else []
        if warnings:
            told["warnings"] = warnings
        return _told(request, told)

    async def measure(self, request: Request) -> Response:
        try:
            async with asyncio.timeout(READY_SECONDS):
                self.metrics.set_pending(await self._count_pending())
        except (TimeoutError, MemoryError):
            # The other figures matter most when the database is away.
            _log.warning("the pending vectors could not be counted")
        return Response(self.metrics.render(), media_type=metrics.CONTENT_TYPE, headers=_headers(request))

    async def _ask_database(self) -> None:
        async with self.database.autocommit() as conn:
            await conn.execute("SELECT 1")

    async def _count_pending(self) -> int:
        if not self.memory.capabilities.embeddings_configured:
            # They stand in the queue for a model to come, but nobody waits for them.
            return 0
        async with self.database.autocommit() as conn:
            cursor = await conn.execute(
                "SELECT count(*) FROM (SELECT FROM memory.embed_queue LIMIT %s) AS counted",
                [PENDING_COUNTED_MAX],
            )
            row = await cursor.fetchone()
        return int(row[0]) if row else 0


def _told(request: Request, body: dict[str, object]) -> JSONResponse:
    return JSONResponse(body, headers=_headers(request))


def _headers(request: Request) -> dict[str, str]:
    return {REQUEST_ID: request_id_of(request), "cache-control": "no-store"}
