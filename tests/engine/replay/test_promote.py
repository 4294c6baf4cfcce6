"""Promote and demote: the pointer, the model, what came in meanwhile, and everything at once."""

import asyncio
import contextlib
from datetime import timedelta
from typing import Any

import pytest

from corbits_memory.core.enums import FeedOp, RetentionClass, RunStatus
from corbits_memory.engine.replay import promote as promoting
from corbits_memory.engine.replay.catchup import CatchUp
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.errors import TransformPromoteError, TransformRunNotFoundError
from corbits_memory.ports import AddResult, TimelineQuery
from corbits_memory.ports.transform import TransformRun
from tests.engine.replay.support import (
    OPS,
    PLAIN,
    SMALL,
    Owner,
    active,
    begin,
    demote,
    live,
    of_model,
    promote,
    replay,
    rows,
    versions,
    work,
)
from tests.engine.support import NOW, OpenStore, P, T, add, find, note, refs, titles, turn, until_waiting
from tests.engine.test_access import access_of, grant
from tests.engine.test_feed import ALL, feed
from tests.models.conftest import ModelServer

LONG = "The vault opens at nine. Maria keeps the key in her desk. Nobody else may have it, said Tom."
ENG = "memory.space:eng"


async def chunks_of(owner: Owner, version_id: str) -> int:
    return int(
        (await rows(owner, "SELECT count(*) FROM memory.chunk WHERE version_id = %s", version_id))[0][0]
    )


async def pending(owner: Owner) -> int:
    return int((await rows(owner, "SELECT count(*) FROM memory.embed_queue"))[0][0])


# --- the pointer and what comes along ---


async def test_the_pointer_moves_and_back(store_of: OpenStore, owner: Owner) -> None:
    store = await store_of()
    await add(store, note(LONG, title="Vault", external_ref="n1"))
    run = await replay(store, SMALL)
    before = await rows(owner, "SELECT id, generation, status FROM memory.version ORDER BY id")
    promoted = await promote(store, run)
    assert await live(owner) == run.generation
    assert (promoted.live, promoted.archived_live_generation) == (True, "g0")
    assert promoted.promoted_at is not None
    # No version was rewritten.
    assert await rows(owner, "SELECT id, generation, status FROM memory.version ORDER BY id") == before
    (item,) = (await find(store, "vault")).items
    assert item.attribution is not None
    assert (item.attribution.version_id,) == (
        await rows(owner, "SELECT id FROM memory.version WHERE generation = %s", run.generation)
    )[0]
    (event,) = await store.list(tenant_id=T, principal_id=P, query=TimelineQuery(limit=5))
    assert event.version_id == item.attribution.version_id
    demoted = await demote(store, run)
    assert (await live(owner), demoted.live, demoted.promoted_at) == ("g0", False, None)
    assert (demoted.archived_live_generation, demoted.archived_live_model_key) == (None, None)
    again = await promote(store, run)
    assert again.live
    entries = (await feed(store, ops=ALL)).entries
    assert [entry.op for entry in entries] == [FeedOp.UPSERT, *[FeedOp.PROMOTE] * 3]
    audited = await store.audit_events(tenant_id=T, limit=9, target_id=run.generation)
    assert [(e.actor_id, e.action, e.target_id) for e in reversed(audited.events)] == [
        (OPS, "promote", run.generation),
        (OPS, "demote", run.generation),
        (OPS, "promote", run.generation),
    ]


async def test_followers_are_woken_at_once(store_of: OpenStore) -> None:
    store = await store_of()
    await add(store, note(LONG))
    run = await replay(store)
    waiting = asyncio.create_task(store.feed_changed(tenant_id=T, after=1, seconds=20))
    await asyncio.sleep(0.2)
    await promote(store, run)
    async with asyncio.timeout(1):
        await waiting


