"""Pick the profile, embed the query with the model of what is searched, and say what was missing."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from corbits_memory.core.enums import Degraded, SearchProfile
from corbits_memory.core.text import parse_query
from corbits_memory.engine.directory import ModelDirectory
from corbits_memory.engine.generations import REMEMBERED, Generation, Generations
from corbits_memory.engine.pool import Database
from corbits_memory.engine.search.compat import CompatProfile
from corbits_memory.engine.search.default import DefaultProfile
from corbits_memory.engine.search.retrieval import OutdatedPlanError, QueryVector, SearchPlan
from corbits_memory.errors import EmbedError, InvalidInputError, UnavailableError
from corbits_memory.ports import Access, Embedder, SearchQuery, SearchResult

logger = logging.getLogger("corbits_memory.search")

PHRASES_MAX = 16
"""Each is looked for in every visible row."""
QUERY_EMBED_SECONDS = 3.0
"""A search doesn't wait longer for its query's vector; it answers without, and says so."""
PLANS = 4
"""A search is planned anew when another generation has gone live since; so often at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Basis:
    """What a search goes by: a generation's settings, and by which model queries are embedded for it."""

    settings: Generation
    embedder: Embedder | None
    owner: str | None = None
    """The model that owns the live vectors; it may be none that can be reached here."""
    dims: int | None = None

    def suits(self, vector: QueryVector | None) -> bool:
        """Whether such a vector finds anything in it. If so, what it missed has only just gone live."""
        return vector is not None and vector.model_key == self.owner and len(vector.values) == self.dims


class SearchService:
    """Remembers of each tenant what its last search found to be live. What is read says whether that still
    holds; if not, the search begins again, so that no answer mixes two corpora or two models."""

    def __init__(
        self,
        database: Database,
        *,
        generations: Generations,
        directory: ModelDirectory,
        embedder: Embedder | None,
        language: str,
        profile: SearchProfile,
        clock: Callable[[], datetime],
    ) -> None:
        self._database = database
        self._generations = generations
        self._directory = directory
        self._embedder = embedder
        self._clock = clock
        self._profile = profile
        self._default = DefaultProfile(database)
        self._compat = CompatProfile(database, language=language)
        self._live: dict[str, _Basis] = {}

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
        # The compat profile reads what is indexed now.
        ranked_by = SearchProfile.DEFAULT if query.as_of else query.profile or self._profile
        profile = self._compat if ranked_by is SearchProfile.COMPAT else self._default
        basis = await self._basis(tenant_id, query.generation)
        for _ in range(PLANS):
            degraded: list[str] = []
            vector = await self._embed(parsed.text, basis.embedder, degraded)
            plan = SearchPlan(
                parsed=parsed,
                settings=basis.settings,
                reranker=await self._directory.reranker(tenant_id, basis.settings),
                vector=vector,
            )
            try:
                return await profile.search(
                    tenant_id=tenant_id,
                    principal_id=principal_id,
                    query=query,
                    access=access,
                    plan=plan,
                    now=self._clock(),
                    degraded=degraded,
                )
            except OutdatedPlanError as outdated:
                used = None if vector is None else vector.model_key
                basis = await self._basis(tenant_id, query.generation, anew=True)
                again = basis.embedder is not None and basis.embedder.model_key == used
                if again and basis.settings.id == outdated.searched and not basis.suits(vector):
                    # The vectors are of a model that can't be reached here, or of none yet: by words alone, then.
                    basis = replace(basis, embedder=None)
        raise UnavailableError(
            "The live generation changed again and again while this was searched; try again."
        )

    async def _basis(self, tenant_id: str, generation: str | None, *, anew: bool = False) -> _Basis:
        """What a generation is searched by; that of the live one is remembered."""
        if generation is not None:
            live = await self._generations.live(tenant_id)
            if live is None or live.id != generation:
                return await self._staged(tenant_id, generation)
        known = None if anew else self._live.get(tenant_id)
        if known is None:
            known = await self._read_live(tenant_id)
            if len(self._live) >= REMEMBERED:
                self._live.clear()
            self._live[tenant_id] = known
        return known

    async def _staged(self, tenant_id: str, generation: str) -> _Basis:
        settings = await self._generations.get(tenant_id, generation)
        key = settings.model_key or await self._generations.archived_model(tenant_id, generation)
        embedder = None if key is None else await self._directory.of_key(tenant_id, key)
        return _Basis(settings=settings, embedder=embedder)

    async def _read_live(self, tenant_id: str) -> _Basis:
        """With the model that owns the vectors; the configured one where that can't be reached."""
        live = await self._generations.live_corpus(tenant_id)
        if live is None:
            return _Basis(settings=Generation(id=""), embedder=self._embedder)
        embedder = self._embedder
        if live.model_key is not None and (embedder is None or embedder.model_key != live.model_key):
            embedder = await self._directory.of_key(tenant_id, live.model_key) or embedder
        return _Basis(settings=live.generation, embedder=embedder, owner=live.model_key, dims=live.dims)

    async def _embed(self, text: str, embedder: Embedder | None, degraded: list[str]) -> QueryVector | None:
        if embedder is None:
            degraded.append(Degraded.DENSE_UNAVAILABLE)
            if self._embedder is None:
                degraded.append(Degraded.LEXICAL_ONLY)
            return None
        if not text:
            degraded.append(Degraded.DENSE_UNAVAILABLE)
            return None
        try:
            async with asyncio.timeout(QUERY_EMBED_SECONDS):
                vectors = await embedder.embed([text], purpose="query")
        except (EmbedError, TimeoutError) as error:
            logger.warning("the query was not embedded: %s", getattr(error, "code", "timeout"))
            degraded.append(Degraded.DENSE_UNAVAILABLE)
            return None
        return QueryVector(model_key=embedder.model_key, values=list(vectors[0]))
