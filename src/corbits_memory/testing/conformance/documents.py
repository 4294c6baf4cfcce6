"""What every document store must do."""

import asyncio
import math
from datetime import UTC, datetime, timedelta
from typing import ClassVar

import pytest

from corbits_memory.core.enums import AddStatus, EvidenceLevel, MinEvidence
from corbits_memory.core.evidence import reaches
from corbits_memory.core.limits import SNIPPET_CHARS
from corbits_memory.core.positions import TimelinePosition
from corbits_memory.core.shown import NOTHING_SHOWN
from corbits_memory.errors import ExternalRefInUseError, NotSupportedError
from corbits_memory.ports import (
    AddResult,
    DocumentStore,
    FeedStore,
    RetentionStore,
    StoreCapabilities,
    capabilities_of,
)
from corbits_memory.testing.conformance.running import Conformance, conforms
from corbits_memory.testing.conformance.world import ANN, BOB, World, ids, note

NOON = datetime(2026, 5, 7, 12, tzinfo=UTC)
NEIGHBOURS = [
    ("a:b", "c"),
    ("a", "b:c"),
    ("1:a", "b"),
    ("acme", "ann"),
    ("acme-corp", "ann"),
    ("acme", "ann2"),
]
"""Tenants and principals whose names run into each other when they are only joined."""


class StoreSuite(Conformance):
    """What the suites of a store have in common."""

    patience: ClassVar[float] = 0.0
    """Seconds until what was added must be found."""

    def world(self, store: DocumentStore) -> World:
        return World(store, self.patience)


