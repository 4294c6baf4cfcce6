"""What a generation was made by: the settings of its replay, or those that are configured.

A generation's settings never change, so they are read once a process. Which generation is live does change.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from psycopg.rows import dict_row

from corbits_memory.core.ranking import DEFAULT_CONSTANTS, RankingConstants
from corbits_memory.core.strategies import DEFAULT_CUTTING, Cutting
from corbits_memory.core.tuning import MS_PER_DAY, SearchTuning
from corbits_memory.engine.pool import Connection, Database
from corbits_memory.engine.queries import load_queries
from corbits_memory.ports.transform import TransformParams
from corbits_memory.validation import stored_transform_params

REMEMBERED = 10_000
SECRETS = "secrets"
"""Beside a config's stored params: which keys were given, and not what they are."""


def stored_params(stored: Mapping[str, Any]) -> dict[str, Any]:
    """A config's params as they were given, but for keys."""
    return {name: value for name, value in stored.items() if name != SECRETS}


def settings_of(stored: Mapping[str, Any]) -> TransformParams:
    """What a stored config says; raises ``InvalidInputError`` when somebody else has written there."""
    return stored_transform_params(stored_params(stored))


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """``params`` None: not of a replay, so as it is configured. ``model_key`` is set where vectors of a replay
    are of one model for good; ``pinned`` where its config names that model."""

    id: str
    params: TransformParams | None = None
    config_id: str | None = None
    model_key: str | None = None
    pinned: bool = False
    cutting: Cutting = DEFAULT_CUTTING
    tuning: SearchTuning = field(default_factory=SearchTuning)
    constants: RankingConstants = DEFAULT_CONSTANTS

    @property
    def overfetch(self) -> float | None:
        return None if self.params is None else self.params.overfetch


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCorpus:
    """What a tenant's searches read; ``model_key`` and ``dims`` None while it has no vectors."""

    generation: Generation
    model_key: str | None
    dims: int | None


class Generations:
    def __init__(self, database: Database, cutting: Cutting = DEFAULT_CUTTING) -> None:
        """``cutting``: how texts of generations are cut that are of no replay."""
        self._database = database
        self.cutting = cutting
        self._known: dict[tuple[str, str], Generation] = {}

    async def get(self, tenant_id: str, generation: str, conn: Connection | None = None) -> Generation:
        """The settings of a generation, read over ``conn`` where they are not known yet."""
        known = self._known.get((tenant_id, generation))
        if known is not None:
            return known
        if conn is None:
            async with self._database.tenant(tenant_id) as own:
                return await self.get(tenant_id, generation, own)
        cursor = conn.cursor(row_factory=dict_row)
        await cursor.execute(
            load_queries("replay")["settings"], {"tenant": tenant_id, "generation": generation}
        )
        row = await cursor.fetchone()
        found = Generation(id=generation, cutting=self.cutting) if row is None else _of_run(generation, row)
        if row is not None or generation == await self._live(conn, tenant_id):
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[tenant_id, generation] = found
        return found

    async def live(self, tenant_id: str) -> Generation | None:
        """The tenant's live generation; None before its first capture."""
        async with self._database.tenant(tenant_id) as conn:
            generation = await self._live(conn, tenant_id)
            return None if generation is None else await self.get(tenant_id, generation, conn)

    async def live_corpus(self, tenant_id: str) -> LiveCorpus | None:
        """The live generation and the model of its vectors, as of one instant; None before the first capture."""
        async with self._database.tenant(tenant_id) as conn:
            cursor = conn.cursor(row_factory=dict_row)
            await cursor.execute(load_queries("replay")["live_corpus"], {"tenant": tenant_id})
            row = await cursor.fetchone()
            if row is None:
                return None
            generation = await self.get(tenant_id, row["live_generation"], conn)
        return LiveCorpus(generation=generation, model_key=row["model_key"], dims=row["dims"])

    async def archived_model(self, tenant_id: str, generation: str) -> str | None:
        """The model of a generation that is not live and not of a replay: what it was archived with."""
        async with self._database.tenant(tenant_id) as conn:
            row = await (
                await conn.execute(
                    load_queries("replay")["generation_model"],
                    {"tenant": tenant_id, "generation": generation},
                )
            ).fetchone()
        return None if row is None else row[0]

    async def _live(self, conn: Connection, tenant_id: str) -> str | None:
        row = await (
            await conn.execute(load_queries("replay")["live_generation"], {"tenant": tenant_id})
        ).fetchone()
        return None if row is None else str(row[0])


def _of_run(generation: str, row: Mapping[str, Any]) -> Generation:
    params = settings_of(row["params"])
    return Generation(
        id=generation,
        params=params,
        config_id=row["config_id"],
        model_key=row["model_key"],
        pinned=row["pinned"],
        cutting=params.chunk.cutting,
        tuning=_tuning(params),
        constants=_constants(params),
    )


def _tuning(params: TransformParams) -> SearchTuning:
    given = {
        "authority_weight": params.authority_weight,
        "recency_half_life_days": params.recency_half_life_days,
        "mmr_lambda": params.mmr_lambda,
        "overfetch": params.overfetch,
    }
    return SearchTuning(**{name: value for name, value in given.items() if value is not None})


def _constants(params: TransformParams) -> RankingConstants:
    """The default profile's own: there a weight is a share, so more than 1 counts as 1."""
    weight, days, diversity = params.authority_weight, params.recency_half_life_days, params.mmr_lambda
    base = DEFAULT_CONSTANTS
    return RankingConstants(
        authority_weight=base.authority_weight if weight is None else min(1.0, weight),
        half_life_ms=base.half_life_ms if days is None else days * MS_PER_DAY,
        mmr_lambda=base.mmr_lambda if diversity is None else diversity,
    )
