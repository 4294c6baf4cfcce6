"""``corbits-memory forget``, ``purge``, ``deprecate`` and ``sweep``."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from corbits_memory.cli.backend import Json, Target, open_backend
from corbits_memory.cli.options import AsJson, DatabaseUrl, DataDir, Principal, Tenant, Token, Url
from corbits_memory.cli.output import clean, note, print_json
from corbits_memory.cli.run import run_async
from corbits_memory.core.enums import DeprecatedReason

if TYPE_CHECKING:
    from corbits_memory.admin import MemoryAdmin
    from corbits_memory.ports import PrincipalPurge

Actor = Annotated[str, typer.Option(help="Who the audit says it was.")]
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
    document: Annotated[
        str | None,
        typer.Argument(metavar="[DOCUMENT]", help="As `list` shows it.", show_default=False),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Without DOCUMENT: remove it.")] = False,
    even_durable: Annotated[
        bool, typer.Option("--even-durable", help="Without DOCUMENT: what a durable class holds, too.")
    ] = False,
    actor: Actor = "operator",
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    url: Url = None,
    token: Token = None,
    tenant: Tenant = "default",
    principal: Annotated[
        str | None,
        typer.Option(
            help="Who does it, by default `owner`. Without DOCUMENT: whose documents they are, all of which are "
            "counted, and removed with --yes.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Remove a document of yours with all that hangs on it, or a person's. There is no way back."""
    if document is None:
        if principal is None or url is not None:
            raise typer.BadParameter(
                "name a document; or on the server's machine a --principal, to remove all that it owns"
            )
        purged = run_async(
            _purge_principal(
                data_dir,
                database_url,
                tenant_id=tenant,
                actor=actor,
                principal_id=principal,
                dry_run=not yes,
                even_durable=even_durable,
            )
        )
        _print_purged(purged, as_json=as_json)
        return
    target = Target(
        data_dir=data_dir,
        database_url=database_url,
        url=url,
        token=token,
        tenant=tenant,
        principal=principal or "owner",
    )
    told = run_async(_purge(target, document))
    if as_json:
        print_json(told)
        return
    typer.echo(f"purged {clean(document)}")
    _print_derived(told)


def deprecate(
    version: Annotated[str, typer.Argument(metavar="VERSION", help="As `history` shows it.")],
    reason: Annotated[
        DeprecatedReason, typer.Option(help="What its history tells of it.")
    ] = DeprecatedReason.DEPRECATED,
    tenant: Tenant = "default",
    actor: Actor = "operator",
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Take a version out of use, whoever owns it. Searches find it on request; nothing is erased."""
    told = run_async(_deprecate(data_dir, database_url, tenant, actor, version, reason))
    if as_json:
        print_json(told)
    else:
        typer.echo(f"deprecated {clean(version)}, a version of {told['documentId']}")


def sweep(
    tenant: Tenant = "default",
    now: Annotated[
        str | None,
        typer.Option(help="Take this for now: an ISO 8601 date or date-time.", show_default=False),
    ] = None,
    actor: Actor = "operator",
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


async def _deprecate(
    data_dir: Path | None,
    database_url: str | None,
    tenant: str,
    actor: str,
    version: str,
    reason: DeprecatedReason,
) -> dict[str, Any]:
    async with _operating(data_dir, database_url) as admin:
        state = await admin.deprecate_version(
            tenant_id=tenant, actor=actor, version_id=version, reason=reason
        )
    return {
        "versionId": state.version_id,
        "documentId": state.document_id,
        "status": state.status,
        "deprecatedReason": reason,
    }


async def _sweep(
    data_dir: Path | None, database_url: str | None, tenant: str, actor: str, now: str | None
) -> dict[str, Any]:
    async with _operating(data_dir, database_url) as admin:
        swept = await admin.sweep_ephemeral(tenant_id=tenant, actor=actor, now=now)
    return {"versionsDeprecated": swept.versions_deprecated}


async def _purge_principal(data_dir: Path | None, database_url: str | None, **asked: Any) -> "PrincipalPurge":
    async with _operating(data_dir, database_url) as admin:
        return await admin.purge_principal(**asked)


@asynccontextmanager
async def _operating(data_dir: Path | None, database_url: str | None) -> AsyncIterator["MemoryAdmin"]:
    from corbits_memory.admin import MemoryAdmin
    from corbits_memory.cli.local import open_database
    from corbits_memory.server.startup import migrate, open_plane

    async with open_database(data_dir, database_url) as (place, config):
        if place.embedded:
            await migrate(config.memory)
        async with open_plane(config, run_worker=False) as plane:
            yield MemoryAdmin(plane.memory)


def _print_purged(purged: "PrincipalPurge", *, as_json: bool) -> None:
    if as_json:
        told = {
            "principal": purged.principal_id,
            "documents": purged.documents,
            "versions": purged.versions,
            "held": purged.held,
            "dryRun": purged.dry_run,
        }
        print_json(told)
        return
    verb = "would purge" if purged.dry_run else "purged"
    typer.echo(
        f"{verb} {purged.documents} documents of {clean(purged.principal_id)}, {purged.versions} versions"
    )
    if purged.held:
        note(f"{purged.held} documents are durable and stay; --even-durable takes them too")
    if purged.dry_run and purged.documents:
        note("nothing is gone yet; --yes does it, and there is no way back")


def _print_derived(told: Json) -> None:
    left = [claim["documentId"] for claim in told["derived"] if not claim["forgotten"]]
    if len(left) < len(told["derived"]):
        typer.echo(f"forgot {len(told['derived']) - len(left)} documents that were made from it")
    for document in left:
        note(f"still there, and made from it: {clean(document)}")
