"""``corbits-memory token``: who may talk to the server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from corbits_memory.cli.options import AsJson, DatabaseUrl, DataDir
from corbits_memory.cli.output import note, print_json, print_table
from corbits_memory.cli.run import run_async
from corbits_memory.cli.spans import ends_at

if TYPE_CHECKING:
    from corbits_memory.server.tokens import Token, Tokens

DoneBy = Annotated[str, typer.Option("--by", help="Who does it, for the audit.")]

app = typer.Typer(no_args_is_help=True, help="Make, show and revoke the server's tokens.")


@app.command("create")
def create(
    tenant: Annotated[str, typer.Option(help="The tenant that it acts in.")] = "default",
    principal: Annotated[str, typer.Option(help="Who it acts as.")] = "owner",
    capabilities: Annotated[
        str, typer.Option(help="add, search, forget, purge, admin: those that it has, with commas.")
    ] = "add,search",
    expires: Annotated[
        str | None,
        typer.Option(help="When it ends: 30d, 12h, or a date. Default: never.", show_default=False),
    ] = None,
    label: Annotated[str | None, typer.Option(help="What it is for.", show_default=False)] = None,
    by: DoneBy = "operator",
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Make a token. It is shown once."""
    ends = ends_at(expires) if expires is not None else None
    made = run_async(
        _create(
            data_dir,
            database_url,
            tenant_id=tenant,
            principal_id=principal,
            capabilities=capabilities.split(","),
            expires_at=ends,
            label=label,
            by=by,
        )
    )
    if as_json:
        print_json(made)
        return
    typer.echo(made["token"])
    note(f"{made['id']}: acts as {made['principal']} in {made['tenant']}; shown only now, so keep it")


@app.command("list")
def list_tokens(
    tenant: Annotated[
        str | None, typer.Option(help="Only this tenant's. Default: all.", show_default=False)
    ] = None,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show the tokens that there are, never their secrets."""
    tokens = run_async(_list(data_dir, database_url, tenant))
    if as_json:
        print_json({"tokens": tokens})
        return
    headings = ("id", "starts", "tenant", "principal", "may", "state", "last used", "label")
    print_table(headings, [_row(token) for token in tokens])


@app.command("revoke")
def revoke(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="As `token list` shows it.")],
    by: DoneBy = "operator",
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Have a token refused from its next request on."""
    told = run_async(_revoke(data_dir, database_url, token_id, by))
    if as_json:
        print_json(told)
    else:
        typer.echo(f"revoked {token_id}")


@asynccontextmanager
async def _open_tokens(data_dir: Path | None, database_url: str | None) -> AsyncIterator["Tokens"]:
    from corbits_memory.cli.local import open_database
    from corbits_memory.server.inspect import connect
    from corbits_memory.server.startup import has_host_tables, migrate, open_host_database
    from corbits_memory.server.tokens import Tokens

    async with open_database(data_dir, database_url) as (place, config):
        async with connect(place.url) as conn:
            ready = await has_host_tables(conn)
        # Only when needed: revoking must work beside whatever release is running.
        if place.embedded and not ready:
            await migrate(config.memory)
        async with open_host_database(place.url) as database:
            yield Tokens(database)


async def _create(
    data_dir: Path | None, database_url: str | None, *, capabilities: list[str], **values: Any
) -> dict[str, Any]:
    from corbits_memory.server.tokens import parse_capabilities

    allowed = parse_capabilities(capabilities)
    async with _open_tokens(data_dir, database_url) as tokens:
        made = await tokens.create(capabilities=allowed, **values)
    return {"token": made.secret, **_told(made.token)}


async def _list(data_dir: Path | None, database_url: str | None, tenant: str | None) -> list[dict[str, Any]]:
    async with _open_tokens(data_dir, database_url) as tokens:
        return [_told(token) for token in await tokens.list(tenant)]


async def _revoke(data_dir: Path | None, database_url: str | None, token_id: str, by: str) -> dict[str, Any]:
    async with _open_tokens(data_dir, database_url) as tokens:
        return _told(await tokens.revoke(token_id, by=by))


def _told(token: "Token") -> dict[str, Any]:
    from corbits_memory.core.instants import iso_instant

    moments = {
        "createdAt": token.created_at,
        "expiresAt": token.expires_at,
        "revokedAt": token.revoked_at,
        "lastUsedAt": token.last_used_at,
    }
    return {
        "id": token.id,
        "tenant": token.tenant_id,
        "principal": token.principal_id,
        "capabilities": sorted(token.capabilities),
        "prefix": token.prefix,
        "label": token.label,
        "state": token.state(datetime.now(UTC)),
        **{name: moment and iso_instant(moment) for name, moment in moments.items()},
    }


def _row(token: dict[str, Any]) -> tuple[str, ...]:
    may = ",".join(word.split(":")[1] for word in token["capabilities"])
    used = (token["lastUsedAt"] or "never")[:16].replace("T", " ")
    return (
        token["id"],
        token["prefix"],
        token["tenant"],
        token["principal"],
        may,
        token["state"],
        used,
        token["label"] or "",
    )