async def test_the_model_comes_along(
    store_of: OpenStore,
    open_store: OpenStore,
    other_server: ModelServer,
    owner: Owner,
    word_server: ModelServer,
) -> None:
    """Searches are embedded by the model that owns what they read, and so is what is added."""
    store = await store_of()
    await add(store, note(LONG, title="Vault"), note("Fridays are frozen.", title="Deploys"))
    run = await replay(store, of_model(other_server))
    assert await active(owner) == ["words"]
    promoted = await promote(store, run)
    assert promoted.archived_live_model_key == store._embedder.model_key  # type: ignore[union-attr]
    assert await active(owner) == ["other"]
    for reader in (store, await store_of(), await open_store()):
        other_server.requests.clear()
        word_server.requests.clear()
        found = await find(reader, "vault key")
        assert titles(found)[0] == "Vault"
        assert not {"dense_unavailable", "dense_partial"} & set(found.degraded)
        assert [request.body["input"] for request in other_server.requests] == [["vault key"]]
        assert word_server.requests == []
    (added,) = await add(store, note(LONG + " Added later.", title="Later"))
    assert added.degraded == ()
    assert await pending(owner) == 0
    assert await chunks_of(owner, added.version_id) > 1
    # A process that opens with the configured model does not take the tenant back.
    late = await store_of()
    await late.backfill(T)
    await late.embedding.drain(T)
    assert await active(owner) == ["other"]
    await demote(store, run)
    assert await active(owner) == ["words"]
    for reader in (store, late):
        # It finds out with its first search.
        await find(reader, "anything")
    other_server.requests.clear()
    for reader in (store, late):
        found = await find(reader, "added later")
        assert titles(found)[0] == "Later"
        assert not {"dense_unavailable", "dense_partial"} & set(found.degraded)
    assert other_server.requests == []
    assert await pending(owner) == 0


async def test_what_is_added_to_a_promoted_generation_is_cut_as_it_is(
    store_of: OpenStore, owner: Owner
) -> None:
    store = await store_of()
    other = await store_of()
    await add(store, note(LONG))
    run = await replay(store, SMALL)
    await promote(store, run)
    sizes = []
    for writer in (store, other, other):
        (added,) = await add(writer, note(LONG))
        assert added.chunks == await chunks_of(owner, added.version_id)
        sizes.append(added.chunks)
    assert sizes[0] > 1
    assert len(set(sizes)) == 1
    await demote(store, run)
    (added,) = await add(other, note(LONG))
    assert added.chunks == 1
    assert await rows(owner, "SELECT DISTINCT generation FROM memory.version WHERE feed_seq = 7") == [("g0",)]


async def test_a_repeat_is_a_repeat_in_either_generation(store_of: OpenStore, owner: Owner) -> None:
    store = await store_of()
    documents = [
        note("One.", external_ref="n1", occurred_at=NOW, thread="t", author="Ann", attributes={"a": 1}),
        note("Two.", external_ref="n2", valid_until=NOW + timedelta(days=9), generator_agent_id="bot"),
    ]
    await add(store, *documents)
    run = await replay(store, SMALL)
    await promote(store, run)
    assert [answer.status for answer in await add(store, *documents)] == ["unchanged"] * 2
    await demote(store, run)
    assert [answer.status for answer in await add(store, *documents)] == ["unchanged"] * 2


# --- what came in meanwhile ---


async def changes(store: PostgresDocumentStore, owner: Owner) -> dict[str, AddResult]:
    """One of everything that can be done to a document; the ids by reference."""
    added = await add(
        store,
        note("New vault.", title="New", external_ref="new"),
        note("Edited vault.", title="Edited", external_ref="edited"),
    )
    return {"new": added[0], "edited": added[1]}


async def seed(store: PostgresDocumentStore) -> dict[str, AddResult]:
    names = ("edited", "forgotten", "purged", "tagged", "deprecated", "held", "same")
    added = await add(
        store, *(note(f"{name} vault.", title=name.title(), external_ref=name) for name in names)
    )
    return dict(zip(names, added, strict=True))


async def change_everything(store: PostgresDocumentStore, ids: dict[str, AddResult], word: str) -> None:
    await add(store, note(f"new {word} vault.", title=f"New {word}", external_ref=f"new-{word}"))
    await add(store, note(f"edited {word} vault.", title="Edited", external_ref="edited"))
    await store.forget(tenant_id=T, principal_id=P, document_id=ids["forgotten"].document_id)
    await store.purge(tenant_id=T, principal_id=P, document_id=ids["purged"].document_id)
    await store.change_access_tags(
        tenant_id=T, principal_id=P, document_id=ids["tagged"].document_id, add=[ENG]
    )
    for name in ("deprecated", "held"):
        ((version,),) = [[row[0]] for row in await rows_of(store, ids[name].document_id)]
        if name == "deprecated":
            await store.deprecate_version(tenant_id=T, actor_id=OPS, version_id=version)
        else:
            await store.set_retention_class(
                tenant_id=T, principal_id=P, version_id=version, retention_class=RetentionClass.DURABLE
            )


