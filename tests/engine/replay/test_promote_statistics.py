"""Counts of terms across a promotion: there from the first search on, of one generation, of nothing forgotten."""

import asyncio
from typing import Any

import psycopg
import pytest

from corbits_memory.engine.queries import load_queries
from corbits_memory.engine.replay import promote as promoting
from corbits_memory.engine.store import PostgresDocumentStore
from tests.engine.replay.support import SMALL, Owner, demote, live, promote, replay, rows
from tests.engine.support import OpenStore, P, T, add, note, until_waiting

TEXTS = ("alpha beta gamma", "alpha beta", "alpha delta epsilon zeta")


class Killed(BaseException):
    """The process is gone."""


async def die(*_: object) -> None:
    raise Killed


@pytest.fixture
async def store(store_of: OpenStore, monkeypatch: pytest.MonkeyPatch) -> PostgresDocumentStore:
    """A tenant whose terms are counted; a generation of two rows is a large one."""
    monkeypatch.setattr(promoting, "EXACT_ROWS", 1)
    store = await store_of()
    await add(store, *(note(text, title=text[:5], external_ref=text) for text in TEXTS))
    await store.statistics.refresh(T)
    return store


async def counted(owner: Owner) -> dict[str, dict[int, int]]:
    found = await rows(owner, "SELECT generation, term, df FROM memory.term_stat")
    return {generation: {term: df for g, term, df in found if g == generation} for generation, _, _ in found}


async def true(owner: Owner, generation: str) -> dict[int, int]:
    return dict(
        await rows(
            owner,
            "SELECT t.term, count(*) FROM memory.search_row r, unnest(r.terms) AS t(term) WHERE r.generation = %s "
            "GROUP BY 1",
            generation,
        )
    )


async def stamp(owner: Owner) -> tuple[Any, ...]:
    return (await rows(owner, "SELECT stats_rows, stats_at IS NULL FROM memory.tenant_state"))[0]


@pytest.mark.parametrize("verb", [promote, demote])
async def test_they_are_there_when_the_pointer_moves(
    store: PostgresDocumentStore, owner: Owner, monkeypatch: pytest.MonkeyPatch, verb: Any
) -> None:
    """And are of the very rows: until all is counted anew, searches are answered by them."""
    run = await replay(store, SMALL)
    if verb is demote:
        await promote(store, run)
    was = await live(owner)
    with monkeypatch.context() as patch:
        patch.setattr(promoting.Promoter, "_count_anew", die)
        with pytest.raises(Killed):
            await verb(store, run)
    now = await live(owner)
    assert now != was
    told = await counted(owner)
    assert told[now] == await true(owner, now) != {}
    size = (await rows(owner, "SELECT count(*) FROM memory.search_row WHERE generation = %s", now))[0][0]
    assert await stamp(owner) == (size, True)
    # What a worker does next.
    assert await store.statistics.refresh_stale() == 1
    assert await counted(owner) == {now: told[now]}
    assert await stamp(owner) == (size, False)


async def test_those_of_a_promotion_that_never_came_go_with_what_is_forgotten(
    store: PostgresDocumentStore, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await replay(store, SMALL)
    (late,) = await add(store, note("eta theta", external_ref="late"))
    with monkeypatch.context() as patch:
        patch.setattr(promoting.Promoter, "_flip", die)
        with pytest.raises(Killed):
            await promote(store, run)
    assert set(await counted(owner)) == {"g0", run.generation}
    await store.forget(tenant_id=T, principal_id=P, document_id=late.document_id)
    assert set(await counted(owner)) == {"g0"}
    await promote(store, run)
    assert await counted(owner) == {run.generation: await true(owner, run.generation)}


async def test_a_count_that_a_promotion_overtook_is_not_told_as_its_own(
    store: PostgresDocumentStore, owner: Owner, database_url: str
) -> None:
    run = await replay(store)
    async with await psycopg.AsyncConnection.connect(database_url) as gate:
        await gate.execute(
            "UPDATE memory.tenant_state SET live_generation = %s, stats_at = NULL", [run.generation]
        )
        counting = asyncio.create_task(store.statistics.refresh(T))
        await until_waiting(owner)
    await counting
    assert (await stamp(owner))[1]
    assert await store.statistics.refresh_stale() == 1
    assert set(await counted(owner)) == {run.generation}
    assert not (await stamp(owner))[1]


async def test_the_stamp_counts_nothing(owner: Owner) -> None:
    """It holds the row that captures need, and may be evaluated again while it does."""
    plan = await rows(
        owner,
        "EXPLAIN " + load_queries("statistics")["stamp"].replace("%(tenant)s", "'t'")
        .replace("%(generation)s", "'g'").replace("%(rows_counted)s", "1"),
    )  # fmt: skip
    assert not [line for (line,) in plan if "search_row" in line]
