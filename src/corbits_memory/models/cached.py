"""A cache of query vectors around an embedder."""

import asyncio
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

from corbits_memory.errors import EmbedError
from corbits_memory.ports import Embedder, EmbedPurpose

ENTRIES = 1_024

Answers = asyncio.Task[list[list[float]]]


class CachedEmbedder:
    """Keeps the vectors of the last queries; equal queries that arrive together share one call.

    Keys are digests of model key and text, so no query's text is kept. Passages pass through. A shared call
    goes on when the caller that began it gives up: its answer serves the next one. For one event loop.
    """

    def __init__(self, inner: Embedder, *, entries: int = ENTRIES) -> None:
        self._inner = inner
        self._entries = entries
        self._vectors: OrderedDict[bytes, array[float]] = OrderedDict()
        self._calls: dict[bytes, tuple[Answers, int]] = {}
        self._closed = False

    @property
    def base_url(self) -> str:
        return self._inner.base_url

    @property
    def model(self) -> str:
        return self._inner.model

    @property
    def api_style(self) -> str:
        return self._inner.api_style

    @property
    def model_key(self) -> str:
        return self._inner.model_key

    @property
    def batch_size(self) -> int:
        return self._inner.batch_size

    async def embed(self, texts: Sequence[str], *, purpose: EmbedPurpose) -> list[list[float]]:
        if purpose != "query":
            return await self._inner.embed(texts, purpose=purpose)
        keys = [self._key(text) for text in texts]
        found = {key: self._recall(key) for key in keys}
        missing = {key: text for key, text in zip(keys, texts, strict=True) if found[key] is None}
        self._start({key: text for key, text in missing.items() if key not in self._calls})
        shared = {key: self._calls[key] for key in missing}
        for key, (call, position) in shared.items():
            found[key] = (await _wait(call))[position]
        return [list(vector) for key in keys if (vector := found[key]) is not None]

    async def dims(self) -> int:
        return await self._inner.dims()

    async def aclose(self) -> None:
        self._closed = True
        calls = {call for call, _ in self._calls.values()}
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await self._inner.aclose()

    def _key(self, text: str) -> bytes:
        content = f"{self.model_key}|{text}".encode("utf-8", "surrogatepass")
        return blake2b(content, digest_size=16).digest()

    def _recall(self, key: bytes) -> list[float] | None:
        vector = self._vectors.get(key)
        if vector is None:
            return None
        self._vectors.move_to_end(key)
        return vector.tolist()

    def _start(self, queries: dict[bytes, str]) -> None:
        """Begin one call for all of these queries, for everybody who asks for them meanwhile."""
        if not queries:
            return
        if self._closed:
            raise EmbedError(f"The client of {self.model} is closed; open the memory again.")
        call = asyncio.create_task(
            self._inner.embed(list(queries.values()), purpose="query"), name="embed queries"
        )
        for position, key in enumerate(queries):
            self._calls[key] = (call, position)
        call.add_done_callback(lambda done: self._finish(done, list(queries)))

    def _finish(self, call: Answers, keys: list[bytes]) -> None:
        for key in keys:
            self._calls.pop(key, None)
        if call.cancelled() or call.exception() is not None:
            return  # who waits gets the error; the next one tries again
        for key, vector in zip(keys, call.result(), strict=True):
            self._vectors[key] = array("d", vector)
        while len(self._vectors) > self._entries:
            self._vectors.popitem(last=False)


async def _wait(call: Answers) -> list[list[float]]:
    """The answers of a shared call; giving up on it leaves it running."""
    await asyncio.wait([call])
    if call.cancelled():
        raise EmbedError("The memory was closed while a query was embedded; ask again.")
    return call.result()
