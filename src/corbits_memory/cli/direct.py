"""A memory that is opened in this process, on the database that a running server may be using too."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from corbits_memory.admin import MemoryAdmin
from corbits_memory.cli.backend import Json, Target
from corbits_memory.cli.local import open_database
from corbits_memory.feed_json import entry_json
from corbits_memory.plane import Memory
from corbits_memory.server.startup import Plane, migrate, open_plane
from corbits_memory.wire import documents, lifecycle, push, requests, responses
from corbits_memory.wire.feed import feed_response


class DirectBackend:
    """Acts as one principal of one tenant."""

    def __init__(self, memory: Memory, *, tenant: str, principal: str) -> None:
        self._memory = memory
        self.admin = MemoryAdmin(memory)
        self._tenant = tenant
        self._principal = principal

    async def add_batch(self, bodies: Sequence[Mapping[str, Any]]) -> list[Json]:
        results = await self._memory.add_batch(
            tenant_id=self._tenant,
            principal_id=self._principal,
            items=[requests.add_input(body) for body in bodies],
        )
        answers: list[Json] = responses.add_batch_response(results).to_json()["results"]
        return answers

    async def search(self, body: Mapping[str, Any]) -> Json:
        result = await self._memory.search_for(
            requests.search_input(body), tenant_id=self._tenant, principal_id=self._principal
        )
        return responses.search_response(result).to_json()

    async def list(self, asked: Mapping[str, Any]) -> Json:
        events = await self._memory.list(tenant_id=self._tenant, principal_id=self._principal, **asked)
        return responses.list_response(events, limit=asked["limit"]).to_json()

    async def document(self, document_id: str) -> Json:
        found = await self._memory.document(
            tenant_id=self._tenant, principal_id=self._principal, document_id=document_id
        )
        return documents.document_response(found).to_json()

    async def history(self, document_id: str, *, limit: int, before: int | None) -> Json:
        page = await self._memory.history(
            tenant_id=self._tenant,
            principal_id=self._principal,
            document_id=document_id,
            limit=limit,
            before=before,
        )
        return documents.history_response(page).to_json()

    async def version(self, version_id: str, *, after: int | None) -> Json:
        found = await self._memory.version(
            tenant_id=self._tenant, principal_id=self._principal, version_id=version_id, after=after
        )
        return documents.version_response(found).to_json()

    async def capabilities(self) -> Json:
        who = {"tenant_id": self._tenant, "principal_id": self._principal}
        pending = await self._memory.pending_vectors(**who)
        return responses.capabilities_response(
            self._memory.capabilities, **who, pending_vectors=pending
        ).to_json()

    async def forget(self, document_id: str, *, cascade: bool) -> Json:
        result = await self._memory.forget(
            tenant_id=self._tenant, principal_id=self._principal, document_id=document_id, cascade=cascade
        )
        return lifecycle.forget_response(result).to_json()

    async def purge(self, document_id: str) -> Json:
        result = await self._memory.purge(
            tenant_id=self._tenant, principal_id=self._principal, document_id=document_id
        )
        return lifecycle.purge_response(result).to_json()

    async def feed(self, asked: Mapping[str, Any]) -> Json:
        page = await self._memory.feed(tenant_id=self._tenant, principal_id=self._principal, **asked)
        return feed_response(page).to_json()

    async def follow(self, asked: Mapping[str, Any]) -> AsyncIterator[Json]:
        async for entry in self._memory.follow(tenant_id=self._tenant, principal_id=self._principal, **asked):
            yield entry_json(entry)

    async def subscribe(self, body: Mapping[str, Any]) -> Json:
        created = await self.admin.subscribe(tenant_id=self._tenant, actor=self._principal, **body)
        return push.subscribe_response(created).to_json()

    async def subscriptions(self) -> Json:
        found = await self.admin.subscriptions(tenant_id=self._tenant)
        return push.subscriptions_response(found).to_json()

    async def unsubscribe(self, subscription_id: str) -> Json:
        await self.admin.unsubscribe(
            tenant_id=self._tenant, actor=self._principal, subscription_id=subscription_id
        )
        return push.UnsubscribeResponse(id=subscription_id, removed=True).to_json()

    async def dead_letters(self, subscription_id: str, *, after: int, limit: int) -> Json:
        dead = await self.admin.dead_letters(
            tenant_id=self._tenant, subscription_id=subscription_id, after=after, limit=limit
        )
        return push.dead_letters_response(dead).to_json()

    async def replay(self, subscription_id: str, seqs: Sequence[int] | None) -> Json:
        replayed = await self.admin.replay(tenant_id=self._tenant, subscription_id=subscription_id, seqs=seqs)
        return push.ReplayResponse(replayed=replayed).to_json()


@asynccontextmanager
async def open_direct(
    target: Target, environ: Mapping[str, str], *, run_worker: bool
) -> AsyncIterator[DirectBackend]:
    async with open_memory(target, environ, run_worker=run_worker) as memory:
        yield DirectBackend(memory, tenant=target.tenant, principal=target.principal)


@asynccontextmanager
async def open_memory(
    target: Target, environ: Mapping[str, str], *, run_worker: bool
) -> AsyncIterator[Memory]:
    """The memory on the database that the options, and after them the environment, ask for."""
    async with open_local_plane(target, environ, run_worker=run_worker) as plane:
        yield plane.memory


@asynccontextmanager
async def open_local_plane(
    target: Target, environ: Mapping[str, str], *, run_worker: bool
) -> AsyncIterator[Plane]:
    """The same with what is under it."""
    async with open_database(target.data_dir, target.database_url, environ) as (place, config):
        if place.embedded:
            # Nobody else looks after this database. Somebody's own is migrated only when they say so.
            await migrate(config.memory)
        async with open_plane(config, run_worker=run_worker) as plane:
            yield plane
