"""Pick the profile, embed the query, and say what was missing."""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime

from corbits_memory.core.enums import Degraded, SearchProfile
from corbits_memory.core.text import parse_query
from corbits_memory.engine.pool import Database
from corbits_memory.engine.search.compat import CompatProfile
from corbits_memory.engine.search.default import DefaultProfile
from corbits_memory.engine.search.retrieval import QueryVector
from corbits_memory.errors import EmbedError, InvalidInputError
from corbits_memory.ports import Access, Embedder, Reranker, SearchQuery, SearchResult

logger = logging.getLogger("corbits_memory.search")

PHRASES_MAX = 16
"""Each is looked for in every visible row."""
QUERY_EMBED_SECONDS = 3.0
"""A search doesn't wait longer for its query's vector; it answers without, and says so."""


class SearchService:
    def __init__(
        self,
        database: Database,
        *,
        embedder: Embedder | None,
        reranker: Reranker | None,
        language: str,
        profile: SearchProfile,
        clock: Callable[[], datetime],
    ) -> None:
        self._embedder = embedder
        self._clock = clock
        self._profile = profile
        self._default = DefaultProfile(database, reranker)
        self._compat = CompatProfile(database, reranker, language=language)

    async def search(
        self, *, tenant_id: str, principal_id: str, query: SearchQuery, access: Access | None = None
    ) -> SearchResult:
        """Ranked hits that the caller may see, and what the answer lacked."""
        if not query.query.strip() and not (query.kinds or query.entity_ids):
            raise InvalidInputError("query must be non-empty unless kinds or entityIds is provided")
        parsed = parse_query(query.query)
        if len(parsed.phrases) + len(parsed.excluded) > PHRASES_MAX:
            raise InvalidInputError(
                f"A query may have at most {PHRASES_MAX} quoted phrases and exclusions together.",
                details=[{"field": "query", "problem": f"more than {PHRASES_MAX} phrases and exclusions"}],
            )
        degraded: list[str] = []
        vector = await self._embed(query, degraded)
        # The compat profile reads what is indexed now.
        asked = SearchProfile.DEFAULT if query.as_of else query.profile or self._profile
        profile = self._compat if asked is SearchProfile.COMPAT else self._default
        return await profile.search(
            tenant_id=tenant_id,
            principal_id=principal_id,
            query=query,
            access=access,
            vector=vector,
            now=self._clock(),
            degraded=degraded,
        )

    async def _embed(self, query: SearchQuery, degraded: list[str]) -> QueryVector | None:
        if self._embedder is None:
            degraded.extend((Degraded.DENSE_UNAVAILABLE, Degraded.LEXICAL_ONLY))
            return None
        text = parse_query(query.query).text
        if not text:
            degraded.append(Degraded.DENSE_UNAVAILABLE)
            return None
        try:
            async with asyncio.timeout(QUERY_EMBED_SECONDS):
                vectors = await self._embedder.embed([text], purpose="query")
        except (EmbedError, TimeoutError) as error:
            logger.warning("the query was not embedded: %s", getattr(error, "code", "timeout"))
            degraded.append(Degraded.DENSE_UNAVAILABLE)
            return None
        return QueryVector(model_key=self._embedder.model_key, values=list(vectors[0]))
