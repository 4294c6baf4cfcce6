"""Models and sources that a host may plug in."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol, runtime_checkable

from corbits_memory.config import EmbedConfig, RerankConfig
from corbits_memory.ports.search import Citation

EmbedPurpose = Literal["query", "passage"]


@runtime_checkable
class Embedder(Protocol):
    """An embedding model. ``model_key`` names its vector space (spec a §2)."""

    @property
    def base_url(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def api_style(self) -> str: ...

    @property
    def model_key(self) -> str: ...

    @property
    def batch_size(self) -> int: ...

    async def embed(self, texts: Sequence[str], *, purpose: EmbedPurpose) -> list[list[float]]:
        """One vector a text, in order; no texts, no call. Raises ``EmbedError``."""
        ...

    async def dims(self) -> int:
        """Dimensions, found by embedding a probe text once."""
        ...

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class RerankScore:
    index: int
    score: float


@runtime_checkable
class Reranker(Protocol):
    """A cross-encoder that scores documents against a query."""

    @property
    def model(self) -> str: ...

    async def rerank(self, query: str, documents: Sequence[str]) -> list[RerankScore]:
        """Scores sorted descending, fewer than sent when the model leaves some out.

        Raises :class:`~corbits_memory.errors.RerankError`. No documents, no call.
        """
        ...

    async def aclose(self) -> None: ...


@runtime_checkable
class ModelFactory(Protocol):
    """Makes the clients of models that a transform config names. Whoever asks for one closes it. No I/O."""

    def embedder(self, config: EmbedConfig) -> Embedder:
        """Raises :class:`~corbits_memory.errors.ConfigError`."""
        ...

    def reranker(self, config: RerankConfig) -> Reranker | None:
        """None without a base URL. Raises :class:`~corbits_memory.errors.ConfigError`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveItem:
    """One hit of a live source, under the host's own tokens."""

    adapter: str
    external_ref: str
    title: str
    snippet: str
    score: float
    kind: str
    citation: Citation
    updated_at: datetime | None = None


@runtime_checkable
class SourceProvider(Protocol):
    """Something that a host mounts beside the memory. ``sources`` of a search names it by its id."""

    @property
    def id(self) -> str: ...


@runtime_checkable
class LiveSource(SourceProvider, Protocol):
    """A source that is searched live, under the host's own tokens: no grant decides over its hits.

    Fail-soft: it has 0.8 s, and is cancelled then. Whatever it raises, and anything that is no list of at most
    50 items, costs its own hits alone.
    """

    async def search_live(
        self, *, query: str, tenant_id: str, principal_id: str, limit: int
    ) -> Sequence[LiveItem]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedText:
    text: str
    title: str | None = None


@runtime_checkable
class TextExtractor(Protocol):
    """Turns a file's bytes into text."""

    async def extract(self, data: bytes, *, mime_type: str | None, filename: str | None) -> ExtractedText: ...
