"""``corbits-memory grant``: who may see and do what, and why."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from corbits_memory.cli.access import After, GivenBy, InTenant, Limit, grant_row, open_grants, told_grant
from corbits_memory.cli.options import AsJson, DatabaseUrl, DataDir
from corbits_memory.cli.output import clean, note, print_json, print_table
from corbits_memory.cli.run import run_async
from corbits_memory.cli.spans import ends_at

if TYPE_CHECKING:
    from corbits_memory.access.postgres import GrantPage

app = typer.Typer(no_args_is_help=True, help="Say who may see and do what, and why somebody may not.")

_HEADINGS = ("id", "who", "effect", "action", "resource", "ends", "by", "conditions")


@app.command("add")
def add(
    resource: Annotated[
        str, typer.Argument(help="A tag like memory.space:eng, memory for capabilities, or a pattern with *.")
    ],
    action: Annotated[
        str, typer.Argument(help="search, add, forget, purge, admin, or a pattern with *.")
    ] = "search",
    principal: Annotated[str | None, typer.Option(help="Who gets it.", show_default=False)] = None,
    role: Annotated[
        str | None, typer.Option(help="All who hold this role get it, instead.", show_default=False)
    ] = None,
    effect: Annotated[str, typer.Option(help="allow, ask or deny.")] = "allow",
    condition: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=JSON",
            help='When it counts, like tool="recall"; may be repeated, all must be met.',
            show_default=False,
        ),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(help="When it ends: 30d, 12h, or a date. Default: never.", show_default=False),
    ] = None,
    grant_id: Annotated[
        str | None, typer.Option("--id", help="Replace the grant of this id.", show_default=False)
    ] = None,
    by: GivenBy = None,
    tenant: InTenant = "default",
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Give a grant. It counts from the next request on."""
    told = run_async(
        _add(
            data_dir,
            database_url,
            grant_id=grant_id,
            effect=effect,
            tenant_id=tenant,
            principal_id=principal,
            role_id=role,
            resource=resource,
            action=action,
            conditions=_conditions(condition or ()),
            expires_at=ends_at(expires) if expires is not None else None,
            created_by=by,
        )
    )
    if as_json:
        print_json(told)
    else:
        typer.echo(told["id"])


@app.command("list")
def list_grants(
    principal: Annotated[
        str | None, typer.Option(help="Only this one's own, not its roles'.", show_default=False)
    ] = None,
    role: Annotated[str | None, typer.Option(help="Only this role's.", show_default=False)] = None,
    resource: Annotated[
        str | None, typer.Option(help="Only those on exactly this.", show_default=False)
    ] = None,
    after: After = None,
    limit: Limit = 100,
    tenant: InTenant = "default",
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show a tenant's grants, those of sharing and the expired ones too."""
    filters = {"principal_id": principal, "role_id": role, "resource": resource}
    page = run_async(_list(data_dir, database_url, tenant, after=after, limit=limit, **filters))
    if as_json:
        print_json({"grants": [told_grant(rule) for rule in page.grants], "next": page.next})
        return
    print_table(_HEADINGS, [grant_row(rule) for rule in page.grants])
    if page.next is not None:
        note(f"there are more: --after {page.next}")


@app.command("remove")
def remove(
    grant_id: Annotated[str, typer.Argument(metavar="ID", help="As `grant list` shows it.")],
    by: GivenBy = None,
    tenant: InTenant = "default",
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Take a grant back. It counts no longer from the next request on."""
    run_async(_remove(data_dir, database_url, tenant, grant_id, by))
    if as_json:
        print_json({"removed": grant_id})
    else:
        typer.echo(f"removed {clean(grant_id)}")


@app.command("explain")
def explain(
    principal: Annotated[str, typer.Argument(help="Who wants to see it.")],
    document: Annotated[str, typer.Argument(help="The document's id.")],
    tenant: InTenant = "default",
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Say whether somebody sees a document, and which grant decides for each of its tags."""
    told, lines = run_async(_explain(data_dir, database_url, tenant, principal, document))
    if as_json:
        print_json(told)
        return
    first, *tags = map(clean, lines)
    typer.echo("\n  ".join((first, *tags)))


async def _add(
    data_dir: Path | None, database_url: str | None, *, grant_id: str | None, effect: str, **fields: Any
) -> dict[str, Any]:
    from corbits_memory.core.enums import Effect
    from corbits_memory.engine.ids import new_id
    from corbits_memory.ports import GrantRule

    if effect not in set(Effect):
        raise typer.BadParameter(f"--effect must be one of {', '.join(Effect)}")
    rule = GrantRule(id=grant_id or new_id("mgrt"), effect=Effect(effect), **fields)
    async with open_grants(data_dir, database_url) as grants:
        await grants.store.put_grant(rule)
    return told_grant(rule)


async def _list(data_dir: Path | None, database_url: str | None, tenant: str, **options: Any) -> "GrantPage":
    async with open_grants(data_dir, database_url) as grants:
        return await grants.store.list_grants(tenant, **options)


async def _remove(
    data_dir: Path | None, database_url: str | None, tenant: str, grant_id: str, by: str | None
) -> None:
    from corbits_memory.errors import NotFoundError

    async with open_grants(data_dir, database_url) as grants:
        if not await grants.store.delete_grant(tenant, grant_id, by=by):
            raise NotFoundError(
                "there is no grant with this id in this tenant; `corbits-memory grant list` shows the ids"
            )


async def _explain(
    data_dir: Path | None, database_url: str | None, tenant: str, principal: str, document: str
) -> tuple[dict[str, Any], tuple[str, ...]]:
    from datetime import UTC, datetime

    from corbits_memory.access.control import AccessControl
    from corbits_memory.access.explain import explain_access
    from corbits_memory.errors import NotFoundError

    async with open_grants(data_dir, database_url) as grants:
        async with grants.database.tenant(tenant) as conn:
            rows = await conn.execute(
                "SELECT owner_principal_id, tags FROM memory.document "
                "WHERE tenant_id = %(tenant)s AND id = %(document)s",
                {"tenant": tenant, "document": document},
            )
            found = await rows.fetchone()
        if found is None:
            raise NotFoundError("there is no document with this id in this tenant")
        control = AccessControl(grants.store, conditions=None, clock=lambda: datetime.now(UTC))
        access = await control.access(tenant, principal)
    if access is None:
        raise RuntimeError("a grant store is mounted")
    owner, tags = found
    explained = await explain_access(
        access.authorizer, owner=owner, principal_id=principal, tags=tags, document_id=document
    )
    return {"tenant": tenant, "document": document, **explained.to_json()}, explained.words


def _conditions(given: list[str] | tuple[()]) -> dict[str, Any] | None:
    """``NAME=JSON`` each; what is no JSON is text."""
    conditions: dict[str, Any] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise typer.BadParameter('--condition must be NAME=JSON, like tool="recall"')
        try:
            conditions[name] = json.loads(value)
        except ValueError:
            conditions[name] = value
    return conditions or None
