"""How fast: search beside its bare index scans, growth, a small tenant beside a large one, recall of the vector
index, bytes a chunk, and the rate of capture. All ratios are of one run on one machine."""

import sys
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from benchmarks.captures import measure_captures
from benchmarks.corpus import SHARES, Material, gather_material, load_corpus
from benchmarks.embeddings import DiskCachedEmbedder, cached_embedder
from benchmarks.report import Table, verdict
from benchmarks.scans import BareScans
from benchmarks.server import PRINCIPAL, Server, bench_server, open_store
from benchmarks.sizes import REAL, Corpus, corpus_of, real_corpus, size_table, sizes_of
from corbits_memory.core.relevance import percentile
from corbits_memory.engine.search.retrieval import EXACT_ROWS
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.engine.vectors import vector_text
from corbits_memory.ports import SearchQuery

ENGINE_TARGET, GROWTH_TARGET, NEIGHBOUR_TARGET, RECALL_TARGET = 2.0, 3.0, 1.3, 0.95
ENGINE_CHUNKS, SMALL_CHUNKS = 100_000, 1_000
SMALL, LARGE = "small", "large"
QUESTIONS, ROUNDS = 200, 3


@dataclass(slots=True)
class Timing:
    """Seconds of each question, best of the rounds: what the machine can do, not what disturbed it."""

    search: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    """A search that has one connection, as each has that runs beside others."""
    lexical: list[float] = field(default_factory=list)
    dense: list[float] = field(default_factory=list)

    @property
    def scans(self) -> list[float]:
        return [sum(pair) for pair in zip(self.lexical, self.dense, strict=True)]


@dataclass(frozen=True, slots=True)
class Setting:
    """A database with a small tenant and, unless it is alone, a large one in the same partition."""

    name: str
    url: str
    small: str
    large: str | None
    corpus: Corpus


async def run_speed(*, quick: bool = False, full: bool = False) -> str:
    """Markdown of all speed tables."""
    embedder = cached_embedder()
    material = await gather_material(embedder, quick=quick)
    questions = material.questions[: 50 if quick else QUESTIONS]
    vectors = await embedder.embed(questions, purpose="query")
    sizes = [10_000] if quick else [10_000, 100_000, *([1_000_000] if full else [])]
    timings: dict[tuple[int, str], Timing] = {}
    corpora: dict[str, Corpus] = {}
    recall = Table(("chunks", "visible", "dense channel", "recall@10 against exact", "target"))
    with bench_server() as server:
        corpora[REAL], told = await real_corpus(server, embedder, quick=quick)
        for chunks in (0, *sizes):
            setting = await _prepare(server, embedder, material, chunks)
            if chunks:
                corpora[f"{chunks:,} chunks"] = setting.corpus
            async with (
                open_store(setting.url, embedder) as store,
                open_store(setting.url, embedder, connections=1) as narrow,
            ):
                with psycopg.connect(setting.url, autocommit=True, prepare_threshold=None) as conn:
                    for tenant_id in filter(None, (setting.small, setting.large)):
                        kind = SMALL if tenant_id == setting.small else LARGE
                        async with await psycopg.AsyncConnection.connect(
                            setting.url, autocommit=True, prepare_threshold=None
                        ) as sender:
                            scans = await BareScans.prepare(conn, sender, tenant_id, embedder.model_key)
                            timings[chunks, kind] = await _time(
                                (store, narrow), scans, tenant_id, questions, vectors
                            )
                    if setting.large:
                        _measure_recall(conn, setting.large, embedder.model_key, vectors, chunks, recall)
        captures = await measure_captures(server, quick=quick)
        versions = await server.version()
    await embedder.close()
    return "\n\n".join(
        (
            (
                "Texts are sentences of the data sets with a third of their words drawn anew by frequency, vectors "
                f"perturbed copies of real ones; {len(questions)} real questions, the best of {ROUNDS} rounds each, "
                "vectors of questions known beforehand. Both tenants of a database lie in the same partition."
            ),
            _engine_table(timings).markdown(),
            _ratio_table(timings, sizes).markdown(),
            recall.markdown(),
            f"{told} The other columns: rows of the search tables alone, by COPY and index builds.",
            size_table(corpora).markdown(),
            captures,
            versions,
        )
    )


