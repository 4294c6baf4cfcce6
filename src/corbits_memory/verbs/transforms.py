"""What operators do with replays: configs, runs, promotion. Part of :class:`~corbits_memory.admin.MemoryAdmin`."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from corbits_memory.chunkers import strategies
from corbits_memory.core import limits
from corbits_memory.parts import Parts
from corbits_memory.ports import ParamChange, SampledQuery, TransformConfig, TransformRun, TransformStore
from corbits_memory.validation import Problems, transform_name, transform_params, transform_scope


class TransformVerbs:
    """Each raises ``InvalidInputError``, ``NotSupportedError`` where the store can't replay, and
    ``UnavailableError`` unless open."""

    _parts: Parts

    async def create_transform_config(
        self, *, tenant_id: str, actor: str, name: str, params: Mapping[str, Any]
    ) -> TransformConfig:
        """The next version of a config. ``params`` as docs/replay.md lists them; ``chunk`` is required.

        Keys among them are kept, and never answered.
        """
        self._check(tenant_id, actor)
        checked = transform_params(params, strategies=strategies())
        return await self._transforms.create_transform_config(
            tenant_id=tenant_id, name=transform_name(name), params=checked
        )

    async def list_transform_configs(
        self, *, tenant_id: str, actor: str, name: str | None = None, limit: int | None = None
    ) -> Sequence[TransformConfig]:
        """Newest first, perhaps of one name; ``limit`` 1 to 500 (default 50)."""
        size = self._check_page(tenant_id, actor, limit)
        return await self._transforms.transform_configs(
            tenant_id=tenant_id, name=None if name is None else transform_name(name), limit=size
        )

    async def transform_config(self, *, tenant_id: str, actor: str, config_id: str) -> TransformConfig:
        """Raises ``TransformConfigNotFoundError``."""
        self._check(tenant_id, actor, config_id=config_id)
        return await self._transforms.transform_config(tenant_id=tenant_id, config_id=config_id)

    async def diff_transform_configs(
        self, *, tenant_id: str, actor: str, before: str, after: str
    ) -> Sequence[ParamChange]:
        """What differs between two configs, by path. Raises ``TransformConfigNotFoundError``."""
        self._check(tenant_id, actor, before=before, after=after)
        return await self._transforms.diff_transform_configs(tenant_id=tenant_id, before=before, after=after)

    async def delete_transform_config(self, *, tenant_id: str, actor: str, config_id: str) -> None:
        """Raises ``TransformConfigNotFoundError``, and ``TransformConfigInUseError`` while a run has it."""
        self._check(tenant_id, actor, config_id=config_id)
        await self._transforms.delete_transform_config(tenant_id=tenant_id, config_id=config_id)

    async def run_transform(
        self,
        *,
        tenant_id: str,
        actor: str,
        config_id: str,
        adapter: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        kinds: Sequence[str] | None = None,
        document_ids: Sequence[str] | None = None,
    ) -> TransformRun:
        """Begin to derive the corpus anew, or what of it is in scope; workers do it. Nothing live changes.

        A run that can't begin (no model, one that does not answer) is answered as failed, with the reason.
        Raises ``TransformConfigNotFoundError``.
        """
        self._check(tenant_id, actor, config_id=config_id)
        scope = transform_scope(
            adapter=adapter, since=since, until=until, kinds=kinds, document_ids=document_ids
        )
        return await self._transforms.run_transform(
            tenant_id=tenant_id, actor_id=actor, config_id=config_id, scope=scope
        )

    async def transform_runs(
        self, *, tenant_id: str, actor: str, limit: int | None = None
    ) -> Sequence[TransformRun]:
        """Newest first; ``limit`` 1 to 500 (default 50)."""
        size = self._check_page(tenant_id, actor, limit)
        return await self._transforms.transform_runs(tenant_id=tenant_id, limit=size)

    async def transform_run(self, *, tenant_id: str, actor: str, run_id: str) -> TransformRun:
        """With its progress, and what failed of it. Raises ``TransformRunNotFoundError``."""
        self._check(tenant_id, actor, run_id=run_id)
        return await self._transforms.transform_run(tenant_id=tenant_id, run_id=run_id)

    async def pause_transform_run(self, *, tenant_id: str, actor: str, run_id: str) -> TransformRun:
        """Raises ``TransformRunNotFoundError``, and ``TransformRunError`` unless it runs."""
        self._check(tenant_id, actor, run_id=run_id)
        return await self._transforms.pause_transform_run(tenant_id=tenant_id, run_id=run_id, paused=True)

    async def resume_transform_run(self, *, tenant_id: str, actor: str, run_id: str) -> TransformRun:
        """Raises as :meth:`pause_transform_run` does."""
        self._check(tenant_id, actor, run_id=run_id)
        return await self._transforms.pause_transform_run(tenant_id=tenant_id, run_id=run_id, paused=False)

    async def cancel_transform_run(self, *, tenant_id: str, actor: str, run_id: str) -> TransformRun:
        """End a run where it is. Raises as :meth:`pause_transform_run` does."""
        self._check(tenant_id, actor, run_id=run_id)
        return await self._transforms.cancel_transform_run(tenant_id=tenant_id, run_id=run_id)

    async def retry_transform_run(self, *, tenant_id: str, actor: str, run_id: str) -> TransformRun:
        """Have a run that failed or was cancelled go on. Raises ``TransformRunError`` for any other."""
        self._check(tenant_id, actor, run_id=run_id)
        return await self._transforms.retry_transform_run(tenant_id=tenant_id, run_id=run_id)

    async def promote_generation(
        self, *, tenant_id: str, actor: str, generation: str, allow_partial: bool = False
    ) -> TransformRun:
        """Make a completed run's generation the live one; the one before is kept for :meth:`demote_generation`.

        All that came in meanwhile is in it. ``allow_partial``: also when live documents are not. Raises
        ``TransformRunNotFoundError`` and ``TransformPromoteError``.
        """
        problems = Problems()
        partial = problems.flag("allow_partial", allow_partial)
        problems.raise_if_any()
        self._check(tenant_id, actor, generation=generation)
        return await self._transforms.promote_generation(
            tenant_id=tenant_id, actor_id=actor, generation=generation, allow_partial=partial
        )

    async def demote_generation(self, *, tenant_id: str, actor: str, generation: str) -> TransformRun:
        """Go back to what the generation took the place of, with all that came in since.

        Raises ``TransformRunNotFoundError`` and ``TransformPromoteError``.
        """
        self._check(tenant_id, actor, generation=generation)
        return await self._transforms.demote_generation(
            tenant_id=tenant_id, actor_id=actor, generation=generation
        )

    async def sampled_queries(
        self, *, tenant_id: str, actor: str, limit: int | None = None
    ) -> Sequence[SampledQuery]:
        """Questions that were asked lately, newest first; ``limit`` 1 to 1,000 (default 100).

        Some are kept where ``QUERY_LOG_PERCENT`` asks for it, else there are none.
        """
        self._check(tenant_id, actor)
        problems = Problems()
        size = problems.integer(
            "limit",
            limit,
            low=1,
            high=limits.SAMPLED_LIMIT_MAX,
            default=limits.SAMPLED_LIMIT_DEFAULT,
        )
        problems.raise_if_any()
        return await self._transforms.sampled_queries(tenant_id=tenant_id, limit=size)

    @property
    def _transforms(self) -> TransformStore:
        return self._parts.transforms

    def _check(self, tenant_id: object, actor: object, **named: object) -> None:
        self._parts.life.check()
        problems = Problems()
        for field, value in {"tenant_id": tenant_id, "actor": actor, **named}.items():
            problems.required_identifier(field, value)
        problems.raise_if_any()

    def _check_page(self, tenant_id: object, actor: object, limit: object) -> int:
        self._check(tenant_id, actor)
        problems = Problems()
        size = problems.integer(
            "limit", limit, low=1, high=limits.RUNS_LIMIT_MAX, default=limits.RUNS_LIMIT_DEFAULT
        )
        problems.raise_if_any()
        return size
