"""Background work, on the job library: what is to be done stands in our own tables, a job only points there.

Jobs are deferred after the commit (a NOTIFY inside a capture would serialise commits), at most one waiting
a tenant, and found again by a periodic sweep; so losing one loses nothing.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg
from procrastinate import App, PsycopgConnector, exceptions
from procrastinate.jobs import Status

from corbits_memory.engine.embedding import EmbeddingService
from corbits_memory.engine.idempotency import IdempotencyService
from corbits_memory.engine.migrate import JOBS_SCHEMA
from corbits_memory.engine.pool import ACQUIRE_SECONDS
from corbits_memory.engine.query_log import QueryLog
from corbits_memory.engine.replay.service import ReplayService
from corbits_memory.engine.statistics import StatisticsService
from corbits_memory.errors import DatabaseError, MemoryError

logger = logging.getLogger("corbits_memory.worker")

QUEUE = "memory"
DRAIN = "memory.embed_pending"
FORGET_KEYS = "memory.forget_keys"
REPLAY = "memory.replay"
REPLAY_PRIORITY = -10
SWEEP_CRON = "* * * * *"
STATISTICS_CRON = "*/5 * * * *"
EXPIRY_CRON = "3-59/10 * * * *"
SLICES_A_JOB = 4
"""A job takes this many claims of the queue and then lets other tenants' jobs go first."""
SHUTDOWN_SECONDS = 2.0
STALLED_SECONDS = 120.0
"""A worker that has not been heard of for so long has died; it says so every ten seconds."""


class _JobsConnector(PsycopgConnector):
    """The library's statements name no schema. Each transaction says which: a pooler keeps no settings between them."""

    @asynccontextmanager
    async def _get_cursor(self, connection: Any = None) -> AsyncGenerator[Any]:
        async with super()._get_cursor(connection) as cursor:
            await cursor.execute(f"SET LOCAL search_path TO {JOBS_SCHEMA}")
            yield cursor


