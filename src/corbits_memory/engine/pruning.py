"""Models that nobody uses any more: off the registry, and their tables dropped.

A model is used while searches read it, a change of models goes to it, or a generation that was staged or archived is
of it. Whoever registers one holds its table with a lock, so that none is dropped under it.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql
from psycopg.rows import dict_row

from corbits_memory.engine.distribution import follow
from corbits_memory.engine.pool import Connection, Database
from corbits_memory.engine.queries import load_queries
from corbits_memory.engine.vectors import VectorSpace

logger = logging.getLogger("corbits_memory.pruning")

LOCK_SECONDS = 2
"""Dropping waits so long for readers of the table, who meanwhile hold up those that come after it; then it fails."""
_PREFIX = "embedding_"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredModel:
    """A tenant's model. ``vectors``: how many live chunks it has one of."""

    space: VectorSpace
    active: bool
    used: bool
    vectors: int
    replaced_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """``models``: tenants and names taken off the registry; ``tables``: those dropped."""

    models: Sequence[tuple[str, str]]
    tables: Sequence[str]


class ModelPruner:
    """Looks over all tenants, as the owner."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = load_queries("models")

    async def models(self, tenant_id: str) -> list[RegisteredModel]:
        """A tenant's models, the last chosen first."""
        async with self._database.tenant(tenant_id) as conn:
            found = []
            for row in await self._rows(conn, tenant_id):
                space = _space(row)
                count = await (
                    await conn.execute(
                        space.compose(load_queries("vectors")["count_live_vectors"]), {"tenant": tenant_id}
                    )
                ).fetchone()
                found.append(
                    RegisteredModel(
                        space=space,
                        active=row["status"] == "active",
                        used=row["used"],
                        replaced_by=row["replaced_by"],
                        vectors=0 if count is None else count[0],
                    )
                )
        return found

    async def prune(self, *, dry_run: bool = False) -> Pruned:
        """Take what no tenant uses off the registry, and drop the tables that are nobody's then.

        Raises ``DatabaseError`` where a table is read all the time; what was done stays, and the rest is done by
        the next call. ``dry_run``: only say what would go.
        """
        models: list[tuple[str, str]] = []
        kept: set[str] = set()
        for tenant_id in await self._tenants():
            async with self._database.tenant(tenant_id) as conn:
                registered = await self._rows(conn, tenant_id)
            for row in registered:
                space = _space(row)
                if row["used"]:
                    kept.add(space.model_key)
                elif dry_run or await self._remove(tenant_id, space):
                    models.append((tenant_id, space.model_id))
                else:
                    kept.add(space.model_key)
        unused_tables = [name for name in await self._tables() if name.removeprefix(_PREFIX) not in kept]
        gone = [name for name in unused_tables if dry_run or await self._drop(name)]
        return Pruned(models=models, tables=gone)

    async def _tenants(self) -> list[str]:
        found: list[str] = []
        async with self._database.operator() as conn:
            while True:
                parameters = {"after": found[-1] if found else ""}
                page = await (await conn.execute(self._queries["tenants_with_models"], parameters)).fetchall()
                if not page:
                    return found
                found += [row[0] for row in page]

    async def _rows(self, conn: Connection, tenant_id: str) -> list[dict[str, Any]]:
        cursor = conn.cursor(row_factory=dict_row)
        await cursor.execute(self._queries["models"], {"tenant": tenant_id})
        return await cursor.fetchall()

    async def _remove(self, tenant_id: str, space: VectorSpace) -> bool:
        """The tenant's vectors, and the model with the last of them. False: it is used again."""
        parameters = {"tenant": tenant_id, "model_key": space.model_key}
        drop_page = space.compose(self._queries["drop_page"])
        while True:
            async with self._database.tenant(tenant_id) as conn:
                await conn.execute(load_queries("vectors")["lock_table"], {"name": f"memory.{space.table}"})
                await conn.execute(load_queries("vectors")["lock_registry"], parameters)
                await conn.execute(load_queries("vectors")["lock_models"], parameters)
                if all(
                    row["used"] or row["model_key"] != space.model_key
                    for row in await self._rows(conn, tenant_id)
                ):
                    return False
                if (await conn.execute(drop_page, parameters)).rowcount == 0:
                    await conn.execute(self._queries["forget_model"], parameters)
                    logger.info("a tenant's vectors of %s are gone: nothing used them", space.model_id)
                    return True

    async def _tables(self) -> list[str]:
        async with self._database.operator() as conn:
            return [row[0] for row in await (await conn.execute(self._queries["vector_tables"])).fetchall()]

    async def _drop(self, name: str) -> bool:
        async with self._database.operator() as conn:
            await conn.execute(load_queries("vectors")["lock_table"], {"name": f"memory.{name}"})
            parameters = {"model_key": name.removeprefix(_PREFIX)}
            row = await (await conn.execute(self._queries["is_registered"], parameters)).fetchone()
            if row is None or row[0]:
                return False
            await conn.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(f"{LOCK_SECONDS}s"))
            await conn.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier("memory", name)))
            await follow(conn)
        logger.info("vector table %s dropped", name)
        return True


def _space(row: dict[str, Any]) -> VectorSpace:
    fields = ("model_key", "model_id", "base_url", "api_style", "dims", "vector_type")
    return VectorSpace(**{name: row[name] for name in fields})