async def rows_of(store: PostgresDocumentStore, document_id: str) -> list[tuple[Any, ...]]:
    async with store._database.operator() as conn:
        cursor = await conn.execute(
            "SELECT v.id FROM memory.version v JOIN memory.tenant_state s ON s.live_generation = v.generation "
            "WHERE v.document_id = %s AND v.status = 'active'",
            [document_id],
        )
        return await cursor.fetchall()


async def state(store: PostgresDocumentStore, owner: Owner) -> dict[str, Any]:
    """What readers see, whichever generation is live."""
    bob = await access_of(grant(ENG))
    return {
        "found": sorted(titles(await find(store, "vault", limit=50))),
        "deprecated": sorted(titles(await find(store, "vault", limit=50, include_deprecated=True))),
        "listed": sorted(
            e.title for e in await store.list(tenant_id=T, principal_id=P, query=TimelineQuery(limit=50))
        ),
        "bob": sorted(
            item.title
            for item in (
                await store.search(tenant_id=T, principal_id="bob", query=query("vault"), access=bob)
            ).items
        ),
        "classes": await rows(
            owner,
            "SELECT v.title, v.version, v.status, v.retention_class FROM memory.version v "
            "JOIN memory.tenant_state s ON s.live_generation = v.generation AND s.tenant_id = v.tenant_id "
            "WHERE v.status <> 'tombstoned' ORDER BY 1, 2",
        ),
        "rows": await rows(
            owner,
            "SELECT v.title, r.status, r.access_tags FROM memory.search_row r JOIN memory.tenant_state s "
            "ON s.live_generation = r.generation JOIN memory.version v ON v.id = r.version_id ORDER BY 1, 2",
        ),
    }


def query(text: str) -> Any:
    from corbits_memory.ports import SearchQuery

    return SearchQuery(query=text, limit=50)


async def test_all_that_came_in_during_a_run_is_in_what_is_promoted(
    store_of: OpenStore, owner: Owner
) -> None:
    store = await store_of()
    ids = await seed(store)
    run = await begin(store)
    await work(store, run, slices=0)
    await change_everything(store, ids, "early")
    run = await work(store, run)
    assert run.status is RunStatus.COMPLETED
    await add(store, note("late vault.", title="Late", external_ref="late"))
    before = await state(store, owner)
    assert before["found"] == ["Edited", "Held", "Late", "New early", "Same", "Tagged"]
    assert before["bob"] == ["Tagged"]
    await promote(store, run)
    assert await live(owner) == run.generation
    assert await state(store, owner) == before
    assert await pending(owner) == 0


async def test_all_that_came_in_after_a_run_or_a_promotion_survives_both_ways(
    store_of: OpenStore, owner: Owner
) -> None:
    store = await store_of()
    first = await seed(store)
    run = await replay(store, SMALL)
    await change_everything(store, first, "staged")
    before = await state(store, owner)
    await promote(store, run)
    assert await state(store, owner) == before
    second = dict(first)
    fresh = await add(
        store, note("forgotten vault.", title="F2", external_ref="f2"), note("p vault.", external_ref="p2")
    )
    second |= {
        "forgotten": fresh[0],
        "purged": fresh[1],
        "deprecated": first["same"],
        "tagged": first["held"],
    }
    second["held"] = first["tagged"]
    await change_everything(store, second, "promoted")
    before = await state(store, owner)
    await demote(store, run)
    assert await live(owner) == "g0"
    assert await state(store, owner) == before
    assert await pending(owner) == 0
    await add(store, note("demoted vault.", title="After", external_ref="after"))
    before = await state(store, owner)
    await promote(store, run)
    assert await state(store, owner) == before
    counted = await rows(
        owner,
        "SELECT s.chunk_count = count(*) FROM memory.tenant_state s JOIN memory.search_row r "
        "ON r.generation = s.live_generation GROUP BY s.chunk_count",
    )
    assert counted == [(True,)]


