"""Reads go to a streaming replica: never stale for who wrote, never an error, and told when they don't."""

import asyncio
import logging
from collections.abc import Callable

import httpx2
import psycopg
import pytest

from corbits_memory.config import EngineConfig, MemoryConfig
from corbits_memory.engine import replica as replicas
from corbits_memory.engine.replica import AWAY, BEHIND, FOREIGN, PRIMARY, Replica
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.errors import InvalidCursorError, NotFoundError
from corbits_memory.ports import FeedQuery, NewDocument, TimelineQuery
from corbits_memory.server.app import host_app
from corbits_memory.server.identity import TokenIdentity
from corbits_memory.server.startup import open_host_database, open_plane
from corbits_memory.server.tokens import Tokens
from tests.e2e.support import NO_MODEL, corbits_memory, one_json
from tests.engine.scale.conftest import Pair
from tests.engine.support import OpenStore, P, T, add, find, note, refs
from tests.server.support import running
from tests.support.postgres import create_database


def replica_of(store: PostgresDocumentStore) -> Replica:
    assert store.replica is not None
    return store.replica


async def until(condition: Callable[[], object], *, seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the replica's own pace
            await asyncio.sleep(0.05)


def named(reference: str, text: str = "Something.") -> NewDocument:
    return note(text, title=reference, external_ref=reference)


async def listed(store: PostgresDocumentStore, tenant: str = T) -> list[str]:
    events = await store.list(tenant_id=tenant, principal_id=P, query=TimelineQuery(limit=50))
    return sorted(event.title for event in events)


async def fed(store: PostgresDocumentStore, after: int = 0) -> int:
    page = await store.feed(tenant_id=T, principal_id=P, query=FeedQuery(after=after, limit=50))
    return len(page.entries)


async def test_reads_go_to_the_replica(pair: Pair, open_node: OpenStore) -> None:
    writer, reader = await open_node(), await open_node()
    await add(writer, named("n1", "The pool closes at nine."))
    pair.until_replayed()
    assert await listed(reader) == ["n1"]
    pair.standby.pause()
    await add(writer, named("n2", "The pool opens at six."))
    # Somebody else's write: the replica does not have it yet, so whoever doesn't see it was there.
    assert await listed(reader) == ["n1"]
    assert refs(await find(reader, "pool")) == ["n1"]
    assert refs(await find(reader, "pool", profile="compat")) == ["n1"]
    assert await fed(reader) == 1
    pair.standby.resume()
    pair.until_replayed()
    assert await listed(reader) == ["n1", "n2"]
    assert sorted(refs(await find(reader, "pool"))) == ["n1", "n2"]
    assert await fed(reader) == 2


async def test_who_wrote_reads_what_it_wrote(pair: Pair, open_node: OpenStore) -> None:
    node, other = await open_node(), await open_node()
    await add(node, named("t1", "Theirs."), tenant="other")
    pair.until_replayed()
    pair.standby.pause()
    (added,) = await add(node, named("n1", "The pool closes at nine."))
    assert await listed(node) == ["n1"]
    assert refs(await find(node, "pool")) == ["n1"]
    assert await fed(node) == 1
    found = await node.document(tenant_id=T, principal_id=P, document_id=added.document_id)
    assert found.external_ref == "n1"
    history = await node.history(tenant_id=T, principal_id=P, document_id=added.document_id, limit=5)
    assert [entry.facts.version for entry in history.entries] == [1]
    await node.forget(tenant_id=T, principal_id=P, document_id=added.document_id)
    assert await listed(node) == []
    assert refs(await find(node, "pool")) == []
    # The primary is read for that tenant alone.
    await add(other, named("t2", "Theirs too."), tenant="other")
    assert await listed(node, "other") == ["t1"]
    assert replica_of(node).problem is None


async def test_after_it_has_caught_up_the_writer_reads_the_replica_again(
    pair: Pair, open_node: OpenStore
) -> None:
    node, other = await open_node(), await open_node()
    await add(node, named("n1", "One."))
    pair.until_replayed()
    pair.standby.pause()
    await add(other, named("n2", "Two."))
    assert await listed(node) == ["n1"]


async def test_a_read_of_the_primary_keeps_no_tenant_there(pair: Pair, open_node: OpenStore) -> None:
    node = await open_node()
    await add(node, named("n1", "One."))
    marks = replica_of(node).database._reached
    needed = marks.needed(T)
    assert needed > 0
    await node._reads.timeline.list(tenant_id=T, principal_id=P, query=TimelineQuery(limit=5), access=None)
    await node.pending_vectors(tenant_id=T, principal_id=P)
    assert marks.needed(T) == needed
    # A repeat is a write too: it says when the source was last seen.
    await add(node, named("n1", "One."))
    assert marks.needed(T) > needed


async def test_a_node_that_starts_reads_nothing_older_than_its_start(
    pair: Pair, open_node: OpenStore
) -> None:
    writer = await open_node()
    pair.standby.pause()
    await add(writer, named("n1", "One."))
    assert await listed(await open_node()) == ["n1"]


async def test_ids_and_cursors_that_the_replica_does_not_know_yet(pair: Pair, open_node: OpenStore) -> None:
    writer, reader = await open_node(), await open_node()
    await add(writer, named("n1", "One."))
    pair.until_replayed()
    pair.standby.pause()
    (added,) = await add(writer, named("n2", "Two."))
    found = await reader.document(tenant_id=T, principal_id=P, document_id=added.document_id)
    assert found.external_ref == "n2"
    version = await reader.version(tenant_id=T, principal_id=P, version_id=added.version_id, limit=5)
    assert [part.text for part in version.text] == ["Two."]
    assert await fed(reader, after=2) == 0
    with pytest.raises(NotFoundError):
        await reader.document(tenant_id=T, principal_id=P, document_id="kdoc_none")
    with pytest.raises(InvalidCursorError):
        await fed(reader, after=3)


async def test_a_follower_gets_what_woke_it(
    pair: Pair, open_node: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, reader = await open_node(), await open_node()
    await add(writer, named("n1", "One."))
    pair.until_replayed()
    pair.standby.pause()
    asked = 0
    page = reader._replica_reads.feed.page

    async def count(**given: object) -> object:
        nonlocal asked
        asked += 1
        return await page(**given)  # type: ignore[arg-type]

    monkeypatch.setattr(reader._replica_reads.feed, "page", count)

    async def follow() -> int:
        while True:
            found = await reader.feed(tenant_id=T, principal_id=P, query=FeedQuery(after=1, limit=50))
            if found.entries:
                return len(found.entries)
            await reader.feed_changed(tenant_id=T, after=found.position, seconds=15)

    following = asyncio.create_task(follow())
    await asyncio.sleep(0.5)
    await add(writer, named("n2", "Two."))
    async with asyncio.timeout(10):
        assert await following == 1
    assert asked < 6


async def test_a_replica_that_goes_away_costs_no_reader_an_error(
    pair: Pair, open_node: OpenStore, caplog: pytest.LogCaptureFixture
) -> None:
    node = await open_node()
    await add(node, *(named(f"n{i}", f"Note {i} of the pool.") for i in range(20)))
    pair.until_replayed()
    caplog.set_level(logging.INFO, "corbits_memory.replica")

    async def read() -> int:
        done = 0
        while replica_of(node).problem is None:
            assert len(await listed(node)) == 20
            assert refs(await find(node, "pool"))
            done += 1
        return done

    readers = [asyncio.create_task(read()) for _ in range(6)]
    await asyncio.sleep(0.5)
    await asyncio.to_thread(pair.standby.stop)
    try:
        async with asyncio.timeout(20):
            assert min(await asyncio.gather(*readers)) > 0
        assert replica_of(node).problem == AWAY
        assert len(await listed(node)) == 20
    finally:
        await asyncio.to_thread(pair.standby.start)
    await until(lambda: replica_of(node).problem is None)
    assert len(await listed(node)) == 20
    told = [record.getMessage() for record in caplog.records if record.getMessage() == AWAY]
    assert len(told) == 1
    assert "the read replica answers reads" in caplog.text


async def test_one_that_is_away_at_the_start_is_no_error(pair: Pair, open_node: OpenStore) -> None:
    await asyncio.to_thread(pair.standby.stop)
    try:
        node = await open_node()
        await add(node, named("n1", "One."))
        assert await listed(node) == ["n1"]
        assert replica_of(node).problem == AWAY
    finally:
        await asyncio.to_thread(pair.standby.start)
    await until(lambda: replica_of(node).problem is None)
    assert await listed(node) == ["n1"]


async def test_one_that_is_too_far_behind_is_passed_over(pair: Pair, open_node: OpenStore) -> None:
    writer, reader = await open_node(), await open_node(database_read_lag_seconds=1.5)
    await add(writer, named("n1", "One."))
    pair.until_replayed()
    pair.standby.pause()
    await add(writer, named("n2", "Two."))
    assert await listed(reader) == ["n1"]
    await until(lambda: replica_of(reader).problem is not None)
    assert replica_of(reader).problem == BEHIND.format(seconds=1.5)
    assert replica_of(reader).lag_seconds > 1.5
    assert await listed(reader) == ["n1", "n2"]
    pair.standby.resume()
    await until(lambda: replica_of(reader).problem is None)


async def test_what_is_no_replica_of_this_database_is_not_read(pair: Pair, open_node: OpenStore) -> None:
    primary = await open_node(database_read_url=pair.url)
    assert replica_of(primary).problem == PRIMARY
    create_database(pair.cluster_url, "another")
    pair.until_replayed()
    another = await open_node(database_read_url=pair.standby.url("another"))
    assert replica_of(another).problem == FOREIGN
    for node in (primary, another):
        await add(node, named("n1", "One."))
        assert await listed(node) == ["n1"]


async def test_a_login_without_the_role_is_not_read_with(pair: Pair, open_node: OpenStore) -> None:
    with psycopg.connect(pair.url, autocommit=True) as conn:
        conn.execute("CREATE ROLE onlooker LOGIN")
        conn.execute("GRANT pg_read_all_data TO onlooker")
    pair.until_replayed()
    node = await open_node(database_read_url=pair.read_url.replace("postgres@", "onlooker@"))
    assert replica_of(node).problem == replicas.UNLOCKED


async def test_places_that_are_not_reached_are_few_in_memory(
    pair: Pair, open_node: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "SAMPLES", 3)
    monkeypatch.setattr(replicas, "LOOK_SECONDS", 60.0)
    node = await open_node()
    pair.standby.pause()
    replica = replica_of(node)
    for number in range(6):
        await add(node, named(f"n{number}"))
        await replica._ask_primary()
        await replica._look()
        assert len(replica._ahead) <= 3
    assert replica.lag_seconds > 0
    pair.standby.resume()
    pair.until_replayed()
    await replica._look()
    assert replica.lag_seconds == 0


async def test_an_operator_is_told(pair: Pair) -> None:
    config = MemoryConfig(
        memory=EngineConfig(database_url=pair.url, database_read_url=pair.read_url, db_pool_max=2)
    )
    async with open_host_database(pair.url) as database, open_plane(config, run_worker=False) as plane:
        replica = replica_of(plane.store)
        app = host_app(
            plane.memory, identity=TokenIdentity(Tokens(database)), database=database, replica=replica
        )
        async with running(app) as url, httpx2.AsyncClient(base_url=url, trust_env=False) as client:
            assert (await client.get("/readyz")).json() == {
                "status": "ready",
                "rowLevelSecurity": True,
                "readReplica": True,
            }
            await asyncio.to_thread(pair.standby.stop)
            try:
                await until(lambda: replica.problem is not None)
                # The primary answers, so the node is ready.
                answer = await client.get("/readyz")
                assert answer.status_code == 200
                assert (answer.json()["readReplica"], answer.json()["warnings"]) == (False, [AWAY])
            finally:
                await asyncio.to_thread(pair.standby.start)


async def test_doctor_tells_of_the_replica(pair: Pair) -> None:
    async def told(**environ: str) -> tuple[int, dict[str, str]]:
        done = await asyncio.to_thread(
            corbits_memory, "doctor", "--database-url", pair.url, "--json", **NO_MODEL, **environ
        )
        (found,) = [c for c in one_json(done.stdout)["checks"] if c["name"] == "read replica"]
        return done.returncode, found

    assert (await told(DATABASE_READ_URL=pair.read_url))[1]["state"] == "ok"
    # A warning: everything works without it.
    code, found = await told(DATABASE_READ_URL=pair.url)
    assert (code, found["state"], found["told"]) == (0, "warn", PRIMARY)
