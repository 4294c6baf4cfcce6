"""How fast documents go in: against the model alone, and against a bare COPY of the very rows that result."""

import io
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import psycopg
from psycopg import sql

from benchmarks.datasets import load_conversations
from benchmarks.embeddings import local_embedder
from benchmarks.report import Table
from benchmarks.server import PRINCIPAL, Server, open_store
from corbits_memory.core.passages import passage_text
from corbits_memory.ports import Embedder, NewDocument, TextPart

TARGET_MODEL, TARGET_COPY = 0.8, 0.5
BATCH = 500
SLICE = 2_000
TABLES = {
    "tenant_state": "tenant_id",
    "raw_capture": "id",
    "document": "id",
    "version": "id",
    "chunk": "id",
    "search_row": "chunk_id",
    "feed_event": "lpad(seq::text, 20, '0')",
    "embed_queue": "chunk_id",
    "audit_event": "id",
}
"""What a capture writes, in the order of their foreign keys, each with what grows from slice to slice."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Documents a second of the product, and of what it is held against."""

    product: float
    bare: float

    @property
    def ratio(self) -> float:
        return self.product / self.bare


async def measure_captures(server: Server, *, quick: bool) -> str:
    """Markdown of both ratios."""
    documents = [d for data in load_conversations(1 if quick else 2) for d in data.documents]
    embedded = await _against_model(server, documents[: 64 if quick else 256])
    copied = await _against_copy(server, _many(documents, 2_000 if quick else 10_000))
    table = Table(("capture", "documents a second", "bare", "documents a second", "ratio", "target"))
    table.add(
        "add and embed", f"{embedded.product:.1f}", "the model alone", f"{embedded.bare:.1f}",
        *_verdict(embedded.ratio, TARGET_MODEL),
    )  # fmt: skip
    table.add(
        "add without a model", f"{copied.product:.0f}", "COPY of the same rows, indexes kept", f"{copied.bare:.0f}",
        *_verdict(copied.ratio, TARGET_COPY),
    )  # fmt: skip
    return table.markdown()


async def _against_model(server: Server, documents: Sequence[NewDocument]) -> Rate:
    """In turns of 32 documents, so that a change in the machine's load meets both."""
    url = await server.create_database("capture_model")
    alone = local_embedder()
    product = bare = 0.0
    async with open_store(url, local_embedder()) as store:
        await alone.embed(["warm up"], purpose="passage")
        await store.add(tenant_id="warm", principal_id=PRINCIPAL, documents=documents[:1])
        await store.embedding.drain("warm")
        for start in range(0, len(documents), 32):
            part = documents[start : start + 32]
            began = time.perf_counter()
            await store.add(tenant_id="t", principal_id=PRINCIPAL, documents=part)
            await store.embedding.drain("t")
            product += time.perf_counter() - began
            texts = _passages(documents, start, len(part))
            began = time.perf_counter()
            await _embed(alone, texts)
            bare += time.perf_counter() - began
    await alone.aclose()
    return Rate(len(documents) / product, len(documents) / bare)


async def _embed(model: Embedder, texts: Sequence[str]) -> None:
    await model.embed(texts, purpose="passage")


def _passages(documents: Sequence[NewDocument], start: int, size: int) -> list[str]:
    """What the product embeds for these documents: the turn before stands in front."""
    texts = []
    for place in range(start, start + size):
        document = documents[place]
        before = documents[place - 1] if place else None
        previous = (before.author, before.text) if before and before.thread == document.thread else None
        texts.append(
            passage_text(document.title, document.text, document.author, document.occurred_at, previous)
        )
    return texts


async def _against_copy(server: Server, documents: Sequence[NewDocument]) -> Rate:
    """In turns of 2,000 documents: what a slice became is copied next, so that both meet tables of the same size."""
    url = await server.create_database("capture_rows")
    other = await server.create_database("capture_copy")
    product = bare = 0.0
    copied = dict.fromkeys(TABLES, "")
    with psycopg.connect(url, autocommit=True) as source, psycopg.connect(other, autocommit=True) as target:
        async with open_store(url, None) as store:
            for start in range(0, len(documents), SLICE):
                part = documents[start : start + SLICE]
                began = time.perf_counter()
                for first in range(0, len(part), BATCH):
                    await store.add(
                        tenant_id="t", principal_id=PRINCIPAL, documents=part[first : first + BATCH]
                    )
                product += time.perf_counter() - began
                rows = {table: _copy_out(source, table, key, copied) for table, key in TABLES.items()}
                began = time.perf_counter()
                with target.transaction():
                    for table, data in rows.items():
                        _copy_in(target, table, data)
                bare += time.perf_counter() - began
    return Rate(len(documents) / product, len(documents) / bare)


def _columns(conn: psycopg.Connection, table: str) -> sql.Composed:
    rows = conn.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped "
        "AND attgenerated = '' ORDER BY attnum",
        [f"memory.{table}"],
    )
    return sql.SQL(", ").join(sql.Identifier(name) for (name,) in rows)


def _copy_out(conn: psycopg.Connection, table: str, key: str, copied: dict[str, str]) -> bytes:
    """The rows since the last call: ids grow, and so does the feed's number as padded text."""
    held = io.BytesIO()
    order, name = sql.SQL(key), sql.Identifier("memory", table)
    statement = sql.SQL("COPY (SELECT {} FROM {} WHERE {} > {}) TO STDOUT (FORMAT BINARY)").format(
        _columns(conn, table), name, order, sql.Literal(copied[table])
    )
    with conn.cursor().copy(statement) as copy:
        for block in copy:
            held.write(block)
    row = conn.execute(sql.SQL("SELECT coalesce(max({}), '') FROM {}").format(order, name)).fetchone()
    assert row is not None
    copied[table] = row[0]
    return held.getvalue()


def _copy_in(conn: psycopg.Connection, table: str, data: bytes) -> None:
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(
        sql.Identifier("memory", table), _columns(conn, table)
    )
    with conn.cursor().copy(statement) as copy:
        copy.write(data)


def _many(documents: Sequence[NewDocument], count: int) -> list[NewDocument]:
    """Repeats with their own references and a word of their own."""
    return [
        replace(
            documents[place % len(documents)],
            external_ref=f"copy-{place}",
            parts=(TextPart(text=f"{documents[place % len(documents)].text} No{place}."),),
            thread=f"{documents[place % len(documents)].thread}/{place // len(documents)}",
        )
        for place in range(count)
    ]


def _verdict(ratio: float, target: float) -> tuple[str, str]:
    return f"{ratio:.2f}", f"≥ {target} {'holds' if ratio >= target else '**does not hold**'}"