async def test_claims_stay_claims_of_their_sources(store_of: OpenStore, owner: Owner) -> None:
    store = await store_of()
    (source,) = await add(store, note("The vault opens at nine.", title="Source"))
    await add(
        store,
        note("Nine it is.", title="Claim", derived_from=(source.version_id,), supports=(source.version_id,)),
    )
    run = await replay(store)
    await add(store, note("Or ten.", title="Doubt", contradicts=(source.version_id,)))
    await promote(store, run)

    async def shown() -> dict[str, Any]:
        found = {item.title: item.attribution for item in (await find(store, "vault nine ten")).items}
        (id_,) = (
            await rows(
                owner,
                "SELECT v.id FROM memory.version v JOIN memory.tenant_state s ON s.live_generation = v.generation "
                "WHERE v.title = 'Source'",
            )
        )[0]
        source, claim = found["Source"], found["Claim"]
        assert source is not None
        assert claim is not None
        assert claim.derived_from == (id_,)
        return {"supports": source.supports, "contradicts": source.contradicts}

    assert await shown() == {"supports": 1, "contradicts": 1}
    forgotten = await store.forget(tenant_id=T, principal_id=P, document_id=source.document_id)
    assert len(forgotten.derived) == 1
    await demote(store, run)
    assert "Source" not in titles(await find(store, "vault nine ten"))


async def test_generations_over_generations(store_of: OpenStore, owner: Owner) -> None:
    store = await store_of()
    await add(store, note("One vault.", title="One", external_ref="n1"))
    first = await replay(store)
    await promote(store, first)
    await add(
        store, note("Two vault.", title="Two", external_ref="n2"), note("One more vault.", external_ref="n1")
    )
    second = await replay(store, SMALL)
    assert second.version_count == 3
    assert await versions(owner, second.generation) == await versions(owner, first.generation)
    await promote(store, second)
    await add(store, note("Three vault.", title="Three", external_ref="n3"))
    with pytest.raises(TransformPromoteError, match="not the one that is promoted"):
        await demote(store, first)
    with pytest.raises(TransformPromoteError, match="promoted already"):
        await promote(store, first)
    await demote(store, second)
    assert sorted(refs(await find(store, "vault"))) == ["n1", "n2", "n3"]
    await demote(store, first)
    assert sorted(refs(await find(store, "vault"))) == ["n1", "n2", "n3"]
    assert await live(owner) == "g0"
    assert [row[1:] for row in await versions(owner, "g0")] == [
        (2, "active"),
        (1, "superseded"),
        (1, "active"),
        (1, "active"),
    ]


# --- what is refused ---


async def refused(verb: Any, *words: str) -> None:
    with pytest.raises(TransformPromoteError) as caught:
        await verb
    for word in words:
        assert word in caught.value.message


async def test_what_can_not_be_promoted(store_of: OpenStore, owner: Owner) -> None:
    store = await store_of()
    await add(store, note("One."))
    running = await begin(store)

    def named(generation: str, tenant: str = T) -> Any:
        return store.transforms.promote_generation(tenant_id=tenant, actor_id=OPS, generation=generation)

    await refused(named("live"), "live already")
    await refused(named("g0"), "live already")
    for tenant, generation in ((T, "trun_unknown"), ("other", running.generation)):
        with pytest.raises(TransformRunNotFoundError):
            await named(generation, tenant)
    await refused(named(running.generation), "the run is running")
    failed = await replay(store, adapter="nobody")
    await refused(named(failed.generation), "the run is failed", "no raw capture")
    done = await work(store, running)
    await refused(demote(store, done), "not the one that is promoted")
    await promote(store, done)
    await refused(promote(store, done), "promoted already")
    await demote(store, done)
    await refused(demote(store, done), "not the one that is promoted")
    with pytest.raises(TransformRunNotFoundError):
        await store.transforms.demote_generation(tenant_id=T, actor_id=OPS, generation="trun_unknown")
    assert await live(owner) == "g0"


