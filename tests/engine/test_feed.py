"""The feed on real Postgres: order, cursors, who is told what, texts, and many writers at once."""

from collections.abc import Collection
from typing import Any

import psycopg
import pytest

from corbits_memory.core import limits
from corbits_memory.core.enums import Effect, FeedOp
from corbits_memory.engine import feed as engine_feed
from corbits_memory.engine.feed import append_promotion, append_retractions
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.errors import InvalidCursorError
from corbits_memory.ports import Access, FeedPage, FeedQuery, NewDocument, TextPart
from tests.engine.support import P, T, add, note
from tests.engine.test_access import access_of, grant

Owner = psycopg.AsyncConnection[Any]
ALL = frozenset(FeedOp)
OWNER = "memory.owner:ann"


async def feed(
    store: PostgresDocumentStore,
    *,
    tenant: str = T,
    principal: str = P,
    access: Access | None = None,
    **query: Any,
) -> FeedPage:
    return await store.feed(tenant_id=tenant, principal_id=principal, query=FeedQuery(**query), access=access)


def seqs(page: FeedPage) -> list[int]:
    return [entry.seq for entry in page.entries]


def seen_titles(page: FeedPage) -> list[str]:
    return [entry.version.title for entry in page.entries if entry.version]


async def retract(store: PostgresDocumentStore, versions: Collection[str], *, purge: bool = False) -> None:
    """What forget and purge do to the feed."""
    async with store._database.tenant(T) as conn:
        status = {"tenant": T, "versions": list(versions)}
        await conn.execute(
            "UPDATE memory.version SET status = 'tombstoned' WHERE tenant_id = %(tenant)s AND id = ANY (%(versions)s)",
            status,
        )
        await append_retractions(conn, T, sorted(versions))
        if purge:
            await conn.execute(
                "DELETE FROM memory.document d USING memory.version v WHERE v.tenant_id = %(tenant)s "
                "AND v.id = ANY (%(versions)s) AND d.tenant_id = %(tenant)s AND d.id = v.document_id",
                status,
            )


# --- pages and cursors -------------------------------------------------------------------------------


async def test_versions_come_in_the_order_in_which_they_were_written(store: PostgresDocumentStore) -> None:
    await add(store, note("one", title="a"), note("two", title="b"))
    await add(store, note("three", title="c"))
    page = await feed(store)
    assert seqs(page) == [1, 2, 3]
    assert seen_titles(page) == ["a", "b", "c"]
    assert (page.next_cursor, page.has_more) == (3, False)


async def test_an_entry_tells_of_its_version(store: PostgresDocumentStore) -> None:
    (added,) = await add(
        store,
        note("x", title="Claim", kind="claim", generator_agent_id="bot", access_tags=("memory.space:a",)),
    )
    (entry,) = (await feed(store)).entries
    assert (entry.op, entry.version_id, entry.document_id) == (
        FeedOp.UPSERT,
        added.version_id,
        added.document_id,
    )
    version = entry.version
    assert version is not None
    assert (version.kind, version.title, version.status) == ("claim", "Claim", "active")
    assert (version.created_by_kind, version.generator_agent_id) == ("agent", "bot")
    assert version.provenance == "inferred"
    assert version.access_tags == ("memory.space:a", OWNER)
    assert version.text is None


async def test_a_cursor_is_exclusive_and_pages_join_without_gap_or_repeat(
    store: PostgresDocumentStore,
) -> None:
    await add(store, *(note(f"text {n}") for n in range(7)))
    after, found, more = 0, [], True
    while more:
        page = await feed(store, after=after, limit=3)
        found += seqs(page)
        assert page.next_cursor is not None
        after, more = page.next_cursor, page.has_more
    assert found == [1, 2, 3, 4, 5, 6, 7]


async def test_nothing_new_is_no_cursor(store: PostgresDocumentStore) -> None:
    assert await feed(store) == FeedPage(entries=(), next_cursor=None, has_more=False, position=0)
    await add(store, note("x"))
    assert await feed(store, after=1) == FeedPage(entries=(), next_cursor=None, has_more=False, position=1)


async def test_has_more_is_exact_at_the_end_of_a_page(store: PostgresDocumentStore) -> None:
    await add(store, note("1"), note("2"), note("3"))
    assert [(await feed(store, limit=n)).has_more for n in (2, 3, 4)] == [True, False, False]


@pytest.mark.parametrize("after", [2, 1_000, limits.SAFE_INTEGER])
async def test_a_cursor_beyond_the_feed_is_refused(store: PostgresDocumentStore, after: int) -> None:
    """Another tenant's, or one from before a restore: its reader would miss what comes until then."""
    await add(store, note("x"))
    await add(store, note("y"), note("z"), tenant="other")
    with pytest.raises(InvalidCursorError):
        await feed(store, after=after)
    assert seqs(await feed(store, after=1, tenant="other")) == [2]


