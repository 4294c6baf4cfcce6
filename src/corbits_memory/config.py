"""Configuration: what the engine consumes, and how the environment becomes it."""

from dataclasses import dataclass, field
from typing import Literal

from corbits_memory.core.enums import SearchProfile

EmbedStyle = Literal["openai", "tei", "ollama", "local"]
RerankStyle = Literal["tei", "cohere", "voyage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedConfig:
    """One embedding model. ``base_url`` and ``model`` are its identity (the model key)."""

    base_url: str
    model: str
    api_style: EmbedStyle = "openai"
    api_key: str | None = field(default=None, repr=False)
    timeout_ms: int | None = None
    batch_size: int = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankConfig:
    """One reranking model; without a base URL there is none."""

    base_url: str | None = None
    model: str | None = None
    api_style: RerankStyle = "tei"
    api_key: str | None = field(default=None, repr=False)
    max_doc_chars: int | None = None
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """What the Postgres document store consumes. Absent blocks are None, never half-filled."""

    database_url: str = field(repr=False)
    database_read_url: str | None = field(default=None, repr=False)
    db_pool_max: int = 8
    fts_language: str = "english"
    embed: EmbedConfig | None = None
    rerank: RerankConfig = field(default_factory=RerankConfig)
    profile: SearchProfile = SearchProfile.DEFAULT
    vector_type: Literal["halfvec", "vector"] = "halfvec"
    add_embed_seconds: float = 2.0
    """How long ``add`` waits for vectors before it leaves them to the worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryConfig:
    """What :func:`corbits_memory.create_memory` takes."""

    memory: EngineConfig
