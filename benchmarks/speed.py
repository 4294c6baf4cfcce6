"""How fast: search against its bare index scans, capture against the model and against COPY.

Ratios of times taken side by side in one run. Vectors of the large tenants are perturbed copies of real ones.
"""

import random
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import psycopg
from psycopg import sql

from benchmarks.corpus import Corpus, load_tenant, read_corpus, tenant_beside, vector_table
from benchmarks.datasets import load_collection, load_conversations
from benchmarks.embeddings import DiskCachedEmbedder, cached_embedder, local_embedder
from benchmarks.report import Table
from benchmarks.server import PRINCIPAL, Server, bench_server, open_store
from corbits_memory.core.text import normalise
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.engine.vectors import vector_text
from corbits_memory.ports import SearchQuery

TENANT = "bench"
QUERIES = 60
ROUNDS = 3
SCOPE = "r.tenant_id = {tenant} AND r.generation = 'g0' AND r.owner_id = 'bench' AND r.status = ANY ('{{active}}')"
_COPIED = (
    "tenant_state",
    "document",
    "raw_capture",
    "version",
    "chunk",
    "search_row",
    "embed_queue",
    "feed_event",
)


async def run_speed(*, quick: bool = False, full: bool = False) -> str:
    """Markdown of the tables."""
    sizes = [10_000] if quick else [10_000, 100_000, *([1_000_000] if full else [])]
    embedder = cached_embedder()
    corpus = await read_corpus(embedder)
    search = Table(
        [
            "chunks",
            "engine ms, median",
            "p95",
            "bare scans ms, median",
            "ratio (≤ 2)",
            "ANN recall@10 (≥ .95)",
        ]
    )
    beside = Table(["a tenant of 1,000", "ms, median", "ratio (≤ 1.3)"])
    engines: dict[int, float] = {}
    with bench_server() as server:
        for rows in sizes:
            engines[rows] = await _measure_size(server, embedder, corpus, rows, search, beside)
        ratio = engines[sizes[-1]] / engines[sizes[0]]
        growth = f"Growth of engine time from {sizes[0]:,} to {sizes[-1]:,} chunks: {ratio:.2f} ×."
        capture = await _measure_capture(server, quick=quick)
        version = await server.version()
    return "\n\n".join([search.markdown(), growth, beside.markdown(), capture, version])


async def _measure_size(
    server: Server, embedder: DiskCachedEmbedder, corpus: Corpus, rows: int, search: Table, beside: Table
) -> float:
    url = await server.create_database(f"speed_{rows}")
    questions = _questions()
    async with open_store(url, cached_embedder()) as store:
        await load_tenant(url, store, TENANT, corpus, rows=rows, seed=1)
        vectors = await embedder.embed(questions, purpose="query")
        with psycopg.connect(url, autocommit=True, prepare_threshold=None) as conn:
            bare = BareScans(conn, TENANT)
            engine_times, bare_times = [], []
            for _ in range(ROUNDS):
                for question, vector in zip(questions, vectors, strict=True):
                    bare_times.append(bare.run(question, vector))
                    engine_times.append(await _timed(partial(_search, store, TENANT, question)))
            recall = bare.recall(vectors)
            neighbour = tenant_beside(conn, TENANT)
        engine, p95 = statistics.median(engine_times), statistics.quantiles(engine_times, n=20)[-1]
        scans = statistics.median(bare_times)
        search.add(
            f"{rows:,}",
            f"{engine:.1f}",
            f"{p95:.1f}",
            f"{scans:.1f}",
            f"{engine / scans:.2f}",
            f"{recall:.3f}",
        )
        await load_tenant(url, store, neighbour, corpus, rows=1_000, seed=2)
        crowded = [
            await _timed(partial(_search, store, neighbour, question))
            for _ in range(ROUNDS)
            for question in questions
        ]
    alone_url = await server.create_database(f"alone_{rows}")
    async with open_store(alone_url, cached_embedder()) as store:
        await load_tenant(alone_url, store, neighbour, corpus, rows=1_000, seed=2)
        alone = [
            await _timed(partial(_search, store, neighbour, question))
            for _ in range(ROUNDS)
            for question in questions
        ]
    beside.add(
        f"beside {rows:,}",
        f"{statistics.median(crowded):.1f}",
        f"{statistics.median(crowded) / statistics.median(alone):.2f}",
    )
    return engine


