"""Forgetting, purging and sweeping, and questions to the past: how long they take, and whom they make wait."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from statistics import median

from benchmarks.calls import TENANT, add, add_all, list_newest, search, timed
from benchmarks.lock_waits import LOG_WAITS
from benchmarks.report import Table
from benchmarks.server import PRINCIPAL, Server, bench_server, open_store
from benchmarks.sweep import measure_sweep
from corbits_memory.core.limits import CHUNKS_PER_DOCUMENT
from corbits_memory.core.relevance import percentile
from corbits_memory.engine.search.past import PAST_ROWS
from corbits_memory.ports import EmbedPurpose, NewDocument, TextPart

DIMS = 384
LARGE_DOCUMENTS = 5
SWEPT, QUICK_SWEPT = 1_000_000, 20_000
REPLACED, QUICK_REPLACED = PAST_ROWS, 400
QUESTIONS = 50

_WORDS = [f"word{number}" for number in range(5_000)]


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


async def run_lifecycle(*, quick: bool = False) -> str:
    """Markdown of the figures."""
    with bench_server(LOG_WAITS) as server:
        erasure = await _measure_erasure(server)
        sweep = await measure_sweep(server, QUICK_SWEPT if quick else SWEPT)
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
                (added,) = await add(store, NewDocument(title="Large", kind="note", parts=parts))
                await store.embedding.drain(TENANT)
                erase: Callable[..., Awaitable[object]] = getattr(store, verb)
                seconds.append(
                    await timed(
                        erase(tenant_id=TENANT, principal_id=PRINCIPAL, document_id=added.document_id)
                    )
                )
            table.add(verb, f"{CHUNKS_PER_DOCUMENT:,}", "yes", f"{median(seconds) * 1_000:.0f}")
    return table.markdown()


async def _measure_past(server: Server, replaced: int) -> str:
    url = await server.create_database("past")
    draw = random.Random(7)
    async with open_store(url, None) as store:
        documents = [(f"n{number}", _text(draw, 40)) for number in range(replaced)]
        await add_all(store, documents)
        await asyncio.sleep(0.01)
        then = datetime.now(UTC)
        await asyncio.sleep(0.01)
        await add_all(store, [(name, _text(draw, 40)) for name, _ in documents])
        questions = [" ".join(draw.choices(_WORDS, k=4)) for _ in range(QUESTIONS)]
        table = Table(("question", "p50 ms", "p95 ms"))
        for name, as_of in (("now", None), ("as_of, before all of it was replaced", then)):
            seconds = [await timed(search(store, question, as_of)) for question in questions]
            listing = [await timed(list_newest(store, as_of)) for _ in range(QUESTIONS)]
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


def _text(draw: random.Random, words: int) -> str:
    return " ".join(draw.choices(_WORDS, k=words))
