"""``corbits-memory transform``: derive the corpus anew, look at it, put it in the place of the live one."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from corbits_memory.cli.backend import Json, Target
from corbits_memory.cli.options import AsJson, DatabaseUrl, DataDir, Principal, Tenant, Token, Url
from corbits_memory.cli.output import clean, note, on_terminal, print_json, print_table
from corbits_memory.cli.run import FAILED, run_async
from corbits_memory.core.ids import TRANSFORM_CONFIG
from corbits_memory.core.limits import (
    RUNS_LIMIT_DEFAULT,
    RUNS_LIMIT_MAX,
    SAMPLED_LIMIT_DEFAULT,
    SAMPLED_LIMIT_MAX,
)
from corbits_memory.errors import InvalidInputError

app = typer.Typer(no_args_is_help=True, help="Derive the corpus anew beside the live one, and promote it.")

POLL_SECONDS = 0.3
RUNNING = "running"

ConfigId = Annotated[str, typer.Argument(metavar="CONFIG", help="As `transform create` answers it.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="As `transform run` answers it.")]
Generation = Annotated[
    str, typer.Argument(metavar="GENERATION", help="As `transform run` answers it; a run's own id.")
]
Limit = Annotated[int, typer.Option(min=1, max=RUNS_LIMIT_MAX, help="So many of each, newest first.")]


@app.command("create")
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
    target = _target(data_dir, database_url, url, token, tenant, principal)
    made = _ask(target, lambda backend: backend.create(name, read))
    if as_json:
        print_json(made)
    else:
        typer.echo(f"{made['id']}  {clean(made['name'])} version {made['version']}")


@app.command("run")
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
    target = _target(data_dir, database_url, url, token, tenant, principal)
    given = {name: value for name, value in scope.items() if value is not None}
    told = run_async(_run(target, config_id, given, wait=not no_wait))
    _tell_run(told, as_json=as_json)
    if told["status"] == "failed":
        raise typer.Exit(FAILED)


@app.command("list")
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
    from corbits_memory.cli.transforms import TransformBackend, open_transforms

    async def read(target: Target) -> Json:
        async with open_transforms(target, os.environ) as opened:
            backend: TransformBackend = opened
            return {**await backend.configs(name, limit), **await backend.runs(limit)}

    told = run_async(read(_target(data_dir, database_url, url, token, tenant, principal)))
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
                f"{one['progress']['done']}/{_or_dash(one['progress']['total'])}",
                str(one["version_count"]),
                str(one["skipped_count"]),
                "live" if one["live"] else "",
            )
            for one in told["runs"]
        ],
    )


@app.command("show")
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
    target = _target(data_dir, database_url, url, token, tenant, principal)
    if not which.startswith(f"{TRANSFORM_CONFIG}_"):
        _tell_run(_ask(target, lambda backend: backend.show(which)), as_json=as_json)
        return
    told = _ask(target, lambda backend: backend.config(which))
    if as_json:
        print_json(told)
        return
    typer.echo(f"{told['id']}  {clean(told['name'])} version {told['version']}, {told['created_at']}")
    typer.echo(clean(json.dumps(told["params"], indent=2), lines=True))
    for path in told["secrets"]:
        typer.echo(f"{path} is set")


@app.command("diff")
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
    target = _target(data_dir, database_url, url, token, tenant, principal)
    told = _ask(target, lambda backend: backend.diff(before, after))
    if as_json:
        print_json(told)
        return
    if not told["changes"]:
        note("they are the same")
    print_table(
        ("parameter", "before", "after"),
        [(one["path"], _or_dash(one["before"]), _or_dash(one["after"])) for one in told["changes"]],
    )


@app.command("delete")
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
    target = _target(data_dir, database_url, url, token, tenant, principal)
    told = _ask(target, lambda backend: backend.delete(config_id))
    if as_json:
        print_json(told)
    else:
        typer.echo(f"deleted {told['id']}")


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
        target = _target(data_dir, database_url, url, token, tenant, principal)
        _tell_run(_ask(target, lambda backend: backend.change(run_id, word)), as_json=as_json)

    command.__doc__ = text
    return command


app.command("pause")(_verb("pause", "Begin no slice of a run until it is resumed."))
app.command("resume")(_verb("resume", "Have workers go on with a run that was paused."))
app.command("cancel")(_verb("cancel", "End a run where it is."))
app.command("retry")(_verb("retry", "Have workers go on with a run that failed or was cancelled."))


@app.command("compare")
def compare(
    generation: Generation,
    queries: Annotated[
        Path | None,
        typer.Option(
            help='A query a line, or JSON: {"query": …, "relevant": [external refs], filters…}. '
            "Default: what was asked lately, where QUERY_LOG_PERCENT keeps some.",
            show_default=False,
        ),
    ] = None,
    sampled: Annotated[
        int, typer.Option(min=1, max=SAMPLED_LIMIT_MAX, help="So many of what was asked lately.")
    ] = SAMPLED_LIMIT_DEFAULT,
    against: Annotated[
        str | None, typer.Option(help="Another generation than the live one.", show_default=False)
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a report with charts and all answers.", show_default=False)
    ] = None,
    rows: Annotated[
        int, typer.Option(min=0, help="So many queries in the table, the most changed first.")
    ] = 20,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    url: Url = None,
    token: Token = None,
    tenant: Tenant = "default",
    principal: Principal = "owner",
    as_json: AsJson = False,
) -> None:
    """Ask the live generation and a run's the same questions, as the principal, and show what differs."""
    from corbits_memory.cli import compare_report as report
    from corbits_memory.cli.compare import compare as ask_both
    from corbits_memory.cli.compare import comparison_json, read_questions, sampled_questions
    from corbits_memory.core.comparison import Comparison

    target = _target(data_dir, database_url, url, token, tenant, principal)
    if queries is not None:
        questions = read_questions(queries)
    else:
        questions = sampled_questions(_ask(target, lambda backend: backend.sampled(sampled)))
    with _Bar("queries") as bar:
        compared = run_async(ask_both(target, against, generation, questions, bar.asked))
    if html is not None:
        page = report.report_page(compared, before=against or "live", after=generation)
        try:
            html.write_text(page, encoding="utf-8")
        except OSError as error:
            raise InvalidInputError(f"--html can't be written ({type(error).__name__})") from None
    if as_json:
        print_json(comparison_json(compared))
        return
    total = Comparison.of(compared)
    for line in report.headline(total):
        typer.echo(line)
    typer.echo("")
    print_table(("", against or "live", generation), report.summary_rows(total))
    if rows:
        typer.echo("")
        print_table(
            report.QUERY_COLUMNS, [report.query_row(one) for one in report.by_change(compared)[:rows]]
        )


