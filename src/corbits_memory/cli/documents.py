"""``corbits-memory show`` and ``history``: one document, one version, and what changed."""

import os
from typing import Annotated, Any

import typer

from corbits_memory.cli.backend import Json, Target, open_backend
from corbits_memory.cli.options import AsJson, DatabaseUrl, DataDir, Principal, Tenant, Token, Url
from corbits_memory.cli.output import clean, console, print_json, print_table
from corbits_memory.cli.run import run_async
from corbits_memory.core import ids


def show(
    wanted: Annotated[str, typer.Argument(metavar="ID", help="A document's, or a version's.")],
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    url: Url = None,
    token: Token = None,
    tenant: Tenant = "default",
    principal: Principal = "owner",
    as_json: AsJson = False,
) -> None:
    """Show a document, or a version, with its text."""
    target = Target(
        data_dir=data_dir, database_url=database_url, url=url, token=token, tenant=tenant, principal=principal
    )
    version = run_async(_version(target, wanted))
    if as_json:
        print_json(version)
        return
    out = console()
    out.print(clean(version["title"]), style="bold")
    out.print(f"{clean(_about(version))}", style="dim")
    for part in version["text"]:
        out.print(clean(part["text"], lines=True))


def history(
    document: Annotated[str, typer.Argument(metavar="DOCUMENT")],
    limit: Annotated[int, typer.Option(help="1 to 100.")] = 20,
    before: Annotated[
        int | None, typer.Option(help="Only versions with a lower number.", show_default=False)
    ] = None,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    url: Url = None,
    token: Token = None,
    tenant: Tenant = "default",
    principal: Principal = "owner",
    as_json: AsJson = False,
) -> None:
    """Show a document's versions and what each changed."""
    target = Target(
        data_dir=data_dir, database_url=database_url, url=url, token=token, tenant=tenant, principal=principal
    )
    told = run_async(_history(target, document, limit, before))
    if as_json:
        print_json(told)
        return
    print_table(
        ("version", "status", "when", "by", "changed", "title", "id"),
        [
            (
                str(version["version"]),
                version["status"],
                version["ingestedAt"][:16].replace("T", " "),
                version.get("createdByPrincipalId", ""),
                ", ".join(version["changed"]),
                version["title"],
                version["versionId"],
            )
            for version in told["versions"]
        ],
    )


async def _version(target: Target, wanted: str) -> Json:
    """The version, with all of its text."""
    async with open_backend(target, os.environ) as backend:
        if not wanted.startswith(ids.VERSION):
            wanted = (await backend.document(wanted))["current"]["versionId"]
        version = await backend.version(wanted, after=None)
        after = version.pop("nextAfter", None)
        while after is not None:
            page = await backend.version(wanted, after=after)
            version["text"] += page["text"]
            after = page.get("nextAfter")
    return version


async def _history(target: Target, document: str, limit: int, before: int | None) -> Json:
    async with open_backend(target, os.environ) as backend:
        return await backend.history(document, limit=limit, before=before)


def _about(version: dict[str, Any]) -> str:
    parts = [
        f"version {version['version']}, {version['status']}",
        f"{version['adapter']}:{version['externalRef']}",
        f"by {version['owner']}",
        version["occurredAt"][:16].replace("T", " "),
    ]
    return " · ".join(parts)