async def test_a_tenant_that_nobody_knows_has_an_empty_feed(store: PostgresDocumentStore) -> None:
    assert (await feed(store, tenant="nobody")).entries == ()
    with pytest.raises(InvalidCursorError):
        await feed(store, tenant="nobody", after=1)


async def test_a_repeat_and_a_change_of_tags_make_no_entry(store: PostgresDocumentStore) -> None:
    await add(store, note("x", external_ref="n"))
    await add(
        store, note("x", external_ref="n"), note("x", external_ref="n", access_tags=("memory.space:a",))
    )
    assert seqs(await feed(store)) == [1]


async def test_superseded_versions_stay(store: PostgresDocumentStore) -> None:
    await add(store, note("one", external_ref="n"))
    await add(store, note("two", external_ref="n"))
    page = await feed(store, include_text=True)
    assert [(e.version.status, e.version.text) for e in page.entries if e.version] == [
        ("superseded", "one"),
        ("active", "two"),
    ]


async def test_what_an_agent_made_can_be_left_out(store: PostgresDocumentStore) -> None:
    await add(store, note("1"), note("2", generator_agent_id="bot"), note("3", generator_agent_id="other"))
    assert seqs(await feed(store, exclude_generator="bot")) == [1, 3]
    page = await feed(store, exclude_generator="bot", limit=1)
    assert (seqs(page), page.next_cursor, page.has_more) == ([1], 1, True)


async def test_a_long_stretch_of_what_was_not_asked_for_does_not_stall(
    store: PostgresDocumentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_feed, "SCANNED_EVENTS", 4)
    await add(store, *(note(str(n), generator_agent_id="bot") for n in range(9)), note("by hand"))
    first = await feed(store, exclude_generator="bot", limit=3)
    assert (first.entries, first.next_cursor, first.has_more) == ((), 4, True)
    second = await feed(store, exclude_generator="bot", limit=3, after=4)
    assert (second.entries, second.next_cursor, second.has_more) == ((), 8, True)
    third = await feed(store, exclude_generator="bot", limit=3, after=8)
    assert (seqs(third), third.next_cursor, third.has_more) == ([10], 10, False)


# --- who is told -------------------------------------------------------------------------------------


async def test_a_page_of_denied_entries_moves_the_cursor(store: PostgresDocumentStore) -> None:
    await add(store, note("1"), note("2"), principal="bob")
    await add(store, note("3"))
    page = await feed(store, limit=2)
    assert (page.entries, page.next_cursor, page.has_more) == ((), 2, True)
    assert seqs(await feed(store, after=2)) == [3]
    assert seqs(await feed(store, principal="bob")) == [1, 2]


async def test_tags_open_entries_and_vetoes_close_them(store: PostgresDocumentStore) -> None:
    await add(
        store,
        note("1", access_tags=("memory.space:eng",)),
        note("2", access_tags=("memory.space:eng", "memory.space:secret")),
        note("3"),
    )
    access = await access_of(grant("memory.space:eng"), grant("memory.space:secret", effect=Effect.DENY))
    page = await feed(store, principal="bob", access=access)
    assert (seqs(page), page.next_cursor) == ([1], 3)


async def test_an_old_version_keeps_to_the_tags_that_it_was_written_with(
    store: PostgresDocumentStore,
) -> None:
    access = await access_of(grant("memory.space:eng"))
    await add(store, note("draft", external_ref="n"))
    await add(store, note("final", external_ref="n", access_tags=("memory.space:eng",)))
    assert seqs(await feed(store, principal="bob", access=access)) == [2]
    await add(store, note("later", external_ref="n", access_tags=("memory.space:hr", "memory.space:eng")))
    page = await feed(store, principal="bob", access=access)
    assert seqs(page) == [2, 3]
    assert [e.version.access_tags for e in page.entries if e.version] == [
        ("memory.space:eng",),
        ("memory.space:eng",),
    ]
    # Its owner is told with whom else it is shared.
    assert [e.version.access_tags for e in (await feed(store)).entries if e.version] == [
        (OWNER,),
        ("memory.space:eng", OWNER),
        ("memory.space:hr", "memory.space:eng", OWNER),
    ]
    await add(store, note("later", external_ref="n", access_tags=()))
    assert seqs(await feed(store, principal="bob", access=access)) == []
    assert seqs(await feed(store)) == [1, 2, 3]


async def test_tenants_share_nothing(store: PostgresDocumentStore) -> None:
    await add(store, note("1"))
    await add(store, note("2"), tenant="other")
    assert seqs(await feed(store)) == seqs(await feed(store, tenant="other")) == [1]


# --- retractions and promotions ----------------------------------------------------------------------


