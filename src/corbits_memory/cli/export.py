"""``corbits-memory export``: a tenant, or what a principal may see of it, as JSONL."""

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from corbits_memory.cli.options import DatabaseUrl, DataDir, Tenant
from corbits_memory.cli.output import note
from corbits_memory.cli.run import run_async

if TYPE_CHECKING:
    from collections.abc import Iterator


def export(
    output: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="Where to. Default: standard output.", show_default=False),
    ] = None,
    tenant: Tenant = "default",
    principal: Annotated[
        str | None,
        typer.Option(help="Only what this principal may see. Default: the whole tenant.", show_default=False),
    ] = None,
    owned: Annotated[bool, typer.Option("--owned", help="With --principal: only what is its own.")] = False,
    no_vectors: Annotated[
        bool, typer.Option("--no-vectors", help="Leave the vectors out: a smaller file, made anew on import.")
    ] = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Write documents with all their versions, tags, edges and raw captures, a line each; `import` reads it back."""
    if owned and principal is None:
        raise typer.BadParameter("--owned needs --principal: whose own it shall be")
    written = run_async(
        _export(output, data_dir, database_url, tenant, principal, owned=owned, vectors=not no_vectors)
    )
    note(f"{written} documents")


async def _export(
    output: Path | None,
    data_dir: Path | None,
    database_url: str | None,
    tenant: str,
    principal: str | None,
    *,
    owned: bool,
    vectors: bool,
) -> int:
    from corbits_memory.cli.local import open_database
    from corbits_memory.server.startup import migrate, open_plane

    async with open_database(data_dir, database_url) as (place, config):
        if place.embedded:
            await migrate(config.memory)
        async with open_plane(config, run_worker=False) as plane:
            access = None if principal is None else await plane.memory.access(tenant, principal)
            lines = plane.store.exporter.export(
                tenant_id=tenant, principal_id=principal, access=access, owned=owned, vectors=vectors
            )
            with _target(output) as stream:
                return await _write(lines, stream)


async def _write(lines: AsyncIterator[dict[str, Any]], stream: IO[str]) -> int:
    documents = 0
    async for line in lines:
        documents += "document" in line
        stream.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
    return documents


@contextmanager
def _target(output: Path | None) -> "Iterator[IO[str]]":
    """Standard output, or a file that is there only when all of it is."""
    if output is None:
        yield sys.stdout
        return
    partial = output.with_name(f".{output.name}.{os.getpid()}.part")
    # It holds everything: for its owner's eyes.
    partial.touch(mode=0o600, exist_ok=False)
    try:
        with partial.open("w", encoding="utf-8") as stream:
            yield stream
        partial.replace(output)
    finally:
        partial.unlink(missing_ok=True)
