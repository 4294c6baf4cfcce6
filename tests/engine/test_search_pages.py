"""Pages of a search on a real database: none shows a hit twice, and together they are what one long page is."""

import dataclasses
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from corbits_memory.core.enums import Channel, CreatedByKind, EvidenceLevel, MinEvidence, SearchProfile
from corbits_memory.core.limits import SEARCH_DEPTH_MAX
from corbits_memory.engine.search import default
from corbits_memory.engine.search.retrieval import retrieve
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.errors import InvalidCursorError
from corbits_memory.ports import SearchItem, SearchQuery, SearchResult
from corbits_memory.validation import SearchPages
from tests.engine.support import NOON, OpenStore, P, T, add, find, note, refs
from tests.engine.test_access import access_of, grant
from tests.engine.test_search_compat import scores_by
from tests.engine.test_time import instant
from tests.models.conftest import ModelServer

COMPAT, DEFAULT = SearchProfile.COMPAT, SearchProfile.DEFAULT
COLOURS = ("red", "green", "blue", "white", "black", "grey", "brown")
Owner = psycopg.AsyncConnection[Any]


@pytest.fixture
def rerank_server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


async def page(
    store: PostgresDocumentStore,
    query: str,
    cursor: str | None = None,
    *,
    principal: str = P,
    access: Any = None,
    **fields: Any,
) -> SearchResult:
    """What the plane answers over this store."""
    asked = SearchQuery(query=query, **fields)
    pages = SearchPages(asked, tenant_id=T, principal_id=principal, profile=asked.profile or DEFAULT)
    of = pages.page(cursor)
    return pages.answer(of, await store.search(tenant_id=T, principal_id=principal, query=of, access=access))


async def walk(
    store: PostgresDocumentStore, query: str, *, most: int = 99, **fields: Any
) -> list[SearchResult]:
    """Every page, or the first ``most``."""
    found = [await page(store, query, **fields)]
    while found[-1].next_cursor is not None and len(found) < most:
        found.append(await page(store, query, found[-1].next_cursor, **fields))
    return found


def hits(pages: list[SearchResult]) -> list[SearchItem]:
    return [item for found in pages for item in found.items]


def shown(pages: list[SearchResult]) -> list[str]:
    return [item.external_ref for item in hits(pages)]


def boats(count: int, **fields: Any) -> list[Any]:
    """Boats of which each says something else, some of it about the same."""
    return [
        note(
            f"The {COLOURS[n % 7]} boat number{n} left harbour{n % 5} with {'much ' * (n % 3)}cargo{n * n}.",
            external_ref=f"b{n}",
            occurred_at=NOON - timedelta(days=n),
            **fields,
        )
        for n in range(count)
    ]


# --- together they are what one long page is ---------------------------------------------------------


@pytest.mark.parametrize("profile", list(SearchProfile))
@pytest.mark.parametrize("dense", [False, True])
async def test_pages_show_what_a_longer_page_would_have(
    open_store: OpenStore, word_server: ModelServer, profile: SearchProfile, dense: bool
) -> None:
    store = await open_store(embed_url=word_server.url) if dense else await open_store()
    await add(store, *boats(70))
    # In compat every word must match.
    query = "boat" if profile is COMPAT else "red boat harbour3"
    long = await page(store, query, limit=20, profile=profile)
    pages = await walk(store, query, limit=5, profile=profile, most=4)
    assert [len(found.items) for found in pages] == [5, 5, 5, 5]
    assert set(shown(pages)) == set(refs(long))
    assert all(found.degraded == long.degraded for found in pages)


@pytest.mark.parametrize("profile", list(SearchProfile))
async def test_the_first_page_is_what_it_always_was(
    open_store: OpenStore, word_server: ModelServer, profile: SearchProfile
) -> None:
    store = await open_store(embed_url=word_server.url)
    await add(store, *boats(30))
    first = await page(store, "red boat", limit=8, profile=profile)
    alone = await find(store, "red boat", limit=8, profile=profile)
    assert dataclasses.replace(first, next_cursor=None) == alone


@pytest.mark.parametrize("profile", list(SearchProfile))
async def test_the_pages_of_all_hits_end(store: PostgresDocumentStore, profile: SearchProfile) -> None:
    await add(store, *boats(13), note("Something else.", external_ref="other"))
    pages = await walk(store, "boat", limit=5, profile=profile)
    assert [len(found.items) for found in pages] == [5, 5, 3]
    assert sorted(shown(pages)) == sorted(f"b{n}" for n in range(13))
    assert (await page(store, "boat", limit=13, profile=profile)).next_cursor is None
    assert (await page(store, "boat", limit=12, profile=profile)).next_cursor is not None
    assert (await page(store, "zeppelin", limit=5, profile=profile)).next_cursor is None


