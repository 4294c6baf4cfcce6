"""``corbits-memory forget``, ``purge`` and ``sweep``."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from corbits_memory.cli.backend import Json, Target, open_backend
from corbits_memory.cli.options import AsJson, DatabaseUrl, DataDir, Principal, Tenant, Token, Url
from corbits_memory.cli.output import clean, note, print_json
from corbits_memory.cli.run import run_async

DocumentId = Annotated[str, typer.Argument(metavar="DOCUMENT", help="As `list` shows it.")]


def forget(
    document: DocumentId,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="Forget your documents that were made from it too.")
    ] = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    url: Url = None,
    token: Token = None,
    tenant: Tenant = "default",
    principal: Principal = "owner",
    as_json: AsJson = False,
) -> None:
    """Erase the content of a document of yours. There is no way back."""
    target = Target(
        data_dir=data_dir, database_url=database_url, url=url, token=token, tenant=tenant, principal=principal
    )
    told = run_async(_forget(target, document, cascade=cascade))
    if as_json:
        print_json(told)
        return
    typer.echo(
        f"forgot {told['versions']} version{'' if told['versions'] == 1 else 's'} of {clean(document)}"
    )
    _print_derived(told)


def purge(
    document: DocumentId,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    url: Url = None,
    token: Token = None,
    tenant: Tenant = "default",
    principal: Principal = "owner",
    as_json: AsJson = False,
) -> None:
    """Remove a document of yours with all that hangs on it. There is no way back."""
    target = Target(
        data_dir=data_dir, database_url=database_url, url=url, token=token, tenant=tenant, principal=principal
    )
    told = run_async(_purge(target, document))
    if as_json:
        print_json(told)
        return
    typer.echo(f"purged {clean(document)}")
    _print_derived(told)


def sweep(
    tenant: Tenant = "default",
    now: Annotated[
        str | None,
        typer.Option(help="Take this for now: an ISO 8601 date or date-time.", show_default=False),
    ] = None,
    actor: Annotated[str, typer.Option(help="Who the audit says it was.")] = "operator",
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Take what has expired out of use. Run it as often as you like, also while a server runs."""
    told = run_async(_sweep(data_dir, database_url, tenant, actor, now))
    if as_json:
        print_json(told)
    else:
        typer.echo(f"{told['versionsDeprecated']} versions had expired")


async def _forget(target: Target, document: str, *, cascade: bool) -> Json:
    async with open_backend(target, os.environ) as backend:
        return await backend.forget(document, cascade=cascade)


async def _purge(target: Target, document: str) -> Json:
    async with open_backend(target, os.environ) as backend:
        return await backend.purge(document)


async def _sweep(
    data_dir: Path | None, database_url: str | None, tenant: str, actor: str, now: str | None
) -> dict[str, Any]:
    from corbits_memory.admin import MemoryAdmin
    from corbits_memory.cli.local import open_database
    from corbits_memory.server.startup import migrate, open_plane

    async with open_database(data_dir, database_url) as (place, config):
        if place.embedded:
            await migrate(config.memory)
        async with open_plane(config, run_worker=False) as plane:
            swept = await MemoryAdmin(plane.memory).sweep_ephemeral(tenant_id=tenant, actor=actor, now=now)
    return {"versionsDeprecated": swept.versions_deprecated}


def _print_derived(told: Json) -> None:
    left = [claim["documentId"] for claim in told["derived"] if not claim["forgotten"]]
    if len(left) < len(told["derived"]):
        typer.echo(f"forgot {len(told['derived']) - len(left)} documents that were made from it")
    for document in left:
        note(f"still there, and made from it: {clean(document)}")
