"""The database of a command that works on one itself, never over HTTP."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from corbits_memory.config import MemoryConfig
from corbits_memory.server.inspect import connect
from corbits_memory.server.places import Place, choose_database, open_place
from corbits_memory.server.startup import check_configuration, memory_config


@asynccontextmanager
async def open_database(
    data_dir: Path | None, database_url: str | None, environ: Mapping[str, str] = os.environ
) -> AsyncIterator[tuple[Place, MemoryConfig]]:
    """The place that was asked for, and the configuration on it; it can be reached."""
    choice = choose_database(data_dir=data_dir, database_url=database_url, environ=environ)
    check_configuration(environ)
    with open_place(choice, environ) as place:
        config = memory_config(place, environ)
        async with connect(place.url):
            pass
        yield place, config
