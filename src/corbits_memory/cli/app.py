"""All commands. Their modules import what is heavy only when a command runs."""

from typing import Annotated

import typer

from corbits_memory.cli import (
    add,
    db,
    distill,
    doctor,
    documents,
    embed,
    export,
    feed,
    forget,
    grant,
    mcp,
    role,
    search,
    serve,
    tenant,
    token,
    webhook,
    worker,
)
from corbits_memory.cli.imports import command as imports
from corbits_memory.cli.transform import command as transform

app = typer.Typer(
    name="corbits-memory",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A memory for AI agents. Begin with: corbits-memory serve",
)


def _tell_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(version("corbits-memory"))
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_tell_version, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")] = False,
) -> None:
    """What all commands share."""


app.command("serve")(serve.serve)
app.command("worker")(worker.worker)
app.command("add")(add.add)
app.command("import")(imports.import_files)
app.command("search")(search.search)
app.command("list")(search.list_documents)
app.command("forget")(forget.forget)
app.command("purge")(forget.purge)
app.command("deprecate")(forget.deprecate)
app.command("sweep")(forget.sweep)
app.command("show")(documents.show)
app.command("history")(documents.history)
app.command("export")(export.export)
app.command("feed")(feed.feed)
app.command("mcp")(mcp.mcp)
app.command("distill")(distill.distill)
app.command("doctor")(doctor.doctor)
app.add_typer(token.app, name="token")
app.add_typer(grant.app, name="grant")
app.add_typer(role.app, name="role")
app.add_typer(tenant.app, name="tenant")
app.add_typer(webhook.app, name="webhook")
app.add_typer(db.app, name="db")
app.add_typer(embed.app, name="embed")
app.add_typer(transform.app, name="transform")
