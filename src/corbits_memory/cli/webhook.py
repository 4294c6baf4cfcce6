"""``corbits-memory webhook``: who is told of the feed, and what could not be delivered."""

import os
from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from corbits_memory.cli.backend import FullBackend, Json, Target, open_backend
from corbits_memory.cli.options import AsJson, DatabaseUrl, DataDir, Principal, Tenant, Token, Url
from corbits_memory.cli.output import note, print_json, print_table
from corbits_memory.cli.run import run_async
from corbits_memory.core.enums import FeedOp
from corbits_memory.core.limits import DEAD_LIMIT_DEFAULT, DEAD_LIMIT_MAX, SAFE_INTEGER

app = typer.Typer(no_args_is_help=True, help="Have the feed sent to URLs.")

SubscriptionId = Annotated[str, typer.Argument(metavar="ID", help="As `webhook list` shows it.")]


@app.command("add")
def add(
    to: Annotated[str, typer.Argument(metavar="URL", help="Where deliveries go; https.")],
    told: Annotated[
        str | None,
        typer.Option("--for", help="Whose view is told. Default: who acts.", show_default=False),
    ] = None,
    op: Annotated[
        list[FeedOp] | None,
        typer.Option(help="Kind of entry; may be repeated. Default: upsert.", show_default=False),
    ] = None,
    exclude_generator: Annotated[
        str | None, typer.Option(help="Without what this agent made.", show_default=False)
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="With the texts.")] = False,
    after: Annotated[
        int | None,
        typer.Option(
            min=0, max=SAFE_INTEGER, help="Begin after this number. Default: from now on.", show_default=False
        ),
    ] = None,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    url: Url = None,
    token: Token = None,
    tenant: Tenant = "default",
    principal: Principal = "owner",
    as_json: AsJson = False,
) -> None:
    """Add a webhook. The secret of its signatures is shown once."""
    target = Target(
        data_dir=data_dir, database_url=database_url, url=url, token=token, tenant=tenant, principal=principal
    )
    body = {
        "url": to,
        "principal": told,
        "ops": [str(word) for word in op or ()] or None,
        "exclude_generator": exclude_generator,
        "include_text": text,
        "after": after,
    }
    made = _ask(target, lambda backend: backend.subscribe(body))
    if as_json:
        print_json(made)
        return
    typer.echo(made["secret"])
    note(f"{made['id']}: tells what {made['principal']} may see; the secret is shown only now, so keep it")


@app.command("list")
def list_webhooks(
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    url: Url = None,
    token: Token = None,
    tenant: Tenant = "default",
    principal: Principal = "owner",
    as_json: AsJson = False,
) -> None:
    """Show the webhooks and how they fare."""
    target = Target(
        data_dir=data_dir, database_url=database_url, url=url, token=token, tenant=tenant, principal=principal
    )
    found = _ask(target, lambda backend: backend.subscriptions())
    if as_json:
        print_json(found)
        return
    print_table(
        ("id", "for", "url", "ops", "position", "failures", "dead", "last error"),
        [
            (
                one["id"],
                one["principal"],
                one["url"],
                ",".join(one["ops"]),
                str(one["position"]),
                str(one["failures"]),
                str(one["dead"]),
                one["lastError"] or "",
            )
            for one in found["subscriptions"]
        ],
    )


@app.command("remove")
def remove(
    subscription_id: SubscriptionId,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    url: Url = None,
    token: Token = None,
    tenant: Tenant = "default",
    principal: Principal = "owner",
    as_json: AsJson = False,
) -> None:
    """Remove a webhook and its dead letters."""
    target = Target(
        data_dir=data_dir, database_url=database_url, url=url, token=token, tenant=tenant, principal=principal
    )
    gone = _ask(target, lambda backend: backend.unsubscribe(subscription_id))
    if as_json:
        print_json(gone)
    else:
        typer.echo(f"removed {subscription_id}")


@app.command("dead")
def dead(
    subscription_id: SubscriptionId,
    after: Annotated[int, typer.Option(min=0, max=SAFE_INTEGER, help="Above this number.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=DEAD_LIMIT_MAX)] = DEAD_LIMIT_DEFAULT,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    url: Url = None,
    token: Token = None,
    tenant: Tenant = "default",
    principal: Principal = "owner",
    as_json: AsJson = False,
) -> None:
    """Show what could not be delivered."""
    target = Target(
        data_dir=data_dir, database_url=database_url, url=url, token=token, tenant=tenant, principal=principal
    )
    found = _ask(target, lambda backend: backend.dead_letters(subscription_id, after=after, limit=limit))
    if as_json:
        print_json(found)
        return
    print_table(
        ("number", "kind", "version", "tried", "when", "error"),
        [
            (
                str(one["feedSeq"]),
                one["op"] or "",
                one["versionId"] or "",
                str(one["failures"]),
                one["failedAt"][:16].replace("T", " "),
                one["error"],
            )
            for one in found["dead"]
        ],
    )


@app.command("replay")
def replay(
    subscription_id: SubscriptionId,
    number: Annotated[
        list[int] | None,
        typer.Option(
            min=0, max=SAFE_INTEGER, help="Only this one; may be repeated. Default: all.", show_default=False
        ),
    ] = None,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    url: Url = None,
    token: Token = None,
    tenant: Tenant = "default",
    principal: Principal = "owner",
    as_json: AsJson = False,
) -> None:
    """Have dead letters sent again by the server that runs."""
    target = Target(
        data_dir=data_dir, database_url=database_url, url=url, token=token, tenant=tenant, principal=principal
    )
    told = _ask(target, lambda backend: backend.replay(subscription_id, number or None))
    if as_json:
        print_json(told)
    else:
        typer.echo(f"{told['replayed']} will be sent again")


def _ask(target: Target, question: Callable[[FullBackend], Awaitable[Json]]) -> Json:
    async def work() -> Json:
        async with open_backend(target, os.environ) as backend:
            return await question(backend)

    return run_async(work())
