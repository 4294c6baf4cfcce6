"""What every embedding client over HTTP shares: batches, their concurrency, windows, and checks.

A style adds a path, a request body and where the vectors stand in the answer. No ``query:``/``passage:``
prefix is put before a text: a server that needs one adds it, so the same text always has the same vector.
"""

import asyncio
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from corbits_memory.config import EmbedConfig, EmbedStyle
from corbits_memory.core.hashing import model_key
from corbits_memory.core.limits import EMBED_DIMS_MAX, EMBED_DIMS_MIN
from corbits_memory.errors import DimsOutOfBoundsError, EmbedHttpError
from corbits_memory.models.endpoint import EMBEDDING, Endpoint
from corbits_memory.models.tasks import gather
from corbits_memory.models.texts import clean, windows
from corbits_memory.models.vectors import mean, read_vectors
from corbits_memory.ports import EmbedPurpose

logger = logging.getLogger("corbits_memory.models")

BATCHES_IN_FLIGHT = 4
WINDOW_CHARS_MIN = 200
PROBE_TEXT = "dimensions"

_REFUSED = {400, 413, 422}
_TOO_LONG = re.compile(r"token|context|too long|too large|length", re.IGNORECASE)
_BATCH_TOO_LARGE = re.compile(r"batch[ _]?size", re.IGNORECASE)


class HttpEmbedder(ABC):
    """An :class:`~corbits_memory.ports.Embedder` over one HTTP endpoint."""

    path: ClassVar[str]
    style: ClassVar[EmbedStyle]

    def __init__(self, config: EmbedConfig) -> None:
        self._config = config
        self._endpoint = Endpoint(
            family=EMBEDDING,
            base_url=config.base_url,
            path=self.path,
            api_key=config.api_key,
            timeout_ms=config.timeout_ms,
        )
        self._batch_size = config.batch_size
        self._window: int | None = None
        """Characters that the server reads at once; None until it has refused a longer text."""
        self._dims: int | None = None
        self._probing = asyncio.Lock()
        self._bulk = asyncio.Semaphore(BATCHES_IN_FLIGHT)

    @abstractmethod
    def request(self, texts: Sequence[str]) -> dict[str, Any]:
        """The body that asks for the vectors of ``texts``."""

    @abstractmethod
    def rows(self, answer: Any) -> Any:
        """The vectors in an answer, in the order of the texts; ``AnswerError`` when they aren't there."""

    @property
    def base_url(self) -> str:
        return self._config.base_url

    @property
    def model(self) -> str:
        return self._config.model

    @property
    def api_style(self) -> str:
        return self.style

    @property
    def model_key(self) -> str:
        return model_key(self.base_url, self.model)

    @property
    def batch_size(self) -> int:
        return self._config.batch_size

    async def embed(self, texts: Sequence[str], *, purpose: EmbedPurpose) -> list[list[float]]:
        """One vector a text, in order. Several batches travel at once; a query waits for no passage."""
        cleaned = [clean(text) for text in texts]
        size = self.batch_size
        batches = [cleaned[start : start + size] for start in range(0, len(cleaned), size)]
        run = self._embed_batch if purpose == "query" else self._embed_in_turn
        answers = await gather([run(batch) for batch in batches])
        return [vector for answer in answers for vector in answer]

    async def dims(self) -> int:
        """The model's dimensions, by a probe at first; ``DimsOutOfBoundsError`` when no index takes them."""
        async with self._probing:
            if self._dims is None:
                await self._embed_batch([PROBE_TEXT])
        dims = self._dims or 0
        if not EMBED_DIMS_MIN <= dims <= EMBED_DIMS_MAX:
            raise DimsOutOfBoundsError(
                f"The embedding model {self.model} has {dims} dimensions; {EMBED_DIMS_MIN} to "
                f"{EMBED_DIMS_MAX} can be indexed: choose another EMBED_MODEL."
            )
        return dims

    async def aclose(self) -> None:
        await self._endpoint.aclose()

    async def _embed_in_turn(self, texts: list[str]) -> list[list[float]]:
        async with self._bulk:
            return await self._embed_batch(texts)

    async def _embed_batch(self, texts: list[str]) -> list[list[float]]:
        """Vectors of one batch; a text that the server finds too long is read in windows, never cut off."""
        window, size = self._window, self._batch_size
        while True:
            pieces = [windows(text, window) if window else [text] for text in texts]
            flat = [piece for parts in pieces for piece in parts]
            try:
                vectors = await self._embed_pieces(flat, size)
            except EmbedHttpError as error:
                smaller = _reduce(error, longest=max(map(len, flat)), count=min(len(flat), size))
                if smaller is None:
                    raise
                window, size = smaller.window or window, smaller.count or size
            else:
                self._learn(window, size)
                return _join_windows(pieces, vectors)

    def _learn(self, window: int | None, size: int) -> None:
        """Keep the sizes that worked, so that the next batch is not refused first."""
        if (window, size) != (self._window, self._batch_size):
            self._window, self._batch_size = window, size
            logger.warning(
                "%s reads less than it was sent: windows of %s characters, %d texts a request from now on",
                self._endpoint.label,
                window or "any number of",
                size,
            )

    async def _embed_pieces(self, pieces: list[str], size: int) -> list[list[float]]:
        vectors: list[list[float]] = []
        for start in range(0, len(pieces), size):
            vectors += await self._call(pieces[start : start + size])
        return vectors

    async def _call(self, texts: list[str]) -> list[list[float]]:
        def parse(answer: Any) -> list[list[float]]:
            return read_vectors(self.rows(answer), count=len(texts), dims=self._dims)

        vectors = await self._endpoint.post(self.request(texts), parse, private=texts)
        self._dims = len(vectors[0])
        return vectors


@dataclass(frozen=True, slots=True, kw_only=True)
class _Smaller:
    """What to send instead of what was refused: shorter windows or fewer texts."""

    window: int | None = None
    count: int | None = None


def _reduce(error: EmbedHttpError, *, longest: int, count: int) -> _Smaller | None:
    """How to mend a refusal of the size, going by what the server said; None when it was something else."""
    if error.http_status not in _REFUSED:
        return None
    said = error.message.partition(" answered ")[2]
    if _BATCH_TOO_LARGE.search(said) and count > 1:
        return _Smaller(count=count // 2)
    if _TOO_LONG.search(said) and longest > WINDOW_CHARS_MIN:
        return _Smaller(window=max(WINDOW_CHARS_MIN, longest // 2))
    return None


def _join_windows(pieces: list[list[str]], vectors: list[list[float]]) -> list[list[float]]:
    """One vector a text: that of its only window, or the mean of its windows by their length."""
    joined: list[list[float]] = []
    start = 0
    for parts in pieces:
        own = vectors[start : start + len(parts)]
        joined.append(mean(own, [len(part) for part in parts]))
        start += len(parts)
    return joined
