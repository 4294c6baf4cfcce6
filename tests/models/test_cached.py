import asyncio
from collections.abc import Sequence

import pytest

from corbits_memory.errors import EmbedError, EmbedTimeoutError
from corbits_memory.models.cached import CachedEmbedder
from corbits_memory.ports import Embedder, EmbedPurpose
from tests.models.embedding import vector


class Recorder:
    """An embedder that records what it is asked, and can be held up or made to fail."""

    base_url, model, api_style, model_key, batch_size = "local:", "m", "local", "k", 32

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None

    async def embed(self, texts: Sequence[str], *, purpose: EmbedPurpose) -> list[list[float]]:
        self.asked.append(list(texts))
        await self.gate.wait()
        if self.error:
            raise self.error
        return [vector(text) for text in texts]

    async def dims(self) -> int:
        return 3

    async def aclose(self) -> None:
        pass


@pytest.fixture
def inner() -> Recorder:
    return Recorder()


async def ask(cached: Embedder, *texts: str) -> list[list[float]]:
    return await cached.embed(texts, purpose="query")


async def test_a_repeated_query_is_answered_from_the_cache(inner: Recorder) -> None:
    cached = CachedEmbedder(inner)
    assert isinstance(cached, Embedder)
    first = await ask(cached, "a")
    assert first == [vector("a")]
    first[0].clear()  # a caller's own list
    assert await ask(cached, "a") == [vector("a")]
    assert inner.asked == [["a"]]
    assert await cached.dims() == 3


async def test_only_what_is_missing_is_asked_and_doubles_once(inner: Recorder) -> None:
    cached = CachedEmbedder(inner)
    await ask(cached, "a")
    assert await ask(cached, "b", "a", "c", "b") == [vector(t) for t in ("b", "a", "c", "b")]
    assert inner.asked == [["a"], ["b", "c"]]
    assert await ask(cached) == []


async def test_passages_are_not_kept(inner: Recorder) -> None:
    cached = CachedEmbedder(inner)
    for _ in range(2):
        await cached.embed(["a"], purpose="passage")
    assert inner.asked == [["a"], ["a"]]


@pytest.mark.parametrize(("others", "kept"), [(1, True), (2, True), (3, False)])
async def test_the_least_recently_used_goes_first(inner: Recorder, others: int, kept: bool) -> None:
    cached = CachedEmbedder(inner, entries=3)
    await ask(cached, "x")
    await ask(cached, "a")
    await ask(cached, "x")
    for i in range(others):
        await ask(cached, f"other {i}")
    before = len(inner.asked)
    await ask(cached, "x")
    assert (len(inner.asked) == before) is kept


async def test_equal_queries_that_arrive_together_share_one_call(inner: Recorder) -> None:
    cached = CachedEmbedder(inner)
    inner.gate.clear()
    calls = [asyncio.create_task(ask(cached, "a", f"b{i % 2}")) for i in range(10)]
    await asyncio.sleep(0)
    inner.gate.set()
    assert await asyncio.gather(*calls) == [[vector("a"), vector(f"b{i % 2}")] for i in range(10)]
    assert inner.asked == [["a", "b0"], ["b1"]]


async def test_a_caller_that_gives_up_spoils_nothing_for_the_others(inner: Recorder) -> None:
    cached = CachedEmbedder(inner)
    inner.gate.clear()
    first, second = (asyncio.create_task(ask(cached, "a")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    inner.gate.set()
    assert await second == [vector("a")]
    assert await ask(cached, "a") == [vector("a")]
    assert inner.asked == [["a"]]


async def test_a_failure_reaches_everybody_and_is_not_kept(inner: Recorder) -> None:
    cached = CachedEmbedder(inner)
    inner.error = EmbedTimeoutError()
    calls = [asyncio.create_task(ask(cached, "a")) for _ in range(3)]
    assert all(isinstance(e, EmbedTimeoutError) for e in await asyncio.gather(*calls, return_exceptions=True))
    inner.error = None
    assert await ask(cached, "a") == [vector("a")]
    assert len(inner.asked) == 2


async def test_closing_ends_the_calls_that_run_with_an_error(inner: Recorder) -> None:
    cached = CachedEmbedder(inner)
    inner.gate.clear()
    waiting = asyncio.create_task(ask(cached, "a"))
    await asyncio.sleep(0)
    await cached.aclose()
    with pytest.raises(EmbedError, match="closed"):
        await waiting
    with pytest.raises(EmbedError, match="closed"):
        await ask(cached, "b")