class Worker:
    """Runs in the process that answers requests; several processes share the work through the database."""

    def __init__(
        self,
        url: str,
        embedding: EmbeddingService,
        statistics: StatisticsService,
        idempotency: IdempotencyService,
        query_log: QueryLog,
        replay: ReplayService,
        *,
        concurrency: int = 1,
    ) -> None:
        self._url = url
        self._embedding = embedding
        self._statistics = statistics
        self._idempotency = idempotency
        self._query_log = query_log
        self._replay = replay
        self._concurrency = concurrency
        self._app: App | None = None
        """Open, or not there."""
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Ready to defer jobs; :meth:`start` also runs them. Raises ``DatabaseError``."""
        app = App(
            connector=_JobsConnector(
                conninfo=self._url,
                min_size=1,
                max_size=3,
                timeout=ACQUIRE_SECONDS,
                kwargs={"prepare_threshold": None, "application_name": "corbits-memory worker"},
            )
        )
        self._define_jobs(app)
        try:
            # The library would wait for half a minute.
            async with asyncio.timeout(ACQUIRE_SECONDS):
                await app.open_async()
        except BaseException as error:
            await app.close_async()
            if isinstance(error, (TimeoutError, psycopg.Error, exceptions.ConnectorException)):
                raise DatabaseError(
                    f"The worker can't connect to the database, although the memory can ({type(error).__name__})."
                ) from error
            raise
        self._app = app

    def start(self) -> None:
        """Run jobs until :meth:`close`; after :meth:`open`."""
        if self._app is None:
            raise RuntimeError("a worker is opened before it is started")
        self._task = asyncio.create_task(self._run(self._app), name="corbits-memory worker")

    async def close(self) -> None:
        """Stop running jobs; what they had leased comes free by time."""
        if self._task is not None:
            # Asked again and again: Python 3.11's wait_for, which the driver uses, may swallow a cancellation.
            while not self._task.done():
                self._task.cancel()
                await asyncio.wait({self._task}, timeout=SHUTDOWN_SECONDS + 0.5)
            with suppress(asyncio.CancelledError):
                self._task.result()
            self._task = None
        if self._app is not None:
            app, self._app = self._app, None
            await app.close_async()

    async def embed_soon(self, tenant_id: str) -> None:
        """Have a tenant's queue worked off. One waiting job is enough; none at all is mended by the sweep."""
        if self._app is None:
            return
        try:
            await self._app.configure_task(
                DRAIN, queue=QUEUE, queueing_lock=f"embed:{tenant_id}"
            ).defer_async(tenant_id=tenant_id)
        except exceptions.AlreadyEnqueued:
            pass
        except exceptions.ConnectorException:
            logger.warning("a job could not be deferred; the sweep will find its work")

    async def replay_soon(self, tenant_id: str, run_id: str, *, seconds: float = 0.0) -> None:
        """Have a run worked on, perhaps only later. Behind everything else: who adds and searches comes first."""
        if self._app is None:
            return
        later = {"seconds": int(seconds)} if seconds >= 1 else None
        try:
            await self._app.configure_task(
                REPLAY,
                queue=QUEUE,
                queueing_lock=f"replay:{run_id}:later" if later else f"replay:{run_id}",
                priority=REPLAY_PRIORITY,
                schedule_in=later,
            ).defer_async(tenant_id=tenant_id, run_id=run_id)
        except exceptions.AlreadyEnqueued:
            pass
        except exceptions.ConnectorException:
            logger.warning("a job could not be deferred; the sweep will find its work")

    async def _run(self, app: App) -> None:
        while True:
            try:
                await self._sweep(app)
                _stop_if_cancelled()
                await app.run_worker_async(
                    queues=[QUEUE],
                    concurrency=self._concurrency,
                    install_signal_handlers=False,
                    shutdown_graceful_timeout=SHUTDOWN_SECONDS,
                    delete_jobs="always",
                    fetch_job_polling_interval=5.0,
                    stalled_worker_timeout=STALLED_SECONDS,
                )
                return
            except (psycopg.Error, exceptions.ProcrastinateException, MemoryError) as error:
                # The database went away or restarts: the work is safe in its tables.
                logger.warning("the worker starts again: %s", type(error).__name__)
                await asyncio.sleep(2.0)

    async def _sweep(self, app: App) -> None:
        await _forget_stalled(app)
        for tenant_id in await self._embedding.due_tenants():
            await self.embed_soon(tenant_id)
        for tenant_id, run_id in await self._replay.runs.running():
            await self.replay_soon(tenant_id, run_id)

    def _define_jobs(self, app: App) -> None:
        @app.task(name=DRAIN, queue=QUEUE)
        async def embed_pending(tenant_id: str) -> None:
            done = await self._embedding.drain(tenant_id, slices=SLICES_A_JOB)
            if done:
                await self.embed_soon(tenant_id)

        @app.task(name=REPLAY, queue=QUEUE)
        async def replay(tenant_id: str, run_id: str) -> None:
            # Another worker takes the next slice meanwhile, if there is one; who finds none defers nothing.
            left = await self._replay.slices.work(
                tenant_id, run_id, slices=1, on_claimed=lambda: self.replay_soon(tenant_id, run_id)
            )
            if left.seconds is not None:
                await self.replay_soon(tenant_id, run_id, seconds=0.0 if left.due else left.seconds + 0.5)

        @app.periodic(cron=SWEEP_CRON)
        @app.task(name="memory.sweep", queue=QUEUE)
        async def sweep(timestamp: int) -> None:
            await self._sweep(app)

        @app.periodic(cron=STATISTICS_CRON)
        @app.task(name="memory.statistics", queue=QUEUE)
        async def refresh_statistics(timestamp: int) -> None:
            await self._statistics.refresh_stale()

        @app.periodic(cron=EXPIRY_CRON)
        @app.task(name=FORGET_KEYS, queue=QUEUE)
        async def forget_keys(timestamp: int) -> None:
            await self._idempotency.sweep()
            await self._query_log.sweep()


async def _forget_stalled(app: App) -> None:
    """Delete the jobs of workers that died: what they were to do stands in our tables and is swept."""
    for job in await app.job_manager.get_stalled_jobs(queue=QUEUE, seconds_since_heartbeat=STALLED_SECONDS):
        # Another process may have been first.
        with suppress(exceptions.ConnectorException):
            await app.job_manager.finish_job(job, Status.FAILED, delete_job=True)


def _stop_if_cancelled() -> None:
    """Raise the cancellation that a call may have swallowed."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
