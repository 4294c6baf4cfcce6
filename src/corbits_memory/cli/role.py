"""``corbits-memory role``: names for those who get the same grants."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from corbits_memory.cli.access import After, GivenBy, InTenant, Limit, open_grants
from corbits_memory.cli.options import AsJson, DatabaseUrl, DataDir
from corbits_memory.cli.output import clean, note, print_json, print_table
from corbits_memory.cli.run import run_async

if TYPE_CHECKING:
    from corbits_memory.access.postgres import PostgresGrantStore

T = TypeVar("T")

app = typer.Typer(no_args_is_help=True, help="Roles: grants given to all who hold one.")

RoleId = Annotated[str, typer.Argument(metavar="ROLE", help="The role's name.")]
Member = Annotated[str, typer.Argument(metavar="MEMBER", help="A principal, or with --role another role.")]
IsRole = Annotated[bool, typer.Option("--role", help="MEMBER is a role: all who hold that hold this too.")]


@app.command("add")
def add(
    role: RoleId,
    description: Annotated[str | None, typer.Option(help="What it is for.", show_default=False)] = None,
    by: GivenBy = None,
    tenant: InTenant = "default",
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Make a role; again changes its description."""
    run_async(
        _call(
            data_dir,
            database_url,
            lambda store: store.put_role(tenant, role, description=description, created_by=by),
        )
    )
    _tell(as_json, {"role": role}, f"added {role}")


@app.command("list")
def list_roles(
    after: After = None,
    limit: Limit = 100,
    tenant: InTenant = "default",
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show a tenant's roles, and who holds each directly."""
    page = run_async(
        _call(data_dir, database_url, lambda store: store.list_roles(tenant, after=after, limit=limit))
    )
    if as_json:
        roles = [
            {
                "id": role.id,
                "description": role.description,
                "principals": list(role.principals),
                "roles": list(role.roles),
            }
            for role in page.roles
        ]
        print_json({"roles": roles, "next": page.next})
        return
    rows = [
        (role.id, ", ".join(role.principals), ", ".join(role.roles), role.description or "")
        for role in page.roles
    ]
    print_table(("role", "held by", "and by holders of", "description"), rows)
    if page.next is not None:
        note(f"there are more: --after {page.next}")


@app.command("remove")
def remove(
    role: RoleId,
    by: GivenBy = None,
    tenant: InTenant = "default",
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Take a role back from everyone, with its grants."""
    gone = run_async(_call(data_dir, database_url, lambda store: store.delete_role(tenant, role, by=by)))
    _must(gone, "there is no such role in this tenant; `corbits-memory role list` shows them")
    _tell(as_json, {"removed": role}, f"removed {role}")


@app.command("assign")
def assign(
    role: RoleId,
    member: Member,
    is_role: IsRole = False,
    by: GivenBy = None,
    tenant: InTenant = "default",
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Give somebody a role; again changes nothing."""

    async def give(store: "PostgresGrantStore") -> None:
        if is_role:
            await store.assign_role(tenant, role, member, created_by=by)
        else:
            await store.assign(tenant, role, member, created_by=by)

    run_async(_call(data_dir, database_url, give))
    _tell(as_json, _told(role, member, is_role=is_role), f"assigned {role} to {member}")


@app.command("unassign")
def unassign(
    role: RoleId,
    member: Member,
    is_role: IsRole = False,
    by: GivenBy = None,
    tenant: InTenant = "default",
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Take a role back from somebody."""

    async def take(store: "PostgresGrantStore") -> bool:
        if is_role:
            return await store.unassign_role(tenant, role, member, by=by)
        return await store.unassign(tenant, role, member, by=by)

    gone = run_async(_call(data_dir, database_url, take))
    _must(gone, "this member does not hold the role directly; `corbits-memory role list` shows who does")
    _tell(as_json, _told(role, member, is_role=is_role), f"took {role} from {member}")


async def _call(
    data_dir: Path | None, database_url: str | None, verb: Callable[["PostgresGrantStore"], Awaitable[T]]
) -> T:
    """One verb of the grant store."""
    async with open_grants(data_dir, database_url) as grants:
        return await verb(grants.store)


def _must(gone: bool, otherwise: str) -> None:
    from corbits_memory.errors import NotFoundError

    if not gone:
        raise NotFoundError(otherwise)


def _told(role: str, member: str, *, is_role: bool) -> dict[str, str]:
    return {"role": role, "memberRole" if is_role else "principal": member}


def _tell(as_json: bool, told: dict[str, str], line: str) -> None:
    if as_json:
        print_json(told)
    else:
        typer.echo(clean(line))
