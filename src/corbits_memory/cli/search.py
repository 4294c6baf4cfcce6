"""``corbits-memory search`` and ``list``."""

import os
from typing import Annotated, Any

import typer

from corbits_memory.cli.backend import Backend, Json, Target, open_backend
from corbits_memory.cli.options import (
    AsJson,
    DatabaseUrl,
    DataDir,
    Kind,
    Principal,
    Tenant,
    Token,
    Url,
)
from corbits_memory.cli.output import clean, console, note, print_json, print_table
from corbits_memory.cli.run import run_async

OccurredAfter = Annotated[
    str | None, typer.Option("--after", help="Only what occurred after this.", show_default=False)
]
OccurredBefore = Annotated[
    str | None, typer.Option("--before", help="Only what occurred before this.", show_default=False)
]
MinEvidence = Annotated[
    str | None,
    typer.Option(
        "--min-evidence", help="Only hits that are at least this: strong or weak.", show_default=False
    ),
]
Cursor = Annotated[
    str | None, typer.Option("--cursor", help="Go on where a page ended, as it says.", show_default=False)
]
AsOf = Annotated[
    str | None,
    typer.Option(
        "--as-of", help="What was there at this instant, in the versions of then.", show_default=False
    ),
]

EMPTY = "This memory holds nothing that you may see yet. Begin with: corbits-memory import FILES"
NO_HIT = "Nothing that is held here answers this. Reword it, or take filters away."


def search(
    query: Annotated[str, typer.Argument(help="What you want to know.")] = "",
    limit: Annotated[int | None, typer.Option(help="1 to 50. Default 8.", show_default=False)] = None,
    kind: Kind = None,
    after: OccurredAfter = None,
    before: OccurredBefore = None,
    valid_at: Annotated[
        str | None, typer.Option(help="Only what is valid at this instant.", show_default=False)
    ] = None,
    as_of: AsOf = None,
    include_deprecated: Annotated[
        bool, typer.Option("--include-deprecated", help="Also what was taken out of use.")
    ] = False,
    profile: Annotated[
        str | None, typer.Option(help="Ranking: default or compat.", show_default=False)
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show the parts of each score.")] = False,
    min_evidence: MinEvidence = None,
    cursor: Cursor = None,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    url: Url = None,
    token: Token = None,
    tenant: Tenant = "default",
    principal: Principal = "owner",
    as_json: AsJson = False,
) -> None:
    """Find what answers a question, best first."""
    body: dict[str, Any] = {
        "query": query,
        "limit": limit,
        "kinds": kind or None,
        "occurred_after": after,
        "occurred_before": before,
        "valid_at": valid_at,
        "as_of": as_of,
        "includeDeprecated": include_deprecated or None,
        "profile": profile,
        "explain": explain or None,
        "min_evidence": min_evidence,
        "cursor": cursor,
    }
    asked = {name: value for name, value in body.items() if value is not None}
    target = Target(
        data_dir=data_dir, database_url=database_url, url=url, token=token, tenant=tenant, principal=principal
    )
    found, empty = run_async(_search(target, asked))
    if as_json:
        print_json(found)
    else:
        _print_found(found, empty=empty)


def list_documents(
    limit: Annotated[int, typer.Option(help="1 to 100.")] = 20,
    kind: Kind = None,
    after: OccurredAfter = None,
    before: OccurredBefore = None,
    as_of: AsOf = None,
    cursor: Cursor = None,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    url: Url = None,
    token: Token = None,
    tenant: Tenant = "default",
    principal: Principal = "owner",
    as_json: AsJson = False,
) -> None:
    """Show the newest documents."""
    target = Target(
        data_dir=data_dir, database_url=database_url, url=url, token=token, tenant=tenant, principal=principal
    )
    filters = {
        "kinds": kind,
        "occurred_after": after,
        "occurred_before": before,
        "as_of": as_of,
        "cursor": cursor,
    }
    asked = {"limit": limit, **{name: value for name, value in filters.items() if value}}
    listed = run_async(_list(target, asked))
    if as_json:
        print_json(listed)
    elif not listed["events"]:
        console().print(EMPTY)
    else:
        print_table(
            ("when", "kind", "title", "document"),
            [
                (event["at"][:16].replace("T", " "), event["kind"], event["title"], event["documentId"])
                for event in listed["events"]
            ],
        )
        if listed["nextCursor"]:
            note(f"there may be more: --cursor {listed['nextCursor']}")


async def _search(target: Target, body: dict[str, Any]) -> tuple[Json, bool]:
    """The answer, and whether there is nothing at all to be found."""
    async with open_backend(target, os.environ) as backend:
        found = await backend.search(body)
        return found, not found["items"] and await _is_empty(backend)


async def _is_empty(backend: Backend) -> bool:
    return not (await backend.list({"limit": 1}))["events"]


async def _list(target: Target, asked: dict[str, Any]) -> Json:
    async with open_backend(target, os.environ) as backend:
        return await backend.list(asked)


def _print_found(found: Json, *, empty: bool) -> None:
    out = console()
    degraded = found.get("degraded") or []
    for position, item in enumerate(found["items"], start=1):
        out.print(f"{position:>2}. {clean(item['title'])}", style="bold")
        out.print(f"    {_about(item)}", style="dim")
        if item["snippet"].strip():
            out.print(f"    {clean(item['snippet'])}")
        citation = item["citation"]
        out.print(f"    cite {clean(citation['adapter'])}:{clean(citation['external_ref'])}", style="cyan")
        for name, value in (item.get("explain") or {}).items():
            out.print(f"      {clean(str(name))} = {clean(str(value))}", style="dim")
    if not found["items"]:
        out.print(EMPTY if empty else NO_HIT)
    out.print(f"evidence: {found.get('evidence', 'none')}")
    if degraded:
        out.print(f"degraded: {', '.join(map(clean, degraded))}")
    if found.get("nextCursor"):
        note(f"there may be more: --cursor {found['nextCursor']}")


def _about(item: Json) -> str:
    attribution = item.get("attribution") or {}
    parts = [f"score {item['score']:.3f}"]
    if attribution.get("evidence"):
        parts.append(f"evidence {attribution['evidence']}")
    parts.append(item["kind"])
    parts += [str(attribution[name]) for name in ("author", "thread") if attribution.get(name)]
    if attribution.get("occurredAt"):
        parts.append(attribution["occurredAt"][:16].replace("T", " "))
    return " · ".join(map(clean, parts))
