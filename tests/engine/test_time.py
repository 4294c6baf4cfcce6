"""What the memory held at an instant, and pages of the timeline, on real Postgres."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from corbits_memory.core.enums import Degraded, SearchProfile
from corbits_memory.core.positions import parse_position
from corbits_memory.engine import timeline
from corbits_memory.engine.search import past
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.errors import InvalidInputError
from corbits_memory.ports import Access, SearchQuery, SearchResult, TimelineEvent, TimelineQuery
from tests.engine.support import NOON, OpenStore, P, T, add, note, turn
from tests.engine.test_access import BOB, access_of, grant
from tests.models.conftest import ModelServer

Owner = psycopg.AsyncConnection[Any]
ENG = "memory.space:eng"


async def instant(owner: Owner) -> datetime:
    """Now, by the clock that versions are dated with, and some way from what comes before and after."""
    await asyncio.sleep(0.002)
    row = await (await owner.execute("SELECT clock_timestamp()")).fetchone()
    assert row is not None
    await asyncio.sleep(0.002)
    return row[0].astimezone(UTC)  # type: ignore[no-any-return]


async def search(
    store: PostgresDocumentStore,
    query: str,
    as_of: datetime | None,
    *,
    principal: str = P,
    access: Access | None = None,
    **fields: Any,
) -> SearchResult:
    asked = SearchQuery(query=query, as_of=as_of, limit=20, **fields)
    return await store.search(tenant_id=T, principal_id=principal, query=asked, access=access)


def snippets(result: SearchResult) -> list[str]:
    return sorted(item.snippet for item in result.items)


async def listed(
    store: PostgresDocumentStore, as_of: datetime | None = None, **fields: Any
) -> list[TimelineEvent]:
    return await store.list(tenant_id=T, principal_id=P, query=TimelineQuery(as_of=as_of, **fields))


# --- search ------------------------------------------------------------------------------------------


async def test_a_search_answers_from_the_versions_of_then(store: PostgresDocumentStore, owner: Owner) -> None:
    before = await instant(owner)
    await add(store, note("the gate code is 1111", external_ref="code"))
    first = await instant(owner)
    await add(store, note("the gate code is 2222", external_ref="code"), note("the gate is green"))
    second = await instant(owner)
    await add(store, note("the gate code is 3333", external_ref="code"))
    assert snippets(await search(store, "gate code", before)) == []
    assert snippets(await search(store, "gate code", first)) == ["the gate code is 1111"]
    assert snippets(await search(store, "gate code", second)) == [
        "the gate code is 2222",
        "the gate is green",
    ]
    assert snippets(await search(store, "gate code", None)) == ["the gate code is 3333", "the gate is green"]
    # It is cited as the version that it was, and ranked among what was there.
    found = await search(store, "gate code 2222", second)
    assert found.items[0].snippet == "the gate code is 2222"
    assert found.items[0].attribution is not None
    assert (found.items[0].attribution.version, found.items[0].attribution.status) == (2, "superseded")


async def test_titles_phrases_and_exclusions_hold_in_the_past(
    store: PostgresDocumentStore, owner: Owner
) -> None:
    await add(
        store,
        note("red balloons over the harbour", title="Festival", external_ref="a"),
        note("balloons red as wine", title="Vineyard", external_ref="b"),
        note("unrelated", title="Balloons", external_ref="c"),
    )
    then = await instant(owner)
    await add(store, *(note("gone", title="New", external_ref=ref) for ref in "abc"))
    assert len(snippets(await search(store, "balloons", then))) == 3
    assert snippets(await search(store, '"red balloons"', then)) == ["red balloons over the harbour"]
    assert snippets(await search(store, "balloons -wine", then)) == [
        "red balloons over the harbour",
        "unrelated",
    ]
    assert snippets(await search(store, "nobody wrote this", then)) == []


async def test_unsegmented_and_inflected_words_are_found_in_the_past(
    store: PostgresDocumentStore, owner: Owner
) -> None:
    await add(
        store,
        note("记忆系统的设计", external_ref="zh", language="simple"),
        note("Die Häuser am Fluss", external_ref="de", language="german"),
    )
    then = await instant(owner)
    await add(store, note("x", external_ref="zh"), note("y", external_ref="de"))
    assert snippets(await search(store, "记忆", then)) == ["记忆系统的设计"]
    assert snippets(await search(store, "Haus", then)) == ["Die Häuser am Fluss"]


async def test_filters_hold_in_the_past(store: PostgresDocumentStore, owner: Owner) -> None:
    await add(
        store,
        note("alpha one", external_ref="a", kind="task", attributes={"n": 1}, occurred_at=NOON),
        note(
            "alpha two",
            external_ref="b",
            kind="memo",
            attributes={"n": 2},
            occurred_at=NOON + timedelta(days=1),
        ),
    )
    then = await instant(owner)
    await add(store, note("beta", external_ref="a"), note("beta", external_ref="b"))
    for fields, expected in (
        ({"kinds": ("task",)}, ["alpha one"]),
        ({"attributes": {"n": 2}}, ["alpha two"]),
        ({"occurred_before": NOON + timedelta(hours=1)}, ["alpha one"]),
        ({"occurred_after": NOON + timedelta(hours=1)}, ["alpha two"]),
    ):
        assert snippets(await search(store, "alpha", then, **fields)) == expected, fields
    # Filters alone are a question, too.
    assert snippets(await search(store, "", then, kinds=("task",))) == ["alpha one"]


async def test_what_was_taken_out_of_use_since_is_there_then(
    store: PostgresDocumentStore, owner: Owner
) -> None:
    (made,) = await add(store, note("lantern", external_ref="a"))
    used = await instant(owner)
    await store.deprecate_version(tenant_id=T, actor_id="ops", version_id=made.version_id)
    unused = await instant(owner)
    await add(store, note("lantern anew", external_ref="a"))
    now = await instant(owner)
    assert snippets(await search(store, "lantern", used)) == ["lantern"]
    assert snippets(await search(store, "lantern", unused)) == []
    assert snippets(await search(store, "lantern", now)) == ["lantern anew"]
    assert [event.version_id for event in await listed(store, used)] == [made.version_id]
    assert await listed(store, unused) == []


@pytest.mark.parametrize("verb", ["forget", "purge"])
async def test_what_was_forgotten_is_not_there_in_any_past(
    store: PostgresDocumentStore, owner: Owner, verb: str
) -> None:
    (made,) = await add(store, note("secret 1", external_ref="a"))
    first = await instant(owner)
    await add(store, note("secret 2", external_ref="a"))
    second = await instant(owner)
    await getattr(store, verb)(tenant_id=T, principal_id=P, document_id=made.document_id)
    for then in (first, second):
        assert (await search(store, "secret", then)).items == ()
        assert await listed(store, then) == []


async def test_the_past_is_shown_to_whom_it_may_be_shown_now(
    store: PostgresDocumentStore, owner: Owner
) -> None:
    """By those of the document's tags that the version was written with."""
    access = await access_of(grant(ENG))
    await add(
        store,
        note("plan, private", external_ref="a"),
        note("memo, open", external_ref="b", access_tags=(ENG,)),
    )
    then = await instant(owner)
    await add(store, note("plan, open", external_ref="a", access_tags=(ENG,)))
    await add(store, note("memo, closed", external_ref="b", access_tags=()))
    found = await search(store, "plan memo", then, principal="bob", access=access)
    assert snippets(found) == []
    assert await store.list(**BOB, query=TimelineQuery(as_of=then), access=access) == []
    await add(store, note("memo, closed", external_ref="b", access_tags=(ENG,)))
    found = await search(store, "plan memo", then, principal="bob", access=access)
    assert snippets(found) == ["memo, open"]
    events = await store.list(**BOB, query=TimelineQuery(as_of=then), access=access)
    assert [event.document_id for event in events] == [found.items[0].document_id]


