"""Two generations of half a million documents each: how long a move of the pointer takes, and whom it holds up.

The corpus is derived by the product from real turns and then multiplied in the database, table by table: captures,
documents, versions, chunks, search rows, vectors. Every copy has ids of its own and a vector near the original's.
"""

import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import psycopg
from psycopg import sql

from benchmarks.corpus import NOISE, drop_search_indexes
from benchmarks.datasets import load_conversations
from benchmarks.replay import DIMS, TENANT, RemoteModel, add_all, many, open_store, run_to_its_end
from benchmarks.report import Table, verdict
from benchmarks.server import PRINCIPAL, Server
from corbits_memory.core.relevance import percentile
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.ports import NewDocument, SearchQuery, TextPart

STALL_SECONDS = 0.1
BASE = 2_500
"""Documents that the product itself derives; the rest are copies of them."""
QUESTIONS = 40
MOVES = 6


def _renamed(*columns: str) -> dict[str, str]:
    return {column: f"{column} || '_' || i" for column in columns}


_COPIED: dict[str, dict[str, str]] = {
    "raw_capture": _renamed("id", "external_ref", "source_hash"),
    "document": _renamed("id", "external_ref", "thread"),
    "version": {
        **_renamed("id", "document_id", "origin_id", "raw_capture_id", "thread"),
        "feed_seq": "NULL::bigint",
    },
    "chunk": _renamed("id", "version_id", "document_id"),
    "search_row": _renamed("chunk_id", "document_id", "version_id", "thread", "context_key"),
}
"""What of a copied row is its own."""
_NEAR = (
    "embedding + (SELECT array_agg(random_normal(0, {deviation})) FROM generate_series(1, {dims}) "
    "WHERE chunk_id IS NOT NULL AND i IS NOT NULL)::halfvec"
)
"""Drawn anew for each row, since it names the row."""


@dataclass(slots=True)
class Waits:
    """Seconds that each search and each add took."""

    search: list[float] = field(default_factory=list)
    add: list[float] = field(default_factory=list)


async def measure_promotion(server: Server, table: Table, documents: int) -> None:
    """Rows for a table of replays. ``documents``: in each generation, a multiple of 2,500."""
    conversations = load_conversations()
    turns = [document for data in conversations for document in data.documents]
    questions = [question.text for data in conversations for question in data.questions][:QUESTIONS]
    url = await server.create_database("promotion")
    async with AsyncExitStack() as stack:
        store, reader, writer = [await open_store(stack, url, RemoteModel()) for _ in range(3)]
        await add_all(store, many(turns, BASE))
        run, _ = await run_to_its_end([store])
        began = time.perf_counter()
        counts = await _multiply(url, RemoteModel.model_key, documents // BASE - 1)
        sys.stderr.write(f"promotion: {documents:,} documents twice in {time.perf_counter() - began:.0f} s\n")
        await store.statistics.refresh(TENANT)
        await _ask(reader, questions)
        took: list[float] = []

        async def move() -> None:
            transforms = store.transforms
            for verb in (transforms.promote_generation, transforms.demote_generation) * (MOVES // 2):
                began = time.perf_counter()
                await verb(tenant_id=TENANT, actor_id="bench", generation=run.generation)
                took.append(time.perf_counter() - began)
                await asyncio.sleep(1.0)

        began = time.perf_counter()
        moving = await _watched(reader, writer, questions, asyncio.create_task(move()))
        # As long without: the longest of more would be longer.
        seconds = time.perf_counter() - began
        calm = await _watched(reader, writer, questions, asyncio.create_task(asyncio.sleep(seconds)))
    name = f"two generations of {documents:,} documents ({', '.join(f'{n:,} {kind}' for kind, n in counts.items())})"
    table.add(f"promote and demote, {name}", f"{max(took):.2f} s at most", f"{MOVES} moves", "", "")
    for kind, during, without in (("search", moving.search, calm.search), ("add", moving.add, calm.add)):
        more = max(during) - max(without)
        table.add(
            f"longest {kind} beside these moves, of {len(during):,}",
            _waited(during),
            f"{_waited(without)}, without, of {len(without):,}",
            f"{more * 1000:+.0f} ms",
            f"≤ {STALL_SECONDS * 1000:.0f} ms beyond what it waits without: {verdict(held=more <= STALL_SECONDS)}",
        )


def _waited(seconds: Sequence[float]) -> str:
    return f"{max(seconds) * 1000:.0f} ms (p99 {percentile(seconds, 0.99) * 1000:.0f})"


async def _ask(reader: PostgresDocumentStore, questions: Sequence[str]) -> None:
    for question in questions:
        await reader.search(tenant_id=TENANT, principal_id=PRINCIPAL, query=SearchQuery(query=question))


async def _watched(
    reader: PostgresDocumentStore,
    writer: PostgresDocumentStore,
    questions: Sequence[str],
    work: asyncio.Task[None],
) -> Waits:
    """What searches and adds, each one after the other, take while something goes on."""
    waits = Waits()

    async def search() -> None:
        number = 0
        while not work.done():
            began = time.perf_counter()
            await _ask(reader, [questions[number % len(questions)]])
            waits.search.append(time.perf_counter() - began)
            number += 1

    async def add() -> None:
        number = 0
        while not work.done():
            number += 1
            began = time.perf_counter()
            await add_all(writer, [NewDocument(title="t", parts=(TextPart(text=f"Added {number}."),))])
            waits.add.append(time.perf_counter() - began)
            await asyncio.sleep(0.01)

    await asyncio.gather(search(), add(), work)
    return waits


async def _multiply(url: str, model_key: str, copies: int) -> dict[str, int]:
    """Copies of every row in every table that a corpus is made of; how many rows each has then."""
    vectors = f"embedding_{model_key}"
    near = _NEAR.format(deviation=NOISE, dims=DIMS)
    plan: dict[str, dict[str, str]] = {
        **_COPIED,
        vectors: {**_renamed("chunk_id", "document_id"), "embedding": near},
    }
    with psycopg.connect(url, autocommit=True) as conn:
        for setting in (
            "synchronous_commit = off",
            "maintenance_work_mem = '2GB'",
            "max_parallel_maintenance_workers = 1",
        ):
            conn.execute(f"SET {setting}".encode())
        indexes = drop_search_indexes(conn, model_key)
        for name, changed in plan.items():
            columns = conn.execute(
                "SELECT column_name FROM information_schema.columns WHERE table_schema = 'memory' AND table_name = %s "
                "AND is_generated = 'NEVER' ORDER BY ordinal_position",
                [name],
            ).fetchall()
            values = {str(column): str(column) for (column,) in columns} | changed
            text = (
                f"INSERT INTO memory.{name} ({', '.join(values)}) SELECT {', '.join(values.values())} "
                f"FROM memory.{name}, generate_series(1, {copies:d}) AS i"
            )
            conn.execute(text.encode())
        conn.execute(
            "UPDATE memory.tenant_state s SET document_count = (SELECT count(*) FROM memory.document), chunk_count = "
            "(SELECT count(*) FROM memory.search_row r WHERE r.generation = s.live_generation)"
        )
        for definition in indexes:
            conn.execute(definition)
        conn.execute("VACUUM (ANALYZE)")
        tables = {"versions": "version", "chunks": "chunk", "search rows": "search_row", "vectors": vectors}
        counts = {}
        for kind, name in tables.items():
            row = conn.execute(
                sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier("memory", name))
            ).fetchone()
            counts[kind] = row[0] if row else 0
    return counts
