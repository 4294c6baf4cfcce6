"""Models that nobody uses: shown, removed, and never those that somebody does."""

import asyncio
from typing import Any

import psycopg
import pytest

from corbits_memory.engine import pruning
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.errors import DatabaseError
from tests.engine.replay.support import promote, replay
from tests.engine.support import OpenStore, P, T, add, find, note
from tests.models.conftest import ModelServer

Owner = psycopg.AsyncConnection[Any]


async def tables(owner: Owner) -> list[str]:
    found = await owner.execute(
        "SELECT relname FROM pg_class WHERE relkind = 'p' AND relname LIKE 'embedding_%' ORDER BY relname"
    )
    return [row[0] for row in await found.fetchall()]


async def switched(open_store: OpenStore, server: ModelServer) -> PostgresDocumentStore:
    """A tenant that went from `old` to `new`."""
    old = await open_store(embed_url=server.url, model="old")
    await add(old, *(note(f"Note {i}.", external_ref=f"n{i}") for i in range(5)))
    new = await open_store(embed_url=server.url, model="new")
    await new.embedding.drain(T)
    return new


def names(pruned: pruning.Pruned) -> list[tuple[str, str]]:
    return sorted(pruned.models)


async def test_what_is_unused_is_shown_and_then_removed(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    store = await switched(open_store, word_server)
    before = await tables(owner)
    assert len(before) == 2
    shown = {one.space.model_id: one for one in await store.pruner.models(T)}
    assert (shown["old"].active, shown["old"].used, shown["old"].vectors) == (False, False, 5)
    assert (shown["new"].active, shown["new"].used, shown["new"].vectors) == (True, True, 5)
    told = await store.pruner.prune(dry_run=True)
    assert (names(told), len(told.tables)) == ([(T, "old")], 1)
    assert await tables(owner) == before
    assert await store.pruner.prune() == told
    assert await tables(owner) == [name for name in before if name not in told.tables]
    nothing = await store.pruner.prune()
    assert (nothing.models, nothing.tables) == ([], [])
    assert (await find(store, "note 3")).degraded == ("rerank_unavailable",)
    # Writers that knew the table go on without it.
    await store.forget(
        tenant_id=T, principal_id=P, document_id=(await find(store, "note 3")).items[0].document_id
    )


async def test_a_table_that_another_tenant_uses_stays(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    store = await switched(open_store, word_server)
    old = await open_store(embed_url=word_server.url, model="old")
    await add(old, note("Another's.", external_ref="n1"), tenant="other")
    before = await tables(owner)
    told = await store.pruner.prune()
    assert (names(told), told.tables) == ([(T, "old")], [])
    assert await tables(owner) == before
    assert "dense_unavailable" not in (await find(old, "another's", tenant="other")).degraded
    (key,) = {one.space.model_key for one in await old.pruner.models("other")}
    left = await owner.execute(f"SELECT tenant_id, count(*) FROM memory.embedding_{key} GROUP BY tenant_id")
    assert await left.fetchall() == [("other", 1)]


async def test_a_model_that_is_taking_over_and_the_one_that_serves_stay(
    open_store: OpenStore, word_server: ModelServer
) -> None:
    old = await open_store(embed_url=word_server.url, model="old")
    await add(old, *(note(f"Note {i}.") for i in range(100)))
    await old.embedding.drain(T)
    new = await open_store(embed_url=word_server.url, model="new")
    await new.embedding.drain(T, slices=1)
    told = await new.pruner.prune()
    assert (told.models, told.tables) == ([], [])
    assert await new.embedding.drain(T) == 36


async def test_a_model_of_an_archived_generation_stays(
    open_store: OpenStore, word_server: ModelServer
) -> None:
    store = await open_store(embed_url=word_server.url, model="old")
    await add(store, note("Note."))
    run = await replay(
        store,
        {"chunk": {"strategy": "token.recursive"}, "embed": {"baseUrl": word_server.url, "model": "new"}},
    )
    told = await store.pruner.prune()
    assert (told.models, told.tables) == ([], [])
    await promote(store, run)
    told = await store.pruner.prune()
    assert (told.models, told.tables) == ([], [])


async def test_a_table_that_is_read_all_the_time_stays_and_holds_up_nobody_for_long(
    open_store: OpenStore, word_server: ModelServer, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "LOCK_SECONDS", 0.2)
    store = await switched(open_store, word_server)
    (name,) = (await store.pruner.prune(dry_run=True)).tables
    async with owner.transaction():
        await owner.execute(f"SELECT count(*) FROM memory.{name}")
        with pytest.raises(DatabaseError):
            await store.pruner.prune()
        assert name in await tables(owner)
    assert list((await store.pruner.prune()).tables) == [name]


async def test_a_model_that_comes_back_while_its_table_is_dropped_has_one(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    """However they meet: the tenant ends with all vectors in a table that is there."""
    store = await switched(open_store, word_server)
    for model in ("old", "new", "old", "new"):
        back = await open_store(embed_url=word_server.url, model=model)

        async def come_back(back: PostgresDocumentStore = back) -> None:
            for _ in range(50):
                try:
                    await back.backfill(T)
                    await back.embedding.drain(T)
                except DatabaseError:
                    continue
                if await back.embedding.change(T) is None:
                    return

        await asyncio.gather(come_back(), store.pruner.prune(), come_back(), store.pruner.prune())
        (active,) = [one for one in await back.pruner.models(T) if one.active]
        assert (active.space.model_id, active.vectors) == (model, 5)
        assert (await find(back, "note 3")).degraded == ("rerank_unavailable",)
