"""Vector spaces: which model a tenant's vectors are of, and the tables that hold them."""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from psycopg import sql
from psycopg.rows import dict_row

from corbits_memory.core.limits import EMBED_DIMS_MAX, EMBED_DIMS_MIN
from corbits_memory.engine.ids import new_id
from corbits_memory.engine.pool import APP_ROLE, Connection, Database
from corbits_memory.engine.queries import load_queries
from corbits_memory.errors import DimsOutOfBoundsError, MemoryError
from corbits_memory.ports import Embedder

logger = logging.getLogger("corbits_memory.vectors")

_TABLE = re.compile(r"^embedding_[a-f0-9]{16}$")
PARTITIONS = 16
VECTOR_DIMS_MAX = 2_000
"""pgvector indexes ``vector`` only up to here; ``halfvec`` up to 4,000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorSpace:
    """A registered model and how its vectors are stored."""

    model_key: str
    model_id: str
    base_url: str
    api_style: str
    dims: int
    vector_type: str
    sample: list[str] | None = None

    @property
    def table(self) -> str:
        """The table's name; checked here, the one place that it is spliced from."""
        name = f"embedding_{self.model_key}"
        if not _TABLE.match(name):
            raise MemoryError("A vector table's name is not one of ours; nothing was run.")
        return name

    @property
    def type(self) -> str:
        return f"{'halfvec' if self.vector_type == 'halfvec' else 'vector'}({int(self.dims)})"

    @property
    def qualified(self) -> sql.Identifier:
        return sql.Identifier("memory", self.table)

    def literal(self, vector: Sequence[float]) -> str:
        """A query vector as SQL; only digits come from outside."""
        return f"'{vector_text(vector)}'::{self.type}"

    def compose(self, query: str) -> sql.Composed:
        """One of our named queries with its table and type put in."""
        text: Any = query
        return sql.SQL(text).format(table=self.qualified, type=sql.SQL(self.type))


