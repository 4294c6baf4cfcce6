"""Beyond a few thousand rows: statistics and indexes answer, and find what a full look finds."""

import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from psycopg import sql

from corbits_memory.engine.pool import Reading
from corbits_memory.engine.queries import load_queries
from corbits_memory.engine.search import retrieval
from corbits_memory.engine.search.crowded import CrowdedScopes
from corbits_memory.engine.search.retrieval import QueryVector, retrieve
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.ports import SearchQuery, Visibility
from tests.engine.conftest import word_vector
from tests.engine.large.conftest import ROWS, vector_table
from tests.engine.support import Owner, P, T, add, find, note, refs

COMPLETION = ("AS before,", "array_agg(r.document_id", "array_agg(e.chunk_id")
"""How the statements are known that look at rows by their keys: around the best, of all, their vectors."""


@asynccontextmanager
async def looking_at_all(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    monkeypatch.setattr(retrieval, "EXACT_ROWS", ROWS * 2)
    monkeypatch.setattr(CrowdedScopes, "rows", lambda *_: 0)
    yield
    monkeypatch.undo()


async def test_indexes_find_what_a_full_look_finds(
    corpus: PostgresDocumentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = [" ".join(f"w{n}" for n in random.Random(i).sample(range(1, 400), 5)) for i in range(20)]
    assert await corpus.statistics.refresh_stale() == 1
    assert await corpus.statistics.refresh_stale() == 0
    shared = total = 0
    for query in queries:
        fast = refs(await find(corpus, query, limit=10))
        async with looking_at_all(monkeypatch):
            exact = refs(await find(corpus, query, limit=10))
        shared += len(set(fast) & set(exact))
        total += len(exact)
    assert total >= 150
    assert shared / total >= 0.9


async def test_without_statistics_it_answers_too(corpus: PostgresDocumentStore) -> None:
    assert refs(await find(corpus, "w399 w1 w2"))


async def test_common_words_alone_are_answered(corpus: PostgresDocumentStore) -> None:
    await corpus.statistics.refresh(T)
    assert len(refs(await find(corpus, "w1", limit=10))) >= 1
    assert len(refs(await find(corpus, "w1 w2 w3", limit=10))) == 10


async def test_an_epoch_hides_what_others_write(corpus: PostgresDocumentStore) -> None:
    await corpus.statistics.refresh(T)
    before = [(i.external_ref, i.score) for i in (await find(corpus, "w300 w301")).items]
    await add(corpus, *(note("w300 w301", external_ref=f"e{i}") for i in range(16)), principal="eve")
    assert [(i.external_ref, i.score) for i in (await find(corpus, "w300 w301")).items] == before


async def test_a_new_row_is_found_before_the_next_count(corpus: PostgresDocumentStore) -> None:
    await corpus.statistics.refresh(T)
    await add(corpus, note("a zeppelin", external_ref="new"))
    assert refs(await find(corpus, "zeppelin"))[0] == "new"


SCOPE = "r.tenant_id = 'acme' AND r.generation = 'g0' AND r.owner_id = 'ann' AND r.status = ANY ('{active}')"


@pytest.mark.parametrize(
    ("index", "statement"),
    [
        (
            "terms",
            (
                f"SELECT r.chunk_id FROM memory.search_row r WHERE {SCOPE} "
                "AND r.terms && ARRAY[memory.term_hash('acme', 'g0', 'w399')]"
            ),
        ),
        (
            "context",
            (
                f"SELECT r.chunk_id FROM memory.search_row r WHERE {SCOPE} AND r.context_key = 't' "
                "AND (r.occurred_at, r.thread_seq, r.chunk_id) < (now(), 1, 'k') "
                "ORDER BY r.occurred_at DESC, r.thread_seq DESC, r.chunk_id DESC LIMIT 3"
            ),
        ),
        (
            "version_timeline_owner",
            (
                "SELECT v.id FROM memory.version v WHERE v.tenant_id = 'acme' AND v.generation = 'g0' "
                "AND v.status = 'active' AND v.owner_principal_id = 'ann' "
                "ORDER BY v.occurred_at DESC, v.id DESC LIMIT 20"
            ),
        ),
    ],
)
@pytest.mark.usefixtures("corpus")
async def test_hot_statements_use_their_indexes(owner: Owner, index: str, statement: str) -> None:
    """The statements as the functions assemble them, on thousands of rows."""
    plan = await explain(owner, statement)
    assert index in plan, plan
    assert "Seq Scan" not in plan, plan


@pytest.mark.usefixtures("corpus")
async def test_the_nearest_come_from_the_vector_index(owner: Owner) -> None:
    await owner.execute("SET enable_sort = off")
    plan = await explain(
        owner,
        f"SELECT r.chunk_id FROM memory.{await vector_table(owner)} r WHERE {SCOPE} "
        f"ORDER BY r.embedding <=> '{word_vector('w399')}'::halfvec(64) LIMIT 50",
    )
    assert "Order By: (embedding <=>" in plan, plan


@pytest.mark.parametrize(
    ("limit", "rows", "kept"),
    [
        (50, 0, 125),
        (1, 50_000, 125),
        (51, 50_000, 127),
        (50, 50_100, 125),
        (50, 100_000, 189),
        (50, 1_000_000, 754),
        (200, 50_000, 500),
        (200, 159_000, 1_000),
        (200, 10**12, 1_000),
    ],
)
@pytest.mark.usefixtures("corpus")
async def test_the_vector_index_keeps_more_in_view_of_more_rows(
    owner: Owner, limit: int, rows: int, kept: int
) -> None:
    found = await owner.execute("SELECT memory.ef_search(%s, %s)", [limit, rows])
    assert await found.fetchone() == (kept,)


@pytest.mark.usefixtures("corpus")
async def test_a_search_tells_the_vector_index_so(owner: Owner) -> None:
    await owner.execute("UPDATE memory.tenant_state SET chunk_count = 100000")
    async with owner.transaction():
        await owner.execute("SET LOCAL memory.tenant_id = 'acme'")
        await owner.execute(
            "SELECT memory.dense_channel(%s::jsonb, 50, 4000, 4001, %s, 64, %s)",
            [
                '{"principal": "ann", "statuses": ["active"]}',
                (await vector_table(owner)).removeprefix("embedding_"),
                str(word_vector("w9")),
            ],
        )
        assert await (await owner.execute("SHOW hnsw.ef_search")).fetchone() == ("189",)


async def explain(owner: Owner, statement: str) -> str:
    rows = await owner.execute("EXPLAIN " + statement)
    return "\n".join([row[0] async for row in rows])


@pytest.mark.parametrize(("file", "name"), [("capture", "drop_search_rows"), ("replay", "drop_rows_of")])
@pytest.mark.usefixtures("corpus")
async def test_rows_that_are_dropped_are_looked_up(owner: Owner, file: str, name: str) -> None:
    """However many: an add of 500 known documents drops as many."""
    places = [f"{number:022d}" for number in range(1, 501)]
    parameters = {
        "tenant": T,
        "generation": "g0",
        "documents": [f"kdoc_{place}" for place in places],
        "versions": [f"kver_{place}" for place in places],
    }
    await owner.execute("ANALYZE memory.chunk")
    rows = await owner.execute("EXPLAIN " + load_queries(file)[name], parameters)
    plan = "\n".join([row[0] async for row in rows])
    assert "Seq Scan on search_row" not in plan, plan
    dropped = await owner.execute(load_queries(file)[name], parameters)
    assert dropped.rowcount == 500


async def test_rows_are_counted_once_in_a_while(
    corpus: PostgresDocumentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[bool] = []
    rows = CrowdedScopes.rows

    def tell(scopes: CrowdedScopes, tenant_id: str, scope: str) -> int:
        found = rows(scopes, tenant_id, scope)
        known.append(found > 0)
        return found

    monkeypatch.setattr(CrowdedScopes, "rows", tell)
    first = refs(await find(corpus, "w399 w1 w2"))
    assert first
    assert refs(await find(corpus, "w399 w1 w2")) == first
    await find(corpus, "w399 w1 w2", kinds=("note",))
    assert refs(await find(corpus, "w399 w1 w2", principal="eve")) == []
    assert known == [False, True, False, False]


async def test_what_was_counted_as_many_may_be_few_or_none_by_now(
    corpus: PostgresDocumentStore, owner: Owner
) -> None:
    await add(corpus, note("the one that stays w399", external_ref="stays"))
    before = refs(await find(corpus, "w399 w1 w2"))
    await owner.execute(
        "DELETE FROM memory.search_row WHERE document_id NOT IN (SELECT id FROM memory.document "
        "WHERE external_ref = 'stays')"
    )
    await owner.execute(
        sql.SQL("DELETE FROM memory.{} e WHERE NOT EXISTS (SELECT FROM memory.search_row r "
                "WHERE r.tenant_id = e.tenant_id AND r.chunk_id = e.chunk_id)").format(
            sql.Identifier(await vector_table(owner))
        )
    )  # fmt: skip
    assert len(before) > 1
    assert refs(await find(corpus, "w399 w1 w2")) == ["stays"]
    await owner.execute("DELETE FROM memory.search_row")
    assert refs(await find(corpus, "w399 w1 w2")) == []


async def test_completing_scores_reads_no_table_as_a_whole(
    corpus: PostgresDocumentStore, owner: Owner
) -> None:
    """It joins a few hundred rows, but a planner that guesses thousands reads them all."""
    await corpus.statistics.refresh(T)
    plans = await tell_plans(owner)
    async with owner.transaction():
        vector = QueryVector(
            model_key=(await vector_table(owner)).removeprefix("embedding_"), values=word_vector("w9")
        )
        found = await retrieve(
            Reading(owner, "acme", "SET LOCAL memory.tenant_id = 'acme'"),
            visibility=Visibility(principal_id=P),
            query=SearchQuery(query="w399 w1"),
            text="w399 w1",
            required=[],
            excluded=[],
            vector=vector,
            limit=50,
            crowded=CrowdedScopes(),
        )
    assert found.columns is not None
    completion = [plan for plan in plans if any(mark in plan for mark in COMPLETION)]
    assert len(completion) == len(COMPLETION)
    for plan in completion:
        assert "Index Scan" in plan
        assert "Seq Scan" not in plan
        assert "Bitmap" not in plan


async def tell_plans(owner: Owner) -> list[str]:
    """Grows by the plan of each statement that the connection runs from now on, those of functions included."""
    plans: list[str] = []
    owner.add_notice_handler(lambda notice: plans.append(notice.message_primary or ""))
    for setting in ("log_min_duration = 0", "log_nested_statements = on"):
        await owner.execute("LOAD 'auto_explain'")
        await owner.execute(sql.SQL("SET auto_explain.{}").format(sql.SQL(setting)))
    await owner.execute("SET client_min_messages = log")
    return plans


KEYS = {"chunk": "chunk_pkey", "version": "version_pkey", "document": "document_pkey"}


@pytest.mark.usefixtures("corpus")
async def test_what_hits_are_shown_with_is_looked_up_by_keys_before_any_statistics(owner: Owner) -> None:
    """A tenant seems to have a row or none then: a join would meet all its versions with all its documents."""
    assert (await (await owner.execute(
        "SELECT count(*) FROM pg_class WHERE relname = ANY (%s) AND reltuples >= 0", [[*KEYS, "edge"]]
    )).fetchone()) == (0,)  # fmt: skip
    plans = await tell_plans(owner)
    await owner.execute("SELECT set_config('memory.tenant_id', 'acme', false)")
    found = await owner.execute(
        "SELECT * FROM memory.hit_details(ARRAY(SELECT id FROM memory.chunk ORDER BY id LIMIT 60), 'ann', "
        "false, '{}', '{}', '{}')"
    )
    assert found.rowcount == 60
    (plan,) = [plan for plan in plans if "FROM memory.chunk c" in plan]
    scans = re.findall(r"(?:Scan using (\w+) on|Bitmap Index Scan on) (\w+).*\n +Index Cond: \((.*)\)", plan)
    assert {using or on for using, on, _ in scans} == {
        *KEYS.values(),
        "edge_target",
        "edge_tenant_id_from_type_from_ref_rel_to_type_to_ref_key",
    }, plan
    # Each by all that names the row or the end of the edge, and not by the tenant alone.
    assert all(re.search(r"\((?:id|from_ref|to_ref) = ", condition) for *_, condition in scans), plan
    assert "Seq Scan" not in plan
