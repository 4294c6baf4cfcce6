"""The one place where configuration becomes model clients; every call site goes through it."""

from corbits_memory.config import EmbedConfig, RerankConfig, check_rerank_config
from corbits_memory.errors import ConfigError
from corbits_memory.ports import Embedder, Reranker


def build_embedder(config: EmbedConfig | None) -> Embedder | None:
    """The embedder of a configuration, with its breaker and cache; None for None. No I/O.

    Raises :class:`~corbits_memory.errors.ConfigError`. Whoever builds it closes it.
    """
    return None if config is None else _build(config)


def build_reranker(config: RerankConfig) -> Reranker | None:
    """The reranker of a configuration, with its breaker; None without a base URL. No I/O.

    Raises :class:`~corbits_memory.errors.ConfigError`.
    """
    check_rerank_config(config)
    if not config.base_url:
        return None
    from corbits_memory.models.guarded import GuardedReranker
    from corbits_memory.models.rerank import CohereReranker, HttpReranker, TeiReranker, VoyageReranker

    known: tuple[type[HttpReranker], ...] = (TeiReranker, CohereReranker, VoyageReranker)
    styles: dict[str, type[HttpReranker]] = {style.style: style for style in known}
    client = styles.get(config.api_style)
    if client is None:
        raise ConfigError("RERANK_API_STYLE must be one of tei, cohere, voyage.")
    return GuardedReranker(client(config))


class ConfiguredModels:
    """A :class:`~corbits_memory.ports.ModelFactory` of the clients in this package."""

    def embedder(self, config: EmbedConfig) -> Embedder:
        return _build(config)

    def reranker(self, config: RerankConfig) -> Reranker | None:
        return build_reranker(config)


def _build(config: EmbedConfig) -> Embedder:
    from corbits_memory.models.cached import CachedEmbedder

    return CachedEmbedder(_build_local(config) if config.api_style == "local" else _build_http(config))


def _build_local(config: EmbedConfig) -> Embedder:
    from corbits_memory.models.local import LocalEmbedder

    return LocalEmbedder(config)


def _build_http(config: EmbedConfig) -> Embedder:
    from corbits_memory.models.embedding import HttpEmbedder
    from corbits_memory.models.guarded import GuardedEmbedder
    from corbits_memory.models.ollama import OllamaEmbedder
    from corbits_memory.models.openai import OpenAIEmbedder
    from corbits_memory.models.tei import TeiEmbedder

    known: tuple[type[HttpEmbedder], ...] = (OpenAIEmbedder, TeiEmbedder, OllamaEmbedder)
    styles: dict[str, type[HttpEmbedder]] = {style.style: style for style in known}
    client = styles.get(config.api_style)
    if client is None:
        raise ConfigError("EMBED_API_STYLE must be one of openai, tei, ollama.")
    if not config.model.strip():
        raise ConfigError("EMBED_MODEL is required beside EMBED_BASE_URL.")
    if config.batch_size < 1:
        raise ConfigError("EMBED_BATCH_SIZE must be a positive integer.")
    return GuardedEmbedder(client(config))
