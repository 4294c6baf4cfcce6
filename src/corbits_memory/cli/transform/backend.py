"""Who answers ``transform``: a memory opened in this process, or a server over HTTP. Both as the wire has it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

from corbits_memory.cli.backend import Json, Target, open_backend
from corbits_memory.cli.remote import RemoteBackend
from corbits_memory.client import routes


class TransformBackend(Protocol):
    async def create(self, name: str, params: Any) -> Json: ...
    async def configs(self, name: str | None, limit: int) -> Json: ...
    async def config(self, config_id: str) -> Json: ...
    async def diff(self, before: str, after: str) -> Json: ...
    async def delete(self, config_id: str) -> Json: ...
    async def run(self, config_id: str, scope: Mapping[str, Any]) -> Json: ...
    async def runs(self, limit: int) -> Json: ...
    async def sampled(self, limit: int) -> Json: ...
    async def show(self, run_id: str) -> Json: ...
    async def change(self, run_id: str, word: str) -> Json:
        """``pause``, ``resume``, ``cancel`` or ``retry``."""
        ...

    async def promote(self, generation: str, *, partial: bool) -> Json: ...
    async def demote(self, generation: str) -> Json: ...


@asynccontextmanager
async def open_transforms(
    target: Target, environ: Mapping[str, str], *, run_worker: bool = False
) -> AsyncIterator[TransformBackend]:
    """``run_worker``: a memory that is opened here works on runs, too; a server does so anyway."""
    async with open_backend(target, environ, run_worker=run_worker) as backend:
        if isinstance(backend, RemoteBackend):
            yield RemoteTransforms(backend)
        else:
            from corbits_memory.cli.direct import DirectBackend

            assert isinstance(backend, DirectBackend)  # noqa: S101 - there are two kinds of backends
            yield DirectTransforms(backend.admin, tenant=target.tenant, actor=target.principal)


class DirectTransforms:
    """Acts as an operator of one tenant."""

    def __init__(self, admin: Any, *, tenant: str, actor: str) -> None:
        from corbits_memory.wire import transform

        self._admin = admin
        self._who = {"tenant_id": tenant, "actor": actor}
        self._wire = transform

    async def create(self, name: str, params: Any) -> Json:
        made = await self._admin.create_transform_config(**self._who, name=name, params=params)
        return self._wire.config_response(made).to_json()

    async def configs(self, name: str | None, limit: int) -> Json:
        found = await self._admin.list_transform_configs(**self._who, name=name, limit=limit)
        return self._wire.configs_response(found).to_json()

    async def config(self, config_id: str) -> Json:
        found = await self._admin.transform_config(**self._who, config_id=config_id)
        return self._wire.config_response(found).to_json()

    async def diff(self, before: str, after: str) -> Json:
        changes = await self._admin.diff_transform_configs(**self._who, before=before, after=after)
        return self._wire.diff_response(changes).to_json()

    async def delete(self, config_id: str) -> Json:
        await self._admin.delete_transform_config(**self._who, config_id=config_id)
        return self._wire.DeletedConfigResponse(id=config_id, deleted=True).to_json()

    async def run(self, config_id: str, scope: Mapping[str, Any]) -> Json:
        begun = await self._admin.run_transform(**self._who, config_id=config_id, **scope)
        return self._wire.run_response(begun).to_json()

    async def runs(self, limit: int) -> Json:
        return self._wire.runs_response(await self._admin.transform_runs(**self._who, limit=limit)).to_json()

    async def sampled(self, limit: int) -> Json:
        found = await self._admin.sampled_queries(**self._who, limit=limit)
        return self._wire.sampled_response(found).to_json()

    async def show(self, run_id: str) -> Json:
        return self._wire.run_response(await self._admin.transform_run(**self._who, run_id=run_id)).to_json()

    async def change(self, run_id: str, word: str) -> Json:
        ask = getattr(self._admin, f"{word}_transform_run")
        return self._wire.run_response(await ask(**self._who, run_id=run_id)).to_json()

    async def promote(self, generation: str, *, partial: bool) -> Json:
        run = await self._admin.promote_generation(**self._who, generation=generation, allow_partial=partial)
        return self._wire.run_response(run).to_json()

    async def demote(self, generation: str) -> Json:
        run = await self._admin.demote_generation(**self._who, generation=generation)
        return self._wire.run_response(run).to_json()


class RemoteTransforms:
    """The token says who acts."""

    def __init__(self, remote: RemoteBackend) -> None:
        self._remote = remote

    async def create(self, name: str, params: Any) -> Json:
        return await self._remote.ask(routes.create_transform(name, params))

    async def configs(self, name: str | None, limit: int) -> Json:
        return await self._remote.ask(routes.transforms(name=name, limit=limit))

    async def config(self, config_id: str) -> Json:
        return await self._remote.ask(routes.transform(config_id))

    async def diff(self, before: str, after: str) -> Json:
        return await self._remote.ask(routes.diff_transforms(before, after))

    async def delete(self, config_id: str) -> Json:
        return await self._remote.ask(routes.delete_transform(config_id))

    async def run(self, config_id: str, scope: Mapping[str, Any]) -> Json:
        return await self._remote.ask(routes.run_transform(config_id, **scope))

    async def runs(self, limit: int) -> Json:
        return await self._remote.ask(routes.transform_runs(limit=limit))

    async def sampled(self, limit: int) -> Json:
        return await self._remote.ask(routes.sampled_queries(limit=limit))

    async def show(self, run_id: str) -> Json:
        return await self._remote.ask(routes.transform_run(run_id))

    async def change(self, run_id: str, word: str) -> Json:
        return await self._remote.ask(_CHANGES[word](run_id))

    async def promote(self, generation: str, *, partial: bool) -> Json:
        return await self._remote.ask(routes.promote(generation, partial=partial))

    async def demote(self, generation: str) -> Json:
        return await self._remote.ask(routes.demote(generation))


_CHANGES = {
    "pause": routes.pause_transform_run,
    "resume": routes.resume_transform_run,
    "cancel": routes.cancel_transform_run,
    "retry": routes.retry_transform_run,
}