class BareScans:
    """The two index scans that a hybrid search can't do without, sent as they are with the same driver.

    The rarest terms by GIN, scored by the sparse inner product; and the nearest fifty by HNSW.
    """

    def __init__(self, conn: psycopg.Connection, tenant_id: str) -> None:
        self._conn = conn
        self._tenant_id = tenant_id
        self._table = vector_table(conn, tenant_id)
        self._scope = sql.SQL(SCOPE).format(tenant=sql.Literal(tenant_id))
        for setting in ("hnsw.ef_search = 100", "hnsw.iterative_scan = 'relaxed_order'"):
            conn.execute(sql.SQL("SET {}").format(sql.SQL(setting)))
        self._planned: dict[str, tuple[list[int], Any]] = {}

    def run(self, question: str, vector: Sequence[float]) -> float:
        """Milliseconds of both."""
        terms, query = self._plan(question)
        started = time.perf_counter()
        self._conn.execute(
            sql.SQL(
                "SELECT r.chunk_id FROM memory.search_row r WHERE {} AND r.terms && {} ORDER BY r.lex <#> {} LIMIT 50"
            ).format(self._scope, sql.Literal(terms), sql.Literal(query)),
        ).fetchall()
        self._conn.execute(self._nearest(vector, 50)).fetchall()
        return (time.perf_counter() - started) * 1000

    def recall(self, vectors: Sequence[Sequence[float]]) -> float:
        """Of the true ten nearest, how many the index yields."""
        found = 0
        for vector in vectors:
            near = {row[0] for row in self._conn.execute(self._nearest(vector, 50)).fetchall()[:10]}
            self._conn.execute("SET enable_indexscan = off")
            true = {row[0] for row in self._conn.execute(self._nearest(vector, 10)).fetchall()}
            self._conn.execute("RESET enable_indexscan")
            found += len(near & true)
        return found / (10 * len(vectors))

    def _nearest(self, vector: Sequence[float], limit: int) -> sql.Composed:
        return sql.SQL(
            "SELECT r.chunk_id FROM {} r WHERE {} ORDER BY r.embedding <=> {}::halfvec({}) LIMIT {}"
        ).format(
            sql.Identifier("memory", self._table),
            self._scope,
            sql.Literal(vector_text(vector)),
            len(vector),
            limit,
        )

    def _plan(self, question: str) -> tuple[list[int], Any]:
        """The rarest terms, up to 4,000 rows of them, and the query as idf a dimension: known before the clock runs."""
        if question not in self._planned:
            rows = self._conn.execute(
                "SELECT h, coalesce(s.df, 0), memory.lexeme_dim(l), t.stats_rows FROM memory.tenant_state t, "
                "unnest(memory.query_lexemes('english', %(q)s)) AS l, memory.term_hash(t.tenant_id, 'g0', l) AS h "
                "LEFT JOIN memory.term_stat s ON s.tenant_id = %(t)s AND s.generation = 'g0' AND s.term = h "
                "WHERE t.tenant_id = %(t)s ORDER BY 2, 1",
                {"q": normalise(question), "t": self._tenant_id},
            ).fetchall()
            terms: list[int] = []
            total = 0
            for term, df, _, _ in rows:
                if not terms or total + df <= 4_000:
                    terms.append(term)
                    total += df
            self._planned[question] = terms, self._sparse(question)
        return self._planned[question]

    def _sparse(self, question: str) -> Any:
        row = self._conn.execute(
            "SELECT ('{' || string_agg(dim || ':' || idf, ',' ORDER BY dim) || '}/268435456')::sparsevec::text FROM ("
            " SELECT memory.lexeme_dim(l) AS dim, sum(ln(1 + (t.stats_rows - coalesce(s.df, 0) + 0.5) "
            "  / (coalesce(s.df, 0) + 0.5)))::real AS idf"
            " FROM memory.tenant_state t CROSS JOIN unnest(memory.query_lexemes('english', %(q)s)) AS l"
            " LEFT JOIN memory.term_stat s ON s.tenant_id = t.tenant_id AND s.generation = 'g0'"
            "  AND s.term = memory.term_hash(t.tenant_id, 'g0', l)"
            " WHERE t.tenant_id = %(t)s GROUP BY 1) AS w",
            {"q": normalise(question), "t": self._tenant_id},
        ).fetchone()
        assert row is not None
        return row[0]