@pytest.mark.parametrize("purge", [False, True])
async def test_a_retraction_is_told_to_who_asks_for_it_and_could_see(
    store: PostgresDocumentStore, purge: bool
) -> None:
    access = await access_of(grant("memory.space:eng"))
    (added, _) = await add(store, note("1", access_tags=("memory.space:eng",)), note("2"))
    await retract(store, [added.version_id], purge=purge)
    plain = await feed(store)
    assert (seqs(plain), plain.next_cursor) == ([2], 2)
    for principal, judged in ((P, None), ("bob", access)):
        page = await feed(store, principal=principal, access=judged, ops=ALL, after=2)
        (entry,) = page.entries
        assert (entry.seq, entry.op, entry.version) == (3, FeedOp.RETRACT, None)
        assert (entry.version_id, entry.document_id) == (added.version_id, added.document_id)
    assert (await feed(store, principal="eve", ops=ALL)).entries == ()


async def test_a_plain_reader_past_a_retraction_has_nothing_new(store: PostgresDocumentStore) -> None:
    (added,) = await add(store, note("1"))
    await retract(store, [added.version_id])
    assert await feed(store) == FeedPage(entries=(), next_cursor=None, has_more=False, position=2)
    assert await feed(store, after=2) == FeedPage(entries=(), next_cursor=None, has_more=False, position=2)


async def test_versions_that_were_never_told_are_not_taken_back(
    store: PostgresDocumentStore, owner: Owner
) -> None:
    """Those of a replay have no number."""
    (added,) = await add(store, note("1"))
    await owner.execute("UPDATE memory.version SET feed_seq = NULL")
    await retract(store, [added.version_id])
    assert seqs(await feed(store, ops=frozenset({FeedOp.RETRACT}))) == []


async def test_a_promotion_is_told_to_everyone_who_asks(store: PostgresDocumentStore) -> None:
    await add(store, note("1"))
    async with store._database.tenant(T) as conn:
        await append_promotion(conn, T)
    page = await feed(store, principal="eve", ops=frozenset({FeedOp.PROMOTE}))
    assert [(e.seq, e.op, e.version_id) for e in page.entries] == [(2, FeedOp.PROMOTE, None)]
    assert seqs(await feed(store)) == [1]


# --- texts -------------------------------------------------------------------------------------------


async def test_a_text_comes_as_it_was_given(store: PostgresDocumentStore) -> None:
    text = "First, with a\ttab.\n\nSecond paragraph — ünïcode. " * 50
    await add(store, note(text))
    (entry,) = (await feed(store, include_text=True)).entries
    assert entry.version is not None
    assert (entry.version.text, entry.version.text_truncated) == (text, False)


async def test_a_page_ends_before_the_text_that_goes_beyond(
    store: PostgresDocumentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_feed, "FEED_TEXT_BYTES", 10)
    await add(store, note("12345"), note("12345"), note("é"), note("short"))
    first = await feed(store, include_text=True)
    assert ([e.version.text for e in first.entries if e.version]) == ["12345", "12345"]
    assert (first.next_cursor, first.has_more) == (2, True)
    second = await feed(store, after=2, include_text=True)
    assert (seqs(second), second.has_more) == ([3, 4], False)


async def test_a_text_longer_than_a_page_is_cut_and_says_so(
    store: PostgresDocumentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_feed, "FEED_TEXT_BYTES", 10)
    long = NewDocument(title="t", parts=(TextPart(text="12345678"), TextPart(text="abcdefgh")))
    await add(store, long, note("next"))
    first = await feed(store, include_text=True)
    assert [(e.version.text, e.version.text_truncated) for e in first.entries if e.version] == [
        ("12345678", True)
    ]
    assert (first.next_cursor, first.has_more) == (1, True)
    assert seqs(await feed(store, after=1, include_text=True)) == [2]


async def test_texts_of_what_is_not_visible_stay_away(store: PostgresDocumentStore) -> None:
    await add(store, note("secret"), principal="bob")
    assert (await feed(store, include_text=True)).entries == ()


async def test_numbers_without_events_are_passed_over(
    store: PostgresDocumentStore, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody deletes events today; whoever does must not have readers turn in circles."""
    monkeypatch.setattr(engine_feed, "SCANNED_EVENTS", 2)
    await add(store, *(note(str(n)) for n in range(6)))
    await owner.execute("DELETE FROM memory.feed_event WHERE seq < 6")
    first = await feed(store, limit=1)
    assert (first.entries, first.next_cursor, first.has_more) == ((), 2, True)
    last = await feed(store, limit=1, after=4)
    assert (seqs(last), last.position, last.has_more) == ([6], 6, False)
    await owner.execute("DELETE FROM memory.feed_event")
    assert await feed(store, after=4) == FeedPage(entries=(), next_cursor=None, has_more=False, position=6)
