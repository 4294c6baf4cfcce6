"""Clients of the models that tenants' vectors are of, whichever this process is configured with."""

import logging
from contextlib import AsyncExitStack
from typing import Any

from psycopg.rows import dict_row

from corbits_memory.config import EmbedConfig, EngineConfig, RerankConfig, override_embed, override_rerank
from corbits_memory.engine.generations import Generation, settings_of
from corbits_memory.engine.pool import Database
from corbits_memory.engine.queries import load_queries
from corbits_memory.errors import ConfigError
from corbits_memory.ports import Embedder, ModelFactory, Reranker
from corbits_memory.ports.transform import EmbedParams, RerankParams
from corbits_memory.validation import EMBED_API_KEY, RERANK_API_KEY

logger = logging.getLogger("corbits_memory.models")


class ModelDirectory:
    """Builds a client once and closes it at the end. Keys are read as the owner, who alone may."""

    def __init__(
        self,
        database: Database,
        config: EngineConfig,
        *,
        embedder: Embedder | None,
        reranker: Reranker | None,
        factory: ModelFactory | None,
    ) -> None:
        self._database = database
        self._config = config
        self._embedder = embedder
        self._reranker = reranker
        self._factory = factory
        self._embedders: dict[tuple[str, str], Embedder] = {}
        self._rerankers: dict[tuple[str, str], Reranker | None] = {}
        self._built: list[Embedder | Reranker] = []

    @property
    def builds(self) -> bool:
        """Whether other models than the configured ones can be reached."""
        return self._factory is not None

    async def close(self) -> None:
        built, self._built, self._embedders, self._rerankers = self._built, [], {}, {}
        async with AsyncExitStack() as stack:
            for model in built:
                stack.push_async_callback(model.aclose)

    async def of_key(self, tenant_id: str, model_key: str) -> Embedder | None:
        """The model that a tenant's table of vectors is of; None when this process has no way to reach it."""
        if self._embedder is not None and self._embedder.model_key == model_key:
            return self._embedder
        known = self._embedders.get((tenant_id, model_key))
        if known is not None or self._factory is None:
            return known
        for row in await self._rows("model_sources", tenant=tenant_id, model_key=model_key):
            config = self._registered(row)
            if row["config_id"] is not None:
                params = settings_of(row["params"]).embed or EmbedParams()
                config = self._overridden(params, row["secret"])
            built = self._build(config)
            if built is None:
                continue
            if built.model_key == model_key:
                return self._keep(tenant_id, built)
            await built.aclose()
        logger.warning("a tenant's vectors are of a model that this process can't reach: %s", model_key)
        return None

    async def of_config(self, tenant_id: str, config_id: str, params: EmbedParams | None) -> Embedder | None:
        """The model of a config: the configured one with the config's fields in place. None: there is none.

        Raises ``ConfigError``.
        """
        if params is None:
            return self._embedder
        keys = await self._secrets(tenant_id, config_id)
        config = self._overridden(params, keys.get(EMBED_API_KEY))
        if config is None:
            return None
        if self._factory is None:
            raise ConfigError("This memory was put together without a way to build other models.")
        built = self._factory.embedder(config)
        mine = self._embedder
        if mine is not None and mine.model_key == built.model_key and keys.get(EMBED_API_KEY) is None:
            await built.aclose()
            return mine
        known = self._embedders.get((tenant_id, built.model_key))
        if known is not None:
            await built.aclose()
            return known
        return self._keep(tenant_id, built)

    async def reranker(self, tenant_id: str, generation: Generation) -> Reranker | None:
        """The reranker of a generation; without one of its own the configured one."""
        params = generation.params.rerank if generation.params is not None else None
        if params is None or params.base_url is None or generation.config_id is None or self._factory is None:
            return self._reranker
        place = (tenant_id, generation.config_id)
        if place not in self._rerankers:
            keys = await self._secrets(*place)
            built = self._factory.reranker(_reranking(self._config, params, keys.get(RERANK_API_KEY)))
            if built is not None:
                self._built.append(built)
            self._rerankers[place] = built
        return self._rerankers[place]

    def _keep(self, tenant_id: str, embedder: Embedder) -> Embedder:
        self._built.append(embedder)
        return self._embedders.setdefault((tenant_id, embedder.model_key), embedder)

    def _build(self, config: EmbedConfig | None) -> Embedder | None:
        if config is None or self._factory is None:
            return None
        try:
            return self._factory.embedder(config)
        except ConfigError as error:
            logger.warning("a model of a tenant can't be built: %s", error.code)
            return None

    def _overridden(self, params: EmbedParams, key: str | None) -> EmbedConfig | None:
        return override_embed(
            self._config.embed,
            base_url=params.base_url,
            model=params.model,
            api_style=params.api_style,
            api_key=key,
        )

    def _registered(self, row: dict[str, Any]) -> EmbedConfig | None:
        """A model by its row in the registry; it has no key unless it is at the configured endpoint."""
        return override_embed(
            self._config.embed, base_url=row["base_url"], model=row["model_id"], api_style=row["api_style"]
        )

    async def _secrets(self, tenant_id: str, config_id: str) -> dict[str, str]:
        rows = await self._rows("secrets", tenant=tenant_id, config=config_id)
        return {row["field"]: row["secret"] for row in rows}

    async def _rows(self, query: str, **parameters: Any) -> list[dict[str, Any]]:
        async with self._database.operator() as conn:
            cursor = conn.cursor(row_factory=dict_row)
            await cursor.execute(load_queries("replay")[query], parameters)
            return await cursor.fetchall()


def _reranking(config: EngineConfig, params: RerankParams, key: str | None) -> RerankConfig:
    return override_rerank(
        config.rerank,
        base_url=params.base_url,
        model=params.model,
        api_style=params.api_style,
        api_key=key,
    )
