"""The command itself."""

import os
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from corbits_memory.cli.backend import Target, open_backend
from corbits_memory.cli.imports.files import Root, find_roots, iter_files
from corbits_memory.cli.imports.items import Found, read_items
from corbits_memory.cli.imports.load import Summary, load, wait_for_vectors
from corbits_memory.cli.imports.progress import make_watcher
from corbits_memory.cli.imports.restore import is_export, restore
from corbits_memory.cli.options import AsJson, DatabaseUrl, DataDir, Principal, Tenant, Token, Url
from corbits_memory.cli.output import note, print_json
from corbits_memory.cli.run import FAILED, run_async
from corbits_memory.core.limits import BATCH_ITEMS

BATCH_DEFAULT = 250


class Source(StrEnum):
    """Whose exports can be read; the names are those of the formats."""

    MEM0 = "mem0"
    ZEP = "zep"
    LANGGRAPH = "langgraph"
    CHATGPT = "chatgpt"
    CLAUDE = "claude"


Default = Annotated[str | None, typer.Option(help="For what does not say it itself.", show_default=False)]


def import_files(
    paths: Annotated[
        list[Path],
        typer.Argument(
            exists=True, metavar="PATH…", help="Files or folders: .md, .txt, .html, .pdf, .docx, .jsonl."
        ),
    ],
    source: Annotated[
        Source | None,
        typer.Option("--from", help="Whose export it is, if not files of your own.", show_default=False),
    ] = None,
    kind: Default = None,
    thread: Default = None,
    author: Default = None,
    language: Default = None,
    ref_prefix: Annotated[str, typer.Option(help="Goes in front of the names of files.")] = "",
    batch_size: Annotated[
        int, typer.Option(min=1, max=BATCH_ITEMS, help="Documents in one batch.")
    ] = BATCH_DEFAULT,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Leave the vectors to a server that runs.")
    ] = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    url: Url = None,
    token: Token = None,
    tenant: Tenant = "default",
    principal: Principal = "owner",
    as_json: AsJson = False,
) -> None:
    """Remember files: Markdown, text, HTML, PDF and DOCX as documents, each line of JSONL as one.

    A line's fields are those of add. With --from, the memories or conversations of somebody else's export, as a file,
    folder or zip file.

    What `export` wrote comes back with its ids, versions, owners and times, but for what was erased here. Again, it
    changes nothing; interrupted, it goes on where it was when it is started again.
    """
    target = Target(
        data_dir=data_dir, database_url=database_url, url=url, token=token, tenant=tenant, principal=principal
    )
    if source is None and any(is_export(path) for path in paths):
        _restore(paths, target, as_json=as_json)
        return
    given = {"kind": kind, "thread": thread, "author": author, "language": language}
    defaults = {name: value for name, value in given.items() if value is not None}
    if source is None:
        roots = find_roots(paths, prefix=ref_prefix)
        found, total = _found(roots, defaults), _total_bytes(roots)
    else:
        # How much text there is, only reading it tells.
        found, total = _moved(paths, source, defaults), None
    summary = run_async(_import(target, found, total, batch_size=batch_size, wait=not no_wait))
    if as_json:
        print_json(summary.to_json())
    else:
        passed_over = "no text files of this folder" if source is None else "not shown there, or without text"
        _print_summary(summary, passed_over=passed_over, waited=not no_wait)
    if summary.failed:
        raise typer.Exit(FAILED)


def _restore(paths: list[Path], target: Target, *, as_json: bool) -> None:
    if len(paths) > 1:
        raise typer.BadParameter("an export is imported by itself: name one file")
    told = run_async(restore(paths[0], target, size=paths[0].stat().st_size))
    if as_json:
        print_json(told)
    else:
        _print_restored(told)
    if told["conflicts"]:
        raise typer.Exit(FAILED)


def _print_restored(told: dict[str, Any]) -> None:
    typer.echo(f"{told['documents']} documents, {told['versions']} versions, {told['vectors']} vectors")
    left_out = {
        "skipped": "documents left out, since their reference is another's here",
        "erased": "versions left out, since they were forgotten or purged here",
        "conflicts": "versions left out, since their documents have others in their place here",
        "withheld": "claims without reserved tags that nothing they were made from carries here",
        "pendingVectors": "vectors still to be made, by a running server or by embed backfill",
    }
    for name, what in left_out.items():
        if told[name]:
            note(f"{what}: {told[name]}")


async def _import(
    target: Target, found: Iterator[Found], total: int | None, *, batch_size: int, wait: bool
) -> Summary:
    async with open_backend(target, os.environ, run_worker=wait) as backend:
        # Asked first, so that a wrong token or URL is told before anything is read.
        await backend.capabilities()
        with make_watcher(total) as watcher:
            summary = await load(backend, found, batch_size=batch_size, watcher=watcher)
            await wait_for_vectors(backend, summary, watcher=watcher, wait=wait)
    return summary


def _found(roots: list[Root], defaults: dict[str, Any]) -> Iterator[Found]:
    for file in iter_files(roots):
        yield from read_items(file, defaults)


def _moved(paths: list[Path], source: Source, defaults: dict[str, Any]) -> Iterator[Found]:
    # It brings a parser along.
    from corbits_memory.cli.imports.movers import FORMATS, read_export

    for path in paths:
        yield from read_export(path, FORMATS[source], defaults)


def _total_bytes(roots: list[Root]) -> int:
    total = 0
    for file in iter_files(roots):
        try:
            total += 0 if file.leads_out else file.path.stat().st_size
        except OSError:  # told when it is read
            continue
    return total


def _print_summary(summary: Summary, *, passed_over: str, waited: bool) -> None:
    counts = summary.counts
    told = [f"{counts[name]} {name}" for name in ("created", "updated", "unchanged", "failed")]
    if counts["skipped"]:
        told.append(f"{counts['skipped']} skipped ({passed_over})")
    typer.echo(", ".join(told))
    if not summary.embeddings:
        note("No embedding model is configured: this is found by its words alone.")
    elif summary.pending_vectors:
        why = (
            "nothing has moved for a while: see corbits-memory doctor"
            if waited
            else "a running server makes them"
        )
        note(
            f"{summary.pending_vectors} vectors are still to be made ({why}). All is found by its words already."
        )