async def test_live_documents_are_not_left_out_unless_that_is_meant(
    store_of: OpenStore, owner: Owner
) -> None:
    store = await store_of()
    await add(
        store,
        note("One.", title="Kept", adapter="mail", external_ref="m1"),
        note("Two.", title="Out", external_ref="n1"),
    )
    part = await replay(store, adapter="mail")
    await refused(promote(store, part), "1 live documents are not in this generation")
    assert await live(owner) == "g0"
    await promote(store, part, allow_partial=True)
    assert titles(await find(store, "one two")) == ["Kept"]
    # What a partial generation left out is found by the next whole one, and is there again after a demotion.
    await add(store, note("Two, edited.", title="Out", external_ref="n1"))
    whole = await replay(store)
    assert whole.version_count == 3
    await demote(store, part)
    assert sorted(titles(await find(store, "one two"))) == ["Kept", "Out"]
    assert await versions(owner, "g0") == [
        ("Kept", 1, "active"),
        ("Out", 1, "superseded"),
        ("Out", 2, "active"),
    ]
    await promote(store, whole)
    assert [row[2] for row in await versions(owner, whole.generation) if row[0] == "Out"] == [
        "superseded",
        "active",
    ]


async def test_captures_that_can_not_be_read_do_not_hold_a_promotion_for_ever(
    store_of: OpenStore, owner: Owner
) -> None:
    store = await store_of()
    await add(
        store, note("One.", title="Kept", external_ref="n0"), note("Two.", title="Broken", external_ref="n1")
    )
    await owner.execute("UPDATE memory.raw_capture SET raw_text = 'x' WHERE external_ref = 'n1'")
    run = await replay(store)
    await refused(promote(store, run), "the run is failed", "not JSON")
    await promote(store, run, allow_partial=True)
    assert titles(await find(store, "one two")) == ["Kept"]
    cancelled = await begin(store)
    await store.transforms.cancel_transform_run(tenant_id=T, run_id=cancelled.id)
    await refused(promote(store, cancelled, allow_partial=True), "the run is failed")


async def test_a_demotion_without_its_model_changes_nothing(
    store_of: OpenStore, other_server: ModelServer, owner: Owner
) -> None:
    store = await store_of()
    await add(store, note("One."))
    run = await replay(store, of_model(other_server))
    await promote(store, run)
    before = await rows(owner, "SELECT * FROM memory.tenant_state")
    await owner.execute("DELETE FROM memory.embed_model WHERE model_id = 'words'")
    await refused(demote(store, run), "not registered any more")
    assert await rows(owner, "SELECT * FROM memory.tenant_state") == before


async def test_a_model_that_this_process_can_not_reach_is_not_promoted(
    store_of: OpenStore, open_store: OpenStore, other_server: ModelServer, owner: Owner
) -> None:
    store = await store_of()
    await add(store, note("One."))
    run = await replay(store, of_model(other_server))
    store._directory._factory = None
    store._directory._embedders.clear()
    await refused(promote(store, run), "no embedding endpoint")
    assert await live(owner) == "g0"


# --- everything at once ---


async def test_two_promotions_at_once(store_of: OpenStore, owner: Owner) -> None:
    one, other = await store_of(), await store_of()
    await add(one, note("One vault."))
    run, second = await replay(one), await replay(one, SMALL)
    answers = await asyncio.gather(promote(one, run), promote(other, run), return_exceptions=True)
    assert sorted(type(answer).__name__ for answer in answers) == ["TransformPromoteError", "TransformRun"]
    assert await rows(owner, "SELECT count(*) FROM memory.feed_event WHERE op = 'promote'") == [(1,)]
    await demote(one, run)
    both = await asyncio.gather(promote(one, run), promote(other, second), return_exceptions=True)
    assert [type(answer) for answer in both] == [TransformRun, TransformRun], both
    archived = await rows(
        owner,
        "SELECT generation, archived_live_generation FROM memory.transform_run WHERE promoted_at IS NOT NULL",
    )
    chain = dict(archived)
    assert chain[chain[await live(owner)]] == "g0"


async def writer(store: PostgresDocumentStore, name: str, stop: asyncio.Event) -> dict[str, str]:
    """Adds, edits and forgets until stopped; what must be found at the end: reference and word."""
    kept: dict[str, str] = {}
    place = 0
    while not stop.is_set():
        place += 1
        ref, word = f"{name}{place}", f"w{name}{place}"
        (added,) = await add(store, note(f"{word} vault.", external_ref=ref, title=ref))
        kept[ref] = word
        if place % 3 == 0:
            kept[ref] = f"{word}edited"
            await add(store, note(f"{word}edited vault.", external_ref=ref, title=ref))
        if place % 4 == 0:
            await store.forget(tenant_id=T, principal_id=P, document_id=added.document_id)
            del kept[ref]
        if place % 5 == 0:
            await store.change_access_tags(
                tenant_id=T, principal_id=P, document_id=added.document_id, add=[ENG]
            ) if ref in kept else None
    return kept