async def _prepare(server: Server, embedder: DiskCachedEmbedder, material: Material, chunks: int) -> Setting:
    name = f"speed_{chunks}"
    url = await server.create_database(name)
    small, large = _neighbours(url)
    async with open_store(url, embedder) as store:
        await store.embedding.enqueue_missing(small)  # makes the model's table
        with psycopg.connect(url) as conn:
            empty = sizes_of(conn)
        for tenant_id, size in ((small, SMALL_CHUNKS), (large, chunks)):
            if size:
                began = time.perf_counter()
                await load_corpus(store, url, tenant_id, material, chunks=size, model_key=embedder.model_key)
                sys.stderr.write(f"{name}: {size} chunks in {time.perf_counter() - began:.0f} s\n")
    with psycopg.connect(url) as conn:
        return Setting(name, url, small, large if chunks else None, corpus_of(conn, empty))


def _neighbours(url: str) -> tuple[str, str]:
    """Names of two tenants whose rows lie in the same partition: the worst place for a small one."""
    with psycopg.connect(url) as conn:
        rows = conn.execute(
            "SELECT 'tenant-' || n, r FROM generate_series(1, 100) AS n, generate_series(0, 15) AS r "
            "WHERE satisfies_hash_partition('memory.search_row'::regclass, 16, r, ('tenant-' || n)::text) ORDER BY n"
        ).fetchall()
    first, place = rows[0]
    return first, next(name for name, other in rows[1:] if other == place)


