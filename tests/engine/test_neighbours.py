"""Turns are embedded with the one before: what changes that one's readers reaches those after it, under any load."""

import asyncio
import random
from typing import Any

import psycopg
import pytest

from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.errors import MemoryError
from tests.engine.support import OpenStore, P, T, add, turn
from tests.engine.test_access import ANN
from tests.models.conftest import ModelServer

Owner = psycopg.AsyncConnection[Any]
X, Y = "memory.space:x", "memory.space:y"


def embedded(server: ModelServer) -> list[str]:
    return [text for request in server.requests for text in request.body["input"]]


@pytest.mark.parametrize("verb", ["unshare", "share", "forget"])
async def test_the_next_with_the_same_readers_is_embedded_anew(
    open_store: OpenStore, word_server: ModelServer, verb: str
) -> None:
    """However many turns of other readers stand between the two."""
    store = await open_store(embed_url=word_server.url)
    first, *_ = await add(
        store,
        turn(1, "the treasure map", access_tags=(X,)),
        turn(2, "good morning", access_tags=(Y,)),
        turn(3, "good evening", access_tags=(Y,)),
        turn(4, "under the oak", access_tags=(X,)),
    )
    assert any("treasure" in text and "oak" in text for text in embedded(word_server))
    word_server.requests.clear()
    if verb == "forget":
        await store.forget(**ANN, document_id=first.document_id)
    else:
        added, removed = ([], [X]) if verb == "unshare" else ([Y], [])
        await store.change_access_tags(**ANN, document_id=first.document_id, add=added, remove=removed)
    await store.embedding.drain(T)
    texts = embedded(word_server)
    assert any("oak" in text for text in texts)
    assert not any("treasure" in text and "oak" in text for text in texts)


async def test_a_turn_that_joins_others_readers_is_embedded_before_the_next(
    open_store: OpenStore, word_server: ModelServer
) -> None:
    store = await open_store(embed_url=word_server.url)
    first, _ = await add(store, turn(1, "the treasure map"), turn(2, "under the oak", access_tags=(X,)))
    word_server.requests.clear()
    await store.change_access_tags(**ANN, document_id=first.document_id, add=[X])
    await store.embedding.drain(T)
    assert any("treasure" in text and "oak" in text for text in embedded(word_server))


async def test_shares_and_adds_in_one_thread_hinder_nobody(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    """Two processes' worth of connections, a worker on each, and every write in the same thread."""
    stores = [await open_store(embed_url=word_server.url) for _ in range(2)]
    made = await add(
        stores[0], *(turn(place, f"turn number {place}", access_tags=(X,)) for place in range(24))
    )
    failures: list[MemoryError] = []

    async def write(store: PostgresDocumentStore, seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(10):
            place = draw.randrange(8)
            document_id = made[place].document_id
            kind = draw.choice(["share", "unshare", "add", "add", "late", "embed"])
            try:
                if kind == "share":
                    await store.change_access_tags(**ANN, document_id=document_id, add=[Y])
                elif kind == "unshare":
                    await store.change_access_tags(**ANN, document_id=document_id, remove=[Y])
                elif kind == "add":
                    text = f"turn number {place}, said again {draw.random()}"
                    (answer,) = await store.add(tenant_id=T, principal_id=P, documents=[turn(place, text)])
                    assert not isinstance(answer, MemoryError), answer
                elif kind == "late":
                    late = turn(place, f"meanwhile {draw.random()}", external_ref=f"late:{draw.random()}")
                    (answer,) = await store.add(tenant_id=T, principal_id=P, documents=[late])
                    assert not isinstance(answer, MemoryError), answer
                else:
                    await store.embedding.drain(T)
            except MemoryError as error:
                failures.append(error)

    await asyncio.gather(*(write(stores[seed % 2], seed) for seed in range(16)))
    assert failures == []
    await stores[0].embedding.drain(T)
    rows = await (
        await owner.execute(
            "SELECT count(*) FILTER (WHERE r.access_tags <> d.tags), count(DISTINCT r.document_id), "
            "(SELECT count(*) FROM memory.document) FROM memory.search_row r "
            "JOIN memory.document d ON d.id = r.document_id"
        )
    ).fetchone()
    assert rows is not None
    assert (rows[0], rows[1]) == (0, rows[2])