async def check(store: PostgresDocumentStore, owner: Owner, kept: dict[str, str]) -> None:
    found = await rows(
        owner,
        "SELECT d.external_ref, string_agg(c.text, '' ORDER BY c.ordinal) FROM memory.tenant_state s "
        "JOIN memory.version v ON v.generation = s.live_generation AND v.status = 'active' "
        "JOIN memory.document d ON d.id = v.document_id JOIN memory.chunk c ON c.version_id = v.id "
        "JOIN memory.search_row r ON r.chunk_id = c.id AND r.access_tags = d.tags AND r.status = 'active' "
        "GROUP BY 1",
    )
    assert dict(found) == {ref: f"{word} vault." for ref, word in kept.items()}
    doubles = await rows(
        owner,
        "SELECT document_id, generation, count(*) FROM memory.version WHERE status = 'active' GROUP BY 1, 2 "
        "HAVING count(*) > 1",
    )
    assert doubles == []


async def test_promotions_while_others_write(store_of: OpenStore, owner: Owner) -> None:
    store = await store_of()
    writers = [await store_of(add_embed_seconds=0.01) for _ in range(3)]
    await add(store, *(note(f"w{i} vault.", external_ref=f"n{i}", title=f"n{i}") for i in range(30)))
    stop = asyncio.Event()
    working = [asyncio.create_task(writer(one, f"x{i}_", stop)) for i, one in enumerate(writers)]
    kept = {f"n{i}": f"w{i}" for i in range(30)}
    run = await replay(store, SMALL)
    assert run.status is RunStatus.COMPLETED
    for _ in range(2):
        await promote(store, run)
        await asyncio.sleep(0.1)
        await demote(store, run)
        await asyncio.sleep(0.1)
    await promote(store, run)
    stop.set()
    for done in await asyncio.gather(*working):
        kept.update(done)
    await check(store, owner, kept)
    await demote(store, run)
    await check(store, owner, kept)


async def test_a_reader_sees_one_corpus_or_the_other(
    store_of: OpenStore, other_server: ModelServer, owner: Owner
) -> None:
    store, reader = await store_of(), await store_of()
    # Different enough that none is a restatement of another.
    words = (
        "apple",
        "bridge",
        "cloud",
        "desert",
        "engine",
        "forest",
        "garden",
        "harbour",
        "island",
        "jungle",
    )
    texts = [f"vault key {word} " + " ".join(f"{word}{i}" for i in range(6)) for word in words]
    await add(store, *(note(text, title=text[:20], external_ref=text) for text in texts))
    run = await replay(store, of_model(other_server))
    generation = dict(await rows(owner, "SELECT id, generation FROM memory.version"))
    stop = asyncio.Event()
    answered = [asyncio.Event(), asyncio.Event()]

    async def read(told: asyncio.Event) -> list[set[str]]:
        seen = []
        while not stop.is_set():
            result = await find(reader, "vault key", limit=20)
            told.set()
            assert len(result.items) == 10
            assert "dense_unavailable" not in result.degraded
            seen.append(
                {generation[item.attribution.version_id] for item in result.items if item.attribution}
            )
        return seen

    reading = [asyncio.create_task(read(told)) for told in answered]
    for _ in range(5):
        for move in (promote, demote):
            for told in answered:
                told.clear()
            await move(store, run)
            # However slow the machine is: each reader has answered since, perhaps in the middle of it.
            while not all(told.is_set() for told in answered) and not any(task.done() for task in reading):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
    stop.set()
    answers = [one for task in reading for one in await task]
    assert {len(seen) for seen in answers} == {1}
    assert {next(iter(seen)) for seen in answers} == {"g0", run.generation}