async def test_both_channels_answer_of_what_is_there_still(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    store = await open_store(embed_url=word_server.url)
    await add(store, note("the old lighthouse", external_ref="a"), turn(1, "a lighthouse keeper"))
    then = await instant(owner)
    await add(store, note("the new lighthouse", external_ref="a"), note("later lighthouse"))
    found = await search(store, "lighthouse", then)
    assert snippets(found) == ["a lighthouse keeper", "the old lighthouse"]
    channels = {item.snippet: item.attribution.channels for item in found.items if item.attribution}
    assert "dense" in channels["a lighthouse keeper"]
    assert channels["the old lighthouse"] == ("lexical",)
    assert Degraded.DENSE_PARTIAL in found.degraded


async def test_a_store_of_the_other_profile_answers_too(open_store: OpenStore, owner: Owner) -> None:
    store = await open_store(profile=SearchProfile.COMPAT)
    await add(store, note("lantern 1", external_ref="a"))
    then = await instant(owner)
    await add(store, note("lantern 2", external_ref="a"))
    assert snippets(await search(store, "lantern", then)) == ["lantern 1"]


@pytest.mark.parametrize(("most", "partial"), [(2, True), (3, False), (4, False)])
async def test_more_past_than_one_search_reads_is_said(
    store: PostgresDocumentStore, owner: Owner, monkeypatch: pytest.MonkeyPatch, most: int, partial: bool
) -> None:
    monkeypatch.setattr(past, "PAST_ROWS", most)
    monkeypatch.setattr(timeline, "ENDED_VERSIONS", most)
    await add(store, *(note(f"lantern {i}", external_ref=str(i)) for i in range(3)))
    then = await instant(owner)
    for i in range(3):
        await add(store, note("gone", external_ref=str(i)))
    found = await search(store, "lantern", then)
    assert (Degraded.PAST_PARTIAL in found.degraded) is partial
    # What is read is what was replaced first: nearest to the instant.
    assert snippets(found) == [f"lantern {i}" for i in range(min(most + 1, 3))]
    if partial:
        with pytest.raises(InvalidInputError, match="too far back"):
            await listed(store, then)
    else:
        assert len(await listed(store, then)) == 3


# --- validity ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", list(SearchProfile))
async def test_only_what_is_valid_then_is_found(
    open_store: OpenStore, word_server: ModelServer, profile: SearchProfile
) -> None:
    """From ``valid_from`` on and before ``valid_until``; in both channels, as words and as vectors."""
    store = await open_store(embed_url=word_server.url)
    day = timedelta(days=1)
    await add(
        store,
        note("fare always"),
        note("fare from noon", valid_from=NOON),
        note("fare until noon", valid_until=NOON),
        note("fare for a day", valid_from=NOON, valid_until=NOON + day),
    )
    for instant_, expected in (
        (NOON - timedelta(microseconds=1), ["fare always", "fare until noon"]),
        (NOON, ["fare always", "fare for a day", "fare from noon"]),
        (NOON + day, ["fare always", "fare from noon"]),
        (None, ["fare always", "fare for a day", "fare from noon", "fare until noon"]),
    ):
        found = await search(store, "fare", None, valid_at=instant_, profile=profile)
        assert snippets(found) == expected, instant_


async def test_validity_of_then_counts_in_the_past(store: PostgresDocumentStore, owner: Owner) -> None:
    await add(store, note("fare", external_ref="a", valid_until=NOON), note("fare ends", external_ref="b"))
    then = await instant(owner)
    await add(store, note("x", external_ref="a"), note("y", external_ref="b"))
    assert snippets(await search(store, "fare", then, valid_at=NOON)) == ["fare ends"]
    before = NOON - timedelta(days=1)
    assert snippets(await search(store, "fare", then, valid_at=before)) == ["fare", "fare ends"]


# --- the timeline ------------------------------------------------------------------------------------


async def test_pages_follow_each_other_without_gap_or_repeat(store: PostgresDocumentStore) -> None:
    """Many of one instant, and one that comes in while the pages are read."""
    await add(
        store, *(note(f"{i}", title=f"{i}", occurred_at=NOON + timedelta(minutes=i // 7)) for i in range(30))
    )
    everything = [event.title for event in await listed(store, limit=100)]
    assert len(everything) == 30
    seen: list[str] = []
    after = None
    while True:
        page = await listed(store, limit=4, after=after)
        seen += [event.title for event in page]
        await add(store, note("new", title="new", occurred_at=NOON + timedelta(days=1)))
        if len(page) < 4:
            break
        after = parse_position(page[-1].cursor)
    assert seen == everything


@pytest.mark.parametrize("sorted_rows", [0, 4_000])
async def test_pages_of_what_others_share_follow_each_other(
    store: PostgresDocumentStore, monkeypatch: pytest.MonkeyPatch, sorted_rows: int
) -> None:
    """By sorting what is visible, and by walking the timeline."""
    monkeypatch.setattr(timeline, "SORTED_ROWS", sorted_rows)
    documents = [
        note(
            f"{i}",
            title=f"{i}",
            occurred_at=NOON + timedelta(minutes=i // 3),
            access_tags=(ENG,) if i % 2 else (),
        )
        for i in range(20)
    ]
    await add(store, *documents)
    await add(store, *(note(f"b{i}", title=f"b{i}", occurred_at=NOON) for i in range(3)), principal="bob")
    access = await access_of(grant(ENG))
    whole = await store.list(**BOB, query=TimelineQuery(limit=100), access=access)
    assert len(whole) == 13
    seen: list[str] = []
    after = None
    while page := await store.list(**BOB, query=TimelineQuery(limit=3, after=after), access=access):
        seen += [event.version_id for event in page]
        after = parse_position(page[-1].cursor)
    assert seen == [event.version_id for event in whole]


async def test_the_past_is_listed_in_pages(store: PostgresDocumentStore, owner: Owner) -> None:
    await add(
        store,
        *(
            note(f"{i}", title=f"{i}", external_ref=str(i), occurred_at=NOON + timedelta(minutes=i))
            for i in range(9)
        ),
    )
    then = await instant(owner)
    await add(
        store,
        *(
            note("x", title=f"x{i}", external_ref=str(i), occurred_at=NOON + timedelta(hours=i))
            for i in range(0, 9, 2)
        ),
    )
    await add(store, note("later", title="later"))
    seen: list[str] = []
    after = None
    while page := await listed(store, then, limit=2, after=after):
        seen += [event.title for event in page]
        after = parse_position(page[-1].cursor)
    assert seen == [f"{i}" for i in range(8, -1, -1)]


async def test_the_timeline_is_narrowed_by_time_and_kind(store: PostgresDocumentStore) -> None:
    await add(
        store,
        *(
            note(f"{i}", title=f"{i}", kind=f"k{i % 2}", occurred_at=NOON + timedelta(days=i))
            for i in range(6)
        ),
    )
    window = {"occurred_after": NOON + timedelta(days=1), "occurred_before": NOON + timedelta(days=4)}
    assert [event.title for event in await listed(store, **window)] == ["3", "2", "1"]
    assert [event.title for event in await listed(store, kinds=("k1",), **window)] == ["3", "1"]
