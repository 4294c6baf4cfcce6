"""What commands about grants and roles share: the store on the database that was asked for."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from corbits_memory.access.postgres import PostgresGrantStore
    from corbits_memory.engine.pool import Database
    from corbits_memory.ports import GrantRule

InTenant = Annotated[str, typer.Option("--tenant", help="The tenant.")]
GivenBy = Annotated[
    str | None, typer.Option("--by", help="Who does it, for the record and the audit.", show_default=False)
]
After = Annotated[str | None, typer.Option(help="Go on behind this id.", metavar="ID", show_default=False)]
Limit = Annotated[int, typer.Option(help="At most so many.", min=1, max=1_000)]


@dataclass(frozen=True, slots=True)
class Grants:
    """An open database and the grant store over it."""

    database: "Database"
    store: "PostgresGrantStore"


@asynccontextmanager
async def open_grants(data_dir: Path | None, database_url: str | None) -> AsyncIterator[Grants]:
    """Raises ``MigrationError`` when the tables are not there; an embedded database gets them."""
    from corbits_memory.access.conditions import BUILT_IN_CONDITIONS
    from corbits_memory.access.postgres import PostgresGrantStore
    from corbits_memory.cli.local import open_database
    from corbits_memory.engine import audit
    from corbits_memory.engine.pool import Database
    from corbits_memory.errors import MigrationError
    from corbits_memory.server.inspect import connect
    from corbits_memory.server.startup import HOST_CONNECTIONS, migrate, opened

    async with open_database(data_dir, database_url) as (place, config):
        async with connect(place.url) as conn:
            rows = await conn.execute(
                "SELECT to_regclass('memory.access_state') IS NOT NULL AND to_regclass('memory_host.token') IS NOT NULL"
            )
            ready = await rows.fetchone() == (True,)
        # Only when needed, as for tokens.
        if not ready and place.embedded:
            await migrate(config.memory)
        elif not ready:
            raise MigrationError("The tables of grants are missing. Run: corbits-memory db migrate")
        async with opened(Database(place.url, pool_max=HOST_CONNECTIONS)) as database:
            yield Grants(
                database, PostgresGrantStore(database, conditions=BUILT_IN_CONDITIONS, audit=audit.record)
            )


def told_grant(rule: "GrantRule") -> dict[str, Any]:
    """A grant as JSON."""
    from corbits_memory.core.instants import iso_instant

    return {
        "id": rule.id,
        "tenant": rule.tenant_id,
        "principal": rule.principal_id,
        "role": rule.role_id,
        "resource": rule.resource,
        "action": rule.action,
        "effect": str(rule.effect),
        "origin": str(rule.origin),
        "conditions": rule.conditions,
        "expiresAt": rule.expires_at and iso_instant(rule.expires_at),
        "createdBy": rule.created_by,
    }


def grant_row(rule: "GrantRule") -> tuple[str, ...]:
    holder = f"role {rule.role_id}" if rule.role_id is not None else rule.principal_id or ""
    ends = rule.expires_at.strftime("%Y-%m-%d %H:%M") if rule.expires_at is not None else "never"
    conditions = json.dumps(rule.conditions, ensure_ascii=False) if rule.conditions else ""
    return (
        rule.id,
        holder,
        str(rule.effect),
        rule.action,
        rule.resource,
        ends,
        rule.created_by or "",
        conditions,
    )
