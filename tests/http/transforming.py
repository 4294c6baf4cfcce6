"""A store in memory with one transform config and one run."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from corbits_memory.core.enums import RunStatus
from corbits_memory.errors import TransformConfigNotFoundError, TransformRunNotFoundError
from corbits_memory.ports import (
    ParamChange,
    RunProgress,
    SampledQuery,
    TransformConfig,
    TransformParams,
    TransformRun,
    TransformScope,
)
from corbits_memory.validation import params_json, params_secrets
from tests.http.feeding import PushingStore

NOON = datetime(2026, 5, 7, 12, tzinfo=UTC)
CONFIG = TransformConfig(
    id="tcfg_1",
    name="c",
    version=1,
    params={"chunk": {"strategy": "token.recursive"}},
    secrets=(),
    created_at=NOON,
)
RUN = TransformRun(
    id="trun_1",
    config_id="tcfg_1",
    generation="trun_1",
    status=RunStatus.RUNNING,
    paused=False,
    scope=TransformScope(),
    raw_count=1,
    version_count=1,
    skipped_count=0,
    error=None,
    created_at=NOON,
    completed_at=None,
    promoted_at=None,
    archived_live_generation=None,
    archived_live_model_key=None,
    live=False,
    progress=RunProgress(done=1, total=2, rate=0.5, seconds_left=2.0),
)


class FakeTransforms:
    """Knows ``tcfg_1`` and ``trun_1``, and lets everything be done to them."""

    async def create_transform_config(
        self, *, tenant_id: str, name: str, params: TransformParams
    ) -> TransformConfig:
        return replace(CONFIG, name=name, params=params_json(params), secrets=tuple(params_secrets(params)))

    async def transform_configs(
        self, *, tenant_id: str, name: str | None, limit: int
    ) -> Sequence[TransformConfig]:
        return [CONFIG]

    async def transform_config(self, *, tenant_id: str, config_id: str) -> TransformConfig:
        if config_id != CONFIG.id:
            raise TransformConfigNotFoundError
        return CONFIG

    async def diff_transform_configs(
        self, *, tenant_id: str, before: str, after: str
    ) -> Sequence[ParamChange]:
        return [ParamChange(path="overfetch", before=4.0, after=None)]

    async def delete_transform_config(self, *, tenant_id: str, config_id: str) -> None:
        await self.transform_config(tenant_id=tenant_id, config_id=config_id)

    async def run_transform(
        self, *, tenant_id: str, actor_id: str, config_id: str, scope: TransformScope
    ) -> TransformRun:
        await self.transform_config(tenant_id=tenant_id, config_id=config_id)
        return replace(RUN, scope=scope)

    async def transform_runs(self, *, tenant_id: str, limit: int) -> Sequence[TransformRun]:
        return [RUN]

    async def sampled_queries(self, *, tenant_id: str, limit: int) -> Sequence[SampledQuery]:
        return [SampledQuery(query="where is the key?", asked_at=RUN.created_at)]

    async def transform_run(self, *, tenant_id: str, run_id: str) -> TransformRun:
        if run_id != RUN.id:
            raise TransformRunNotFoundError
        return RUN

    async def pause_transform_run(self, *, tenant_id: str, run_id: str, paused: bool) -> TransformRun:
        return replace(await self.transform_run(tenant_id=tenant_id, run_id=run_id), paused=paused)

    async def cancel_transform_run(self, *, tenant_id: str, run_id: str) -> TransformRun:
        return await self.transform_run(tenant_id=tenant_id, run_id=run_id)

    async def retry_transform_run(self, *, tenant_id: str, run_id: str) -> TransformRun:
        return await self.transform_run(tenant_id=tenant_id, run_id=run_id)

    async def promote_generation(
        self, *, tenant_id: str, actor_id: str, generation: str, allow_partial: bool = False
    ) -> TransformRun:
        return replace(await self.transform_run(tenant_id=tenant_id, run_id=generation), live=True)

    async def demote_generation(self, *, tenant_id: str, actor_id: str, generation: str) -> TransformRun:
        return await self.transform_run(tenant_id=tenant_id, run_id=generation)


class ReplayingStore(PushingStore):
    """With replays, too."""

    def __init__(self) -> None:
        super().__init__()
        self.transforms = FakeTransforms()
