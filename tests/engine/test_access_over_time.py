"""Who sees what once a document has changed: earlier versions, shares that race with erasure, others' additions."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql

from corbits_memory.access.memory_store import InMemoryGrantStore
from corbits_memory.core.enums import Effect, FeedOp, RetentionClass, SearchProfile
from corbits_memory.core.limits import TAGS_PER_DOCUMENT
from corbits_memory.engine import access as engine_access
from corbits_memory.engine.migrate import run_memory_migrations
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.errors import (
    ConflictError,
    ExternalRefInUseError,
    ForbiddenError,
    InvalidInputError,
    MemoryError,
    NotFoundError,
)
from corbits_memory.ports import AddResult, FeedQuery, GrantRule, NewDocument, SearchQuery, Share
from corbits_memory.validation import Content
from tests.engine.support import NOW, OpenStore, T, add, note, titles, turn, until_waiting
from tests.engine.test_access import ANN, BOB, access_of, found_by, grant, memory_over, seen
from tests.engine.test_lifecycle_races import GATE
from tests.models.conftest import ModelServer

Owner = psycopg.AsyncConnection[Any]
ENG, NEW = "memory.space:eng", "memory.space:new"


async def snippets(store: PostgresDocumentStore, *rules: GrantRule) -> list[str]:
    """What bob finds when he asks for deprecated versions too; ``compat`` shows one version a document."""
    access = await access_of(*rules)
    found: dict[SearchProfile, list[str]] = {}
    for profile in SearchProfile:
        query = SearchQuery(query="salary", include_deprecated=True, max_per_document=9, profile=profile)
        result = await store.search(**BOB, query=query, access=access)
        found[profile] = sorted(item.snippet for item in result.items)
    assert set(found[SearchProfile.COMPAT]) <= set(found[SearchProfile.DEFAULT])
    return found[SearchProfile.DEFAULT]


# --- earlier versions --------------------------------------------------------------------------------


async def test_a_tag_opens_nothing_that_was_there_before_it(store: PostgresDocumentStore) -> None:
    (first,) = await add(store, note("salary 4711", external_ref="doc"))
    await store.deprecate_version(tenant_id=T, actor_id="ops", version_id=first.version_id)
    (second,) = await add(store, note("salary report, public", external_ref="doc"))
    await store.change_access_tags(**ANN, document_id=second.document_id, add=[NEW])
    assert await snippets(store, grant(NEW)) == ["salary report, public"]
    assert await snippets(store, grant("*")) == ["salary 4711", "salary report, public"]
    # Neither by id, nor as something to refer to, nor in what a refusal tells.
    access = await access_of(grant(NEW))
    with pytest.raises(NotFoundError):
        await store.version(**BOB, version_id=first.version_id, limit=1, access=access)
    with pytest.raises(NotFoundError):
        await store.set_retention_class(
            **BOB, version_id=first.version_id, retention_class=RetentionClass.DURABLE, access=access
        )
    claim = note("a claim", derived_from=(first.version_id,))
    (refused,) = await store.add(**BOB, documents=[claim], access=access)
    assert isinstance(refused, InvalidInputError)
    page = await store.history(**BOB, document_id=first.document_id, limit=10, access=access)
    assert [entry.facts.version for entry in page.entries] == [2]


async def test_what_was_written_with_a_tag_stays_open_to_it(store: PostgresDocumentStore) -> None:
    (first,) = await add(store, note("salary 1", external_ref="doc", access_tags=(ENG,)))
    await store.deprecate_version(tenant_id=T, actor_id="ops", version_id=first.version_id)
    await add(store, note("salary 2", external_ref="doc", access_tags=(ENG, NEW)))
    assert await snippets(store, grant(NEW)) == ["salary 2"]
    assert await snippets(store, grant(ENG)) == ["salary 1", "salary 2"]
    # A tag that the document has lost closes its past as well, and one that vetoes it too.
    await add(store, note("salary 2", external_ref="doc", access_tags=(NEW,)))
    assert await snippets(store, grant(ENG)) == []
    await add(store, note("salary 2", external_ref="doc", access_tags=(ENG, NEW)))
    assert await snippets(store, grant(ENG), grant(NEW, effect=Effect.DENY)) == []


async def test_a_new_version_with_other_tags_retags_those_out_of_use(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    store = await open_store(embed_url=word_server.url)
    (first,) = await add(store, note("salary 1", external_ref="doc", access_tags=(ENG, NEW)))
    await store.deprecate_version(tenant_id=T, actor_id="ops", version_id=first.version_id)
    embedding = sql.Identifier(
        await one(owner, "SELECT 'embedding_' || model_key FROM memory.embed_model"),
    )
    vectors = sql.SQL("SELECT access_tags FROM memory.{} WHERE status = 'deprecated'").format(embedding)
    for tags, readers in (((ENG,), {ENG}), ((), set()), ((NEW, ENG), {ENG, NEW})):
        await add(store, note(f"salary for {len(tags)}", external_ref="doc", access_tags=tags))
        for tag in (ENG, NEW):
            assert ("salary 1" in await snippets(store, grant(tag))) == (tag in readers)
        # Not shown, and not ranked either.
        for query in (vectors, "SELECT access_tags FROM memory.search_row WHERE status = 'deprecated'"):
            assert {ENG, NEW}.intersection(await one(owner, query)) == readers


async def test_tags_that_were_left_behind_are_mended(
    store: PostgresDocumentStore, database_url: str, owner: Owner
) -> None:
    (first,) = await add(store, note("salary 1", external_ref="doc", access_tags=(ENG,)))
    await store.deprecate_version(tenant_id=T, actor_id="ops", version_id=first.version_id)
    await add(store, note("salary 2", external_ref="doc", access_tags=(ENG, NEW)))
    await owner.execute(
        "UPDATE memory.search_row SET access_tags = %s WHERE status = 'deprecated'", [[ENG, "a:b"]]
    )
    await owner.execute("DELETE FROM memory._migrations WHERE name = '0022_tags.sql'")
    assert await run_memory_migrations(database_url) == ["0022_tags.sql"]
    assert await one(owner, "SELECT access_tags FROM memory.search_row WHERE status = 'deprecated'") == [
        ENG,
        "memory.owner:ann",
    ]


TAGS_LEFT_BEHIND = """
SELECT r.chunk_id FROM memory.search_row r
JOIN memory.version v ON v.tenant_id = r.tenant_id AND v.id = r.version_id
JOIN memory.document d ON d.tenant_id = r.tenant_id AND d.id = v.document_id
WHERE r.access_tags <> memory.version_tags(v.status, v.access_tags, d.tags)
"""


async def deprecated(store: PostgresDocumentStore, version_id: str) -> None:
    await store.deprecate_version(tenant_id=T, actor_id="ops", version_id=version_id)


async def swept(store: PostgresDocumentStore, version_id: str) -> None:
    await store.sweep_ephemeral(tenant_id=T, actor_id="ops", now=NOW)


@pytest.mark.parametrize("narrow", ["add", "unshare"])
@pytest.mark.parametrize("deprecate", [deprecated, swept])
async def test_a_deprecation_beside_a_change_of_tags_leaves_none_behind(
    open_store: OpenStore,
    word_server: ModelServer,
    owner: Owner,
    database_url: str,
    narrow: str,
    deprecate: Callable[[PostgresDocumentStore, str], Awaitable[None]],
) -> None:
    """Whoever changes the tags has looked for what is out of use, and is stopped before anything is written down."""
    store = await open_store(embed_url=word_server.url)
    expired: dict[str, Any] = {
        "external_ref": "doc",
        "retention_class": RetentionClass.EPHEMERAL,
        "valid_until": NOW - timedelta(days=1),
    }
    (old,) = await add(store, note("salary 1", access_tags=(ENG, NEW), **expired))
    async with await psycopg.AsyncConnection.connect(database_url) as gate:
        if narrow == "add":
            # Before it supersedes what is active.
            await owner.execute(GATE)
            await gate.execute("SELECT pg_advisory_xact_lock(4711)")
            narrowing: asyncio.Task[Any] = asyncio.create_task(
                add(store, note("salary 2", external_ref="doc", access_tags=(NEW,)))
            )
        else:
            await gate.execute("LOCK TABLE memory.audit_event IN EXCLUSIVE MODE")
            narrowing = asyncio.create_task(
                store.change_access_tags(**ANN, document_id=old.document_id, remove=[ENG])
            )
        await until_waiting(owner)
        deprecating = asyncio.ensure_future(deprecate(store, old.version_id))
        if deprecate is deprecated:
            await until_waiting(owner, count=2)
        else:
            await asyncio.wait([deprecating], timeout=1)
    await narrowing
    await deprecating
    # A sweep passes over what somebody changes just then.
    await deprecate(store, old.version_id) if deprecate is swept else None
    status = await one(owner, f"SELECT status FROM memory.version WHERE id = '{old.version_id}'")
    # Out of use by whoever came first; a sweep leaves what has been superseded alone.
    assert status == ("superseded" if (narrow, deprecate) == ("add", swept) else "deprecated")
    assert await (await owner.execute(TAGS_LEFT_BEHIND)).fetchall() == []
    assert "salary 1" not in await snippets(store, grant(ENG))
    model = await one(owner, "SELECT model_key FROM memory.embed_model")
    vectors = await owner.execute(
        f"SELECT e.chunk_id FROM memory.embedding_{model} e JOIN memory.search_row r USING (tenant_id, chunk_id) "
        "WHERE e.access_tags <> r.access_tags OR e.status <> r.status"
    )
    assert await vectors.fetchall() == []


async def test_the_owner_may_tag_what_is_taken_up_just_then(
    store: PostgresDocumentStore, owner: Owner, database_url: str
) -> None:
    (made,) = await add(store, note("one", external_ref="doc"))
    await store.forget(**ANN, document_id=made.document_id)
    async with await psycopg.AsyncConnection.connect(database_url) as gate:
        await gate.execute("LOCK TABLE memory.raw_capture IN EXCLUSIVE MODE")
        adding = asyncio.create_task(add(store, note("two", external_ref="doc")))
        await until_waiting(owner)
        tagging = asyncio.create_task(
            store.change_access_tags(**ANN, document_id=made.document_id, add=[ENG])
        )
        await until_waiting(owner, count=2)
    (again,) = await adding
    tagged = await tagging
    assert (tagged.version_id, ENG in tagged.tags) == (again.version_id, True)


async def one(owner: Owner, query: Any) -> Any:
    row = await (await owner.execute(query)).fetchone()
    assert row is not None
    return row[0]


async def test_a_deprecated_version_steps_back_to_what_it_was_written_with(
    store: PostgresDocumentStore,
) -> None:
    (made,) = await add(store, note("salary 4711", external_ref="doc"))
    await store.change_access_tags(**ANN, document_id=made.document_id, add=[NEW])
    assert await snippets(store, grant(NEW)) == ["salary 4711"]
    await store.deprecate_version(tenant_id=T, actor_id="ops", version_id=made.version_id)
    assert await snippets(store, grant(NEW)) == []
    access = await access_of(grant(NEW))
    with pytest.raises(NotFoundError):
        await store.document(**BOB, document_id=made.document_id, access=access)
    for verb in (store.forget, store.purge):
        with pytest.raises(NotFoundError):
            await verb(**BOB, document_id=made.document_id, access=access)
    with pytest.raises(NotFoundError):
        await store.change_access_tags(**BOB, document_id=made.document_id, add=["a:b"], access=access)


async def test_a_document_without_an_active_version_can_be_shared_and_unshared(
    store: PostgresDocumentStore,
) -> None:
    memory = await memory_over(store)
    made = await memory.add(**ANN, content=Content(title="old", text="the lighthouse"))
    await store.deprecate_version(tenant_id=T, actor_id="ops", version_id=made.version_id)
    shared = await memory.share(**ANN, document_id=made.document_id, principals=["bob"], tags=[NEW])
    assert (shared.version_id, shared.share.grants_materialized) == (made.version_id, True)
    gone = await memory.unshare(**ANN, document_id=made.document_id, principals=["bob"], tags=[NEW])
    assert NEW not in gone.share.tags


# --- many tags ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [3, 30, 60, 20_000])
async def test_many_tags_hide_no_document(
    store: PostgresDocumentStore, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """However few rows are looked up at most, and though each document is reached by seven tags."""
    monkeypatch.setattr(engine_access, "REACHED_DOCUMENTS", most)
    documents = [
        note(
            f"lighthouse {i}",
            title=f"d{i}",
            access_tags=tuple(f"memory.space:s{(i + k * 11) % 70}" for k in range(7)),
        )
        for i in range(30)
    ]
    await add(store, *documents)
    rules = [grant(f"memory.space:s{i}") for i in range(70)]
    assert await seen(store, *rules) == {f"d{i}" for i in range(30)}


@pytest.mark.parametrize("others", [0, 64, 200])
@pytest.mark.parametrize("profile", list(SearchProfile))
async def test_what_is_hidden_of_a_document_ranks_nothing_and_takes_no_place(
    store: PostgresDocumentStore, others: int, profile: SearchProfile
) -> None:
    """Many tags are looked up as documents, which have more readers than their earlier versions."""
    await add(store, turn(0, "hello there friends", access_tags=(NEW,)))
    (hidden,) = await add(store, turn(1, "zanzibar ransom friends", access_tags=()))
    await store.deprecate_version(tenant_id=T, actor_id="ops", version_id=hidden.version_id)
    await add(store, turn(1, "friends, nothing to see", access_tags=(NEW,)))
    access = await access_of(grant(NEW), *(grant(f"memory.space:{n}") for n in range(others)))
    told = []
    for word in ("zanzibar", "qqqqq"):
        # Every word has to match in compat.
        asked = "friends" if profile is SearchProfile.COMPAT else f"{word} friends"
        query = SearchQuery(query=asked, include_deprecated=True, profile=profile)
        result = await store.search(**BOB, query=query, access=access)
        told.append([(item.snippet, item.score) for item in result.items])
    assert {snippet for snippet, _ in told[0]} == {"hello there friends", "friends, nothing to see"}
    assert told[0] == told[1]


@pytest.mark.parametrize("others", [3, 63, 64, 65, 200])
async def test_however_many_tags_are_refused_the_rest_is_seen(
    store: PostgresDocumentStore, others: int
) -> None:
    await add(
        store,
        *(note(f"lighthouse {i}", title=f"d{i}", access_tags=(f"memory.no:{i}",)) for i in range(others)),
    )
    await add(store, note("lighthouse", title="seen", access_tags=("memory.no:0", "memory.space:eng")))
    rules = [grant("*"), *(grant(f"memory.{kind}:*", effect=Effect.DENY) for kind in ("no", "owner"))]
    assert await seen(store, *rules) == {"seen"}


async def test_a_documents_tags_have_an_end(store: PostgresDocumentStore) -> None:
    (made,) = await add(store, note("the lighthouse", external_ref="doc"))
    names = [f"memory.space:s{i}" for i in range(TAGS_PER_DOCUMENT)]
    # With its owner's tag it carries as many as it may.
    await store.change_access_tags(**ANN, document_id=made.document_id, add=names[:-1])
    with pytest.raises(ConflictError, match="at most 256 access tags"):
        await store.change_access_tags(**ANN, document_id=made.document_id, add=names[-1:])
    (refused,) = await store.add(
        **ANN, documents=[note("the lighthouse", external_ref="doc", share=Share(tags=("a:b",)))]
    )
    assert isinstance(refused, ConflictError)
    detail = await store.document(**ANN, document_id=made.document_id)
    assert len(detail.access_tags) == TAGS_PER_DOCUMENT
    changed = await store.change_access_tags(**ANN, document_id=made.document_id, remove=names[:1])
    assert len(changed.tags) == TAGS_PER_DOCUMENT - 1
    await store.change_access_tags(**ANN, document_id=made.document_id, add=names[-1:])


# --- sharing and erasure -----------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["forget", "purge"])
async def test_who_was_shared_with_hears_that_it_is_gone(store: PostgresDocumentStore, verb: str) -> None:
    grants = InMemoryGrantStore([grant("memory.doc:none", to="eve")])
    memory = await memory_over(store, grants)
    made = await memory.add(
        **ANN, content=Content(title="plan", text="the lighthouse"), share=Share(principals=("bob",))
    )
    grants.put_grant(
        GrantRule(
            id="r",
            role_id="crew",
            resource=f"memory.doc:{made.document_id}",
            action="search",
            effect=grant("x").effect,
            tenant_id=T,
        )
    )
    grants.assign(T, "crew", "carl")
    await getattr(memory, verb)(**ANN, document_id=made.document_id)
    for reader, hears in (("ann", True), ("bob", True), ("carl", True), ("eve", False)):
        page = await memory.feed(tenant_id=T, principal_id=reader, ops=[FeedOp.RETRACT])
        assert [entry.document_id for entry in page.entries] == [made.document_id] * hears, reader
    # What takes its name later is another matter.
    assert grants.collect_grants("bob", T) == []


async def test_a_share_that_comes_after_a_forget_leaves_no_grant(store: PostgresDocumentStore) -> None:
    """The tag is written, the document is forgotten, and only then comes the grant."""
    forgetting = asyncio.Event()

    class Slow(InMemoryGrantStore):
        async def put_grant(self, rule: GrantRule) -> None:  # type: ignore[override]
            forgetting.set()
            await gone.wait()
            super().put_grant(rule)

    gone = asyncio.Event()
    grants = Slow()
    memory = await memory_over(store, grants)
    made = await memory.add(**ANN, content=Content(title="plan", text="the lighthouse"), external_ref="plan")

    async def forget() -> None:
        await forgetting.wait()
        await memory.forget(**ANN, document_id=made.document_id)
        gone.set()

    share = memory.share(**ANN, document_id=made.document_id, principals=["bob"])
    answers = await asyncio.gather(share, forget(), return_exceptions=True)
    assert isinstance(answers[0], NotFoundError)
    assert grants.collect_grants("bob", T) == []
    again = await memory.add(
        **ANN,
        content=Content(title="anew", text="the lighthouse"),
        external_ref="plan",
        share=Share(principals=("carl",)),
    )
    assert again.document_id == made.document_id
    assert (await found_by(memory, "bob"), await found_by(memory, "carl")) == ([], ["anew"])


async def test_an_add_whose_share_comes_too_late_says_so(store: PostgresDocumentStore) -> None:
    class Forgetting(InMemoryGrantStore):
        async def put_grant(self, rule: GrantRule) -> None:  # type: ignore[override]
            await memory.forget(**ANN, document_id=rule.resource.removeprefix("memory.doc:"))
            super().put_grant(rule)

    grants = Forgetting()
    memory = await memory_over(store, grants)
    made = await memory.add(
        **ANN, content=Content(title="plan", text="the lighthouse"), share=Share(principals=("bob",))
    )
    assert made.share is not None
    assert (made.share.grants_materialized, made.share.reason) == (
        False,
        "the document has been forgotten meanwhile",
    )
    assert grants.collect_grants("bob", T) == []


# --- what a grant of add reaches ---------------------------------------------------------------------


async def add_as_bob(store: PostgresDocumentStore, document: NewDocument) -> AddResult | MemoryError:
    (answer,) = await store.add(
        **BOB, documents=[document], access=await access_of(grant(ENG, action="add"), grant(ENG))
    )
    return answer


@pytest.mark.parametrize(
    ("kept", "asked", "becomes"),
    [
        ("standard", "durable", None),
        ("standard", "ephemeral", None),
        ("durable", "ephemeral", None),
        ("durable", "standard", "durable"),
        ("ephemeral", "standard", "ephemeral"),
        ("durable", "durable", "durable"),
    ],
)
async def test_a_hold_and_an_end_are_the_creators_to_set(
    store: PostgresDocumentStore, owner: Owner, kept: str, asked: str, becomes: str | None
) -> None:
    await add(store, note("one", external_ref="d", access_tags=(ENG,), retention_class=RetentionClass(kept)))
    answer = await add_as_bob(store, note("two", external_ref="d", retention_class=RetentionClass(asked)))
    if becomes is None:
        assert isinstance(answer, ForbiddenError)
        return
    assert isinstance(answer, AddResult)
    rows = await (
        await owner.execute("SELECT retention_class FROM memory.version WHERE id = %s", [answer.version_id])
    ).fetchall()
    assert rows == [(becomes,)]


async def test_a_document_is_moved_by_its_creator_alone(store: PostgresDocumentStore) -> None:
    await add(store, turn(1, "one", external_ref="d", access_tags=(ENG,)))
    moved = await add_as_bob(store, turn(1, "two", thread="bobs", external_ref="d"))
    assert isinstance(moved, ForbiddenError)
    stayed = await add_as_bob(store, turn(1, "two", external_ref="d"))
    assert isinstance(stayed, AddResult)


async def test_what_was_forgotten_is_taken_up_by_its_owner_alone(store: PostgresDocumentStore) -> None:
    (made,) = await add(store, note("one", external_ref="d"))
    await store.forget(**ANN, document_id=made.document_id)
    access = await access_of(grant("memory.owner:ann", action="add"))
    (taken,) = await store.add(**BOB, documents=[note("two", external_ref="d")], access=access)
    assert isinstance(taken, ExternalRefInUseError)
    (again,) = await add(store, note("two", external_ref="d"))
    assert again.document_id == made.document_id
    assert titles(await store.search(**ANN, query=SearchQuery(query="two"))) == ["Note"]


async def test_a_follower_by_name_hears_once_of_each_forgetting(store: PostgresDocumentStore) -> None:
    """A retraction from before somebody was let in is not for them."""
    memory = await memory_over(store)
    made = await memory.add(**ANN, content=Content(title="plan", text="one"), external_ref="plan")
    await memory.forget(**ANN, document_id=made.document_id)
    await memory.add(
        **ANN,
        content=Content(title="plan", text="two"),
        external_ref="plan",
        share=Share(principals=("bob",)),
    )
    await memory.forget(**ANN, document_id=made.document_id)
    page = await store.feed(**BOB, query=FeedQuery(ops=frozenset({FeedOp.RETRACT})))
    assert len(page.entries) == 1
