"""What a store may be able to do besides; each test is skipped for a store that is not."""

from datetime import UTC, datetime, timedelta

import pytest

from corbits_memory.core.enums import (
    AddStatus,
    AuditAction,
    AuditOutcome,
    FeedOp,
    RetentionClass,
    VersionStatus,
)
from corbits_memory.errors import (
    ConflictError,
    DurableDocumentError,
    ForbiddenError,
    IdempotencyKeyReusedError,
    InvalidCursorError,
    NotFoundError,
)
from corbits_memory.ports import (
    AddResult,
    AuditStore,
    DocumentStore,
    FeedQuery,
    FeedStore,
    IdempotentStore,
    Once,
    ReadableStore,
    ReadyStore,
    RetentionStore,
)
from corbits_memory.testing.conformance.documents import StoreSuite
from corbits_memory.testing.conformance.running import able, conforms
from corbits_memory.testing.conformance.world import ANN, BOB, grant, ids, note

ENG = "memory.space:eng"
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


class AbilitiesConformance(StoreSuite):
    """Reading by id, retries, retention, the audit, the feed."""

    @conforms
    async def test_an_open_store_is_ready(self, store: DocumentStore) -> None:
        await able(store, ReadyStore).ready()

    # --- reading by id ---

    @conforms
    async def test_what_was_added_is_read_by_its_ids(self, store: DocumentStore) -> None:
        world, readable = self.world(store), able(store, ReadableStore)
        (added,) = await world.add(
            note("A zebra grazes.", title="Animals", kind="page", external_ref="wiki:1")
        )
        who = {"tenant_id": world.tenant, "principal_id": ANN}
        document = await readable.document(**who, document_id=added.document_id)
        assert (document.document_id, document.owner, document.external_ref) == (
            added.document_id,
            ANN,
            "wiki:1",
        )
        assert (document.current.version_id, document.current.title, document.current.kind) == (
            added.version_id,
            "Animals",
            "page",
        )
        history = await readable.history(**who, document_id=added.document_id, limit=10)
        assert [entry.facts.version_id for entry in history.entries] == [added.version_id]
        version = await readable.version(**who, version_id=added.version_id, limit=100)
        assert (version.document_id, version.facts.version) == (added.document_id, added.version)
        assert "".join(part.text for part in version.text) == "A zebra grazes."

    @conforms
    async def test_unknown_and_invisible_are_the_same(self, store: DocumentStore) -> None:
        world, readable = self.world(store), able(store, ReadableStore)
        (added,) = await world.add(note("zebra"))
        messages = set()
        for tenant, principal, document_id, version_id in (
            (world.tenant, ANN, "doc_unknown", "ver_unknown"),
            (world.tenant, BOB, added.document_id, added.version_id),
            (f"{world.tenant}-2", ANN, added.document_id, added.version_id),
        ):
            who = {"tenant_id": tenant, "principal_id": principal}
            with pytest.raises(NotFoundError) as refused:
                await readable.document(**who, document_id=document_id)
            messages.add(refused.value.message)
            with pytest.raises(NotFoundError):
                await readable.history(**who, document_id=document_id, limit=1)
            with pytest.raises(NotFoundError):
                await readable.version(**who, version_id=version_id, limit=1)
        assert len(messages) == 1

    # --- retries ---

    @conforms
    async def test_a_retry_is_given_the_first_answer(self, store: DocumentStore) -> None:
        world, idempotent = self.world(store), able(store, IdempotentStore)
        once = Once(key=b"k" * 32, request=b"r" * 32)
        who = {"tenant_id": world.tenant, "principal_id": ANN}
        first = await idempotent.add_once(**who, documents=[note("zebra"), note("giraffe")], once=once)
        again = await idempotent.add_once(**who, documents=[note("zebra"), note("giraffe")], once=once)
        assert again == first
        assert len(await world.found("zebra")) == 1
        with pytest.raises(IdempotencyKeyReusedError):
            await idempotent.add_once(
                **who, documents=[note("okapi")], once=Once(key=once.key, request=b"x" * 32)
            )
        (bobs,) = await idempotent.add_once(
            tenant_id=world.tenant, principal_id=BOB, documents=[note("okapi")], once=once
        )
        assert isinstance(bobs, AddResult)
        assert bobs.status is AddStatus.CREATED

    # --- retention ---

    @conforms
    async def test_what_is_forgotten_is_found_nowhere(self, store: DocumentStore) -> None:
        world, retention = self.world(store), able(store, RetentionStore)
        (added,) = await world.add(note("zebra", external_ref="wiki:1"))
        who = {"tenant_id": world.tenant, "principal_id": ANN, "document_id": added.document_id}
        assert (await retention.forget(**who)).versions == 1
        assert (await retention.forget(**who)).versions == 0
        assert (await world.search("zebra")).items == ()
        assert await world.events() == []
        (anew,) = await world.add(note("zebra", external_ref="wiki:1"))
        assert anew.version > added.version
        assert ids(await world.found("zebra")) == [anew.document_id]

    @conforms
    async def test_what_is_purged_is_unknown(self, store: DocumentStore) -> None:
        world, retention = self.world(store), able(store, RetentionStore)
        (added,) = await world.add(note("zebra"))
        who = {"tenant_id": world.tenant, "principal_id": ANN, "document_id": added.document_id}
        assert (await retention.purge(**who)).versions == 1
        assert (await world.search("zebra")).items == ()
        with pytest.raises(NotFoundError):
            await retention.purge(**who)

    @conforms
    async def test_only_the_owner_forgets(self, store: DocumentStore) -> None:
        world, retention = self.world(store), able(store, RetentionStore)
        seen, hidden = await world.add(note("zebra here", access_tags=(ENG,)), note("zebra there"))
        access = await world.access(grant(ENG))
        for document_id, refusal in (
            (seen.document_id, ForbiddenError),
            (hidden.document_id, NotFoundError),
            ("doc_unknown", NotFoundError),
        ):
            who = {"tenant_id": world.tenant, "principal_id": BOB, "document_id": document_id}
            with pytest.raises(refusal):
                await retention.forget(**who, access=access)
            with pytest.raises(refusal):
                await retention.purge(**who, access=access)
        assert len(await world.found("zebra")) == 2

    @conforms
    async def test_durable_versions_are_not_purged(self, store: DocumentStore) -> None:
        world, retention = self.world(store), able(store, RetentionStore)
        (added,) = await world.add(note("zebra"))
        state = await retention.set_retention_class(
            tenant_id=world.tenant,
            principal_id=ANN,
            version_id=added.version_id,
            retention_class=RetentionClass.DURABLE,
        )
        assert (state.document_id, state.retention_class) == (added.document_id, RetentionClass.DURABLE)
        who = {"tenant_id": world.tenant, "principal_id": ANN, "document_id": added.document_id}
        with pytest.raises(DurableDocumentError):
            await retention.purge(**who)
        assert len(await world.found("zebra")) == 1
        assert (await retention.forget(**who)).versions == 1
        assert (await retention.purge(**who)).versions == 1

    @conforms
    async def test_what_has_expired_is_swept(self, store: DocumentStore) -> None:
        world, retention = self.world(store), able(store, RetentionStore)
        ephemeral = {"retention_class": RetentionClass.EPHEMERAL}
        await world.add(
            note("zebra", valid_until=LONG_AGO, **ephemeral),
            note("giraffe", valid_until=LONG_AGO + timedelta(days=36_500), **ephemeral),
            note("okapi", valid_until=LONG_AGO),
        )
        swept = await retention.sweep_ephemeral(tenant_id=world.tenant, actor_id="root")
        assert swept.versions_deprecated == 1
        assert (await world.search("zebra")).items == ()
        assert len(await world.events()) == 2

    @conforms
    async def test_a_deprecated_version_is_deprecated_once(self, store: DocumentStore) -> None:
        world, retention = self.world(store), able(store, RetentionStore)
        (added,) = await world.add(note("zebra"))
        who = {"tenant_id": world.tenant, "actor_id": "root", "version_id": added.version_id}
        assert (await retention.deprecate_version(**who)).status == VersionStatus.DEPRECATED
        assert (await world.search("zebra")).items == ()
        with pytest.raises(ConflictError):
            await retention.deprecate_version(**who)

    @conforms
    async def test_what_somebody_owns_comes_in_pages(self, store: DocumentStore) -> None:
        world, retention = self.world(store), able(store, RetentionStore)
        added = await world.add(note("zebra"), note("giraffe"), note("okapi"))
        await world.add(note("lion"), principal=BOB)
        owned: list[str] = []
        while page := await retention.owned_documents(
            tenant_id=world.tenant, principal_id=ANN, after=owned[-1] if owned else "", limit=2
        ):
            owned += [document.document_id for document in page]
        assert owned == sorted(answer.document_id for answer in added)

    # --- the audit ---

    @conforms
    async def test_acts_are_in_the_audit_refused_ones_too(self, store: DocumentStore) -> None:
        world, retention = self.world(store), able(store, RetentionStore)
        audit = able(store, AuditStore)
        (added,) = await world.add(note("zebra", access_tags=(ENG,)))
        what = {"tenant_id": world.tenant, "document_id": added.document_id}
        with pytest.raises(ForbiddenError):
            await retention.forget(**what, principal_id=BOB, access=await world.access(grant(ENG)))
        await retention.forget(**what, principal_id=ANN)
        page = await audit.audit_events(tenant_id=world.tenant, limit=10, target_id=added.document_id)
        acts = [event for event in page.events if event.action is AuditAction.FORGET]
        assert [(event.actor_id, event.outcome) for event in acts] == [
            (ANN, AuditOutcome.DONE),
            (BOB, AuditOutcome.FORBIDDEN),
        ]
        assert (await audit.audit_events(tenant_id=f"{world.tenant}-2", limit=10)).events == ()

    # --- the feed ---

    @conforms
    async def test_the_feed_tells_everything_once_and_in_order(self, store: DocumentStore) -> None:
        world, feed = self.world(store), able(store, FeedStore)
        added = await world.add(*(note(f"zebra {n}") for n in range(5)))
        told: list[str | None] = []
        after = 0
        while True:
            page = await feed.feed(
                tenant_id=world.tenant, principal_id=ANN, query=FeedQuery(after=after, limit=2)
            )
            if page.next_cursor is None:
                break
            assert [entry.seq for entry in page.entries] == sorted(entry.seq for entry in page.entries)
            assert after < page.next_cursor <= page.position
            told += [entry.version_id for entry in page.entries]
            after = page.next_cursor
        assert told == [answer.version_id for answer in added]

    @conforms
    async def test_the_feed_shows_what_its_reader_may_see(self, store: DocumentStore) -> None:
        world, feed = self.world(store), able(store, FeedStore)
        shown, _ = await world.add(note("zebra", access_tags=(ENG,)), note("giraffe"))
        everything = {"tenant_id": world.tenant, "query": FeedQuery()}
        assert (await feed.feed(**everything, principal_id=BOB)).entries == ()
        page = await feed.feed(**everything, principal_id=BOB, access=await world.access(grant(ENG)))
        assert [entry.version_id for entry in page.entries] == [shown.version_id]
        other = {"tenant_id": f"{world.tenant}-2", "query": FeedQuery()}
        assert (await feed.feed(**other, principal_id=ANN)).entries == ()

    @conforms
    async def test_the_feed_tells_what_is_gone(self, store: DocumentStore) -> None:
        world, feed = self.world(store), able(store, FeedStore)
        retention = able(store, RetentionStore)
        (added,) = await world.add(note("zebra"))
        await retention.forget(tenant_id=world.tenant, principal_id=ANN, document_id=added.document_id)
        page = await feed.feed(
            tenant_id=world.tenant,
            principal_id=ANN,
            query=FeedQuery(ops=frozenset(FeedOp), include_text=True),
        )
        assert [(entry.op, entry.version_id) for entry in page.entries][-1] == (
            FeedOp.RETRACT,
            added.version_id,
        )
        assert "zebra" not in str(page)

    @conforms
    async def test_a_cursor_that_the_feed_has_not_reached_is_an_error(self, store: DocumentStore) -> None:
        world, feed = self.world(store), able(store, FeedStore)
        await world.add(note("zebra"))
        with pytest.raises(InvalidCursorError):
            await feed.feed(tenant_id=world.tenant, principal_id=ANN, query=FeedQuery(after=1_000))

    @conforms
    async def test_waiting_ends_when_there_is_something_or_in_time(self, store: DocumentStore) -> None:
        world, feed = self.world(store), able(store, FeedStore)
        await world.add(note("zebra"))
        await feed.feed_changed(tenant_id=world.tenant, after=0, seconds=60)
        await feed.feed_changed(tenant_id=world.tenant, after=1, seconds=0.05)
