"""What runs made: asked beside the live one, put in its place, taken out of it."""

from pathlib import Path
from typing import Annotated

import typer

from corbits_memory.cli.options import AsJson, DatabaseUrl, DataDir, Principal, Tenant, Token, Url
from corbits_memory.cli.output import print_json, print_table
from corbits_memory.cli.run import run_async
from corbits_memory.cli.transform.asking import Generation, ask, target_of
from corbits_memory.cli.transform.bar import Bar
from corbits_memory.core.limits import SAMPLED_LIMIT_DEFAULT, SAMPLED_LIMIT_MAX
from corbits_memory.errors import InvalidInputError


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
    from corbits_memory.cli.transform import compare_report as report
    from corbits_memory.cli.transform.compare import compare as ask_both
    from corbits_memory.cli.transform.compare import comparison_json, read_questions, sampled_questions
    from corbits_memory.core.comparison import Comparison

    target = target_of(data_dir, database_url, url, token, tenant, principal)
    if queries is not None:
        questions = read_questions(queries)
    else:
        questions = sampled_questions(ask(target, lambda backend: backend.sampled(sampled)))
    with Bar("queries") as bar:
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
    target = target_of(data_dir, database_url, url, token, tenant, principal)
    for one in ask(target, lambda backend: backend.sampled(limit))["queries"]:
        print_json({"query": one["query"], "relevant": []})


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
    target = target_of(data_dir, database_url, url, token, tenant, principal)
    told = ask(target, lambda backend: backend.promote(generation, partial=partial))
    if as_json:
        print_json(told)
    else:
        typer.echo(f"{told['generation']} is live; {told['archived_live_generation']} is kept")


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
    target = target_of(data_dir, database_url, url, token, tenant, principal)
    told = ask(target, lambda backend: backend.demote(generation))
    if as_json:
        print_json(told)
    else:
        typer.echo(f"{told['generation']} is not live any more")