async def _measure_capture(server: Server, *, quick: bool) -> str:
    documents = list(load_collection("cranfield", "english").documents)
    table = Table(["capture", "product", "against", "ratio"])
    some = documents[: 40 if quick else 150]
    model = local_embedder()
    texts = [f"{d.title}\n{d.text}" for d in some]
    await model.embed(texts[:1], purpose="passage")
    alone = await _timed(partial(model.embed, texts, purpose="passage"))
    async with open_store(await server.create_database("capture"), model) as store:

        async def whole() -> None:
            await store.add(tenant_id=TENANT, principal_id=PRINCIPAL, documents=some)
            await store.embedding.drain(TENANT)

        product = await _timed(whole)
    table.add(
        "with vectors, documents a second",
        f"{len(some) / product * 1000:.1f}",
        f"the model alone: {len(some) / alone * 1000:.1f}",
        f"{alone / product:.2f} (≥ .8)",
    )
    url, copied = await server.create_database("wordy"), await server.create_database("copied")
    turns = [d for data in load_conversations(None) for d in data.documents] + documents
    turns = turns[:1_000] if quick else turns
    async with open_store(url, None) as store:

        async def add_all() -> None:
            for start in range(0, len(turns), 500):
                await store.add(
                    tenant_id=TENANT, principal_id=PRINCIPAL, documents=turns[start : start + 500]
                )

        product = await _timed(add_all)
    bare = _copy_time(url, copied)
    table.add(
        "without vectors, documents a second",
        f"{len(turns) / product * 1000:.0f}",
        f"COPY of the same rows: {len(turns) / bare * 1000:.0f}",
        f"{bare / product:.2f} (≥ .5)",
    )
    return table.markdown()


def _copy_time(source: str, target: str) -> float:
    """Milliseconds to COPY every row that the product wrote into empty tables with the same indexes."""
    with psycopg.connect(source, autocommit=True) as read, psycopg.connect(target, autocommit=True) as write:
        data = []
        for name in _COPIED:
            columns = [
                row[0]
                for row in read.execute(
                    "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 "
                    "AND NOT attisdropped AND attgenerated = '' ORDER BY attnum",
                    [f"memory.{name}"],
                )
            ]
            listed = sql.SQL(", ").join(map(sql.Identifier, columns))
            table = sql.Identifier("memory", name)
            with read.cursor().copy(
                sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT (FORMAT binary)").format(listed, table)
            ) as copy:
                data.append((table, listed, b"".join(bytes(part) for part in copy)))
        started = time.perf_counter()
        with write.transaction():
            for table, listed, rows in data:
                with write.cursor().copy(
                    sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(table, listed)
                ) as copy:
                    copy.write(rows)
        return (time.perf_counter() - started) * 1000


def _questions() -> list[str]:
    asked = [q.text for data in load_conversations(None) for q in data.questions]
    asked += [q.text for q in load_collection("cranfield", "english").questions]
    return random.Random(1).sample(asked, QUERIES)


async def _search(store: PostgresDocumentStore, tenant_id: str, question: str) -> None:
    await store.search(
        tenant_id=tenant_id, principal_id=PRINCIPAL, query=SearchQuery(query=question, limit=10)
    )


async def _timed(function: Callable[[], Awaitable[object]]) -> float:
    started = time.perf_counter()
    await function()
    return (time.perf_counter() - started) * 1000
