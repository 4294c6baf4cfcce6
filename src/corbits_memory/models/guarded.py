"""Model clients behind a circuit breaker, so that a dead endpoint costs the following calls nothing."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from corbits_memory.errors import EmbedError, RerankError
from corbits_memory.models.breaker import BreakerOpenError, CircuitBreaker, is_outage
from corbits_memory.ports import Embedder, EmbedPurpose, Reranker, RerankScore

T = TypeVar("T")


class GuardedEmbedder:
    """An embedder with one breaker for queries and one for passages: a slow bulk load stops no search."""

    def __init__(
        self,
        inner: Embedder,
        *,
        queries: CircuitBreaker | None = None,
        passages: CircuitBreaker | None = None,
    ) -> None:
        self._inner = inner
        self._breakers: dict[EmbedPurpose, CircuitBreaker] = {
            "query": queries or CircuitBreaker(),
            "passage": passages or CircuitBreaker(),
        }

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
        if not texts:
            return []
        return await self._call(purpose, lambda: self._inner.embed(texts, purpose=purpose))

    async def dims(self) -> int:
        return await self._call("passage", self._inner.dims)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _call(self, purpose: EmbedPurpose, function: Callable[[], Awaitable[T]]) -> T:
        try:
            return await self._breakers[purpose].call(function, is_outage=is_outage)
        except BreakerOpenError as refused:
            raise EmbedError(
                _resting(f"embedding model {self.model}", refused.seconds),
                details={"retry_after_seconds": round(refused.seconds, 1)},
            ) from None


class GuardedReranker:
    """A reranker behind a breaker."""

    def __init__(self, inner: Reranker, *, breaker: CircuitBreaker | None = None) -> None:
        self._inner = inner
        self._breaker = breaker or CircuitBreaker()

    @property
    def model(self) -> str:
        return self._inner.model

    async def rerank(self, query: str, documents: Sequence[str]) -> list[RerankScore]:
        if not documents:
            return []
        try:
            return await self._breaker.call(lambda: self._inner.rerank(query, documents), is_outage=is_outage)
        except BreakerOpenError as refused:
            raise RerankError(
                _resting(f"reranking model {self.model}", refused.seconds),
                details={"retry_after_seconds": round(refused.seconds, 1)},
            ) from None

    async def aclose(self) -> None:
        await self._inner.aclose()


def _resting(what: str, seconds: float) -> str:
    return (
        f"The {what} failed several times in a row and is left alone for another {seconds:.0f} s; "
        "look at its endpoint."
    )
