"""A corpus derived by a config: begun, watched, looked at, stopped, taken up again."""

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from corbits_memory.cli.backend import Json, Target
from corbits_memory.cli.options import AsJson, DatabaseUrl, DataDir, Principal, Tenant, Token, Url
from corbits_memory.cli.output import clean, note, print_json, print_table
from corbits_memory.cli.run import FAILED, run_async
from corbits_memory.cli.transform.asking import ConfigId, RunId, ask, or_dash, target_of
from corbits_memory.cli.transform.bar import Bar
from corbits_memory.cli.transform.configs import tell_config
from corbits_memory.core.ids import TRANSFORM_CONFIG
from corbits_memory.core.limits import RUNS_LIMIT_DEFAULT, RUNS_LIMIT_MAX

POLL_SECONDS = 0.3
RUNNING = "running"

Limit = Annotated[int, typer.Option(min=1, max=RUNS_LIMIT_MAX, help="So many of each, newest first.")]


def run(
    config_id: ConfigId,
    adapter: Annotated[
        str | None, typer.Option(help="Only what came in by this adapter.", show_default=False)
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Only what came in then or later.", show_default=False)
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="Only what came in then or earlier.", show_default=False)
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(help="Only documents of this kind; may be repeated.", show_default=False),
    ] = None,
    document: Annotated[
        list[str] | None, typer.Option(help="Only this document; may be repeated.", show_default=False)
    ] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Only begin it, for workers that run.")] = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    url: Url = None,
    token: Token = None,
    tenant: Tenant = "default",
    principal: Principal = "operator",
    as_json: AsJson = False,
) -> None:
    """Derive the corpus anew, or what of it is in scope, and wait for it. What is live stays as it is."""
    scope = {
        "adapter": adapter,
        "since": since,
        "until": until,
        "kinds": kind or None,
        "document_ids": document or None,
    }
    target = target_of(data_dir, database_url, url, token, tenant, principal)
    given = {name: value for name, value in scope.items() if value is not None}
    told = run_async(_run(target, config_id, given, wait=not no_wait))
    tell_run(told, as_json=as_json)
    if told["status"] == "failed":
        raise typer.Exit(FAILED)


def list_transforms(
    name: Annotated[str | None, typer.Option(help="Only configs of this name.", show_default=False)] = None,
    limit: Limit = RUNS_LIMIT_DEFAULT,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    url: Url = None,
    token: Token = None,
    tenant: Tenant = "default",
    principal: Principal = "operator",
    as_json: AsJson = False,
) -> None:
    """Show configs and runs."""
    from corbits_memory.cli.transform.backend import TransformBackend, open_transforms

    async def read(target: Target) -> Json:
        async with open_transforms(target, os.environ) as opened:
            backend: TransformBackend = opened
            return {**await backend.configs(name, limit), **await backend.runs(limit)}

    told = run_async(read(target_of(data_dir, database_url, url, token, tenant, principal)))
    if as_json:
        print_json(told)
        return
    print_table(
        ("config", "name", "version", "params"),
        [(one["id"], one["name"], str(one["version"]), json.dumps(one["params"])) for one in told["configs"]],
    )
    typer.echo("")
    print_table(
        ("run", "config", "status", "captures", "versions", "skipped", "live"),
        [
            (
                one["id"],
                one["config_id"],
                "paused" if one["paused"] else one["status"],
                f"{one['progress']['done']}/{or_dash(one['progress']['total'])}",
                str(one["version_count"]),
                str(one["skipped_count"]),
                "live" if one["live"] else "",
            )
            for one in told["runs"]
        ],
    )


def show(
    which: Annotated[str, typer.Argument(metavar="ID", help="A config or a run.")],
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    url: Url = None,
    token: Token = None,
    tenant: Tenant = "default",
    principal: Principal = "operator",
    as_json: AsJson = False,
) -> None:
    """Show a config, or a run with its progress and what failed of it."""
    target = target_of(data_dir, database_url, url, token, tenant, principal)
    if not which.startswith(f"{TRANSFORM_CONFIG}_"):
        tell_run(ask(target, lambda backend: backend.show(which)), as_json=as_json)
        return
    tell_config(ask(target, lambda backend: backend.config(which)), as_json=as_json)


def _verb(word: str, text: str) -> Callable[..., None]:
    def command(
        run_id: RunId,
        data_dir: DataDir = None,
        database_url: DatabaseUrl = None,
        url: Url = None,
        token: Token = None,
        tenant: Tenant = "default",
        principal: Principal = "operator",
        as_json: AsJson = False,
    ) -> None:
        target = target_of(data_dir, database_url, url, token, tenant, principal)
        tell_run(ask(target, lambda backend: backend.change(run_id, word)), as_json=as_json)

    command.__doc__ = text
    return command


pause = _verb("pause", "Begin no slice of a run until it is resumed.")
resume = _verb("resume", "Have workers go on with a run that was paused.")
cancel = _verb("cancel", "End a run where it is.")
retry = _verb("retry", "Have workers go on with a run that failed or was cancelled.")


async def _run(target: Target, config_id: str, scope: Mapping[str, Any], *, wait: bool) -> Json:
    from corbits_memory.cli.transform.backend import open_transforms

    async with open_transforms(target, os.environ, run_worker=wait) as backend:
        told = await backend.run(config_id, scope)
        if not wait or told["status"] != RUNNING:
            return told
        try:
            with Bar(told["id"]) as bar:
                while told["status"] == RUNNING:
                    bar.show(told["progress"])
                    await asyncio.sleep(POLL_SECONDS)
                    told = await backend.show(told["id"])
                bar.show(told["progress"])
        except asyncio.CancelledError:
            note(
                f"{told['id']} goes on where workers run (serve, worker); look at it with: transform show {told['id']}"
            )
            raise
        return told


def tell_run(told: Json, *, as_json: bool) -> None:
    if as_json:
        print_json(told)
        return
    progress = told["progress"]
    state = "paused" if told["paused"] else told["status"]
    typer.echo(f"{told['id']}  {state}{', live' if told['live'] else ''}")
    typer.echo(f"captures   {progress['done']} of {or_dash(progress['total'])}")
    if progress["rate"] is not None:
        typer.echo(f"rate       {progress['rate']:.1f} a second, {progress['seconds_left']:.0f} s left")
    typer.echo(f"derived    {told['raw_count']} captures, {told['version_count']} versions")
    if told["error"]:
        typer.echo(f"error      {clean(told['error'])}")
    for failed in told["failures"]:
        typer.echo(
            f"failed     {failed['captures']} captures up to {failed['last_id']}, {failed['attempts']} attempts: "
            f"{clean(failed['error'])}"
        )
    for skipped in told["skipped"]:
        typer.echo(f"skipped    {skipped['raw_capture_id']}: {clean(skipped['problem'])}")
