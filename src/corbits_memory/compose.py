"""The one place that picks the parts and wires them. Checks, but no I/O: opening is the memory's own step."""

from collections.abc import Sequence

from corbits_memory.config import MemoryConfig
from corbits_memory.core.enums import SearchProfile
from corbits_memory.errors import ConfigError
from corbits_memory.plane import Memory
from corbits_memory.ports import (
    ConditionRegistry,
    DocumentStore,
    GrantStore,
    SourceProvider,
    TextExtractor,
    capabilities_of,
)


def create_memory(
    config: MemoryConfig | None = None,
    *,
    document_store: DocumentStore | None = None,
    grant_store: GrantStore | None = None,
    condition_registry: ConditionRegistry | None = None,
    allow_unenforced_access: bool = False,
    sources: Sequence[SourceProvider] = (),
    text_extractor: TextExtractor | None = None,
) -> Memory:
    """A memory over Postgres, or over a store of the host's own; Postgres is then never touched.

    ``grant_store`` says who may do what and see whose documents (without one, callers see their own alone);
    ``condition_registry`` evaluates the conditions of its grants. A store that does not enforce grants is
    refused beside a grant store, unless ``allow_unenforced_access`` says that this is known.

    Raises ``ConfigError`` when there is neither configuration nor store, and ``RerankConfigError`` when the
    reranker's budget does not fit its model. Nothing is opened before ``async with`` (or ``lifespan``).
    """
    if document_store is None:
        if config is None:
            raise ConfigError("config is required when document_store is not provided")
        document_store = _postgres_store(config)
    unenforced = grant_store is not None and not capabilities_of(document_store).enforces_grants
    if unenforced and not allow_unenforced_access:
        raise ConfigError(
            "document_store does not enforce grants, so grant_store would be ignored by it; "
            "pass allow_unenforced_access=True if callers may see what the store shows them"
        )
    profile = config.memory.profile if config is not None else SearchProfile.DEFAULT
    return Memory(
        document_store,
        grant_store=grant_store,
        conditions=condition_registry,
        sources=sources,
        text_extractor=text_extractor,
        profile=profile,
    )


def _postgres_store(config: MemoryConfig) -> DocumentStore:
    # A host with a store of its own needs no driver and no model client.
    from corbits_memory.engine.store import PostgresDocumentStore
    from corbits_memory.models.factory import ConfiguredModels, build_embedder, build_reranker

    return PostgresDocumentStore(
        config.memory,
        embedder=build_embedder(config.memory.embed),
        reranker=build_reranker(config.memory.rerank),
        models=ConfiguredModels(),
    )
