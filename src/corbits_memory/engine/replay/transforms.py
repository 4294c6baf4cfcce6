"""The verbs of replay over a store that is open: what they begin is worked on, what they change is told of."""

from collections.abc import Sequence

from corbits_memory.core.enums import RunStatus
from corbits_memory.engine.feed_signal import FeedSignal
from corbits_memory.engine.query_log import QueryLog
from corbits_memory.engine.replay.service import ReplayService
from corbits_memory.engine.worker import Worker
from corbits_memory.ports.transform import (
    ParamChange,
    SampledQuery,
    TransformConfig,
    TransformParams,
    TransformRun,
    TransformScope,
)


class Transforms:
    """A :class:`~corbits_memory.ports.TransformStore`."""

    def __init__(
        self, replay: ReplayService, worker: Worker, feed_signal: FeedSignal, query_log: QueryLog
    ) -> None:
        self._query_log = query_log
        self._replay = replay
        self._worker = worker
        self._feed_signal = feed_signal

    async def create_transform_config(
        self, *, tenant_id: str, name: str, params: TransformParams
    ) -> TransformConfig:
        return await self._replay.configs.create(tenant_id=tenant_id, name=name, params=params)

    async def transform_configs(
        self, *, tenant_id: str, name: str | None, limit: int
    ) -> Sequence[TransformConfig]:
        return await self._replay.configs.list(tenant_id=tenant_id, name=name, limit=limit)

    async def transform_config(self, *, tenant_id: str, config_id: str) -> TransformConfig:
        return await self._replay.configs.get(tenant_id=tenant_id, config_id=config_id)

    async def diff_transform_configs(
        self, *, tenant_id: str, before: str, after: str
    ) -> Sequence[ParamChange]:
        return await self._replay.configs.diff(tenant_id=tenant_id, before=before, after=after)

    async def delete_transform_config(self, *, tenant_id: str, config_id: str) -> None:
        await self._replay.configs.delete(tenant_id=tenant_id, config_id=config_id)

    async def run_transform(
        self, *, tenant_id: str, actor_id: str, config_id: str, scope: TransformScope
    ) -> TransformRun:
        run = await self._replay.runs.start(
            tenant_id=tenant_id, actor_id=actor_id, config_id=config_id, scope=scope
        )
        return await self._worked_on(tenant_id, run)

    async def transform_runs(self, *, tenant_id: str, limit: int) -> Sequence[TransformRun]:
        return await self._replay.runs.list(tenant_id=tenant_id, limit=limit)

    async def transform_run(self, *, tenant_id: str, run_id: str) -> TransformRun:
        return await self._replay.runs.get(tenant_id=tenant_id, run_id=run_id)

    async def pause_transform_run(self, *, tenant_id: str, run_id: str, paused: bool) -> TransformRun:
        run = await self._replay.runs.pause(tenant_id=tenant_id, run_id=run_id, paused=paused)
        return run if paused else await self._worked_on(tenant_id, run)

    async def cancel_transform_run(self, *, tenant_id: str, run_id: str) -> TransformRun:
        return await self._replay.runs.cancel(tenant_id=tenant_id, run_id=run_id)

    async def retry_transform_run(self, *, tenant_id: str, run_id: str) -> TransformRun:
        run = await self._replay.runs.retry(tenant_id=tenant_id, run_id=run_id)
        return await self._worked_on(tenant_id, run)

    async def promote_generation(
        self, *, tenant_id: str, actor_id: str, generation: str, allow_partial: bool = False
    ) -> TransformRun:
        await self._replay.promoter.promote(
            tenant_id=tenant_id, actor_id=actor_id, generation=generation, allow_partial=allow_partial
        )
        return await self._moved(tenant_id, generation)

    async def demote_generation(self, *, tenant_id: str, actor_id: str, generation: str) -> TransformRun:
        await self._replay.promoter.demote(tenant_id=tenant_id, actor_id=actor_id, generation=generation)
        return await self._moved(tenant_id, generation)

    async def sampled_queries(self, *, tenant_id: str, limit: int) -> Sequence[SampledQuery]:
        return await self._query_log.sampled(tenant_id=tenant_id, limit=limit)

    async def _worked_on(self, tenant_id: str, run: TransformRun) -> TransformRun:
        if run.status is RunStatus.RUNNING:
            await self._worker.replay_soon(tenant_id, run.id)
        return run

    async def _moved(self, tenant_id: str, generation: str) -> TransformRun:
        self._feed_signal.tell(tenant_id)
        await self._worker.embed_soon(tenant_id)
        return await self._replay.runs.get(tenant_id=tenant_id, run_id=generation)
