"""A promotion or demotion whose connection or process dies at its worst points: the old generation serves whole, or the
new one does, and whoever repeats it succeeds."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.errors import DatabaseError, TransformPromoteError
from corbits_memory.ports.transform import TransformRun
from tests.e2e.support import start
from tests.engine.replay.support import OPS, Owner, active, demote, live, of_model, promote, replay, rows
from tests.engine.support import OpenStore, T, add, find, note, refs
from tests.models.conftest import ModelServer

MOVED = "OLD.live_generation <> NEW.live_generation"
POINTS: Mapping[str, str] = {
    # The last of the generation is copied, the pointer not moved.
    "before the pointer": f"TRIGGER held BEFORE UPDATE ON memory.tenant_state FOR EACH ROW WHEN ({MOVED})",
    # Pointer and model moved, nothing of it told to run and feed.
    "after the model": "TRIGGER held BEFORE INSERT ON memory.audit_event FOR EACH ROW "
    "WHEN (NEW.action IN ('promote', 'demote'))",
    # Everything is written, and nothing of it is there yet.
    "at the commit": "CONSTRAINT TRIGGER held AFTER UPDATE ON memory.tenant_state DEFERRABLE INITIALLY DEFERRED "
    f"FOR EACH ROW WHEN ({MOVED})",
}
WORDS: Mapping[str, Any] = {"promote": promote, "demote": demote}


@dataclass(frozen=True)
class Scene:
    """A run with a model of its own, in the state that a verb begins with; something was added since."""

    store: PostgresDocumentStore
    other: PostgresDocumentStore
    run: TransformRun
    was: str
    models: list[str]
    found: list[str]


@pytest.fixture(params=WORDS)
def word(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def scene(store_of: OpenStore, owner: Owner, other_server: ModelServer, word: str) -> Scene:
    store, other = await store_of(), await store_of()
    await add(store, note("One vault.", external_ref="n1"), note("Two vault.", external_ref="n2"))
    await store.statistics.refresh(T)
    run = await replay(store, of_model(other_server))
    if word == "demote":
        await promote(store, run)
    await add(store, note("Three vault.", external_ref="n3"), note("Two vaults.", external_ref="n2"))
    return Scene(store, other, run, await live(owner), await active(owner), ["n1", "n2", "n3"])


Hold = Callable[[str], Any]


@pytest.fixture
async def held(owner: Owner) -> AsyncIterator[Hold]:
    """``await held(POINT)`` has moves wait there, while a row stands in ``held``. No lock: those time out."""
    await owner.execute("CREATE TABLE public.held AS SELECT 1 AS n")
    await owner.execute(
        "CREATE FUNCTION public.wait_there() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN "
        "WHILE EXISTS (SELECT FROM public.held) LOOP PERFORM pg_sleep(0.02); END LOOP; RETURN NEW; END $$"
    )

    async def hold(point: str) -> None:
        await owner.execute(f"CREATE {POINTS[point]} EXECUTE FUNCTION public.wait_there()")

    yield hold
    await release(owner)


async def release(owner: Owner) -> None:
    await owner.execute("DELETE FROM public.held")


async def waiting(owner: Owner) -> int:
    """The backend that has come to the point."""
    async with asyncio.timeout(30):
        while True:
            found = await rows(
                owner,
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'",
            )
            if found:
                return int(found[0][0])
            await asyncio.sleep(0.02)


async def state(owner: Owner) -> list[list[tuple[Any, ...]]]:
    """All that a move changes."""
    return [
        await rows(owner, f"SELECT t.* FROM memory.{table} t ORDER BY t::text")
        for table in ("tenant_state", "transform_run", "generation", "embed_model", "feed_event", "audit_event",
                      "version", "search_row", "term_stat", "embed_queue")
    ]  # fmt: skip


async def look(scene: Scene, owner: Owner, *, moved: bool) -> None:
    """One corpus or the other, whole: pointer, model, run, feed, audit, and what a search finds."""
    to_run = moved is (scene.was == "g0")
    assert await live(owner) == (scene.run.generation if to_run else "g0")
    assert await active(owner) == (["other"] if to_run else ["words"])
    run = await scene.other.transforms.transform_run(tenant_id=T, run_id=scene.run.id)
    assert (run.live, run.promoted_at is not None) == (to_run, to_run)
    moves = int(scene.was != "g0") + int(moved)
    assert await rows(owner, "SELECT count(*) FROM memory.feed_event WHERE op = 'promote'") == [(moves,)]
    told = await scene.other.audit_events(tenant_id=T, limit=9, target_id=run.generation)
    assert len(told.events) == moves
    found = await find(scene.other, "vault")
    assert sorted(refs(found)) == scene.found
    assert not {"dense_unavailable", "dense_partial"} & set(found.degraded)
    generations = await rows(
        owner,
        "SELECT DISTINCT v.generation FROM memory.version v WHERE v.id = ANY (%s)",
        [item.attribution.version_id for item in found.items if item.attribution],
    )
    assert generations == [(await live(owner),)]


@pytest.mark.parametrize("point", POINTS)
async def test_a_connection_that_is_ended(
    scene: Scene, owner: Owner, held: Hold, word: str, point: str
) -> None:
    await held(point)
    moving = asyncio.create_task(WORDS[word](scene.store, scene.run))
    pid = await waiting(owner)
    before = await state(owner)
    # Readers go on meanwhile; a writer waits, and is served by what is live afterwards.
    assert sorted(refs(await find(scene.other, "vault"))) == scene.found
    adding = asyncio.create_task(add(scene.other, note("Four vault.", external_ref="n4")))
    await asyncio.sleep(0.2)
    assert not adding.done()
    assert await state(owner) == before
    await owner.execute("SELECT pg_terminate_backend(%s)", [pid])
    with pytest.raises(DatabaseError):
        await moving
    await adding
    scene.found.append("n4")
    await look(scene, owner, moved=False)
    await release(owner)
    await WORDS[word](scene.store, scene.run)
    await look(scene, owner, moved=True)


@pytest.mark.parametrize("point", POINTS)
async def test_a_process_that_is_killed(
    scene: Scene,
    owner: Owner,
    held: Hold,
    word: str,
    point: str,
    database_url: str,
    word_server: ModelServer,
) -> None:
    await held(point)
    environ = {"DATABASE_URL": database_url, "EMBED_BASE_URL": word_server.url, "EMBED_MODEL": "words"}
    process = start(
        "transform", word, scene.run.generation, "--tenant", T, "--principal", OPS, "--json", **environ
    )
    await waiting(owner)
    before = await state(owner)
    process.kill()
    assert (await asyncio.to_thread(process.communicate))[0] == ""
    await look(scene, owner, moved=False)
    assert await state(owner) == before
    # The database finds out that nobody is there any more, and lets go of the tenant.
    await release(owner)
    await add(scene.other, note("Four vault.", external_ref="n4"))
    scene.found.append("n4")
    # What had been told to commit does so, and whoever repeats it is told; else nothing has happened.
    committed = point == "at the commit"
    await look(scene, owner, moved=committed)
    if committed:
        with pytest.raises(TransformPromoteError):
            await WORDS[word](scene.other, scene.run)
    else:
        await WORDS[word](scene.other, scene.run)
    await look(scene, owner, moved=True)
