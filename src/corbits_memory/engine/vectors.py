"""Vector spaces: which model a tenant's vectors are of, and the tables that hold them."""

import logging
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from psycopg import sql
from psycopg.rows import dict_row

from corbits_memory.core.limits import EMBED_DIMS_MAX, EMBED_DIMS_MIN
from corbits_memory.engine.distribution import follow
from corbits_memory.engine.ids import new_id
from corbits_memory.engine.pool import APP_ROLE, Connection, Database
from corbits_memory.engine.queries import load_queries
from corbits_memory.errors import DatabaseError, DimsOutOfBoundsError, EmbedError, MemoryError
from corbits_memory.ports import Embedder

logger = logging.getLogger("corbits_memory.vectors")

_TABLE = re.compile(r"^embedding_[a-f0-9]{16}$")
PARTITIONS = 16
RECENT_SECONDS = 1.0
REMEMBERED = 10_000
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
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


@dataclass(frozen=True, slots=True)
class _Model:
    """A row of the registry, as far as it decides."""

    model_key: str
    status: str
    chosen_at: datetime
    replaced_by: str | None
    scanned: bool

    def is_newer_than(self, other: "_Model") -> bool:
        return (self.chosen_at, self.model_key) > (other.chosen_at, other.model_key)


def _without_credentials(url: str) -> str:
    """The registry says where a model is, never how to get in."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))


def vector_text(vector: Sequence[float]) -> str:
    return "[" + ",".join(map(repr, map(float, vector))) + "]"


class Standing(StrEnum):
    """What a process's model is to a tenant."""

    ACTIVE = "active"
    """Its vectors are what searches read; missing ones stand in the queue."""
    CHOSEN = "chosen"
    """It is to become the active one as soon as its table lacks nothing; the one before serves until then."""
    RETIRED = "retired"
    """A process that opened later has another model: this one stores no vectors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A model's space at a tenant, and its standing."""

    space: VectorSpace
    standing: Standing
    scanned: bool = True
    """All that its table lacked stands in the queue."""
    serving: str | None = None
    """Where it is the chosen one: the model that searches read meanwhile."""
    replaced: bool = False
    """Where it is the active one: another is to take its place."""


class Role(StrEnum):
    """Whose vectors a model makes."""

    ACTIVE = "active"
    """Those that searches read."""
    CHOSEN = "chosen"
    """Those that searches are to read."""
    OTHER = "other"
    """Those of a generation that is not live."""


_HOLD = {Role.ACTIVE: "hold_active_model", Role.CHOSEN: "hold_chosen_model", Role.OTHER: "hold_model"}


@dataclass(frozen=True, slots=True)
class Held:
    """``refill``: what is stored now, the model that is to replace this one lacks."""

    refill: bool