@pytest.mark.parametrize("profile", list(SearchProfile))
@pytest.mark.parametrize("size", [30, 50])
async def test_a_search_shows_a_hundred_hits_at_most(
    store: PostgresDocumentStore, profile: SearchProfile, size: int
) -> None:
    await add(store, *boats(130))
    pages = await walk(store, "boat", limit=size, profile=profile)
    assert len(shown(pages)) == len(set(shown(pages))) == SEARCH_DEPTH_MAX
    assert pages[-1].next_cursor is None


async def test_a_deep_page_reads_a_bounded_number_of_rows(
    open_store: OpenStore, rerank_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    async def spy(*given: Any, limit: int, **named: Any) -> Any:
        asked.append(limit)
        return await retrieve(*given, limit=limit, **named)

    monkeypatch.setattr(default, "retrieve", spy)
    rerank_server.script(scores_by({}))
    store = await open_store(rerank_url=rerank_server.url)
    await add(store, *boats(130))
    pages = await walk(store, "boat", limit=33)
    assert [len(found.items) for found in pages] == [33, 33, 33, 1]
    assert asked == [66, 132, 198, 200]
    assert sum(len(request.body["texts"]) for request in rerank_server.requests[-3:]) <= 150


async def test_a_reranker_does_not_read_what_was_shown(
    open_store: OpenStore, rerank_server: ModelServer
) -> None:
    rerank_server.script(scores_by({}))
    store = await open_store(rerank_url=rerank_server.url)
    await add(store, *boats(12))
    first = await page(store, "boat", limit=4)
    assert sum(len(request.body["texts"]) for request in rerank_server.requests) == 12
    rerank_server.requests.clear()
    await page(store, "boat", first.next_cursor, limit=4)
    read = [text for request in rerank_server.requests for text in request.body["texts"]]
    assert len(read) == 8
    assert not [item for item in first.items for text in read if item.text and item.text in text]


# --- no page shows a hit twice -----------------------------------------------------------------------


@pytest.mark.parametrize("profile", list(SearchProfile))
async def test_what_comes_and_goes_between_pages_moves_nothing(
    store: PostgresDocumentStore, profile: SearchProfile
) -> None:
    made = await add(store, *boats(12))
    first = await page(store, "boat", limit=4, profile=profile)
    again = first.items[0]
    # One that was shown says something else now, one is gone, and better ones have come.
    await add(store, note("boat boat now", external_ref=again.external_ref))
    await store.forget(tenant_id=T, principal_id=P, document_id=first.items[1].document_id)
    await add(store, *(note(f"boat new{n}", external_ref=f"n{n}") for n in range(3)))
    pages = [first]
    while pages[-1].next_cursor is not None:
        pages.append(await page(store, "boat", pages[-1].next_cursor, limit=4, profile=profile))
    assert len(shown(pages)) == len(set(shown(pages))) == len(made) + 3


async def test_chunks_that_were_shown_count_for_their_document(store: PostgresDocumentStore) -> None:
    def long(name: str) -> str:
        return "\n\n".join(f"zeppelin {name}{n} " + f"{name}filler{n} " * 390 for n in range(4))

    await add(store, note(long("a"), external_ref="a"), note(long("b"), external_ref="b"))
    for most in (1, 2, 3):
        pages = await walk(store, "zeppelin", limit=1, max_per_document=most)
        refs_ = shown(pages)
        assert {ref: refs_.count(ref) for ref in ("a", "b")} == {"a": most, "b": most}
        chunks = [item.chunk_id for item in hits(pages)]
        assert len(chunks) == len(set(chunks))


async def test_a_text_that_was_shown_is_not_shown_again_from_elsewhere(store: PostgresDocumentStore) -> None:
    fact = "The ferry to the island leaves the northern pier on " + " and ".join(
        f"day{n} of the week at hour{n}" for n in range(9)
    )
    (made,) = await add(store, note(fact, external_ref="one"))
    await add(store, *boats(6))
    first = await page(store, "ferry boat island", limit=1)
    assert refs(first) == ["one"]
    await add(
        store,
        note(fact.upper(), external_ref="two"),
        note(f"{fact} sharp", external_ref="three"),
        note("Another ferry goes to the island.", external_ref="four"),
    )
    expected = sorted(["four", *(f"b{n}" for n in range(6))])
    assert sorted(shown(await walk_on(store, "ferry boat island", first, limit=3))) == expected
    # Also when what said it is gone; of a near copy nothing is known then.
    await store.forget(tenant_id=T, principal_id=P, document_id=made.document_id)
    rest = shown(await walk_on(store, "ferry boat island", first, limit=3))
    assert sorted(rest) == sorted([*expected, "three"])


async def walk_on(
    store: PostgresDocumentStore, query: str, first: SearchResult, **fields: Any
) -> list[SearchResult]:
    pages = [first]
    while pages[-1].next_cursor is not None:
        pages.append(await page(store, query, pages[-1].next_cursor, **fields))
    return pages[1:]


@pytest.mark.parametrize("profile", list(SearchProfile))
async def test_a_cursor_shows_nothing_that_its_bearer_may_not_see(
    store: PostgresDocumentStore, profile: SearchProfile
) -> None:
    await add(store, *boats(9))
    theirs = (await page(store, "boat", limit=3, profile=profile)).next_cursor
    with pytest.raises(InvalidCursorError):
        await page(store, "boat", theirs, principal="bob", limit=3, profile=profile)
    await add(store, note("bob's boat", external_ref="own"), principal="bob")
    access = await access_of()
    pages = await walk(store, "boat", principal="bob", access=access, limit=1, profile=profile)
    assert shown(pages) == ["own"]


# --- beside everything else --------------------------------------------------------------------------


@pytest.mark.parametrize("profile", list(SearchProfile))
async def test_filters_hold_on_every_page(store: PostgresDocumentStore, profile: SearchProfile) -> None:
    await add(store, *boats(9, kind="log", attributes={"port": "x"}), note("boat", external_ref="other"))
    fields: dict[str, Any] = {
        "kinds": ("log",),
        "attributes": {"port": "x"},
        "occurred_after": NOON - timedelta(days=6),
        "profile": profile,
    }
    pages = await walk(store, "boat", limit=3, **fields)
    assert sorted(shown(pages)) == sorted(f"b{n}" for n in range(7))
    other = {**fields, "attributes": {"port": "y"}}
    with pytest.raises(InvalidCursorError):
        await page(store, "boat", pages[0].next_cursor, **other)


async def test_filters_alone_have_pages(store: PostgresDocumentStore) -> None:
    await add(store, *boats(7, kind="log"))
    pages = await walk(store, "", limit=3, kinds=("log",))
    assert len(shown(pages)) == len(set(shown(pages)))
    assert set(shown(pages)) == set(refs(await page(store, "", limit=20, kinds=("log",))))


async def test_the_past_has_pages(store: PostgresDocumentStore, owner: Owner) -> None:
    await add(store, *boats(8))
    then = await instant(owner)
    await add(store, *(note(f"A ship, number{n}.", external_ref=f"b{n}") for n in range(4)))
    await add(store, note("boat of today", external_ref="new"))
    pages = await walk(store, "boat", limit=3, as_of=then)
    assert sorted(shown(pages)) == sorted(f"b{n}" for n in range(8))


@pytest.mark.parametrize("profile", list(SearchProfile))
async def test_a_reranker_orders_every_page(
    open_store: OpenStore, rerank_server: ModelServer, profile: SearchProfile
) -> None:
    rerank_server.script(scores_by({f"number{n} ": 1 - n / 100 for n in range(20)}))
    store = await open_store(profile=profile, rerank_url=rerank_server.url)
    await add(store, *boats(12))
    pages = await walk(store, "boat", limit=5, profile=profile)
    assert sorted(shown(pages)) == sorted(f"b{n}" for n in range(12))
    assert not any("rerank_unavailable" in found.degraded for found in pages)


async def test_later_pages_are_no_questions_of_their_own(open_store: OpenStore, owner: Owner) -> None:
    store = await open_store(query_log_percent=100)
    await add(store, *boats(9))
    await walk(store, "boat", limit=3)
    await store.query_log.close()
    rows = await (await owner.execute("SELECT count(*) FROM memory.query_log")).fetchone()
    assert rows == (1,)


@pytest.mark.parametrize("profile", list(SearchProfile))
async def test_evidence_is_that_of_the_pages_own_hits(
    store: PostgresDocumentStore, profile: SearchProfile
) -> None:
    await add(store, note("A kestrel tower.", external_ref="said"))
    await add(
        store,
        note(
            "The kestrel is far from the tower.",
            external_ref="brought",
            created_by_kind=CreatedByKind.ADAPTER,
        ),
    )
    pages = await walk(store, "kestrel tower", limit=1, profile=profile)
    assert shown(pages) == ["said", "brought"]
    assert [found.evidence for found in pages] == [EvidenceLevel.STRONG, EvidenceLevel.WEAK]
    assert [levels(found) for found in pages] == [[found.evidence] for found in pages]


# --- min_evidence ------------------------------------------------------------------------------------


def levels(found: SearchResult) -> list[EvidenceLevel | None]:
    return [item.attribution.evidence for item in found.items if item.attribution]


async def test_hits_below_the_least_evidence_are_left_out(store: PostgresDocumentStore) -> None:
    strong = [note(f"The kestrel nests in the old tower number{n}.", external_ref=f"s{n}") for n in range(3)]
    weak = [note(f"Some old tower of {COLOURS[n]} stone.", external_ref=f"w{n}") for n in range(3)]
    none = [note(f"A well, like a tower, well{n}.", external_ref=f"n{n}") for n in range(5)]
    await add(store, *strong, *weak, *none)
    query = "kestrel nests old tower"
    everything = await page(store, query, limit=20)
    assert {*levels(everything)} == {*EvidenceLevel}
    assert len(everything.items) == 11
    found = await page(store, query, limit=20, min_evidence=MinEvidence.STRONG)
    assert sorted(refs(found)) == ["s0", "s1", "s2"]
    assert (found.evidence, found.next_cursor) == (EvidenceLevel.STRONG, None)
    least_weak = await page(store, query, limit=20, min_evidence=MinEvidence.WEAK)
    assert sorted(refs(least_weak)) == ["s0", "s1", "s2", "w0", "w1", "w2"]
    pages = await walk(store, query, limit=2, min_evidence=MinEvidence.STRONG)
    assert sorted(shown(pages)) == ["s0", "s1", "s2"]


@pytest.mark.parametrize("profile", list(SearchProfile))
async def test_where_nothing_is_evidence_enough_nothing_is_shown(
    store: PostgresDocumentStore, profile: SearchProfile
) -> None:
    await add(store, note("A tower of white stone.", external_ref="w", created_by_kind=CreatedByKind.ADAPTER))
    assert refs(await page(store, "tower", profile=profile)) == ["w"]
    found = await page(store, "tower", profile=profile, min_evidence=MinEvidence.STRONG)
    assert (found.items, found.evidence, found.next_cursor) == ((), EvidenceLevel.NONE, None)
    assert refs(await page(store, "tower", profile=profile, min_evidence=MinEvidence.WEAK)) == ["w"]


async def test_later_candidates_take_the_places_of_those_left_out(store: PostgresDocumentStore) -> None:
    """More rows than are read, so that those left out must not use up the places of those that are shown."""
    kind = CreatedByKind.ADAPTER
    low = [
        note(f"The old kestrel tower nests{n} nests.", external_ref=f"l{n}", created_by_kind=kind)
        for n in range(40)
    ]
    long_ago = NOON - timedelta(days=3_000)
    said = [
        note(f"In an old tower the kestrel nests, so{n}.", external_ref=f"s{n}", occurred_at=long_ago)
        for n in range(8)
    ]
    await add(store, *low, *said)
    query = "kestrel nests old tower"
    everything = await page(store, query, limit=40)
    assert all(ref.startswith("l") for ref in refs(everything)), "they come before what is shown below"
    found = await page(store, query, limit=8, min_evidence=MinEvidence.STRONG)
    assert sorted(refs(found)) == [f"s{n}" for n in range(8)]
    assert {*levels(found)} == {EvidenceLevel.STRONG}


async def test_what_others_speak_for_can_be_strong(store: PostgresDocumentStore) -> None:
    shared: dict[str, Any] = {"access_tags": ("memory.space:eng",)}
    kind = CreatedByKind.SYSTEM
    (claim,) = await add(store, note("The kestrel nests.", external_ref="c", created_by_kind=kind, **shared))
    access = await access_of(grant("memory.space:eng"))

    async def strong() -> list[str]:
        fields: dict[str, Any] = {"min_evidence": MinEvidence.STRONG, "kinds": ("note",)}
        return refs(await page(store, "kestrel nests", principal="bob", access=access, **fields))

    assert await strong() == []
    for voter in ("eve", "tom", "liz", "kim"):
        vote = note(f"So says {voter}.", kind="vote", supports=(claim.version_id,), **shared)
        may_see = await access_of(grant("memory.space:eng", to=voter), principal=voter)
        await store.add(tenant_id=T, principal_id=voter, documents=[vote], access=may_see)
    assert await strong() == ["c"]


async def test_compat_shows_all_or_nothing(store: PostgresDocumentStore) -> None:
    await add(store, *(note(f"The kestrel nests, number{n}.", external_ref=f"s{n}") for n in range(3)))
    found = await page(store, "kestrel nests", profile=COMPAT, min_evidence=MinEvidence.STRONG)
    assert (len(found.items), found.evidence) == (3, EvidenceLevel.STRONG)
    assert all(Channel.LEXICAL in item.attribution.channels for item in found.items if item.attribution)
