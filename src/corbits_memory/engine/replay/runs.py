"""Transform runs: begun, cut into slices, paused, cancelled, tried again, and told of. Slices are done elsewhere."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from corbits_memory.core import ids, limits
from corbits_memory.core.enums import RunStatus
from corbits_memory.engine.directory import ModelDirectory
from corbits_memory.engine.drafts import Row
from corbits_memory.engine.generations import settings_of
from corbits_memory.engine.ids import new_id
from corbits_memory.engine.pool import Connection, Database
from corbits_memory.engine.replay.configs import ConfigService
from corbits_memory.engine.statements import Statements
from corbits_memory.engine.vectors import VectorRegistry
from corbits_memory.errors import (
    MemoryError,
    TransformConfigNotFoundError,
    TransformRunError,
    TransformRunNotFoundError,
)
from corbits_memory.ports import Embedder
from corbits_memory.ports.transform import (
    RunProgress,
    SkippedCapture,
    SliceFailure,
    TransformRun,
    TransformScope,
)
from corbits_memory.validation import transform_scope

logger = logging.getLogger("corbits_memory.replay")

SLICE_CAPTURES = 100
"""Raw captures that a worker takes at a time: some seconds of work for a small model."""
CUT_CAPTURES = 20_000
"""Raw captures that one transaction cuts."""
NO_MODEL = "no embedding endpoint is configured: set EMBED_BASE_URL and EMBED_MODEL, or name both in the config's embed"
EMPTY_SCOPE = "no raw capture is in the run's scope"
CANCELLED = "cancelled"


class RunService:
    def __init__(
        self, database: Database, configs: ConfigService, directory: ModelDirectory, registry: VectorRegistry
    ) -> None:
        self._database = database
        self._configs = configs
        self._directory = directory
        self._registry = registry

    async def start(
        self, *, tenant_id: str, actor_id: str, config_id: str, scope: TransformScope
    ) -> TransformRun:
        """A run, that workers take up; one that can't begin has failed, and says why.

        Raises ``TransformConfigNotFoundError``.
        """
        config = await self._configs.get(tenant_id=tenant_id, config_id=config_id)
        params = settings_of(config.params)
        run_id = new_id(ids.TRANSFORM_RUN)
        embedder, problem = await self._model(tenant_id, config_id, config.params)
        async with self._database.tenant(tenant_id) as conn:
            statements = Statements(conn, tenant_id, "transform", run=run_id)
            await statements.run(
                "create_run",
                config=config_id,
                scope=Jsonb(scope_json(scope)),
                status=RunStatus.RUNNING if problem is None else RunStatus.FAILED,
                error=problem,
                actor=actor_id,
                pinned=params.embed is not None,
                model_key=None if embedder is None else embedder.model_key,
            )
            if embedder is not None:
                await statements.run("create_generation", generation=run_id, model_key=embedder.model_key)
        return await self.get(tenant_id=tenant_id, run_id=run_id)

    async def list(self, *, tenant_id: str, limit: int) -> Sequence[TransformRun]:
        """Newest first, without what failed of each."""
        async with self._database.tenant(tenant_id) as conn:
            rows = await Statements(conn, tenant_id, "transform").fetch("runs", run=None, limit=limit)
        return [_run(row) for row in rows]

    async def get(self, *, tenant_id: str, run_id: str) -> TransformRun:
        """Raises ``TransformRunNotFoundError``."""
        async with self._database.tenant(tenant_id) as conn:
            statements = Statements(conn, tenant_id, "transform", run=run_id)
            rows = await statements.fetch("runs", limit=1)
            if not rows:
                raise TransformRunNotFoundError
            failures = await statements.fetch("failures", limit=limits.PROBLEMS_LISTED)
            skipped = await statements.fetch("skipped", limit=limits.PROBLEMS_LISTED)
        return replace(
            _run(rows[0]),
            failures=tuple(SliceFailure(**row) for row in failures),
            skipped=tuple(
                SkippedCapture(raw_capture_id=row["raw_capture_id"], problem=row["problem"])
                for row in skipped
            ),
        )

    async def pause(self, *, tenant_id: str, run_id: str, paused: bool) -> TransformRun:
        """No slice is begun while it is paused; the one that a worker is at is given back.

        Raises ``TransformRunNotFoundError``, and ``TransformRunError`` unless it runs.
        """
        async with self._database.tenant(tenant_id) as conn:
            run = await lock_run(conn, tenant_id, run_id)
            if run["status"] != RunStatus.RUNNING:
                raise TransformRunError(
                    f"the run has {run['status']}; only one that runs can be paused or resumed"
                )
            await Statements(conn, tenant_id, "transform", run=run_id).run("set_paused", paused=paused)
        return await self.get(tenant_id=tenant_id, run_id=run_id)

    async def cancel(self, *, tenant_id: str, run_id: str) -> TransformRun:
        """End a run; its generation stays as far as it came. Raises as :meth:`pause` does."""
        async with self._database.tenant(tenant_id) as conn:
            run = await lock_run(conn, tenant_id, run_id)
            if run["status"] != RunStatus.RUNNING:
                raise TransformRunError(f"the run has {run['status']}; only one that runs can be cancelled")
            statements = Statements(conn, tenant_id, "transform", run=run_id)
            await statements.run("end_run", status=RunStatus.FAILED, error=CANCELLED)
            await statements.run("cancel_run")
        return await self.get(tenant_id=tenant_id, run_id=run_id)

    async def retry(self, *, tenant_id: str, run_id: str) -> TransformRun:
        """Have a run that failed go on: slices that failed, and captures that could not be read, once more.

        Raises ``TransformRunNotFoundError``, and ``TransformRunError`` unless it failed.
        """
        async with self._database.tenant(tenant_id) as conn:
            run = await lock_run(conn, tenant_id, run_id)
        if run["status"] != RunStatus.FAILED or run["promoted_at"] is not None:
            raise TransformRunError("only a run that failed, and is not promoted, can be tried again")
        config = await self._configs.get(tenant_id=tenant_id, config_id=run["config_id"])
        embedder, problem = await self._model(tenant_id, run["config_id"], config.params)
        if embedder is None:
            raise TransformRunError(f"the run can't go on: {problem}")
        if run["model_key"] not in (None, embedder.model_key):
            raise TransformRunError(
                "another embedding model is configured than the run began with; begin a new run"
            )
        async with self._database.tenant(tenant_id) as conn:
            run = await lock_run(conn, tenant_id, run_id)
            if run["status"] != RunStatus.FAILED:
                raise TransformRunError("the run was tried again already")
            statements = Statements(conn, tenant_id, "transform", run=run_id)
            await statements.run("retry_slices")
            await statements.run("forget_skips")
            await statements.run("retry_run", model_key=embedder.model_key)
            await statements.run("create_generation", generation=run_id, model_key=embedder.model_key)
        return await self.get(tenant_id=tenant_id, run_id=run_id)

    async def cut(self, *, tenant_id: str, run_id: str) -> bool:
        """Cut what is in scope into slices; one transaction a page. False: the run is not to be worked on.

        Raises ``TransformConfigNotFoundError`` when the run's config has gone.
        """
        while True:
            async with self._database.tenant(tenant_id) as conn:
                run = await lock_run(conn, tenant_id, run_id)
                if run["status"] != RunStatus.RUNNING or run["paused"]:
                    return False
                if not run["has_config"]:
                    raise TransformConfigNotFoundError
                if run["raw_total"] is not None:
                    return True
                await _cut_page(conn, tenant_id, run)

    async def running(self) -> Sequence[tuple[str, str]]:
        """Tenant and id of every run that workers should look at."""
        async with self._database.operator() as conn:
            rows = await Statements(conn, "", "transform").fetch("running_runs")
        return [(row["tenant_id"], row["id"]) for row in rows]

    async def _model(
        self, tenant_id: str, config_id: str, params: Mapping[str, Any]
    ) -> tuple[Embedder | None, str | None]:
        """The model that answers and whose table is there; or what is wrong with it."""
        try:
            embedder = await self._directory.of_config(tenant_id, config_id, settings_of(params).embed)
            if embedder is None:
                return None, NO_MODEL
            await self._registry.ensure(tenant_id, embedder)
        except MemoryError as error:
            return None, error.message
        return embedder, None


async def lock_run(conn: Connection, tenant_id: str, run_id: str) -> Row:
    """Raises ``TransformRunNotFoundError``."""
    rows = await Statements(conn, tenant_id, "transform").fetch("lock_run", run=run_id)
    if not rows:
        raise TransformRunNotFoundError
    return rows[0]


def scope_json(scope: TransformScope) -> dict[str, Any]:
    """A scope as it is stored and told; what is not given is left out."""
    told = {
        "adapter": scope.adapter,
        "since": _iso(scope.since),
        "until": _iso(scope.until),
        "kinds": list(scope.kinds),
        "document_ids": list(scope.document_ids),
    }
    return {name: value for name, value in told.items() if value}


def stored_scope(row: Row) -> TransformScope:
    return transform_scope(**row["scope"])


def scope_parameters(scope: TransformScope) -> dict[str, Any]:
    return {
        "adapter": scope.adapter,
        "since": scope.since,
        "until": scope.until,
        "kinds": list(scope.kinds),
        "documents": list(scope.document_ids),
    }


async def _cut_page(conn: Connection, tenant_id: str, run: Row) -> None:
    found = await Statements(conn, tenant_id, "replay").fetch(
        "captures_in_scope",
        after=run["cut_after"],
        last=None,
        limit=CUT_CAPTURES,
        **scope_parameters(stored_scope(run)),
    )
    statements = Statements(conn, tenant_id, "transform", run=run["id"])
    parts = [found[start : start + SLICE_CAPTURES] for start in range(0, len(found), SLICE_CAPTURES)]
    lasts = [part[-1]["id"] for part in parts]
    if parts:
        await statements.run(
            "cut",
            afters=[run["cut_after"], *lasts[:-1]],
            lasts=lasts,
            captures=[len(part) for part in parts],
        )
    ended = len(found) < CUT_CAPTURES
    await statements.run("cut_to", after=lasts[-1] if lasts else run["cut_after"], ended=ended)


def _iso(instant: datetime | None) -> str | None:
    return None if instant is None else instant.isoformat()


def _run(row: Row) -> TransformRun:
    # The slices of a run that has ended are counted in it.
    done, total = max(int(row["captures_done"]), row["raw_count"]), row["raw_total"]
    running = row["status"] == RunStatus.RUNNING
    rate = row["recent"] / row["since"] if running and row["recent"] and row["since"] else None
    left = None if rate is None or total is None else (total - done) / float(rate)
    return TransformRun(
        id=row["id"],
        config_id=row["config_id"],
        generation=row["generation"],
        status=RunStatus(row["status"]),
        paused=row["paused"],
        scope=stored_scope(row),
        raw_count=row["raw_count"] if not running else int(row["derived"]),
        version_count=row["version_count"] if not running else int(row["versions"]),
        skipped_count=row["skipped_count"],
        error=row["error"],
        created_at=row["created_at"],
        completed_at=row["completed_at"],
        promoted_at=row["promoted_at"],
        archived_live_generation=row["archived_live_generation"],
        archived_live_model_key=row["archived_live_model_key"],
        live=bool(row["live"]),
        progress=RunProgress(
            done=done,
            total=total,
            rate=None if rate is None else float(rate),
            seconds_left=left,
        ),
    )