def _without_credentials(url: str) -> str:
    """The registry says where a model is, never how to get in."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))


def vector_text(vector: Sequence[float]) -> str:
    return "[" + ",".join(map(repr, map(float, vector))) + "]"


class VectorRegistry:
    """Finds, creates and activates vector spaces. One ensure a process, tenant and model."""

    def __init__(self, database: Database, *, vector_type: str) -> None:
        self._database = database
        self._vector_type = vector_type
        self._queries = load_queries("vectors")
        self._ensured: dict[tuple[str, str], VectorSpace] = {}
        self._tables: set[str] = set()

    async def active(self, tenant_id: str) -> VectorSpace | None:
        async with self._database.tenant(tenant_id) as conn:
            return await active_space(conn, tenant_id)

    async def activate(self, tenant_id: str, embedder: Embedder) -> VectorSpace:
        """Ensure the model's space and make it the one that the tenant's searches read."""
        known = self._ensured.get((tenant_id, embedder.model_key))
        if known is not None:
            return known
        space = await self._space_of(embedder)
        if space.table not in self._tables:
            await self._create_table(space)
            self._tables.add(space.table)
        async with self._database.tenant(tenant_id) as conn:
            await self._register(conn, tenant_id, space)
            parameters = {"tenant": tenant_id, "model_key": space.model_key}
            await conn.execute(self._queries["step_back_models"], parameters)
            await conn.execute(self._queries["activate_model"], parameters)
        self._ensured[tenant_id, embedder.model_key] = space
        return space

    async def _space_of(self, embedder: Embedder) -> VectorSpace:
        dims = await embedder.dims()
        if not EMBED_DIMS_MIN <= dims <= EMBED_DIMS_MAX:
            raise DimsOutOfBoundsError(
                f"The model {embedder.model} has {dims} dimensions; "
                f"{EMBED_DIMS_MIN} to {EMBED_DIMS_MAX} can be indexed. Choose another model."
            )
        wide = dims > VECTOR_DIMS_MAX
        return VectorSpace(
            model_key=embedder.model_key,
            model_id=embedder.model,
            base_url=_without_credentials(embedder.base_url),
            api_style=embedder.api_style,
            dims=dims,
            vector_type="halfvec" if wide else self._vector_type,
        )

    async def _register(self, conn: Connection, tenant_id: str, space: VectorSpace) -> None:
        await conn.execute(
            self._queries["register_model"],
            {
                "tenant": tenant_id,
                "id": new_id("kmod"),
                "model_key": space.model_key,
                "model_id": space.model_id,
                "base_url": space.base_url,
                "api_style": space.api_style,
                "dims": space.dims,
                "vector_type": space.vector_type,
            },
        )

    async def _create_table(self, space: VectorSpace) -> None:
        """Idempotent, under a lock of its own: many processes may meet a new model at once."""
        async with self._database.operator() as conn:
            exists = await conn.execute("SELECT to_regclass(%s)", [f"memory.{space.table}"])
            row = await exists.fetchone()
            if row and row[0] is not None:
                return
            await conn.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [f"memory.{space.table}"])
            await conn.execute(_table_ddl(space, second_lock=self._database.second_lock))
            logger.info("vector table %s, %s", space.table, space.type)


async def active_space(conn: Connection, tenant_id: str) -> VectorSpace | None:
    return await _one(conn, "active_model", tenant=tenant_id)


async def space_by_key(conn: Connection, tenant_id: str, model_key: str) -> VectorSpace | None:
    return await _one(conn, "model_by_key", tenant=tenant_id, model_key=model_key)


async def registered_spaces(conn: Connection, tenant_id: str) -> list[VectorSpace]:
    cursor = conn.cursor(row_factory=dict_row)
    await cursor.execute(load_queries("vectors")["registered_models"], {"tenant": tenant_id})
    return [VectorSpace(**row) for row in await cursor.fetchall()]


async def retag_vectors(conn: Connection, tenant_id: str, document_ids: Sequence[str]) -> None:
    """Vectors carry tags so that one scan decides: they follow a change in the same transaction."""
    for space in await registered_spaces(conn, tenant_id):
        await conn.execute(
            space.compose(load_queries("vectors")["retag_vectors"]),
            {"tenant": tenant_id, "documents": list(document_ids)},
        )


async def _one(conn: Connection, query: str, **parameters: Any) -> VectorSpace | None:
    cursor = conn.cursor(row_factory=dict_row)
    await cursor.execute(load_queries("vectors")[query], parameters)
    row = await cursor.fetchone()
    return None if row is None else VectorSpace(**row)


def _table_ddl(space: VectorSpace, *, second_lock: bool) -> sql.Composed:
    operators = "halfvec_cosine_ops" if space.vector_type == "halfvec" else "vector_cosine_ops"
    names = {
        "table": space.qualified,
        "type": sql.SQL(space.type),
        "operators": sql.SQL(operators),
        "hnsw": sql.Identifier(f"{space.table}_hnsw"),
        "visible": sql.Identifier(f"{space.table}_visible"),
        "role": sql.Identifier(APP_ROLE),
    }
    statements = [
        """CREATE TABLE IF NOT EXISTS {table} (
             tenant_id   text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
             chunk_id    text COLLATE "C" NOT NULL,
             generation  text COLLATE "C" NOT NULL,
             document_id text COLLATE "C" NOT NULL,
             owner_id    text COLLATE "C" NOT NULL,
             access_tags text[] COLLATE "C" NOT NULL,
             kind        text COLLATE "C" NOT NULL,
             status      text NOT NULL,
             occurred_at timestamptz NOT NULL,
             attributes  jsonb,
             embedding   {type} NOT NULL,
             PRIMARY KEY (tenant_id, chunk_id),
             FOREIGN KEY (tenant_id, chunk_id) REFERENCES memory.search_row (tenant_id, chunk_id) ON DELETE CASCADE
           ) PARTITION BY HASH (tenant_id)""",
        "CREATE INDEX IF NOT EXISTS {hnsw} ON {table} USING hnsw (embedding {operators})",
        "CREATE INDEX IF NOT EXISTS {visible} ON {table} (tenant_id, generation, owner_id, status)",
        "ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
        "DROP POLICY IF EXISTS tenant ON {table}",
        "CREATE POLICY tenant ON {table} USING (tenant_id = current_setting('memory.tenant_id', true))",
    ]
    if second_lock:
        statements.append("GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {role}")
    text = [sql.SQL(statement).format(**names) for statement in statements]
    for remainder in range(PARTITIONS):
        part = sql.Identifier("memory", f"{space.table}_{remainder:02d}")
        values = sql.SQL("FOR VALUES WITH (MODULUS {}, REMAINDER {})").format(PARTITIONS, remainder)
        text.insert(
            1 + remainder,
            sql.SQL("CREATE TABLE IF NOT EXISTS {} PARTITION OF {} {}").format(part, space.qualified, values),
        )
    return sql.SQL(";\n").join(text)
