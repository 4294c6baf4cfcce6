"""Who sees a document of somebody else's: what a store makes of grants."""

import pytest

from corbits_memory.core.enums import Effect
from corbits_memory.errors import ForbiddenError, NotFoundError
from corbits_memory.ports import (
    AppendingStore,
    DocumentStore,
    GrantRule,
    TaggedStore,
    TimelineQuery,
    capabilities_of,
)
from corbits_memory.testing.conformance.documents import StoreSuite
from corbits_memory.testing.conformance.running import able, conforms
from corbits_memory.testing.conformance.world import ANN, BOB, World, grant, ids, note

ENG, OPS = "memory.space:eng", "memory.space:ops"


class VisibilityConformance(StoreSuite):
    """A store that enforces grants shows just what they allow; any other shows a caller its own documents."""

    @conforms
    async def test_without_enforcement_nobody_sees_more(self, store: DocumentStore) -> None:
        if capabilities_of(store).enforces_grants:
            pytest.skip(f"{type(store).__name__} enforces grants")
        world = self.world(store)
        await world.add(note("zebra", access_tags=(ENG,)))
        await world.found("zebra")
        access = await world.access(grant("*"))
        assert (await world.search("zebra", principal=BOB, access=access)).items == ()

    @conforms
    async def test_a_grant_on_a_tag_shows_what_carries_it(self, store: DocumentStore) -> None:
        world = self._enforcing(store)
        tagged, _ = await world.add(note("zebra", access_tags=(ENG,)), note("zebra", access_tags=(OPS,)))
        assert await self._seen(world, grant(ENG)) == [tagged.document_id]

    @conforms
    async def test_a_pattern_shows_all_that_match(self, store: DocumentStore) -> None:
        world = self._enforcing(store)
        both = await world.add(note("zebra one", access_tags=(ENG,)), note("zebra two", access_tags=(OPS,)))
        await world.add(note("zebra", access_tags=("team:x",)))
        assert await self._seen(world, grant("memory.space:*")) == sorted(added.document_id for added in both)

    @conforms
    async def test_another_action_shows_nothing(self, store: DocumentStore) -> None:
        world = self._enforcing(store)
        await world.add(note("zebra", access_tags=(ENG,)))
        assert await self._seen(world, grant(ENG, action="add")) == []

    @conforms
    async def test_a_deny_that_names_a_tag_hides_whatever_else_allows(self, store: DocumentStore) -> None:
        world = self._enforcing(store)
        await world.add(note("zebra", access_tags=(ENG, OPS)))
        assert await self._seen(world, grant(ENG), grant(OPS, effect=Effect.DENY)) == []

    @conforms
    async def test_an_ask_is_no_allow(self, store: DocumentStore) -> None:
        world = self._enforcing(store)
        await world.add(note("zebra", access_tags=(ENG,)))
        assert await self._seen(world, grant(ENG, effect=Effect.ASK)) == []

    @conforms
    async def test_what_a_caller_may_not_see_does_not_fill_its_page(self, store: DocumentStore) -> None:
        world = self._enforcing(store)
        await world.add(*(note(f"zebra zebra {n}") for n in range(30)))
        shown = await world.add(*(note(f"zebra here {n}", access_tags=(ENG,)) for n in range(3)))
        assert await self._seen(world, grant(ENG), limit=3) == sorted(added.document_id for added in shown)

    @conforms
    async def test_an_owner_sees_its_own_whatever_is_denied(self, store: DocumentStore) -> None:
        world = self._enforcing(store)
        (added,) = await world.add(note("zebra", access_tags=(ENG,)))
        access = await world.access(
            grant(ENG, principal=ANN, effect=Effect.DENY),
            grant("*", principal=ANN, effect=Effect.DENY),
            principal=ANN,
        )
        assert ids((await world.search("zebra", access=access)).items) == [added.document_id]

    # --- tags after the fact ---

    @conforms
    async def test_tags_change_what_is_seen_from_the_next_request_on(self, store: DocumentStore) -> None:
        world = self._enforcing(store)
        tagged = able(store, TaggedStore)
        (added,) = await world.add(note("zebra"))
        who = {"tenant_id": world.tenant, "principal_id": ANN, "document_id": added.document_id}
        told = await tagged.change_access_tags(**who, add=[ENG])
        assert ENG in told.tags
        assert told.version_id == added.version_id
        assert await self._seen(world, grant(ENG)) == [added.document_id]
        assert ENG not in (await tagged.change_access_tags(**who, remove=[ENG])).tags
        assert await self._seen(world, grant(ENG)) == []

    @conforms
    async def test_only_the_owner_changes_tags(self, store: DocumentStore) -> None:
        world = self._enforcing(store)
        tagged = able(store, TaggedStore)
        seen, hidden = await world.add(note("zebra", access_tags=(ENG,)), note("giraffe"))
        access = await world.access(grant(ENG))
        for document_id, refusal in (
            (seen.document_id, ForbiddenError),
            (hidden.document_id, NotFoundError),
            ("doc_unknown", NotFoundError),
        ):
            with pytest.raises(refusal):
                await tagged.change_access_tags(
                    tenant_id=world.tenant,
                    principal_id=BOB,
                    document_id=document_id,
                    add=[OPS],
                    access=access,
                )

    @conforms
    async def test_appended_tags_join_those_that_are_there(self, store: DocumentStore) -> None:
        world = self._enforcing(store)
        appending = able(store, AppendingStore)
        (added,) = await world.add(note("zebra", access_tags=(ENG,)))
        for _ in range(2):
            await appending.append_access_tags(
                tenant_id=world.tenant, document_id=added.document_id, tags=[OPS]
            )
        assert await self._seen(world, grant(ENG)) == [added.document_id]
        assert await self._seen(world, grant(OPS)) == [added.document_id]
        with pytest.raises(NotFoundError):
            await appending.append_access_tags(
                tenant_id=f"{world.tenant}-2", document_id=added.document_id, tags=[OPS]
            )

    def _enforcing(self, store: DocumentStore) -> World:
        if not capabilities_of(store).enforces_grants:
            pytest.skip(f"{type(store).__name__} does not enforce grants")
        return self.world(store)

    async def _seen(self, world: World, *rules: GrantRule, limit: int = 20) -> list[str]:
        """The ids that Bob finds with these grants; the list agrees with them."""
        found = (
            await world.search("zebra", principal=BOB, access=await world.access(*rules), limit=limit)
        ).items
        listed = await world.store.list(
            tenant_id=world.tenant,
            principal_id=BOB,
            query=TimelineQuery(limit=100),
            access=await world.access(*rules),
        )
        assert set(ids(found)) == {event.document_id for event in listed}
        return sorted(ids(found))
