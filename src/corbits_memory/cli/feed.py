"""``corbits-memory feed``: what was written, and what is being written."""

import os
import sys
from typing import Annotated, Any

import typer

from corbits_memory.cli.backend import Json, Target, open_backend
from corbits_memory.cli.options import AsJson, DatabaseUrl, DataDir, Principal, Tenant, Token, Url
from corbits_memory.cli.output import clean, console, note, print_json
from corbits_memory.cli.run import run_async
from corbits_memory.core.enums import FeedOp
from corbits_memory.core.limits import FEED_LIMIT_DEFAULT, FEED_LIMIT_MAX, SAFE_INTEGER

NOTHING = "There is nothing new."


def feed(
    after: Annotated[
        int, typer.Option(min=0, max=SAFE_INTEGER, help="The number of the last entry that you have seen.")
    ] = 0,
    limit: Annotated[
        int, typer.Option(min=1, max=FEED_LIMIT_MAX, help="Entries of one page.")
    ] = FEED_LIMIT_DEFAULT,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")
    ] = False,
    op: Annotated[
        list[FeedOp] | None,
        typer.Option(help="Kind of entry; may be repeated. Default: upsert.", show_default=False),
    ] = None,
    exclude_generator: Annotated[
        str | None, typer.Option(help="Without what this agent made.", show_default=False)
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="With the texts.")] = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    url: Url = None,
    token: Token = None,
    tenant: Tenant = "default",
    principal: Principal = "owner",
    as_json: AsJson = False,
) -> None:
    """Show what was written, in order; with --follow, also as it comes (--json: a line an entry)."""
    target = Target(
        data_dir=data_dir, database_url=database_url, url=url, token=token, tenant=tenant, principal=principal
    )
    asked: dict[str, Any] = {
        "after": after,
        "ops": [str(word) for word in op or ()],
        "exclude_generator": exclude_generator,
        "include_text": text,
    }
    if follow:
        run_async(_follow(target, asked, as_json=as_json))
    else:
        _print_page(run_async(_page(target, {**asked, "limit": limit})), as_json=as_json)


async def _page(target: Target, asked: dict[str, Any]) -> Json:
    async with open_backend(target, os.environ) as backend:
        return await backend.feed(asked)


async def _follow(target: Target, asked: dict[str, Any], *, as_json: bool) -> None:
    async with open_backend(target, os.environ) as backend:
        async for entry in backend.follow(asked):
            if as_json:
                print_json(entry)
            else:
                _print_entry(entry)
            # Whoever reads this through a pipe waits for it.
            sys.stdout.flush()


def _print_page(page: Json, *, as_json: bool) -> None:
    if as_json:
        print_json(page)
        return
    for entry in page["entries"]:
        _print_entry(entry)
    if page["hasMore"]:
        note(f"There is more: --after {page['nextCursor']}")
    elif not page["entries"]:
        note(NOTHING)


def _print_entry(entry: Json) -> None:
    parts = [entry["op"]]
    if "title" in entry:
        parts += [entry["createdAt"][:16].replace("T", " "), entry["kind"], entry["title"]]
    parts += [entry["documentId"]] if "documentId" in entry else []
    console().print(f"{entry['feedSeq']:>6}  {'  '.join(map(clean, parts))}")
    if entry.get("text"):
        console().print(f"        {clean(entry['text'])}")