class VectorRegistry:
    """Finds, creates and activates vector spaces. One ensure a process, tenant and model.

    Of processes with different models, the one that opened last decides, so that in a rolling deploy no
    process of the old configuration takes the tenant back. For that a model's ``updated_at`` is when the
    last process opened that came with it: the newest is the chosen one. A change of models has three steps,
    each durable, so that a crash between them is mended by whoever goes on:

    1. :meth:`claim` notes at the model before that it is to be replaced. It goes on to serve and to be filled,
       and what is stored in its table from now on is kept in the queue as a refill of the other's;
    2. whatever the new table lacks is queued as such a refill (``EmbeddingService``, in the worker), and embedded;
    3. :meth:`take_over`, once no refill is left: searches read the new table.
    """

    def __init__(self, database: Database, *, vector_type: str) -> None:
        self._database = database
        self._vector_type = vector_type
        self._queries = load_queries("vectors")
        self._opened_at: datetime | None = None
        self._active: dict[tuple[str, str], VectorSpace] = {}
        self._retired: set[str] = set()
        self._recent: dict[tuple[str, str], tuple[float, Claim]] = {}
        """What claims came to that were not active; for adds, whose stores decide under a lock of their own anyway."""

    @property
    def opened_at(self) -> datetime | None:
        """By the database's clock: what :meth:`claim` decides by."""
        return self._opened_at

    async def open(self) -> None:
        """Note when this process opened."""
        async with self._database.operator() as conn:
            row = await (await conn.execute("SELECT clock_timestamp()")).fetchone()
        self._opened_at = None if row is None else row[0]

    async def claim(
        self, tenant_id: str, embedder: Embedder, *, by_hand: bool = False, recent: bool = False
    ) -> Claim:
        """Ensure the model's space, and find out or decide whether it is the one that the tenant uses.

        At once active where no other model is: what was captured without one stands in the queue already.
        ``by_hand``: an operator asks for this model now, whoever opened when. ``recent``: what was found out within
        the last second will do.
        """
        place = (tenant_id, embedder.model_key)
        known = self._active.get(place)
        if known is not None and not by_hand:
            return Claim(space=known, standing=Standing.ACTIVE)
        if recent:
            since, last = self._recent.get(place, (0.0, None))
            if last is not None and time.monotonic() - since < RECENT_SECONDS:
                return last
        space = await self._created(embedder)
        async with self._database.tenant(tenant_id) as conn:
            await self._hold_table(conn, space)
            # Behind the lock of the registry, which a promotion holds: it is seen whole or not at all.
            await conn.execute(self._queries["lock_registry"], {"tenant": tenant_id})
            if await self._pinned(conn, tenant_id) is not None:
                return Claim(space=space, standing=Standing.RETIRED)
            others, mine = await self._models(
                conn, tenant_id, space, since=None if by_hand else self._opened_at
            )
            claim = await self._decide(conn, tenant_id, space, mine, others)
        if len(self._recent) >= REMEMBERED:
            self._recent.clear()
        self._recent[place] = (time.monotonic(), claim)
        if claim.standing is Standing.ACTIVE and claim.scanned and not claim.replaced:
            self._active[place] = space
        elif claim.standing is Standing.RETIRED and tenant_id not in self._retired:
            self._retired.add(tenant_id)
            logger.warning(
                "a tenant's vectors are of another model than %s: a process with that one was opened later. "
                "Restart this one, or run: corbits-memory embed switch",
                space.model_id,
            )
        return claim

    async def note_scanned(self, tenant_id: str, space: VectorSpace) -> None:
        """All that the model's table lacks stands in the queue now."""
        async with self._database.tenant(tenant_id) as conn:
            await self._set_scanned(conn, tenant_id, space.model_key, scanned=True)

    async def ensure(self, tenant_id: str, embedder: Embedder) -> VectorSpace:
        """Register a model for a replay and create its table; nothing else changes.

        Raises ``DimsOutOfBoundsError``, and ``EmbedError`` when its table holds vectors of other dimensions.
        """
        space = await self._space_of(embedder)
        async with self._database.tenant(tenant_id) as conn:
            known = await space_by_key(conn, tenant_id, space.model_key)
        if known is not None and known.dims != space.dims:
            raise EmbedError(wrong_dims(space.dims, known))
        space = await self._created(embedder)
        async with self._database.tenant(tenant_id) as conn:
            await self._hold_table(conn, space)
            await self._register(conn, tenant_id, space, _LONG_AGO)
        return space

    async def switch(self, conn: Connection, tenant_id: str, model_key: str | None) -> None:
        """Make a registered model the active one, or none, with the generation that is made live in ``conn``."""
        parameters = {"tenant": tenant_id, "model_key": model_key or ""}
        for query in ("lock_registry", "lock_models", "step_back_models", "choose_model"):
            await conn.execute(self._queries[query], parameters)

    async def take_over(self, tenant_id: str, space: VectorSpace, *, unfilled: bool = False) -> bool:
        """The last step of a change of models. False: its table lacks something still, or it is not the chosen one.

        ``unfilled``: also when something is lacking; that is a gap, then, until it is filled.
        """
        async with self._database.tenant(tenant_id) as conn:
            await conn.execute(self._queries["lock_registry"], {"tenant": tenant_id})
            others, mine = await self._models(conn, tenant_id, space, since=_LONG_AGO)
            serving = next((other for other in others if other.status == "active"), None)
            if serving is None or serving.replaced_by != space.model_key or not mine.scanned:
                return False
            if await self._pinned(conn, tenant_id) is not None:
                return False
            left = await (await conn.execute(self._queries["refilling"], {"tenant": tenant_id})).fetchone()
            if left is not None and left[0] and not unfilled:
                return False
            await self._set_active(conn, tenant_id, space.model_key, before=serving.model_key)
        logger.info("a tenant's searches now read the vectors of %s", space.model_id)
        return True

    async def hold(self, conn: Connection, tenant_id: str, space: VectorSpace, role: Role) -> Held | None:
        """Keep the model in its role until the transaction ends. None: it is not in it any more."""
        parameters = {"tenant": tenant_id, "model_key": space.model_key}
        row = await (await conn.execute(self._queries[_HOLD[role]], parameters)).fetchone()
        if role is Role.ACTIVE and row is None:
            self._active.pop((tenant_id, space.model_key), None)
        return None if row is None else Held(refill=role is Role.ACTIVE and row[0] is not None)

    async def _pinned(self, conn: Connection, tenant_id: str) -> str | None:
        """The model of the live generation, where its replay's config names one."""
        row = await (await conn.execute(self._queries["live_model"], {"tenant": tenant_id})).fetchone()
        return None if row is None else row[1]

    async def _created(self, embedder: Embedder) -> VectorSpace:
        space = await self._space_of(embedder)
        await self._create_table(space)
        return space

    async def _hold_table(self, conn: Connection, space: VectorSpace) -> None:
        """Keep the table, to the end of the transaction. Raises ``DatabaseError`` where it was just dropped."""
        parameters = {"name": f"memory.{space.table}"}
        row = await (await conn.execute(self._queries["hold_table"], parameters)).fetchone()
        if row is None or row[0] is None:
            raise DatabaseError(
                "The model's table was dropped at this moment, as no tenant used it; try again."
            )

    async def _models(
        self, conn: Connection, tenant_id: str, space: VectorSpace, *, since: datetime | None
    ) -> tuple[list[_Model], _Model]:
        """The tenant's other models and this one, registered and locked: whoever stores vectors has finished."""
        parameters = {"tenant": tenant_id}
        await conn.execute(self._queries["lock_models"], parameters)
        await self._register(conn, tenant_id, space, since)
        rows = await (await conn.execute(self._queries["lock_models"], parameters)).fetchall()
        models = {row[0]: _Model(*row) for row in rows}
        mine = models.pop(space.model_key)
        return list(models.values()), mine

    async def _decide(
        self, conn: Connection, tenant_id: str, space: VectorSpace, mine: _Model, others: list[_Model]
    ) -> Claim:
        newest = not any(other.is_newer_than(mine) for other in others)
        if mine.status == "active":
            if newest and mine.replaced_by is not None:
                await self._set_replaced(conn, tenant_id, None)
            replaced = not newest and mine.replaced_by is not None
            return Claim(space=space, standing=Standing.ACTIVE, scanned=mine.scanned, replaced=replaced)
        if not newest:
            return Claim(space=space, standing=Standing.RETIRED)
        serving = next((other for other in others if other.status == "active"), None)
        if serving is None:
            await self._set_active(conn, tenant_id, mine.model_key)
            await self._set_scanned(conn, tenant_id, mine.model_key, scanned=not others)
            return Claim(space=space, standing=Standing.ACTIVE, scanned=not others)
        scanned = mine.scanned
        if serving.replaced_by != mine.model_key:
            scanned = False
            await self._set_replaced(conn, tenant_id, mine.model_key)
            await self._set_scanned(conn, tenant_id, mine.model_key, scanned=False)
        return Claim(space=space, standing=Standing.CHOSEN, scanned=scanned, serving=serving.model_key)

    async def _set_active(
        self, conn: Connection, tenant_id: str, model_key: str, *, before: str | None = None
    ) -> None:
        parameters = {"tenant": tenant_id, "model_key": model_key, "before": before}
        await conn.execute(self._queries["step_back_models"], parameters)
        await conn.execute(self._queries["activate_model"], parameters)

    async def _set_replaced(self, conn: Connection, tenant_id: str, model_key: str | None) -> None:
        await conn.execute(self._queries["replace_model"], {"tenant": tenant_id, "replaced_by": model_key})

    async def _set_scanned(self, conn: Connection, tenant_id: str, model_key: str, *, scanned: bool) -> None:
        await conn.execute(
            self._queries["note_scanned"], {"tenant": tenant_id, "model_key": model_key, "scanned": scanned}
        )

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

    async def _register(
        self, conn: Connection, tenant_id: str, space: VectorSpace, since: datetime | None
    ) -> None:
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
                "since": since,
            },
        )

    async def _create_table(self, space: VectorSpace) -> None:
        """Idempotent, under a lock of its own: many processes may meet a new model at once."""
        async with self._database.operator() as conn:
            exists = await conn.execute("SELECT to_regclass(%s)", [f"memory.{space.table}"])
            row = await exists.fetchone()
            if row and row[0] is not None:
                return
            await conn.execute(self._queries["lock_table"], {"name": f"memory.{space.table}"})
            await conn.execute(_table_ddl(space, second_lock=self._database.second_lock))
            await follow(conn)
            logger.info("vector table %s, %s", space.table, space.type)


def wrong_dims(dims: int, space: VectorSpace) -> str:
    return (
        f"The model {space.model_id} answered with {dims} dimensions, but its table holds {space.dims}. "
        "If the endpoint now serves another model, give it another name in EMBED_MODEL and run: "
        "corbits-memory embed switch"
    )


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
        # The planner's statistics would hold samples of what was forgotten.
        "ALTER TABLE {table} ALTER embedding SET STATISTICS 0, ALTER attributes SET STATISTICS 0",
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