@app.command("queries")
def queries(
    limit: Annotated[
        int, typer.Option(min=1, max=SAMPLED_LIMIT_MAX, help="So many, newest first.")
    ] = SAMPLED_LIMIT_DEFAULT,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    url: Url = None,
    token: Token = None,
    tenant: Tenant = "default",
    principal: Principal = "operator",
) -> None:
    """Print what was asked lately as lines of JSON, for `compare --queries`; add what is relevant to them."""
    target = _target(data_dir, database_url, url, token, tenant, principal)
    for one in _ask(target, lambda backend: backend.sampled(limit))["queries"]:
        print_json({"query": one["query"], "relevant": []})


@app.command("promote")
def promote(
    generation: Generation,
    partial: Annotated[
        bool, typer.Option("--partial", help="Also when live documents are not in it: they are gone, then.")
    ] = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    url: Url = None,
    token: Token = None,
    tenant: Tenant = "default",
    principal: Principal = "operator",
    as_json: AsJson = False,
) -> None:
    """Make a run's generation the live one. The one before is kept: demote goes back to it."""
    target = _target(data_dir, database_url, url, token, tenant, principal)
    told = _ask(target, lambda backend: backend.promote(generation, partial=partial))
    if as_json:
        print_json(told)
    else:
        typer.echo(f"{told['generation']} is live; {told['archived_live_generation']} is kept")


@app.command("demote")
def demote(
    generation: Generation,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    url: Url = None,
    token: Token = None,
    tenant: Tenant = "default",
    principal: Principal = "operator",
    as_json: AsJson = False,
) -> None:
    """Go back to what was live before a generation was promoted, with all that came in since."""
    target = _target(data_dir, database_url, url, token, tenant, principal)
    told = _ask(target, lambda backend: backend.demote(generation))
    if as_json:
        print_json(told)
    else:
        typer.echo(f"{told['generation']} is not live any more")


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


def _target(
    data_dir: Path | None,
    database_url: str | None,
    url: str | None,
    token: str | None,
    tenant: str,
    principal: str,
) -> Target:
    return Target(
        data_dir=data_dir, database_url=database_url, url=url, token=token, tenant=tenant, principal=principal
    )


def _ask(target: Target, question: Callable[[Any], Awaitable[Json]]) -> Json:
    async def answer() -> Json:
        from corbits_memory.cli.transforms import open_transforms

        async with open_transforms(target, os.environ) as backend:
            return await question(backend)

    return run_async(answer())


async def _run(target: Target, config_id: str, scope: Mapping[str, Any], *, wait: bool) -> Json:
    from corbits_memory.cli.transforms import open_transforms

    async with open_transforms(target, os.environ, run_worker=wait) as backend:
        told = await backend.run(config_id, scope)
        if not wait or told["status"] != RUNNING:
            return told
        try:
            with _Bar(told["id"]) as bar:
                while told["status"] == RUNNING:
                    bar.show(told["progress"])
                    await asyncio.sleep(POLL_SECONDS)
                    told = await backend.show(told["id"])
        except asyncio.CancelledError:
            note(
                f"{told['id']} goes on where workers run (serve, worker); look at it with: transform show {told['id']}"
            )
            raise
        return told


class _Bar:
    """Raw captures or queries, on a terminal; else nothing."""

    def __init__(self, title: str) -> None:
        self._progress: Any = None
        if on_terminal():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._task = self._progress.add_task(title, total=None, rate="")

    def __enter__(self) -> "_Bar":
        if self._progress is not None:
            self._progress.start()
        return self

    def show(self, progress: Mapping[str, Any]) -> None:
        if self._progress is not None:
            rate = progress["rate"]
            self._progress.update(
                self._task,
                completed=progress["done"],
                total=progress["total"],
                rate="" if rate is None else f"{rate:.1f}/s",
            )

    def asked(self, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress.update(self._task, completed=done, total=total)

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()


def _tell_run(told: Json, *, as_json: bool) -> None:
    if as_json:
        print_json(told)
        return
    progress = told["progress"]
    state = "paused" if told["paused"] else told["status"]
    typer.echo(f"{told['id']}  {state}{', live' if told['live'] else ''}")
    typer.echo(f"captures   {progress['done']} of {_or_dash(progress['total'])}")
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


def _or_dash(value: Any) -> str:
    return "-" if value is None else str(value)
