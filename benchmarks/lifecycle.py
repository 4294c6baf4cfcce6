"""Forgetting, purging and sweeping, and questions to the past: how long they take, and whom they make wait."""

import asyncio
import random
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median

import psycopg

from benchmarks.report import Table
from benchmarks.server import PRINCIPAL, Server, bench_server, open_store
from corbits_memory.core.limits import CHUNKS_PER_DOCUMENT
from corbits_memory.core.relevance import percentile
from corbits_memory.engine.retention import SWEEP_VERSIONS
from corbits_memory.engine.search.past import PAST_ROWS
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.ports import AddResult, EmbedPurpose, NewDocument, SearchQuery, TextPart, TimelineQuery

TENANT = "lifecycle"
DIMS = 384
LARGE_DOCUMENTS = 5
SWEPT, QUICK_SWEPT = 1_000_000, 20_000
PROBE_PAUSE = 0.02
REPLACED, QUICK_REPLACED = PAST_ROWS, 400
QUESTIONS = 50

_WORDS = [f"word{number}" for number in range(5_000)]

_EXPIRED = """
WITH made AS MATERIALIZED (
  SELECT n, memory.analyse('english', '', 'expired note ' || n) AS fts FROM generate_series(%(low)s, %(high)s) AS n
), documents AS (
  INSERT INTO memory.document (tenant_id, id, kind, title, adapter, external_ref, owner_principal_id)
  SELECT %(tenant)s, 'kdoc_' || n, 'note', 'Note', 'bench', 'n' || n, %(owner)s FROM made
), versions AS (
  INSERT INTO memory.version (tenant_id, id, document_id, version, content_hash, title, kind, language, occurred_at,
    owner_principal_id, created_by_principal_id, created_by_kind, authority, generation, retention_class, valid_until,
    feed_seq)
  SELECT %(tenant)s, 'kver_' || n, 'kdoc_' || n, 1, n, 'Note', 'note', 'english', now(), %(owner)s, %(owner)s, 'human',
    0.42, 'g0', 'ephemeral', now() - interval '1 day', n FROM made
), chunks AS (
  INSERT INTO memory.chunk (tenant_id, id, version_id, document_id, ordinal, text, token_count)
  SELECT %(tenant)s, 'kchk_' || n, 'kver_' || n, 'kdoc_' || n, 0, 'expired note ' || n, 4 FROM made
)
INSERT INTO memory.search_row (tenant_id, chunk_id, generation, document_id, version_id, ordinal, status, owner_id,
  access_tags, kind, thread_seq, occurred_at, temporal_class, authority, words, asks, language, fts, terms, lex)
SELECT %(tenant)s, 'kchk_' || n, 'g0', 'kdoc_' || n, 'kver_' || n, 0, 'active', %(owner)s, '{}', 'note', 0, now(),
  'event', 0.42, 3, false, 'english', fts, memory.term_hashes(%(tenant)s, 'g0', fts), memory.bm25_vector(fts) FROM made
"""


