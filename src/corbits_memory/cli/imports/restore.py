"""Importing what `export` wrote: it comes back with its ids, versions and times."""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from corbits_memory.cli.backend import Target
from corbits_memory.cli.imports.items import PIECE_BYTES_MAX
from corbits_memory.cli.imports.progress import make_watcher
from corbits_memory.errors import ConfigError, InvalidInputError

HEAD = b'{"corbits-memory-export"'


def is_export(path: Path) -> bool:
    """Whether a file begins as an export does."""
    try:
        with path.open("rb") as stream:
            return path.is_file() and stream.read(len(HEAD)) == HEAD
    except OSError:
        return False


async def restore(path: Path, target: Target, *, size: int) -> dict[str, Any]:
    """How much came back; ``size`` is the file's, in bytes. Raises ``ConfigError``, ``InvalidInputError``."""
    from corbits_memory.cli.local import open_database
    from corbits_memory.server.startup import migrate, open_plane

    if target.url is not None:
        raise ConfigError(
            "An export is restored on the server's machine: leave out --url, or name its database."
        )
    async with open_database(target.data_dir, target.database_url) as (place, config):
        if place.embedded:
            await migrate(config.memory)
        async with open_plane(config, run_worker=False) as plane:
            with make_watcher(size) as watcher:
                documents = 0
                read = _Lines(path)
                async for done in plane.store.restorer.restore(aiter(read), tenant_id=target.tenant):
                    watcher.stored(read.take_size(), done.documents - documents)
                    documents = done.documents
            waiting = (await plane.store.embedding.pending(target.tenant)).count
    return {
        "documents": done.documents,
        "versions": done.versions,
        "chunks": done.chunks,
        "vectors": done.vectors,
        "skipped": done.skipped,
        "pendingVectors": waiting,
    }


class _Lines:
    """The file's lines, and how many bytes were read since somebody last asked."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = 0

    def take_size(self) -> int:
        size, self._size = self._size, 0
        return size

    async def __aiter__(self) -> AsyncIterator[tuple[Mapping[str, Any], int]]:
        with self._path.open("rb") as stream:
            number = 0
            while line := stream.readline(PIECE_BYTES_MAX + 1):
                number += 1
                self._size += len(line)
                if line.strip():
                    yield self._parsed(line, number), len(line)

    def _parsed(self, line: bytes, number: int) -> Mapping[str, Any]:
        try:
            parsed = json.loads(line)
        except (ValueError, RecursionError):
            parsed = None
        if not isinstance(parsed, dict):
            raise InvalidInputError(
                f"{self._path}:{number} is not a line of an export: it is cut off or damaged"
            )
        return parsed
