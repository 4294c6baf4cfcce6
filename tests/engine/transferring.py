"""Exports and imports of tests: a tenant as lines, lines into a tenant, and two tenants compared."""

import copy
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import psycopg
from psycopg import sql

from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.engine.transfer.restore import Restored
from tests.engine.support import T

Lines = list[dict[str, Any]]
Owner = psycopg.AsyncConnection[Any]


async def lines_of(store: PostgresDocumentStore, *, tenant: str = T, **options: Any) -> Lines:
    # Through JSON, as a file has it.
    exported = store.exporter.export(tenant_id=tenant, **options)
    return [json.loads(json.dumps(line)) async for line in exported]


async def source(lines: Iterable[Mapping[str, Any]]) -> AsyncIterator[tuple[Mapping[str, Any], int]]:
    for line in lines:
        yield line, len(json.dumps(line))


async def restore(store: PostgresDocumentStore, lines: Lines, *, tenant: str = T, **options: Any) -> Restored:
    return [step async for step in store.restorer.restore(source(lines), tenant_id=tenant, **options)][-1]


async def restore_until(
    store: PostgresDocumentStore, lines: Lines, *, batches: int, tenant: str = T, batch_lines: int
) -> None:
    """Restore some batches, and then no more, as if the process had been killed."""
    steps = store.restorer.restore(source(lines), tenant_id=tenant, batch_lines=batch_lines)
    async with aclosing(steps):  # type: ignore[type-var]  # an async generator, told as an iterator
        for _ in range(batches):
            await anext(steps, None)


def content(lines: Lines) -> list[str]:
    """What of an export is the same wherever and whenever it was made."""
    return [json.dumps(line, sort_keys=True) for line in lines[1:]]


def of_kind(lines: Lines, kind: str) -> list[dict[str, Any]]:
    return [line[kind] for line in lines if kind in line]


def of_documents(lines: Lines, *ids: str) -> Lines:
    """The export as it would be if there were only these documents."""
    kept, keeps = [lines[0]], False
    for line in lines[1:-1]:
        keeps = line["document"]["id"] in ids if "document" in line else keeps
        kept += [line] if keeps else []
    kinds = [name.removesuffix("s") for name in lines[-1]["end"]]
    return [*kept, {"end": {f"{kind}s": len(of_kind(kept, kind)) for kind in kinds}}]


def changed(lines: Lines, place: int, **fields: Any) -> Lines:
    """A copy in which the object at a place has other fields; one that is ``...`` is taken out."""
    copied = copy.deepcopy(lines)
    row = next(value for value in copied[place].values() if isinstance(value, dict))
    row.update(fields)
    for name in [name for name, value in row.items() if value is ...]:
        del row[name]
    return copied


def place_of(lines: Lines, kind: str, number: int = 0) -> int:
    return [place for place, line in enumerate(lines) if kind in line][number]


async def rows_of_all_tables(owner: Owner, *, but: Sequence[str] = ()) -> dict[str, str]:
    """Every row of the memory's tables, as text, by table."""
    names = await (
        await owner.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'memory'::regnamespace AND relkind IN ('r', 'p') "
            "AND NOT relispartition"
        )
    ).fetchall()
    found = {}
    for (name,) in names:
        if name in but:
            continue
        statement = sql.SQL(
            "SELECT coalesce(string_agg(t::text, E'\\n' ORDER BY t::text), '') FROM memory.{} AS t"
        ).format(sql.Identifier(name))
        row = await (await owner.execute(statement)).fetchone()
        assert row is not None
        found[name] = row[0]
    return found
