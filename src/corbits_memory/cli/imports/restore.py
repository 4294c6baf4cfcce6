"""Importing what `export` wrote: it comes back with its ids, versions and times."""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from corbits_memory.cli.backend import Target
from corbits_memory.cli.imports.progress import make_watcher
from corbits_memory.core.limits import LINE_BYTES
from corbits_memory.errors import ConfigError, InvalidInputError

NAME = "corbits-memory-export"
HEAD = b'{"' + NAME.encode() + b'"'
FIRST_LINE_BYTES = 64 * 1024


def is_export(path: Path) -> bool:
    """Whether a file's first line says that it is an export; one that is damaged begins as ours do."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as stream:
            first = stream.readline(FIRST_LINE_BYTES)
    except OSError:
        return False
    try:
        parsed = json.loads(first)
    except (ValueError, RecursionError):
        return first.startswith(HEAD)
    return isinstance(parsed, dict) and NAME in parsed


async def restore(path: Path, target: Target, *, size: int) -> dict[str, Any]:
    """How much came back; ``size`` is the file's, in bytes.

    Raises ``ConfigError``, and ``InvalidInputError``, ``ConflictError`` or ``DatabaseError`` for the line that is
    no part of an export or can't be read back here.
    """
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
        "erased": done.erased,
        "conflicts": done.conflicts,
        "withheld": done.withheld,
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
            number, blank = 0, 0
            while line := stream.readline(LINE_BYTES + 1):
                number += 1
                self._size += len(line)
                if not line.strip():
                    blank = blank or number
                    continue
                if blank:
                    # After the end they harm nothing; before it the lines would be counted wrong.
                    raise InvalidInputError(f"line {blank} is no line of an export: it is blank")
                yield self._parsed(line, number), len(line)

    def _parsed(self, line: bytes, number: int) -> Mapping[str, Any]:
        try:
            parsed = json.loads(line, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            parsed = None
        if not isinstance(parsed, dict) or len(line) > LINE_BYTES:
            raise InvalidInputError(f"line {number} is no line of an export: it is cut off or damaged")
        return parsed


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)
