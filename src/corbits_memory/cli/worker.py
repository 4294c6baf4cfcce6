"""``corbits-memory worker``: vectors, replays and webhooks, without a server."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from corbits_memory.cli.options import AsJson, DatabaseUrl, DataDir
from corbits_memory.cli.output import note, print_json
from corbits_memory.cli.run import run_async

CONCURRENCY_MAX = 64


def worker(
    concurrency: Annotated[
        int,
        typer.Option(min=1, max=CONCURRENCY_MAX, help="Jobs at a time; a remote model can answer several."),
    ] = 1,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Work on what is queued, until Ctrl-C: run it on as many machines as you like, beside `serve` or not."""
    run_async(_work(data_dir, database_url, concurrency, os.environ, as_json=as_json))


async def _work(
    data_dir: Path | None,
    database_url: str | None,
    concurrency: int,
    environ: Mapping[str, str],
    *,
    as_json: bool,
) -> None:
    from corbits_memory.cli.local import open_database
    from corbits_memory.server.startup import describe_model, migrate, open_plane

    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    async with open_database(data_dir, database_url, environ) as (place, config):
        if place.embedded:
            await migrate(config.memory)
        engine = replace(config.memory, worker_concurrency=concurrency)
        async with open_plane(replace(config, memory=engine), run_worker=True) as plane:
            if as_json:
                print_json({"started": True, "model": describe_model(plane.config)})
                sys.stdout.flush()
            else:
                note(f"working on {place.location} with {describe_model(plane.config)}; Ctrl-C ends it")
            await stopped.wait()
