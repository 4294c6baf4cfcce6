"""Short ways to say what the tests of replays say often."""

from collections.abc import Mapping
from typing import Any

import psycopg

from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.ports.transform import TransformConfig, TransformRun
from corbits_memory.validation import transform_params, transform_scope
from tests.engine.support import T
from tests.models.conftest import ModelServer

Owner = psycopg.AsyncConnection[Any]
OPS = "ops"
PLAIN: Mapping[str, Any] = {"chunk": {"strategy": "token.recursive"}}
SMALL: Mapping[str, Any] = {"chunk": {"strategy": "token.recursive", "maxTokens": 10}}
"""Forty characters a chunk."""


async def rows(owner: Owner, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
    return await (await owner.execute(query, parameters)).fetchall()


async def config(
    store: PostgresDocumentStore, params: Mapping[str, Any] = PLAIN, *, name: str = "c", tenant: str = T
) -> TransformConfig:
    return await store.transforms.create_transform_config(
        tenant_id=tenant, name=name, params=transform_params(params)
    )


async def begin(
    store: PostgresDocumentStore, params: Mapping[str, Any] = PLAIN, *, tenant: str = T, **scope: Any
) -> TransformRun:
    """A run that nobody has worked on yet."""
    made = await config(store, params, tenant=tenant)
    return await store.transforms.run_transform(
        tenant_id=tenant, actor_id=OPS, config_id=made.id, scope=transform_scope(**scope)
    )


async def work(store: PostgresDocumentStore, run: TransformRun, **options: Any) -> TransformRun:
    """Work on a run in this process, as far as anything is due."""
    await store.replays.slices.work(T, run.id, **options)
    return await store.transforms.transform_run(tenant_id=T, run_id=run.id)


async def replay(
    store: PostgresDocumentStore, params: Mapping[str, Any] = PLAIN, **scope: Any
) -> TransformRun:
    """A run, worked on to its end."""
    return await work(store, await begin(store, params, **scope))


async def promote(store: PostgresDocumentStore, run: TransformRun, **options: Any) -> TransformRun:
    return await store.transforms.promote_generation(
        tenant_id=T, actor_id=OPS, generation=run.generation, **options
    )


async def demote(store: PostgresDocumentStore, run: TransformRun) -> TransformRun:
    return await store.transforms.demote_generation(tenant_id=T, actor_id=OPS, generation=run.generation)


async def live(owner: Owner) -> str:
    return str(
        (await rows(owner, "SELECT live_generation FROM memory.tenant_state WHERE tenant_id = %s", T))[0][0]
    )


async def versions(owner: Owner, generation: str) -> list[tuple[Any, ...]]:
    """Title, number and status of a generation's versions."""
    return await rows(
        owner,
        "SELECT title, version, status FROM memory.version WHERE generation = %s ORDER BY title, version",
        generation,
    )


async def active(owner: Owner) -> list[str]:
    return [
        row[0] for row in await rows(owner, "SELECT model_id FROM memory.embed_model WHERE status = 'active'")
    ]


def of_model(server: ModelServer) -> dict[str, Any]:
    return {**SMALL, "embed": {"baseUrl": server.url, "model": "other"}}
