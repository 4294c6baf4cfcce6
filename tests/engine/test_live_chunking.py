"""By which strategy texts are cut as they are added."""

from corbits_memory.core.chunking import ChunkCaps
from corbits_memory.core.enums import AddStatus
from corbits_memory.core.strategies import DEFAULT_CUTTING, Cutting
from corbits_memory.errors import ChunkerError
from corbits_memory.ports import AddResult
from tests.engine.replay.conftest import store_of
from tests.engine.replay.support import Owner, demote, promote, replay, rows
from tests.engine.support import OpenStore, P, T, add, find, note
from tests.support.chunkers import InstallChunkers, install_chunkers

__all__ = ["install_chunkers", "store_of"]

MARKDOWN = "# Apples\n\n" + "apple " * 20 + "\n\n# Pears\n\n" + "pear " * 20
TRANSCRIPT = "[10:41] Ann: where are the keys?\n[10:42] Bob: in the drawer,\nas ever\n[10:43] Ann: thanks"
SENTENCES = (
    "def cut(parts, caps):\n"
    "    if any('poison' in text for text, _ in parts):\n"
    "        raise ValueError('poison')\n"
    "    return [Piece(s, role, 1) for text, role in parts for s in text.split('. ')]\n"
)


async def test_markdown_is_cut_before_its_headings(open_store: OpenStore) -> None:
    store = await open_store(cutting=Cutting("markdown.sections", ChunkCaps(60, 5, 0)))
    (added,) = await add(store, note(MARKDOWN))
    assert added.chunks == 2
    found = await find(store, "pears")
    assert found.items[0].snippet.startswith("# Pears")


async def test_a_transcript_is_cut_between_what_people_say(open_store: OpenStore) -> None:
    store = await open_store(cutting=Cutting("turns.window", ChunkCaps(12, 0, 0)))
    (added,) = await add(store, note(TRANSCRIPT))
    assert added.chunks == 3
    found = await find(store, "drawer")
    assert found.items[0].snippet == "[10:42] Bob: in the drawer,\nas ever"


async def test_the_same_text_cut_otherwise_is_no_new_version(open_store: OpenStore) -> None:
    store = await open_store()
    (first,) = await add(store, note(MARKDOWN, external_ref="m1"))
    other = await open_store(cutting=Cutting("markdown.sections", ChunkCaps(60, 5, 0)))
    (again,) = await add(other, note(MARKDOWN, external_ref="m1"))
    assert (again.status, again.version_id) == (AddStatus.UNCHANGED, first.version_id)


async def test_a_live_replay_keeps_its_own_way(store_of: OpenStore, owner: Owner) -> None:
    store = await store_of(cutting=Cutting("markdown.sections", ChunkCaps(60, 5, 0)))
    await add(store, note(MARKDOWN, external_ref="m1"))
    run = await replay(store, {"chunk": {"strategy": "token.recursive"}})
    await promote(store, run)
    (added,) = await add(store, note(MARKDOWN, external_ref="m2"))
    assert added.chunks == 1
    await demote(store, run)
    (added,) = await add(store, note(MARKDOWN, external_ref="m3"))
    assert added.chunks == 2
    counts = await rows(
        owner,
        "SELECT count(*) FROM memory.search_row r JOIN memory.tenant_state s ON s.live_generation = r.generation "
        "GROUP BY r.document_id",
    )
    assert counts == [(2,), (2,), (2,)]


async def test_a_strategy_of_a_package_cuts_what_is_added_and_replayed(
    store_of: OpenStore, install_chunkers: InstallChunkers
) -> None:
    install_chunkers(SENTENCES, **{"acme.sentences": "cut"})
    store = await store_of(cutting=Cutting("acme.sentences"))
    (added,) = await add(store, note("One here. Two there. Three."))
    assert added.chunks == 3
    run = await replay(store, {"chunk": {"strategy": "acme.sentences"}})
    assert run.status == "completed"
    await promote(store, run)
    assert (await find(store, "two there")).items[0].snippet == "Two there"


async def test_a_text_that_a_package_can_not_cut_spoils_no_other(
    store_of: OpenStore, install_chunkers: InstallChunkers
) -> None:
    install_chunkers(SENTENCES, **{"acme.sentences": "cut"})
    store = await store_of()
    await add(store, note("One. Two.", external_ref="n1"))
    await promote(store, await replay(store, {"chunk": {"strategy": "acme.sentences"}}))
    # Another process plans by what is configured, and cuts anew when it sees what is live.
    fresh = await store_of()
    answers = await fresh.add(
        tenant_id=T, principal_id=P, documents=[note("Three. Four."), note("The poison. Five.")]
    )
    assert isinstance(answers[0], AddResult)
    assert answers[0].chunks == 2
    assert isinstance(answers[1], ChunkerError)
    assert (await find(fresh, "four")).items


async def test_without_the_package_nothing_is_stored_and_all_is_found(
    store_of: OpenStore, install_chunkers: InstallChunkers
) -> None:
    uninstall = install_chunkers(SENTENCES, **{"acme.sentences": "cut"})
    store = await store_of()
    await add(store, note("One here. Two there."))
    await promote(store, await replay(store, {"chunk": {"strategy": "acme.sentences"}}))
    uninstall()
    bare = await store_of()
    assert (await find(bare, "two there")).items
    (refused,) = await bare.add(tenant_id=T, principal_id=P, documents=[note("Three.")])
    assert isinstance(refused, ChunkerError)
    assert "on every node and worker" in refused.message
    assert "Three." not in [item.text for item in (await find(bare, "three", limit=10)).items]


def test_the_default_is_that_of_the_specification() -> None:
    assert Cutting("token.recursive", ChunkCaps(700, 40, 60)) == DEFAULT_CUTTING
