"""Replays: how fast they derive, how many calls to a model are on their way, how long a promotion holds others up."""

import asyncio
import time
import zlib
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace

import numpy as np
from psycopg.rows import dict_row

from benchmarks.datasets import load_conversations
from benchmarks.embeddings import local_embedder
from benchmarks.report import Table
from benchmarks.server import PRINCIPAL, Server, bench_server
from corbits_memory.config import EngineConfig
from corbits_memory.core.enums import RunStatus
from corbits_memory.engine.embedding import passage_of
from corbits_memory.engine.queries import load_queries
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.ports import Embedder, EmbedPurpose, NewDocument
from corbits_memory.ports.transform import TransformRun, TransformScope
from corbits_memory.validation import transform_params

TENANT = "bench"
PARAMS = {"chunk": {"strategy": "token.recursive"}}
TARGET_RATE = 0.8
CALL_SECONDS = 0.02
DIMS = 64
PROMOTED, QUICK_PROMOTED = 500_000, 25_000
"""Documents in each of the two generations that take each other's place."""


class RemoteModel:
    """Answers a batch after 20 ms, as an endpoint elsewhere would; counts what is on its way."""

    base_url, model, api_style, model_key, batch_size = "http://remote", "remote", "openai", "ab" * 8, 32

    def __init__(self) -> None:
        self.in_flight = self.most_in_flight = 0

    async def embed(self, texts: Sequence[str], *, purpose: EmbedPurpose) -> list[list[float]]:
        bulk = asyncio.Semaphore(4)

        async def call(batch: Sequence[str]) -> list[list[float]]:
            async with bulk:
                self.in_flight += 1
                self.most_in_flight = max(self.most_in_flight, self.in_flight)
                await asyncio.sleep(CALL_SECONDS)
                self.in_flight -= 1
            return [_vector(text) for text in batch]

        batches = [texts[start : start + self.batch_size] for start in range(0, len(texts), self.batch_size)]
        return [vector for answer in await asyncio.gather(*map(call, batches)) for vector in answer]

    async def dims(self) -> int:
        return DIMS

    async def aclose(self) -> None:
        pass


def _vector(text: str) -> list[float]:
    """Of no meaning, and the same for the same text."""
    drawn: list[float] = np.random.default_rng(zlib.crc32(text.encode())).standard_normal(DIMS).tolist()
    return drawn


async def run_replay(*, quick: bool = False) -> str:
    """Markdown of the figures."""
    from benchmarks.promotion import measure_promotion

    documents = [d for data in load_conversations(1) for d in data.documents]
    table = Table(("replay", "figure", "held against", "ratio", "target"))
    with bench_server() as server:
        await _against_model(server, table, documents[: 64 if quick else 256])
        await _workers(server, table, many(documents, 1_000 if quick else 6_000))
        await _memory(server, table, 2_000 if quick else 10_000)
        await measure_promotion(server, table, QUICK_PROMOTED if quick else PROMOTED)
    return table.markdown()


async def _against_model(server: Server, table: Table, documents: Sequence[NewDocument]) -> None:
    url = await server.create_database("replay_model")
    async with AsyncExitStack() as stack:
        store = await open_store(stack, url, local_embedder())
        await add_all(store, documents)
        passages = await _passages(store)
        model = local_embedder()
        stack.push_async_callback(model.aclose)
        await model.embed(passages[:8], purpose="passage")
        began = time.perf_counter()
        for start in range(0, len(passages), 128):
            await model.embed(passages[start : start + 128], purpose="passage")
        bare = len(passages) / (time.perf_counter() - began)
        run, seconds = await run_to_its_end([store])
    rate = run.raw_count / seconds
    table.add(
        "derived and embedded, local model", f"{rate:.1f} captures a second", f"{bare:.1f}, the model alone",
        f"{rate / bare:.2f}", f"≥ {TARGET_RATE}",
    )  # fmt: skip


async def _passages(store: PostgresDocumentStore) -> list[str]:
    """The very texts that the replay will have embedded: turns with the turn before them."""
    async with store._database.tenant(TENANT) as conn:  # noqa: SLF001 - measured is what the worker does
        chunks = await (await conn.execute("SELECT chunk_id FROM memory.search_row")).fetchall()
        cursor = conn.cursor(row_factory=dict_row)
        await cursor.execute(
            load_queries("vectors")["passages"], {"tenant": TENANT, "chunks": [chunk for (chunk,) in chunks]}
        )
        return [passage_of(row) for row in await cursor.fetchall()]


async def _workers(server: Server, table: Table, documents: Sequence[NewDocument]) -> None:
    url = await server.create_database("replay_workers")
    model = RemoteModel()
    async with AsyncExitStack() as stack:
        stores = [await open_store(stack, url, model) for _ in range(4)]
        await add_all(stores[0], documents)
        alone = 0.0
        for workers in (1, 2, 4):
            model.most_in_flight = 0
            run, seconds = await run_to_its_end(stores[:workers])
            rate = run.raw_count / seconds
            alone = alone or rate
            table.add(
                f"a model 20 ms away, {workers} workers of one process",
                f"{rate:.0f} captures a second, {model.most_in_flight} calls at once",
                f"{alone:.0f}, one worker", f"{rate / alone:.2f}", "≥ 3.5 for 4 on 8 cores",
            )  # fmt: skip


async def _memory(server: Server, table: Table, captures: int) -> None:
    """What a worker takes, for a tenth of a corpus and for all of it."""
    from benchmarks.replay_memory import peak

    small, large = [
        await asyncio.to_thread(peak, await server.create_database(f"replay_memory_{count}"), count)
        for count in (captures // 10, captures)
    ]
    table.add(
        f"memory of a worker, {captures:,} captures", f"{large:.0f} MB at most",
        f"{small:.0f} MB, {captures // 10:,} captures", f"{large / small:.2f}", "constant",
    )  # fmt: skip


async def run_to_its_end(stores: Sequence[PostgresDocumentStore]) -> tuple[TransformRun, float]:
    """A run, worked on by as many workers as there are stores; and how long it took."""
    first = stores[0]
    config = await first.transforms.create_transform_config(
        tenant_id=TENANT, name="bench", params=transform_params(PARAMS)
    )
    began = time.perf_counter()
    run = await first.transforms.run_transform(
        tenant_id=TENANT, actor_id="bench", config_id=config.id, scope=TransformScope()
    )
    while run.status is RunStatus.RUNNING:
        await asyncio.gather(*(store.replays.slices.work(TENANT, run.id) for store in stores))
        run = await first.transforms.transform_run(tenant_id=TENANT, run_id=run.id)
    assert run.status is RunStatus.COMPLETED, run.error
    return run, time.perf_counter() - began


async def open_store(stack: AsyncExitStack, url: str, embedder: Embedder) -> PostgresDocumentStore:
    store = PostgresDocumentStore(
        EngineConfig(database_url=url, run_worker=False), embedder=embedder, reranker=None
    )
    await store.open()
    stack.push_async_callback(store.close)
    return store


async def add_all(store: PostgresDocumentStore, documents: Sequence[NewDocument]) -> None:
    for start in range(0, len(documents), 1_000):
        await store.add(tenant_id=TENANT, principal_id=PRINCIPAL, documents=documents[start : start + 1_000])
    if len(documents) > 1:
        await store.embedding.drain(TENANT)


def many(documents: Sequence[NewDocument], count: int) -> list[NewDocument]:
    times = -(-count // len(documents))
    return [
        replace(d, external_ref=f"{d.external_ref}_{i}", thread=f"{d.thread}_{i}")
        for i in range(times)
        for d in documents
    ][:count]
