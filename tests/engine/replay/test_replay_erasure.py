"""What was forgotten is gone from staged and archived generations, and nothing brings it back."""

from collections.abc import Iterator
from typing import Any

import pytest

from corbits_memory.core.enums import RunStatus
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.ports.transform import TransformRun
from tests.engine.replay.support import PLAIN, SMALL, Owner, begin, demote, promote, replay, rows, work
from tests.engine.support import OpenStore, P, T, add, find, note, turn
from tests.engine.test_erasure import SECRET, dump, embed_telling, holding, secret_turn
from tests.models.conftest import ModelServer


@pytest.fixture
def word_server() -> Iterator[ModelServer]:
    """Vectors whose first place says whether the secret was in the text."""
    with ModelServer() as server:
        server.script(embed_telling)
        yield server


async def erase(store: PostgresDocumentStore, verb: str, document_id: str) -> None:
    await getattr(store, verb)(tenant_id=T, principal_id=P, document_id=document_id)


async def telling(owner: Owner) -> int:
    """Vectors, of every model and generation, made of a text with the secret in it."""
    total = 0
    for (key,) in await rows(owner, "SELECT model_key FROM memory.embed_model"):
        found = await rows(owner, f"SELECT embedding::text FROM memory.embedding_{key}")
        total += sum(float(text[1:].split(",")[0]) > 1 for (text,) in found)
    return total


async def flood(store: PostgresDocumentStore) -> str:
    """A secret turn, another after it, an edit of the secret one; its document."""
    (secret,) = await add(store, secret_turn(f"The word is {SECRET}.", retention_class="standard"))
    await add(store, turn(2, "And then?", thread=f"{SECRET}-thread"))
    await add(store, note("Known to others."))
    await add(store, secret_turn(f"Still {SECRET}, as agreed."))
    await store.embedding.drain(T)
    return secret.document_id


@pytest.mark.parametrize("verb", ["forget", "purge"])
async def test_staged_live_and_archived_copies_are_gone_and_stay_gone(
    store_of: OpenStore, owner: Owner, verb: str
) -> None:
    store = await store_of()
    document = await flood(store)
    archived = await replay(store)
    await promote(store, archived)
    staged = await replay(store, SMALL)
    begun = await begin(store, SMALL)
    before = await dump(owner)
    assert {"memory.chunk", "memory.version", "memory.search_row", "memory.raw_capture"} <= holding(
        before, SECRET
    )
    generations = await rows(
        owner, "SELECT DISTINCT generation FROM memory.version WHERE title ILIKE %s", f"%{SECRET}%"
    )
    assert len(generations) == 3
    assert await telling(owner) > 3

    await erase(store, verb, document)
    # The other turn's thread is named by the secret, too: it is no part of what was erased.
    (other,) = (await rows(owner, "SELECT document_id FROM memory.version WHERE title = 'Turn 2' LIMIT 1"))[0]
    await erase(store, verb, other)

    async def gone() -> None:
        assert holding(await dump(owner), SECRET) == set()
        assert await telling(owner) == 0

    await gone()
    runs = [staged, await work(store, begun), await replay(store, PLAIN)]
    assert [run.status for run in runs] == [RunStatus.COMPLETED] * 3
    await gone()
    for run in runs:
        await promote(store, run)
        await gone()
        assert [item.title for item in (await find(store, "known", include_deprecated=True)).items] == [
            "Note"
        ]
    for run in reversed(runs):
        await demote(store, run)
        await gone()
    await demote(store, archived)
    await gone()
    await owner.execute("ANALYZE")
    await gone()


@pytest.mark.parametrize("verb", ["forget", "purge"])
@pytest.mark.parametrize(
    "when", ["before it was read", "between reading and writing", "after it was written"]
)
async def test_erasing_while_a_run_is_at_it(
    store_of: OpenStore, owner: Owner, monkeypatch: pytest.MonkeyPatch, verb: str, when: str
) -> None:
    from corbits_memory.engine.replay.slices import SliceWorker

    store = await store_of()
    (secret,) = await add(store, note(f"The word is {SECRET}.", title=SECRET, external_ref="n1"))
    await add(store, note("Known."))
    run = await begin(store)
    step = {
        "before it was read": "_copy",
        "between reading and writing": "_write",
        "after it was written": "_embed",
    }[when]
    real = getattr(SliceWorker, step)
    done = False

    async def erase_first(self: SliceWorker, *arguments: Any) -> None:
        nonlocal done
        if not done:
            done = True
            await erase(store, verb, secret.document_id)
        await real(self, *arguments)

    monkeypatch.setattr(SliceWorker, step, erase_first)
    run = await work(store, run)
    assert done
    assert holding(await dump(owner), SECRET) == set()
    assert await telling(owner) == 0
    await promote(store, run)
    assert holding(await dump(owner), SECRET) == set()


async def test_what_is_added_anew_after_it_was_forgotten_is_replayed(
    store_of: OpenStore, owner: Owner
) -> None:
    store = await store_of()
    (first,) = await add(store, note("One vault.", external_ref="n1"))
    await erase(store, "forget", first.document_id)
    await add(store, note("One vault.", external_ref="n1"))
    run: TransformRun = await replay(store)
    assert (run.status, run.raw_count, run.version_count) == (RunStatus.COMPLETED, 1, 1)
    await promote(store, run)
    (item,) = (await find(store, "vault")).items
    assert item.document_id == first.document_id
    assert item.attribution is not None
    assert item.attribution.version == 2
    (again,) = await add(store, note("Two vaults.", external_ref="n1"))
    assert again.version == 3
    assert await rows(owner, "SELECT count(*) FROM memory.version WHERE status = 'tombstoned'") == [(1,)]