class RandomVectors:
    """An embedder that costs nothing: what is measured is the database's work."""

    base_url, model, api_style, model_key, batch_size = "http://none", "random", "openai", "0" * 16, 64

    def __init__(self) -> None:
        self._draw = random.Random(7)

    async def embed(self, texts: Sequence[str], *, purpose: EmbedPurpose) -> list[list[float]]:
        return [[self._draw.gauss(0, 1) for _ in range(DIMS)] for _ in texts]

    async def dims(self) -> int:
        return DIMS

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds that each probe took."""

    adds: list[float]
    searches: list[float]


async def run_lifecycle(*, quick: bool = False) -> str:
    """Markdown of the figures."""
    with bench_server() as server:
        erasure = await _measure_erasure(server)
        sweep = await _measure_sweep(server, QUICK_SWEPT if quick else SWEPT)
        past = await _measure_past(server, QUICK_REPLACED if quick else REPLACED)
        versions = await server.version()
    return "\n\n".join((erasure, sweep, past, versions))


async def _measure_erasure(server: Server) -> str:
    url = await server.create_database("erasure")
    draw = random.Random(7)
    table = Table(("verb", "chunks", "with vectors", "ms, median of five"))
    async with open_store(url, RandomVectors()) as store:
        for verb in ("forget", "purge"):
            seconds = []
            for _ in range(LARGE_DOCUMENTS):
                parts = tuple(TextPart(text=_text(draw, 60)) for _ in range(CHUNKS_PER_DOCUMENT))
                (added,) = await _add(store, NewDocument(title="Large", kind="note", parts=parts))
                await store.embedding.drain(TENANT)
                erase: Callable[..., Awaitable[object]] = getattr(store, verb)
                seconds.append(
                    await _timed(
                        erase(tenant_id=TENANT, principal_id=PRINCIPAL, document_id=added.document_id)
                    )
                )
            table.add(verb, f"{CHUNKS_PER_DOCUMENT:,}", "yes", f"{median(seconds) * 1_000:.0f}")
    return table.markdown()


async def _measure_sweep(server: Server, versions: int) -> str:
    url = await server.create_database("sweep")
    async with open_store(url, None) as store:
        await _add(store, NewDocument(title="First", kind="note", parts=(TextPart(text="kept"),)))
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as owner:
            await _load_expired(owner, versions)
            idle = await _probe(store, asyncio.sleep(3))
            began = time.perf_counter()
            sweeping = asyncio.create_task(store.sweep_ephemeral(tenant_id=TENANT, actor_id="bench"))
            busy = await _probe(store, sweeping)
            seconds = time.perf_counter() - began
        swept = sweeping.result().versions_deprecated
        assert swept == versions, (swept, versions)
    table = Table(("beside", "adds p50 ms", "adds longest ms", "searches p50 ms", "searches longest ms"))
    for name, waits in (("nothing", idle), ("the sweep", busy)):
        table.add(
            name,
            f"{percentile(waits.adds, 0.5) * 1_000:.1f}",
            f"{max(waits.adds) * 1_000:.0f}",
            f"{percentile(waits.searches, 0.5) * 1_000:.1f}",
            f"{max(waits.searches) * 1_000:.0f}",
        )
    return (
        f"A sweep of {versions:,} expired versions, each of one searched chunk: {seconds:.0f} s, "
        f"{versions / seconds:,.0f} a second, {SWEEP_VERSIONS:,} a transaction. Adds and searches of the same tenant "
        f"meanwhile, one after the other:\n\n{table.markdown()}"
    )


async def _load_expired(owner: psycopg.AsyncConnection[object], versions: int) -> None:
    page = 50_000
    for low in range(1, versions + 1, page):
        values = {"tenant": TENANT, "owner": PRINCIPAL, "low": low, "high": min(low + page - 1, versions)}
        cursor = psycopg.AsyncClientCursor(owner)
        await owner.execute(cursor.mogrify(_EXPIRED, values).encode())
        sys.stderr.write(f"sweep: {values['high']} versions\n")
    await owner.execute(
        "UPDATE memory.tenant_state SET feed_seq = feed_seq + %s, chunk_count = chunk_count + %s",
        [versions] * 2,
    )
    await owner.execute("VACUUM ANALYZE")


async def _probe(store: PostgresDocumentStore, beside: Awaitable[object]) -> Waits:
    """Add and search in turns until ``beside`` is done."""
    waits = Waits([], [])
    running = asyncio.ensure_future(beside)
    number = 0
    while not running.done():
        number += 1
        document = NewDocument(title="Probe", kind="note", parts=(TextPart(text=f"probe {number}"),))
        waits.adds.append(await _timed(_add(store, document)))
        waits.searches.append(await _timed(_search(store, f"probe {number}")))
        await asyncio.sleep(PROBE_PAUSE)
    await running
    return waits


async def _measure_past(server: Server, replaced: int) -> str:
    url = await server.create_database("past")
    draw = random.Random(7)
    async with open_store(url, None) as store:
        documents = [(f"n{number}", _text(draw, 40)) for number in range(replaced)]
        await _add_all(store, documents)
        await asyncio.sleep(0.01)
        then = datetime.now(UTC)
        await asyncio.sleep(0.01)
        await _add_all(store, [(name, _text(draw, 40)) for name, _ in documents])
        questions = [" ".join(draw.choices(_WORDS, k=4)) for _ in range(QUESTIONS)]
        table = Table(("question", "p50 ms", "p95 ms"))
        for name, as_of in (("now", None), ("as_of, before all of it was replaced", then)):
            seconds = [await _timed(_search(store, question, as_of)) for question in questions]
            listing = [await _timed(_list(store, as_of)) for _ in range(QUESTIONS)]
            for verb, values in (("search", seconds), ("list", listing)):
                table.add(
                    f"{verb}, {name}",
                    f"{percentile(values, 0.5) * 1e3:.1f}",
                    f"{percentile(values, 0.95) * 1e3:.1f}",
                )
    return (
        f"{replaced:,} documents, each replaced once since the instant asked for: the most that one search reads. "
        f"Without a model.\n\n{table.markdown()}"
    )


async def _add(store: PostgresDocumentStore, *documents: NewDocument) -> list[AddResult]:
    answers = await store.add(tenant_id=TENANT, principal_id=PRINCIPAL, documents=documents)
    refused = [answer for answer in answers if not isinstance(answer, AddResult)]
    if refused:
        raise RuntimeError(f"an add was refused: {refused[0]}")
    return [answer for answer in answers if isinstance(answer, AddResult)]


async def _add_all(store: PostgresDocumentStore, texts: Sequence[tuple[str, str]]) -> None:
    for start in range(0, len(texts), 1_000):
        page = texts[start : start + 1_000]
        await _add(
            store,
            *(
                NewDocument(title=name, kind="note", external_ref=name, parts=(TextPart(text=text),))
                for name, text in page
            ),
        )


async def _search(store: PostgresDocumentStore, question: str, as_of: datetime | None = None) -> object:
    query = SearchQuery(query=question, as_of=as_of)
    return await store.search(tenant_id=TENANT, principal_id=PRINCIPAL, query=query)


async def _list(store: PostgresDocumentStore, as_of: datetime | None) -> object:
    return await store.list(tenant_id=TENANT, principal_id=PRINCIPAL, query=TimelineQuery(as_of=as_of))


async def _timed(work: Awaitable[object]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


def _text(draw: random.Random, words: int) -> str:
    return " ".join(draw.choices(_WORDS, k=words))
