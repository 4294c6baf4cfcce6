"""``corbits-memory db``: the schema of a database."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from corbits_memory.cli.options import AsJson, DatabaseUrl, DataDir
from corbits_memory.cli.output import note, print_json
from corbits_memory.cli.run import FAILED, run_async

app = typer.Typer(no_args_is_help=True, help="Look after the database's schema.")


@app.command("migrate")
def migrate(data_dir: DataDir = None, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Bring the schema up to date."""
    applied = run_async(_migrate(data_dir, database_url))
    if as_json:
        print_json({"applied": applied})
    else:
        typer.echo("\n".join(f"applied {name}" for name in applied) or "nothing to do")


@app.command("status")
def status(data_dir: DataDir = None, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show the database, its versions, and which migrations it has. Changes nothing."""
    told = run_async(_status(data_dir, database_url))
    if as_json:
        print_json(told)
        return
    kind = "embedded" if told["embedded"] else "external"
    typer.echo(f"database            {kind} at {told['location']}")
    typer.echo(f"postgres            {told['postgres']}")
    typer.echo(f"pgvector            {told['pgvector'] or 'not created'}")
    typer.echo(f"row-level security  {'on' if told['rowLevelSecurity'] else 'off'}")
    for schema, names in told["migrations"].items():
        parts = [f"{len(names['applied'])} applied"]
        parts += [
            f"{word}: {', '.join(names[word])}" for word in ("pending", "edited", "unknown") if names[word]
        ]
        typer.echo(f"{schema:<19} {'; '.join(parts)}")


@app.command("verify")
def verify(data_dir: DataDir = None, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Check that the database fits this release and this configuration. Changes nothing."""
    problems = run_async(_verify(data_dir, database_url))
    if as_json:
        print_json({"ok": not problems, "problems": problems})
    else:
        typer.echo("\n".join(problems) or "ok")
    if problems:
        raise typer.Exit(FAILED)


@app.command("rebuild-fts")
def rebuild_fts(
    language: Annotated[str, typer.Argument(help="english, german, simple, …")],
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Give the full-text index another language. Writes wait meanwhile."""
    run_async(_rebuild_fts(language, data_dir, database_url))
    if as_json:
        print_json({"language": language})
    else:
        typer.echo(f"the full-text index is in {language} now; set FTS_LANGUAGE={language} for every process")


@app.command("scrub")
def scrub(data_dir: DataDir = None, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Rewrite every table, so that the files hold nothing that was erased. Reads and writes wait meanwhile."""
    told = run_async(_scrub(data_dir, database_url))
    if as_json:
        print_json(told)
        return
    typer.echo(f"rewrote {told['tables']} tables")
    for left in told["left"]:
        note(left)


@app.command("distribute")
def distribute(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be spread.")] = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Spread the tables over the nodes of a Citus cluster, by tenant. Stop every process of the memory before."""
    told = run_async(_distribute(data_dir, database_url, dry_run=dry_run))
    if as_json:
        print_json(told)
        return
    would = "would be" if dry_run else "are"
    for table in told["tables"]:
        typer.echo(f"{table} {would} distributed by tenant_id")
    typer.echo(f"{len(told['tables'])} tables and {len(told['functions'])} functions {would} distributed now")
    for left in told["left"]:
        note(left)


async def _distribute(data_dir: Path | None, database_url: str | None, *, dry_run: bool) -> dict[str, Any]:
    from corbits_memory.cli.local import open_database
    from corbits_memory.engine.distribution import distribute as spread
    from corbits_memory.server.inspect import connect

    async with open_database(data_dir, database_url) as (place, _), connect(place.url) as conn:
        done = await spread(conn, dry_run=dry_run)
    return {"tables": list(done.tables), "functions": list(done.functions), "left": list(done.left)}


async def _scrub(data_dir: Path | None, database_url: str | None) -> dict[str, Any]:
    from corbits_memory.cli.local import open_database
    from corbits_memory.engine.scrub import scrub as rewrite
    from corbits_memory.server.inspect import connect

    async with open_database(data_dir, database_url) as (place, _), connect(place.url) as conn:
        done = await rewrite(conn)
    return {"tables": done.tables, "left": list(done.left)}


async def _migrate(data_dir: Path | None, database_url: str | None) -> list[str]:
    from corbits_memory.cli.local import open_database
    from corbits_memory.server import startup

    async with open_database(data_dir, database_url) as (_, config):
        return await startup.migrate(config.memory)


async def _status(data_dir: Path | None, database_url: str | None) -> dict[str, Any]:
    from corbits_memory.cli.local import open_database
    from corbits_memory.server.inspect import connect, read_facts

    async with open_database(data_dir, database_url) as (place, _), connect(place.url) as conn:
        facts = await read_facts(conn)
    return {"embedded": place.embedded, "location": place.location, **facts.to_json()}


async def _verify(data_dir: Path | None, database_url: str | None) -> list[str]:
    from corbits_memory.cli.local import open_database
    from corbits_memory.engine.fts import verify_fts_language
    from corbits_memory.errors import MemoryError
    from corbits_memory.server.inspect import connect, read_facts

    async with open_database(data_dir, database_url) as (place, config), connect(place.url) as conn:
        facts = await read_facts(conn)
        problems = []
        for schema, names in facts.migrations.items():
            problems += [
                f"{schema}: {name} is not applied; run: corbits-memory db migrate"
                for name in names["pending"]
            ]
            problems += [f"{schema}: {name} was edited after it had been applied" for name in names["edited"]]
            problems += [
                f"{schema}: {name} is unknown to this release; upgrade it" for name in names["unknown"]
            ]
        if facts.migrations["memory"]["applied"]:
            try:
                await verify_fts_language(conn, config.memory.fts_language)
            except MemoryError as error:
                problems.append(error.message)
    return problems


async def _rebuild_fts(language: str, data_dir: Path | None, database_url: str | None) -> None:
    from corbits_memory.cli.local import open_database
    from corbits_memory.engine.fts import rebuild_fts as rebuild
    from corbits_memory.server.inspect import connect

    # The language that the environment names is the one to be left or reached, so it is not compared here.
    environ = {name: value for name, value in os.environ.items() if name != "FTS_LANGUAGE"}
    async with (
        open_database(data_dir, database_url, environ) as (place, _),
        connect(place.url) as conn,
    ):
        await rebuild(conn, language)