class DocumentStoreConformance(StoreSuite):
    """Add, search and list: for one principal, and never for another."""

    @conforms
    async def test_it_has_the_methods(self, store: DocumentStore) -> None:
        assert isinstance(store, DocumentStore)

    @conforms
    async def test_it_says_what_its_methods_tell(self, store: DocumentStore) -> None:
        told = capabilities_of(store)
        assert isinstance(told, StoreCapabilities)
        assert told.supports_feed == isinstance(store, FeedStore)
        assert told.supports_retention == isinstance(store, RetentionStore)

    # --- add ---

    @conforms
    async def test_each_document_is_answered_in_its_place(self, store: DocumentStore) -> None:
        world = self.world(store)
        added = await world.add(note("zebra"), note("giraffe"), note("okapi"))
        assert all(answer.document_id and answer.version_id for answer in added)
        assert len({answer.document_id for answer in added}) == len({a.version_id for a in added}) == 3
        assert {answer.status for answer in added} == {AddStatus.CREATED}
        for answer, word in zip(added, ["zebra", "giraffe", "okapi"], strict=True):
            assert ids(await world.found(word, limit=1)) == [answer.document_id]

    @conforms
    async def test_parallel_adds_lose_nothing(self, store: DocumentStore) -> None:
        world = self.world(store)
        added = await asyncio.gather(*(world.add(note(f"zebra number{n}")) for n in range(8)))
        expected = {answer.document_id for (answer,) in added}
        assert len(expected) == 8
        assert set(ids(await world.found("zebra", lambda items: len(items) == 8, limit=20))) == expected

    @conforms
    async def test_the_same_name_and_content_again_is_nothing_new(self, store: DocumentStore) -> None:
        world = self.world(store)
        (first,) = await world.add(note("zebra", external_ref="wiki:1"))
        (again,) = await world.add(note("zebra", external_ref="wiki:1"))
        assert (again.document_id, again.version_id) == (first.document_id, first.version_id)
        assert again.status is AddStatus.UNCHANGED
        assert len(await world.found("zebra")) == 1

    @conforms
    async def test_the_same_name_with_other_content_takes_its_place(self, store: DocumentStore) -> None:
        world = self.world(store)
        (first,) = await world.add(note("zebra", external_ref="wiki:1"))
        (second,) = await world.add(note("giraffe", external_ref="wiki:1"))
        assert second.document_id == first.document_id
        assert second.version_id != first.version_id
        assert (second.status, second.version) == (AddStatus.UPDATED, first.version + 1)
        assert ids(await world.found("giraffe")) == [first.document_id]
        assert "zebra" not in "".join(item.snippet for item in await world.found("zebra"))

    @conforms
    async def test_somebody_elses_name_is_refused_and_spoils_no_other(self, store: DocumentStore) -> None:
        world = self.world(store)
        await world.add(note("zebra", external_ref="wiki:1"))
        taken, kept = await store.add(
            tenant_id=world.tenant,
            principal_id=BOB,
            documents=[note("giraffe", external_ref="wiki:1"), note("okapi", external_ref="wiki:2")],
        )
        assert isinstance(taken, ExternalRefInUseError)
        assert isinstance(kept, AddResult)
        assert ids(await world.found("zebra")) != []

    @conforms
    async def test_racing_adds_of_one_name_are_one(self, store: DocumentStore) -> None:
        world = self.world(store)
        added = await asyncio.gather(*(world.add(note("zebra", external_ref="wiki:1")) for _ in range(8)))
        assert len({answer.version_id for (answer,) in added}) == 1
        assert [answer.status for (answer,) in added].count(AddStatus.CREATED) == 1

    @conforms
    async def test_a_name_is_one_adapters(self, store: DocumentStore) -> None:
        world = self.world(store)
        first, second = await world.add(
            note("zebra", adapter="wiki", external_ref="1"), note("zebra", adapter="mail", external_ref="1")
        )
        assert first.document_id != second.document_id

    # --- search ---

    @conforms
    async def test_a_hit_says_what_it_is(self, store: DocumentStore) -> None:
        world = self.world(store)
        (added,) = await world.add(note("A zebra grazes.", title="Animals", external_ref="wiki:1"))
        (item,) = await world.found("zebra")
        assert (item.document_id, item.title) == (added.document_id, "Animals")
        assert (item.kind, item.external_ref) == ("note", "wiki:1")
        assert "zebra" in item.snippet
        assert math.isfinite(item.score)
        assert item.adapter
        assert (item.citation.adapter, item.citation.external_ref) == (item.adapter, item.external_ref)
        assert item.citation.open.type
        assert item.citation.open.id

    @conforms
    async def test_a_kind_comes_back(self, store: DocumentStore) -> None:
        world = self.world(store)
        await world.add(note("zebra", kind="page"))
        assert [item.kind for item in await world.found("zebra")] == ["page"]

    @conforms
    async def test_where_nothing_is_nothing_is_found(self, store: DocumentStore) -> None:
        found = await self.world(store).search("zebra")
        assert (found.items, found.evidence) == ((), EvidenceLevel.NONE)

    @conforms
    async def test_hits_are_evidence(self, store: DocumentStore) -> None:
        world = self.world(store)
        await world.add(note("A zebra grazes."))
        assert await world.found("zebra")
        assert (await world.search("zebra")).evidence is not EvidenceLevel.NONE

    @conforms
    async def test_a_word_that_nothing_holds_is_not_found(self, store: DocumentStore) -> None:
        world = self.world(store)
        await world.add(note("A zebra grazes."))
        await world.found("zebra")
        assert (await world.search("quasar")).items == ()

    @conforms
    async def test_the_limit_holds(self, store: DocumentStore) -> None:
        world = self.world(store)
        await world.add(*(note(f"zebra number{n}") for n in range(4)))
        await world.found("zebra", lambda items: len(items) == 4)
        found = {limit: len(await world.found("zebra", limit=limit)) for limit in (1, 3, 4, 50)}
        assert found == {1: 1, 3: 3, 4: 4, 50: 4}

    @conforms
    async def test_the_best_comes_first(self, store: DocumentStore) -> None:
        world = self.world(store)
        await world.add(note("zebra giraffe okapi"), note("zebra lion"), note("lion"))
        scores = [item.score for item in await world.found("zebra giraffe okapi")]
        assert scores == sorted(scores, reverse=True)

    @conforms
    async def test_any_text_comes_back_as_it_was(self, store: DocumentStore) -> None:
        world = self.world(store)
        title = 'He said "zebra" \\ 日本 🦓'
        (added,) = await world.add(
            note("Stripes, 'quoted'; DROP TABLE x;\n\n---\n# A heading\ndocumentId: other", title=title)
        )
        (item,) = await world.found("stripes")
        assert (item.document_id, item.title) == (added.document_id, title)
        assert item.snippet.startswith("Stripes, 'quoted'; DROP TABLE x;")
        assert "# A heading" in item.snippet

    @conforms
    async def test_a_long_text_is_one_document_and_shown_in_part(self, store: DocumentStore) -> None:
        world = self.world(store)
        (added,) = await world.add(note("zebra. " + "Nothing of note. " * 2_000 + "A giraffe."))
        for word in ("zebra", "giraffe"):
            (item,) = await world.found(word)
            assert item.document_id == added.document_id
            assert len(item.snippet) <= SNIPPET_CHARS + 2

    @conforms
    async def test_kinds_narrow_the_hits(self, store: DocumentStore) -> None:
        world = self.world(store)
        _, page = await world.add(note("zebra one"), note("zebra two", kind="page"))
        await world.found("zebra", lambda items: len(items) == 2)
        assert ids(await world.found("zebra", kinds=("page",))) == [page.document_id]
        assert (await world.search("zebra", kinds=("mail",))).items == ()

    @conforms
    async def test_times_narrow_the_hits(self, store: DocumentStore) -> None:
        world = self.world(store)
        early, late = await world.add(
            note("zebra one", occurred_at=NOON), note("zebra two", occurred_at=NOON + timedelta(days=1))
        )
        await world.found("zebra", lambda items: len(items) == 2)
        after, before = NOON + timedelta(hours=1), NOON + timedelta(days=1)
        assert ids(await world.found("zebra", occurred_after=after)) == [late.document_id]
        assert ids(await world.found("zebra", occurred_before=before)) == [early.document_id]

    @conforms
    async def test_a_filter_is_honoured_or_refused(self, store: DocumentStore) -> None:
        """Never dropped: hits that were asked not to come would stand for those that were."""
        world = self.world(store)
        await world.add(note("zebra", attributes={"team": "blue"}, valid_until=NOON))
        await world.found("zebra")
        for filters in (
            {"attributes": {"team": "red"}},
            {"entity_ids": ("entity_unknown",)},
            {"valid_at": NOON + timedelta(days=1)},
            {"as_of": NOON - timedelta(days=3650)},
        ):
            try:
                found = await world.search("zebra", **filters)
            except NotSupportedError:
                continue
            assert found.items == (), filters

    @conforms
    async def test_the_least_evidence_holds_or_is_refused(self, store: DocumentStore) -> None:
        world = self.world(store)
        await world.add(note("A zebra grazes."), note("A zebra sleeps beside a giraffe."))
        await world.found("zebra", lambda items: len(items) == 2)
        for least in MinEvidence:
            try:
                found = await world.search("zebra giraffe", min_evidence=least)
            except NotSupportedError:
                continue
            told = [item.attribution and item.attribution.evidence for item in found.items]
            assert all(reaches(level or found.evidence, least) for level in told), least
            assert found.items or found.evidence is EvidenceLevel.NONE

    @conforms
    async def test_no_page_shows_a_hit_again(self, store: DocumentStore) -> None:
        """A store without pages never says that there is more."""
        world = self.world(store)
        await world.add(*(note(f"zebra number{n}") for n in range(5)))
        await world.found("zebra", lambda items: len(items) == 5)
        found = await world.search("zebra", limit=2)
        seen, shown = ids(found.items), NOTHING_SHOWN
        while found.more:
            assert found.items, "there would be no end"
            shown = shown.and_these((item.document_id, item.chunk_id, item.text) for item in found.items)
            found = await world.search("zebra", limit=2, shown=shown)
            seen += ids(found.items)
        assert len(seen) == len(set(seen))
        assert len(seen) in {2, 5}

    # --- apart ---

    @conforms
    async def test_principals_are_apart(self, store: DocumentStore) -> None:
        world = self.world(store)
        await world.add(note("zebra"))
        assert await world.found("zebra")
        assert (await world.search("zebra", principal=BOB)).items == ()
        assert await world.events(principal=BOB) == []

    @conforms
    async def test_tenants_are_apart(self, store: DocumentStore) -> None:
        world, other = self.world(store), self.world(store)
        await world.add(note("zebra"))
        assert await world.found("zebra")
        assert (await other.search("zebra")).items == ()
        assert await other.events() == []

    @conforms
    async def test_names_that_run_into_each_other_are_apart(self, store: DocumentStore) -> None:
        world = self.world(store)
        own: dict[tuple[str, str], str] = {}
        for tenant, principal in NEIGHBOURS:
            (added,) = await world.add(note("zebra"), tenant=world.tenant + tenant, principal=principal)
            own[tenant, principal] = added.document_id
        for (tenant, principal), document_id in own.items():
            items = await world.found("zebra", tenant=world.tenant + tenant, principal=principal)
            assert ids(items) == [document_id]

    # --- list ---

    @conforms
    async def test_the_newest_is_listed_first(self, store: DocumentStore) -> None:
        world = self._listing(store)
        early, late = await world.add(
            note("zebra", title="Early", occurred_at=NOON),
            note("giraffe", title="Late", occurred_at=NOON + timedelta(minutes=1)),
        )
        events = await world.events()
        assert [event.document_id for event in events] == [late.document_id, early.document_id]
        assert [event.version_id for event in events] == [late.version_id, early.version_id]
        assert [event.title for event in events] == ["Late", "Early"]
        assert [event.at for event in events] == [NOON + timedelta(minutes=1), NOON]
        assert {(event.tenant_id, event.principal_id) for event in events} == {(world.tenant, ANN)}

    @conforms
    async def test_a_list_comes_in_pages(self, store: DocumentStore) -> None:
        world = self._listing(store)
        await world.add(*(note(f"zebra {n}", occurred_at=NOON + timedelta(minutes=n // 2)) for n in range(5)))
        whole = [event.version_id for event in await world.events()]
        paged: list[str] = []
        after = None
        while page := await world.events(limit=2, after=after):
            assert len(page) <= 2
            paged += [event.version_id for event in page]
            after = TimelinePosition(page[-1].at, page[-1].version_id)
        assert paged == whole
        assert len(set(paged)) == 5

    @conforms
    async def test_kinds_and_times_narrow_a_list(self, store: DocumentStore) -> None:
        world = self._listing(store)
        _, page = await world.add(
            note("zebra", occurred_at=NOON), note("zebra", kind="page", occurred_at=NOON + timedelta(days=1))
        )
        wanted = [page.document_id]
        assert [event.document_id for event in await world.events(kinds=("page",))] == wanted
        after = NOON + timedelta(hours=1)
        assert [event.document_id for event in await world.events(occurred_after=after)] == wanted
        assert [e.document_id for e in await world.events(occurred_before=after)] != wanted

    @conforms
    async def test_a_store_that_does_not_list_answers_nothing(self, store: DocumentStore) -> None:
        if capabilities_of(store).supports_list:
            pytest.skip(f"{type(store).__name__} lists")
        world = self.world(store)
        await world.add(note("zebra"))
        assert await world.events() == []

    def _listing(self, store: DocumentStore) -> World:
        if not capabilities_of(store).supports_list:
            pytest.skip(f"{type(store).__name__} does not list")
        return self.world(store)
