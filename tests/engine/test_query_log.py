"""Questions that are kept: only where asked for, never for long, of one's own tenant alone."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from corbits_memory.engine import query_log
from corbits_memory.engine.store import PostgresDocumentStore
from tests.engine.support import OpenStore, T, add, find, note

Owner = psycopg.AsyncConnection[Any]


async def kept(store: PostgresDocumentStore, *, tenant: str = T, limit: int = 100) -> list[str]:
    await store.query_log.close()
    found = await store.transforms.sampled_queries(tenant_id=tenant, limit=limit)
    return [one.query for one in found]


async def test_nothing_is_kept_by_itself(store: PostgresDocumentStore) -> None:
    await find(store, "where is the key?")
    assert await kept(store) == []


async def test_all_or_a_share(open_store: OpenStore) -> None:
    store = await open_store(query_log_percent=100)
    await add(store, note("The key is under the mat."))
    for query in (" where is the key? ", "and the mat?"):
        await find(store, query)
        await store.query_log.close()
    await find(store, "", kinds=("note",))
    # Staged generations are asked by whoever compares; and what a machine made up is no question.
    await find(store, "compared", generation="trun_x")
    await find(store, "made up", sample=False)
    assert await kept(store) == ["and the mat?", "where is the key?"]
    assert await kept(store, limit=1) == ["and the mat?"]
    assert await kept(store, tenant="other") == []
    chances: Iterator[float] = iter((0.3, 0.0, 0.2999))
    some = await open_store(query_log_percent=30)
    some.query_log._chance = lambda: next(chances)
    for number in range(3):
        await find(some, f"share {number}")
        await some.query_log.close()
    assert [query for query in await kept(some) if "share" in query] == ["share 2", "share 1"]


async def test_the_oldest_goes_and_so_does_what_is_old(
    open_store: OpenStore, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_log, "KEPT", 3)
    store = await open_store(query_log_percent=100)
    for number in range(5):
        await find(store, f"question {number}")
        await store.query_log.close()
    assert await kept(store) == ["question 4", "question 3", "question 2"]
    assert await store.query_log.sweep() == 0
    await owner.execute(
        "UPDATE memory.query_log SET asked_at = now() - interval '8 days' WHERE query <> 'question 4'"
    )
    silent = await open_store()
    assert await silent.query_log.sweep() == 2
    assert await kept(store) == ["question 4"]


async def test_a_question_that_can_not_be_kept_is_answered(open_store: OpenStore, owner: Owner) -> None:
    store = await open_store(query_log_percent=100)
    await add(store, note("The key is under the mat."))
    await owner.execute("DROP TABLE memory.query_log")
    assert (await find(store, "key")).items
    await store.query_log.close()
