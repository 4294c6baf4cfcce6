"""What access costs: searches of callers who see all, a tenth, a hundredth, a thousandth and eight of a corpus, and
of one who holds ten thousand grants. Everything goes through the plane, with grants in a store in memory."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import sql

from benchmarks.corpus import SHARES, gather_material, load_corpus
from benchmarks.embeddings import cached_embedder
from benchmarks.report import Table
from benchmarks.server import PRINCIPAL, bench_server, open_store
from corbits_memory.access.authorize import Authorizer
from corbits_memory.access.memory_store import InMemoryGrantStore
from corbits_memory.access.visibility import GrantedAccess
from corbits_memory.core.enums import Effect
from corbits_memory.core.relevance import percentile
from corbits_memory.engine.search import retrieval
from corbits_memory.plane import Memory
from corbits_memory.ports import GrantRule

TENANT, READER, HOLDER = "tenant", "reader", "holder"
CHUNKS, QUESTIONS, ROUNDS = 100_000, 100, 3
MANY_GRANTS = 10_000
FEW = 8
LATENCY_TARGET, RECALL_TARGET = 2.0, 0.95
LIMIT = 10


@dataclass(frozen=True, slots=True)
class Caller:
    name: str
    principal: str
    rules: tuple[GrantRule, ...]
    visible: int


async def run_access(*, quick: bool = False) -> str:
    """Markdown of the access tables."""
    chunks = 10_000 if quick else CHUNKS
    embedder = cached_embedder()
    material = await gather_material(embedder, quick=quick)
    questions = material.questions[: 20 if quick else QUESTIONS]
    await embedder.embed(questions, purpose="query")
    table = Table(
        ("sees", "search, ms (p95)", "against the owner's", "target", "recall@10 against exact", "target", "hits of 10")
    )  # fmt: skip
    with bench_server() as server:
        url = await server.create_database("access")
        async with open_store(url, embedder) as store:
            await load_corpus(store, url, TENANT, material, chunks=chunks, model_key=embedder.model_key)
            _tag_few(url, chunks, embedder.model_key)
            base: list[float] = []
            for caller in _callers(chunks):
                memory = Memory(store, grant_store=InMemoryGrantStore(caller.rules))
                await memory.open()
                seconds, hits = await _ask(memory, caller.principal, questions)
                with _exactly():
                    _, true = await _ask(memory, caller.principal, questions, rounds=1)
                base = base or seconds
                ratio = percentile(seconds, 0.5) / percentile(base, 0.5)
                recall = sum(
                    len(set(a) & set(b)) / max(1, len(b)) for a, b in zip(hits, true, strict=True)
                ) / len(hits)
                table.add(
                    f"{caller.name} ({caller.visible:,})",
                    f"{1_000 * percentile(seconds, 0.5):.1f} ({1_000 * percentile(seconds, 0.95):.1f})",
                    f"{ratio:.2f}",
                    ""
                    if caller.principal == HOLDER
                    else f"≤ {LATENCY_TARGET:.0f} {_verdict(held=ratio <= LATENCY_TARGET)}",
                    f"{recall:.3f}",
                    f"≥ {RECALL_TARGET} {_verdict(held=recall >= RECALL_TARGET)}",
                    f"{sum(map(len, hits)) / len(hits):.1f}",
                )
    await embedder.close()
    return "\n\n".join((f"{chunks:,} chunks of one tenant, {len(questions)} questions, best of {ROUNDS} rounds.",
                        table.markdown(), await _authorize_cost()))  # fmt: skip


def _callers(chunks: int) -> Iterator[Caller]:
    yield Caller("the owner, without grants", PRINCIPAL, (), chunks)
    yield Caller("100 %, by `*`", READER, (_rule("*"),), chunks)
    yield Caller("100 %, by its owner tag", READER, (_rule(f"memory.owner:{PRINCIPAL}"),), chunks)
    for tag, every in SHARES.items():
        yield Caller(f"{100 / every:g} %, by one tag", READER, (_rule(tag),), chunks // every)
    yield Caller("eight documents, by one tag", READER, (_rule("few:8"),), FEW)
    many = tuple(_rule(f"memory.doc:doc_{n:012}", HOLDER) for n in range(MANY_GRANTS))
    yield Caller(
        f"0.1 %, with {MANY_GRANTS:,} other grants",
        HOLDER,
        (*many, _rule("every:1000", HOLDER)),
        chunks // 1_000,
    )


def _rule(resource: str, principal: str = READER) -> GrantRule:
    return GrantRule(
        id=f"g:{resource}", resource=resource, action="search", effect=Effect.ALLOW, principal_id=principal
    )


def _tag_few(url: str, chunks: int, model_key: str) -> None:
    """Eight documents, spread over the corpus, get a tag of their own."""
    documents = [f"doc_{chunks * place // FEW:012}" for place in range(FEW)]
    with psycopg.connect(url) as conn:
        for table, key in (
            ("document", "id"),
            ("search_row", "document_id"),
            (f"embedding_{model_key}", "document_id"),
        ):
            conn.execute(
                sql.SQL("UPDATE {} SET access_tags = access_tags || '{{few:8}}' WHERE {} = ANY (%s)").format(
                    sql.Identifier("memory", table), sql.Identifier(key)
                ),
                [documents],
            )


async def _ask(
    memory: Memory, principal: str, questions: Sequence[str], *, rounds: int = ROUNDS + 1
) -> tuple[list[float], list[list[str]]]:
    """The best time of each question, and the documents that it found."""
    best = [float("inf")] * len(questions)
    hits: list[list[str]] = [[] for _ in questions]
    for _ in range(rounds):
        for place, question in enumerate(questions):
            began = time.perf_counter()
            found = await memory.search(tenant_id=TENANT, principal_id=principal, query=question, limit=LIMIT)
            best[place] = min(best[place], time.perf_counter() - began)
            hits[place] = [item.document_id for item in found.items]
    return best, hits


@contextmanager
def _exactly() -> Iterator[None]:
    """Have every visible row looked at, however many there are."""
    kept = retrieval.EXACT_ROWS
    retrieval.EXACT_ROWS = 10**9
    try:
        yield
    finally:
        retrieval.EXACT_ROWS = kept


async def _authorize_cost() -> str:
    """What ten thousand grants of one principal cost a search before it asks the database."""
    from datetime import UTC, datetime

    now = datetime.now(UTC)
    rules = [_rule(f"memory.space:{n}") for n in range(MANY_GRANTS - 10)] + [
        _rule(f"memory.project:{n}*") for n in range(10)
    ]
    known = [f"memory.project:{n}" for n in range(1_000)]

    async def known_tags(patterns: Sequence[str]) -> Sequence[str]:
        return known

    compiled, judged = [], []
    for _ in range(20):
        began = time.perf_counter()
        authorizer = Authorizer(rules, principal_id=READER, tenant_id=TENANT, now=now)
        compiled.append(time.perf_counter() - began)
        began = time.perf_counter()
        await GrantedAccess(principal_id=READER, authorizer=authorizer).visibility(known_tags)
        judged.append(time.perf_counter() - began)
    return (
        f"{MANY_GRANTS:,} grants of one principal, ten of them with a wildcard that 1,000 tags are judged by: "
        f"compiled in {1_000 * percentile(compiled, 0.5):.1f} ms, every tag judged in "
        f"{1_000 * percentile(judged, 0.5):.1f} ms."
    )


def _verdict(*, held: bool) -> str:
    return "holds" if held else "**does not hold**"
