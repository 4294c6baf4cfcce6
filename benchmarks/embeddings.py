"""The local model behind a cache on disk, so that a repeated run costs no hour.

The cache is an :class:`~corbits_memory.ports.Embedder` around the real one: queue, worker, vector tables and
search run as they always do. Only the model's own work is remembered.
"""

import hashlib
import sqlite3
from array import array
from collections.abc import Sequence
from pathlib import Path

from benchmarks.datasets import REPOSITORY
from corbits_memory.config import LOCAL_BASE_URL, LOCAL_MODEL, EmbedConfig
from corbits_memory.models.factory import build_embedder
from corbits_memory.ports import Embedder, EmbedPurpose

CACHE = REPOSITORY / ".cache" / "bench"
_PORTION = 16
"""Texts the model reads between two commits: an interrupted run keeps what it has."""


def local_config() -> EmbedConfig:
    return EmbedConfig(base_url=LOCAL_BASE_URL, model=LOCAL_MODEL, api_style="local")


def local_embedder() -> Embedder:
    """The product's own local embedder, without the cache of this module."""
    embedder = build_embedder(local_config())
    assert embedder is not None
    return embedder


def cached_embedder() -> "DiskCachedEmbedder":
    return DiskCachedEmbedder(local_embedder())


class DiskCachedEmbedder:
    """Vectors by model key, purpose and text hash, in SQLite; as exact as the model's 32-bit floats."""

    def __init__(self, inner: Embedder, folder: Path = CACHE) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._inner = inner
        self._store = sqlite3.connect(folder / f"vectors-{inner.model_key}.sqlite", timeout=60)
        self._store.execute("PRAGMA journal_mode = WAL")
        self._store.execute(
            "CREATE TABLE IF NOT EXISTS vector (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID"
        )
        self._queries: dict[bytes, list[float]] = {}
        self.computed = 0
        """Texts that the model had to read."""

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
        keys = [_key(text, purpose) for text in texts]
        found = {key: vector for key in keys if (vector := self._recall(key)) is not None}
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        pending = list(missing.items())
        for start in range(0, len(pending), _PORTION):
            part = pending[start : start + _PORTION]
            vectors = await self._inner.embed([text for _, text in part], purpose=purpose)
            for (key, _), vector in zip(part, vectors, strict=True):
                found[key] = vector
            self._keep({key: found[key] for key, _ in part})
        self.computed += len(pending)
        if purpose == "query":
            # In memory too: whoever times a search does not time this cache.
            self._queries.update(found)
        return [found[key] for key in keys]

    async def dims(self) -> int:
        return await self._inner.dims()

    async def aclose(self) -> None:
        """Nothing: a store closes its embedder, and the next store of the run goes on with it."""

    async def close(self) -> None:
        """Give up the cache and the model."""
        self._store.close()
        await self._inner.aclose()

    def _recall(self, key: bytes) -> list[float] | None:
        if key in self._queries:
            return self._queries[key]
        row = self._store.execute("SELECT value FROM vector WHERE key = ?", (key,)).fetchone()
        return None if row is None else array("f", row[0]).tolist()

    def _keep(self, vectors: dict[bytes, list[float]]) -> None:
        rows = [(key, array("f", vector).tobytes()) for key, vector in vectors.items()]
        with self._store:
            self._store.executemany("INSERT OR REPLACE INTO vector VALUES (?, ?)", rows)


def _key(text: str, purpose: EmbedPurpose) -> bytes:
    return hashlib.sha256(f"{purpose}\x00{text}".encode("utf-8", "surrogatepass")).digest()