async def test_a_promotion_waits_for_a_forget_and_keeps_it(
    store_of: OpenStore, owner: Owner, database_url: str
) -> None:
    import psycopg

    store = await store_of()
    (added, _) = await add(store, note("Secret vault.", title="Secret"), note("Other vault.", title="Other"))
    run = await replay(store)
    async with await psycopg.AsyncConnection.connect(database_url) as gate:
        # The erasure holds the tenant's row and the document, and waits here.
        await gate.execute("LOCK TABLE memory.erasure IN EXCLUSIVE MODE")
        erasing = asyncio.create_task(
            store.forget(tenant_id=T, principal_id=P, document_id=added.document_id)
        )
        await until_waiting(owner)
        promoting_ = asyncio.create_task(promote(store, run))
        await asyncio.sleep(0.5)
        assert not promoting_.done()
        assert await live(owner) == "g0"
    await erasing
    await promoting_
    assert titles(await find(store, "vault", include_deprecated=True)) == ["Other"]
    await demote(store, run)
    assert titles(await find(store, "vault", include_deprecated=True)) == ["Other"]


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("verb", [promote, demote])
@pytest.mark.parametrize("step", ["append_promotion", "point", "switch", "catch_up", "after"])
async def test_a_promotion_that_dies_is_whole_or_not_there(
    store_of: OpenStore, owner: Owner, monkeypatch: pytest.MonkeyPatch, step: str, verb: Any
) -> None:
    store = await store_of()
    await add(store, note("One vault.", external_ref="n1"))
    run = await replay(store)
    if verb is demote:
        await promote(store, run)
    was = await live(owner)
    await add(store, note("Two vault.", external_ref="n2"))

    async def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        if step == "append_promotion":
            patch.setattr(promoting, "append_promotion", die)
        elif step == "switch":
            patch.setattr(type(store._registry), "switch", die)
        elif step == "catch_up":
            patch.setattr(CatchUp, "page_in", die)
        elif step == "point":
            patch.setattr(promoting, "active_space", die)
        else:
            patch.setattr(promoting.Promoter, "_count_anew", die)
        with pytest.raises(Killed):
            await verb(store, run)
    moved = step == "after"
    assert (await live(owner) != was) is moved
    other = await store_of()
    assert sorted(refs(await find(other, "vault"))) == ["n1", "n2"]
    with contextlib.suppress(TransformPromoteError):
        await verb(other, run)
    assert await live(owner) != was
    assert sorted(refs(await find(other, "vault"))) == ["n1", "n2"]
    assert (await rows(owner, "SELECT count(*) FROM memory.feed_event WHERE op = 'promote'"))[0][0] == (
        1 if verb is promote else 2
    )


async def test_turns_that_come_late_are_embedded_with_their_generation(
    store_of: OpenStore, owner: Owner, word_server: ModelServer
) -> None:
    store = await store_of()
    await add(store, turn(1, "The vault is locked."), turn(3, "Who has the key?"))
    run = await replay(store)
    await add(store, turn(2, "Since noon."))
    await store.embedding.drain(T)
    word_server.requests.clear()
    await promote(store, run)
    texts = [text for request in word_server.requests for text in request.body["input"]]
    # The late turn, and the one that now has it in front.
    assert len(texts) == 2
    assert any("Since noon." in text and "Who has the key?" in text for text in texts)
    assert await pending(owner) == 0


async def test_terms_of_a_counted_tenant_are_counted_anew(store_of: OpenStore, owner: Owner) -> None:
    store = await store_of()
    await add(store, note("alpha beta"))
    await store.statistics.refresh(T)
    run = await replay(store)
    await promote(store, run)
    assert await rows(owner, "SELECT DISTINCT generation FROM memory.term_stat") == [(run.generation,)]
    assert PLAIN


async def test_a_copy_whose_original_is_deprecated_meanwhile_steps_back_to_its_own_tags(
    store_of: OpenStore, owner: Owner
) -> None:
    store = await store_of()
    (made,) = await add(store, note("The vault opens at nine.", external_ref="n1"))
    run = await replay(store)
    await store.change_access_tags(
        tenant_id=T, principal_id=P, document_id=made.document_id, add=["memory.space:later"]
    )
    await store.deprecate_version(tenant_id=T, actor_id=OPS, version_id=made.version_id)
    await promote(store, run)
    found = await rows(owner, "SELECT status, access_tags FROM memory.search_row")
    assert found == [("deprecated", ["memory.owner:ann"])] * 2
    (key,) = (await rows(owner, "SELECT model_key FROM memory.embed_model"))[0]
    assert await rows(owner, f"SELECT status, access_tags FROM memory.embedding_{key}") == found