async def _time(
    stores: tuple[PostgresDocumentStore, PostgresDocumentStore],
    scans: BareScans,
    tenant_id: str,
    questions: Sequence[str],
    vectors: Sequence[Sequence[float]],
) -> Timing:
    """Searches and scans in turns, so that a change in the machine's load meets both.

    What follows a search is of another question: scans of its own would find in memory the very pages that the search
    has just brought there.
    """
    lexical = [scans.lexical(question) for question in questions]
    dense = [scans.dense(vector) for vector in vectors]
    rounds: list[Timing] = []

    def search(store: PostgresDocumentStore, question: str) -> Awaitable[object]:
        query = SearchQuery(query=question)
        return store.search(tenant_id=tenant_id, principal_id=PRINCIPAL, query=query)

    for _ in range(ROUNDS + 1):
        timing = Timing()
        for place, question in enumerate(questions):
            other = (place + len(questions) // 2) % len(questions)
            third = (place + len(questions) // 3) % len(questions)
            timing.search.append(await _seconds(search(stores[0], question)))
            timing.lexical.append(await _seconds(scans.run(lexical[other])))
            timing.dense.append(await _seconds(scans.run(dense[other])))
            timing.beside.append(await _seconds(search(stores[1], questions[third])))
        rounds.append(timing)
    warm = rounds[1:]  # the first round reads the tables and prepares the statements
    return Timing(
        search=[min(values) for values in zip(*(r.search for r in warm), strict=True)],
        beside=[min(values) for values in zip(*(r.beside for r in warm), strict=True)],
        lexical=[min(values) for values in zip(*(r.lexical for r in warm), strict=True)],
        dense=[min(values) for values in zip(*(r.dense for r in warm), strict=True)],
    )


async def _seconds(work: Awaitable[object]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


def _engine_table(timings: dict[tuple[int, str], Timing]) -> Table:
    table = Table(
        (
            "chunks", "search, ms (p95)", "over one connection", "lexical scan", "dense scan", "both scans",
            "search / scans", f"≤ {ENGINE_TARGET:.0f} at {ENGINE_CHUNKS:,}",
        )
    )  # fmt: skip
    for (chunks, kind), timing in timings.items():
        beside = f"{SMALL_CHUNKS:,} beside {chunks:,}" if chunks else f"{SMALL_CHUNKS:,} alone"
        ratio = _median(timing.search) / _median(timing.scans)
        table.add(
            f"{chunks:,}" if kind == LARGE else beside,
            *(
                _milliseconds(v)
                for v in (timing.search, timing.beside, timing.lexical, timing.dense, timing.scans)
            ),
            f"{ratio:.2f}",
            verdict(held=ratio <= ENGINE_TARGET) if (chunks, kind) == (ENGINE_CHUNKS, LARGE) else "",
        )
    return table


def _ratio_table(timings: dict[tuple[int, str], Timing], sizes: Sequence[int]) -> Table:
    table = Table(("ratio of median search times", "is", "target"))
    first, last = sizes[0], sizes[-1]
    for size in sizes[1:]:
        ratio = _median(timings[size, LARGE].search) / _median(timings[first, LARGE].search)
        held = verdict(held=ratio <= GROWTH_TARGET) if size == 1_000_000 else ""
        table.add(
            f"{size:,} chunks against {first:,}", f"{ratio:.2f}", f"≤ {GROWTH_TARGET:.0f} at 1,000,000 {held}"
        )
    ratio = _median(timings[last, SMALL].search) / _median(timings[0, SMALL].search)
    table.add(
        f"{SMALL_CHUNKS:,} chunks beside {last:,}, against alone",
        f"{ratio:.2f}",
        f"≤ {NEIGHBOUR_TARGET} {verdict(held=ratio <= NEIGHBOUR_TARGET)}",
    )
    return table


def _measure_recall(
    conn: psycopg.Connection,
    tenant_id: str,
    model_key: str,
    vectors: Sequence[Sequence[float]],
    chunks: int,
    table: Table,
) -> None:
    """The dense channel as the product chooses it, against a look at every visible vector."""
    for tag in (None, *SHARES):
        scope = {
            "principal": PRINCIPAL if tag is None else "reader",
            "statuses": ["active"],
            "generation": "g0",
        }
        allowed: dict[str, object] = {} if tag is None else {"allowed": [tag], "vetoed": []}
        visible = chunks if tag is None else chunks // SHARES[tag]
        exact = visible <= EXACT_ROWS
        shares = []
        for vector in vectors:
            near = _dense(conn, tenant_id, model_key, vector, scope | allowed, exact=exact)
            true = _dense(conn, tenant_id, model_key, vector, scope | allowed, exact=True)
            shares.append(len(set(near[:10]) & set(true[:10])) / min(10, len(true)))
        share = sum(shares) / len(shares)
        table.add(
            f"{chunks:,}",
            f"{100 * visible / chunks:g} %",
            "exact" if exact else "HNSW",
            f"{share:.3f}",
            f"≥ {RECALL_TARGET} {verdict(held=share >= RECALL_TARGET)}",
        )


def _dense(
    conn: psycopg.Connection,
    tenant_id: str,
    model_key: str,
    vector: Sequence[float],
    scope: dict[str, object],
    *,
    exact: bool,
) -> list[str]:
    function = (
        "memory.dense_exact(%(table)s, %(vector)s::halfvec, NULL, memory.scope_predicate(%(scope)s), 50)"
        if exact
        else "memory.dense_nearest(%(table)s, %(vector)s::halfvec, NULL, memory.scope_predicate(%(scope)s), 50, NULL)"
    )
    with conn.transaction():
        conn.execute("SELECT set_config('memory.tenant_id', %s, true)", [tenant_id])
        row = conn.execute(
            sql.SQL("SELECT chunk_ids FROM " + function),
            {
                "table": f"embedding_{model_key}",
                "vector": vector_text(vector),
                "scope": Jsonb(scope),
            },
        ).fetchone()
    assert row is not None
    return list(row[0])


def _median(values: Sequence[float]) -> float:
    return percentile(values, 0.5)


def _milliseconds(values: Sequence[float]) -> str:
    return f"{1_000 * _median(values):.1f} ({1_000 * percentile(values, 0.95):.1f})"
