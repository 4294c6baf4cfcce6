"""The schema can be spread by tenant: every key begins with the tenant, every statement says which one it means."""

import asyncio
import re
import tempfile
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pglast import fingerprint

from corbits_memory.core.queries import parse_queries
from corbits_memory.engine.embedded.supervisor import EmbeddedPostgres
from corbits_memory.server.startup import migrate, open_plane
from tests.engine.conftest import embed_words
from tests.engine.scale.exercise import config_of, exercise
from tests.models.conftest import ModelServer
from tests.support.postgres import FAST
from tests.support.tenancy import plain, unbound

OPERATORS = {
    ("distribution", "distributed"): "catalogs",
    ("feed", "newest"): "the counters of all tenants that are followed in this process, in one look",
    ("idempotency", "expired_tenants"): "the sweep finds whose keys are old",
    ("models", "is_registered"): "whether a table of vectors is anybody's",
    ("models", "tenants_with_models"): "an operator removes models that nobody uses",
    ("push", "claim"): "a worker takes the next subscription that is due, whoever's it is",
    ("push", "next_retry"): "when the next delivery is due, whoever's it is",
    ("query_log", "expired_tenants"): "the sweep finds who has old questions",
    ("statistics", "stale_tenants"): "the worker finds who has outgrown its counts",
    ("transform", "running_runs"): "a worker looks for runs that have slices to do",
    ("vectors", "changing_tenants"): "the worker finds whose vectors are of a model that is replaced",
    ("vectors", "due_tenants"): "the worker finds whose chunks wait",
}
"""Statements of the owner, in the background, that look over all tenants; on a cluster each node answers a part."""

OWN = ("engine", "access")
NOT_OURS = re.compile(r"memory_jobs|memory_host|procrastinate|_migrations")


def named_queries() -> list[tuple[str, str, str]]:
    found = []
    for package in OWN:
        folder = resources.files(f"corbits_memory.{package}").joinpath("sql")
        for file in folder.iterdir():
            text = file.read_text(encoding="utf-8")
            found += [
                (file.name.removesuffix(".sql"), name, query) for name, query in parse_queries(text).items()
            ]
    return found


def filled_in(query: str) -> str:
    return query.replace("{table}", "memory.embedding_0123456789abcdef").replace("{type}", "halfvec(64)")


@pytest.mark.parametrize(
    ("file", "name", "query"), [pytest.param(*q, id=f"{q[0]}-{q[1]}") for q in named_queries()]
)
def test_each_named_query_says_which_tenant(file: str, name: str, query: str) -> None:
    found = unbound(filled_in(query))
    assert bool(found) is ((file, name) in OPERATORS and file != "distribution"), found


@pytest.fixture(scope="module")
def exercised() -> Iterator[psycopg.Connection[Any]]:
    """The owner's connection to a database in which everything was done once, statements counted."""
    options = {
        **FAST,
        "shared_preload_libraries": "pg_stat_statements",
        "pg_stat_statements.track": "all",
        "pg_stat_statements.max": "10000",
    }
    with (
        tempfile.TemporaryDirectory(prefix="corbits-memory-test-") as folder,
        ModelServer() as models,
    ):
        Path(folder).chmod(0o755)
        models.script(embed_words)
        with (
            EmbeddedPostgres.start(Path(folder) / "postgres", options=options) as server,
            psycopg.connect(server.url, autocommit=True) as owner,
        ):
            config = config_of(server.url, models.url)
            asyncio.run(migrate(config.memory))
            owner.execute("CREATE EXTENSION pg_stat_statements")
            owner.execute("SELECT pg_stat_statements_reset()")

            async def run() -> None:
                async with open_plane(config, run_worker=True) as plane:
                    await exercise(plane, "acme")

            asyncio.run(run())
            yield owner


TABLES = (
    "SELECT c.oid, c.relname, EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id') "
    "FROM pg_class c WHERE c.relnamespace = 'memory'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition"
)


def test_every_table_but_the_ledger_has_a_tenant(exercised: psycopg.Connection[Any]) -> None:
    rows = exercised.execute(TABLES).fetchall()
    assert [name for _, name, has in rows if not has] == ["_migrations"]
    # The vectors' too, which no migration makes.
    assert any(name.startswith("embedding_") for _, name, _ in rows)


def test_every_key_begins_with_the_tenant(exercised: psycopg.Connection[Any]) -> None:
    rows = exercised.execute(
        "SELECT k.conrelid::regclass::text, k.conname, k.contype, "
        "(SELECT a.attname FROM pg_attribute a WHERE a.attrelid = k.conrelid AND a.attnum = k.conkey[1]), "
        "(SELECT a.attname FROM pg_attribute a WHERE a.attrelid = k.confrelid AND a.attnum = k.confkey[1]) "
        f"FROM pg_constraint k JOIN ({TABLES}) AS t (oid, name, has) ON t.oid = k.conrelid AND t.has "
        "WHERE k.contype IN ('p', 'u', 'f', 'x')"
    ).fetchall()
    assert len(rows) > 40
    assert {kind for _, _, kind, _, _ in rows} == {"p", "u", "f"}
    wrong = [
        (table, name)
        for table, name, kind, column, referred in rows
        if column != "tenant_id" or (kind == "f" and referred != "tenant_id")
    ]
    assert wrong == []


def test_every_unique_index_and_every_ordered_one_begins_with_the_tenant(
    exercised: psycopg.Connection[Any],
) -> None:
    rows = exercised.execute(
        "SELECT i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid, 1, true), m.amname, i.indisunique "
        f"FROM pg_index i JOIN ({TABLES}) AS t (oid, name, has) ON t.oid = i.indrelid AND t.has "
        "JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam"
    ).fetchall()
    ordered = [(name, first) for name, first, method, unique in rows if unique or method == "btree"]
    assert len(ordered) > 40
    assert [name for name, first in ordered if first != "tenant_id"] == []


@pytest.mark.parametrize(
    "what",
    [
        "SELECT FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid WHERE c.relnamespace = {} AND NOT tgisinternal",
        "SELECT FROM pg_class c WHERE c.relnamespace = {} AND c.relkind IN ('S', 'v', 'm', 'f')",
        "SELECT FROM pg_attribute JOIN pg_class c ON c.oid = attrelid WHERE c.relnamespace = {} AND attidentity <> ''",
    ],
    ids=["triggers", "sequences and views", "identity columns"],
)
def test_nothing_stands_in_the_way_of_spreading(exercised: psycopg.Connection[Any], what: str) -> None:
    assert exercised.execute(what.format("'memory'::regnamespace").encode()).fetchall() == []


def test_every_statement_of_a_real_run_says_which_tenant(exercised: psycopg.Connection[Any]) -> None:
    rows = exercised.execute(
        "SELECT s.query, s.userid::regrole::text, s.toplevel FROM pg_stat_statements s "
        "WHERE s.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
    ).fetchall()
    ours = [row for row in rows if "memory." in row[0] and not NOT_OURS.search(row[0])]
    known = {
        fingerprint(plain(filled_in(query)))
        for file, name, query in named_queries()
        if (file, name) in OPERATORS
    }
    queries = [
        (text, role, top)
        for text, role, top in ours
        if re.match(r"(?is)\s*(with|select|insert|update|delete)", text)
    ]
    assert len(queries) > 150
    # Those of functions, whose text is made at run time, and of keys that refer, are among them.
    assert sum(not top for _, _, top in queries) > 20
    found = {}
    for text, role, _ in queries:
        tables = unbound(text)
        if tables and not (role != "corbits_memory_app" and fingerprint(text) in known):
            found[text] = tables
    assert list(found.items()) == []
