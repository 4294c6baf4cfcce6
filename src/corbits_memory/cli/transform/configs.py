"""How a corpus is derived: made, compared, deleted."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from corbits_memory.cli.backend import Json
from corbits_memory.cli.options import AsJson, DatabaseUrl, DataDir, Principal, Tenant, Token, Url
from corbits_memory.cli.output import clean, note, print_json, print_table
from corbits_memory.cli.transform.asking import ConfigId, ask, or_dash, target_of
from corbits_memory.errors import InvalidInputError


def create(
    name: Annotated[str, typer.Argument(help="A name that is there already gets another version.")],
    params: Annotated[
        str, typer.Option(help='JSON, or @FILE. At least {"chunk": {"strategy": "token.recursive"}}.')
    ],
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    url: Url = None,
    token: Token = None,
    tenant: Tenant = "default",
    principal: Principal = "operator",
    as_json: AsJson = False,
) -> None:
    """Say how: chunk sizes, model, ranking. docs/replay.md lists the parameters."""
    read = read_params(params)
    target = target_of(data_dir, database_url, url, token, tenant, principal)
    made = ask(target, lambda backend: backend.create(name, read))
    if as_json:
        print_json(made)
    else:
        typer.echo(f"{made['id']}  {clean(made['name'])} version {made['version']}")


def diff(
    before: ConfigId,
    after: ConfigId,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    url: Url = None,
    token: Token = None,
    tenant: Tenant = "default",
    principal: Principal = "operator",
    as_json: AsJson = False,
) -> None:
    """Show what differs between two configs."""
    target = target_of(data_dir, database_url, url, token, tenant, principal)
    told = ask(target, lambda backend: backend.diff(before, after))
    if as_json:
        print_json(told)
        return
    if not told["changes"]:
        note("they are the same")
    print_table(
        ("parameter", "before", "after"),
        [(one["path"], or_dash(one["before"]), or_dash(one["after"])) for one in told["changes"]],
    )


def delete(
    config_id: ConfigId,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    url: Url = None,
    token: Token = None,
    tenant: Tenant = "default",
    principal: Principal = "operator",
    as_json: AsJson = False,
) -> None:
    """Delete a config that no run was made with."""
    target = target_of(data_dir, database_url, url, token, tenant, principal)
    told = ask(target, lambda backend: backend.delete(config_id))
    if as_json:
        print_json(told)
    else:
        typer.echo(f"deleted {told['id']}")


def read_params(text: str) -> Any:
    """JSON, or that of the file after an ``@``. Raises ``InvalidInputError``; what is read is not repeated."""
    try:
        read = Path(text[1:]).read_text(encoding="utf-8") if text.startswith("@") else text
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f"--params names a file that can't be read ({type(error).__name__})"
        ) from None
    try:
        return json.loads(read)
    except ValueError as error:
        place = f" at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise InvalidInputError(f"--params is not JSON{place}") from None


def tell_config(told: Json, *, as_json: bool) -> None:
    if as_json:
        print_json(told)
        return
    typer.echo(f"{told['id']}  {clean(told['name'])} version {told['version']}, {told['created_at']}")
    typer.echo(clean(json.dumps(told["params"], indent=2), lines=True))
    for path in told["secrets"]:
        typer.echo(f"{path} is set")
