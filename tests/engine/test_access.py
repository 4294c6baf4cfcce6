"""Who sees what, decided in the database: tags, vetoes, wildcards, sharing, and nothing of the invisible."""

import asyncio
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest

from corbits_memory.access.control import AccessControl
from corbits_memory.access.memory_store import InMemoryGrantStore
from corbits_memory.core.enums import AddStatus, Effect, EvidenceLevel, SearchProfile
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.errors import (
    ExternalRefInUseError,
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
    NotSupportedError,
)
from corbits_memory.plane import Memory
from corbits_memory.ports import (
    Access,
    AddResult,
    GrantRule,
    NewDocument,
    SearchQuery,
    SearchResult,
    Share,
    TimelineQuery,
)
from corbits_memory.validation import AddInput, Content
from tests.engine.support import NOW, OpenStore, T, add, note, titles, turn, until_embedded
from tests.models.conftest import ModelServer

Owner = psycopg.AsyncConnection[Any]
BOB: Any = {"tenant_id": T, "principal_id": "bob"}
ANN: Any = {"tenant_id": T, "principal_id": "ann"}
WIDE, TENANT = "memory.space:all", f"memory.tenant:{T}"


def grant(
    resource: str, *, to: str = "bob", effect: Effect = Effect.ALLOW, action: str = "search", **fields: Any
) -> GrantRule:
    return GrantRule(
        id=f"{to}:{action}:{effect}:{resource}",
        principal_id=to,
        resource=resource,
        action=action,
        effect=effect,
        **fields,
    )


async def access_of(*rules: GrantRule, principal: str = "bob", tenant: str = T) -> Access:
    control = AccessControl(InMemoryGrantStore(rules), conditions=None, clock=lambda: NOW)
    access = await control.access(tenant, principal)
    assert access is not None
    return access


async def seen(store: PostgresDocumentStore, *rules: GrantRule, query: str = "lighthouse") -> set[str]:
    """What bob finds with these grants; list and both profiles must agree."""
    access = await access_of(*rules)
    found: list[set[str]] = []
    for profile in SearchProfile:
        result: SearchResult = await store.search(
            **BOB, query=SearchQuery(query=query, limit=50, profile=profile), access=access
        )
        found.append(set(titles(result)))
    events = await store.list(**BOB, query=TimelineQuery(limit=100), access=access)
    found.append({event.title for event in events})
    assert found[0] == found[1] == found[2]
    return found[0]


async def corpus(store: PostgresDocumentStore) -> None:
    def document(title: str, *tags: str) -> NewDocument:
        words = {
            "private": "diary",
            "eng": "engine",
            "eng and secret": "cipher",
            "hr": "payroll",
            "project": "survey",
        }
        text = f"{words[title]} notes of the lighthouse keeper"
        return note(text, title=title, access_tags=tags)

    await add(
        store,
        document("private"),
        document("eng", "memory.space:eng"),
        document("eng and secret", "memory.space:eng", "memory.space:secret"),
        document("hr", "memory.space:hr"),
        document("project", "memory.project:x"),
    )
    await add(store, note("the lighthouse of bob", title="bob's"), principal="bob")
    await add(
        store,
        note("the lighthouse far away", title="elsewhere", access_tags=("memory.space:eng",)),
        tenant="other",
    )


async def test_without_grants_a_caller_sees_its_own(store: PostgresDocumentStore) -> None:
    await corpus(store)
    assert await seen(store) == {"bob's"}


@pytest.mark.parametrize(
    ("rules", "visible"),
    [
        ([grant("memory.space:eng")], {"eng", "eng and secret"}),
        ([grant("memory.space:*")], {"eng", "eng and secret", "hr"}),
        ([grant("memory.*")], {"private", "eng", "eng and secret", "hr", "project"}),
        ([grant("*")], {"private", "eng", "eng and secret", "hr", "project"}),
        ([grant("memory.owner:ann")], {"private", "eng", "eng and secret", "hr", "project"}),
        ([grant("memory.space:en")], set()),
        ([grant("Memory.space:eng")], set()),
        ([grant("memory.space:eng", effect=Effect.ASK)], set()),
        ([grant("memory.space:eng", action="add")], set()),
        ([grant("memory.space:eng", action="*")], {"eng", "eng and secret"}),
        ([grant("memory.space:eng", conditions={"nobody": 1})], set()),
        ([grant("memory.space:eng", conditions={})], {"eng", "eng and secret"}),
        # A deny that names a tag vetoes the document, one with a wildcard only takes the tag away.
        ([grant("*"), grant("memory.space:secret", effect=Effect.DENY)], {"private", "eng", "hr", "project"}),
        (
            [grant("memory.space:eng"), grant("memory.space:secret", effect=Effect.DENY)],
            {"eng"},
        ),
        (
            [
                grant("*"),
                grant("memory.space:*", effect=Effect.DENY),
                grant("memory.owner:*", effect=Effect.DENY),
            ],
            {"project"},
        ),
        ([grant("*"), grant("*", effect=Effect.DENY)], set()),
        ([grant("memory.space:eng"), grant("memory.space:*", effect=Effect.DENY)], {"eng", "eng and secret"}),
        (
            [grant("*"), grant("memory.space:secret", effect=Effect.DENY, conditions={"nobody": 1})],
            {"private", "eng", "hr", "project"},
        ),
    ],
)
async def test_grants_decide_what_is_found_and_listed(
    store: PostgresDocumentStore, rules: Sequence[GrantRule], visible: set[str]
) -> None:
    await corpus(store)
    assert await seen(store, *rules) == visible | {"bob's"}


async def test_a_deny_by_name_hides_a_document_that_does_not_carry_its_own_tag(
    store: PostgresDocumentStore,
) -> None:
    await corpus(store)
    events = await store.list(**ANN, query=TimelineQuery(limit=10))
    (hidden,) = [event.document_id for event in events if event.title == "eng"]
    denied = grant(f"memory.doc:{hidden}", effect=Effect.DENY)
    assert await seen(store, grant("memory.space:eng"), denied) == {"eng and secret", "bob's"}
    assert await seen(store, grant("*"), denied) == {"private", "eng and secret", "hr", "project", "bob's"}


async def test_a_deny_never_hides_what_is_ones_own(store: PostgresDocumentStore) -> None:
    await corpus(store)
    denied = grant("memory.owner:bob", effect=Effect.DENY)
    assert await seen(store, denied, grant("memory.space:hr")) == {"bob's", "hr"}


async def test_the_few_visible_among_many_better_matches_are_all_found(
    open_store: OpenStore, word_server: ModelServer
) -> None:
    """Eight of two thousand, each a worse match than all that is invisible."""
    store = await open_store(embed_url=word_server.url, run_worker=True)
    better = [note("lighthouse lighthouse lighthouse", title=f"no {i}") for i in range(2_000)]
    for begin in range(0, len(better), 500):
        await add(store, *better[begin : begin + 500])
    few = [
        note(
            f"a long walk by the sea past {word} and the lighthouse",
            title=word,
            access_tags=("memory.space:eng",),
        )
        for word in ("dunes", "rocks", "boats", "gulls", "nets", "tides", "ropes", "sails")
    ]
    await add(store, *few)
    await until_embedded(store, seconds=240)
    assert await seen(store, grant("memory.space:eng")) == {document.title for document in few}


async def test_nothing_of_the_invisible_shows(store: PostgresDocumentStore) -> None:
    await corpus(store)
    result = await store.search(
        **BOB, query=SearchQuery(query="keeper", explain=True), access=await access_of()
    )
    assert result.evidence is EvidenceLevel.NONE
    assert titles(result) == []


async def test_ids_of_invisible_sources_are_left_out(store: PostgresDocumentStore) -> None:
    (secret,) = await add(store, note("the harbour burned", title="source"))
    claim = note(
        "claim about the harbour",
        title="claim",
        derived_from=(secret.version_id,),
        access_tags=("memory.space:eng",),
        supports=(secret.version_id,),
    )
    (made,) = await add(store, claim)
    query = SearchQuery(query="harbour")
    found = await store.search(**BOB, query=query, access=await access_of(grant("memory.space:eng")))
    (item,) = found.items
    assert item.document_id == made.document_id
    assert item.attribution is not None
    assert item.attribution.derived_from == ()
    both = await store.search(**BOB, query=query, access=await access_of(grant("memory.owner:ann")))
    by_title = {item.title: item.attribution for item in both.items}
    assert by_title["claim"] is not None
    assert by_title["claim"].derived_from == (secret.version_id,)
    assert by_title["source"] is not None
    assert by_title["source"].supports == 1


async def test_what_is_not_visible_cant_be_referred_to(store: PostgresDocumentStore) -> None:
    (source,) = await add(store, note("the harbour", title="source", access_tags=("memory.space:eng",)))
    claim = note("a claim", derived_from=(source.version_id,))
    (refused,) = await store.add(**BOB, documents=[claim], access=await access_of())
    assert isinstance(refused, InvalidInputError)
    (other,) = await store.add(tenant_id="other", principal_id="ann", documents=[claim])
    assert isinstance(other, InvalidInputError)
    (kept,) = await store.add(**BOB, documents=[claim], access=await access_of(grant("memory.space:eng")))
    assert isinstance(kept, AddResult)


async def test_a_claim_shows_to_no_more_readers_than_its_source(
    store: PostgresDocumentStore, owner: Owner
) -> None:
    (source,) = await add(store, note("the harbour", access_tags=("memory.space:eng", "memory.space:ops")))
    access = await access_of(grant("memory.space:eng"))
    claim = note(
        "a claim",
        derived_from=(source.version_id,),
        access_tags=("memory.space:eng", "memory.space:all", "memory.owner:ann"),
        share=Share(tenant=True, principals=("eve",)),
    )
    (made,) = await store.add(**BOB, documents=[claim], access=access)
    assert isinstance(made, AddResult)
    assert made.share is not None
    assert set(made.share.tags) == {"memory.space:eng", "memory.owner:ann", "memory.owner:bob"}
    assert set(made.share.withheld) == {"memory.space:all", "memory.tenant:acme", "eve"}
    # Whoever owns every source decides alone.
    (own,) = await add(
        store, note("own claim", derived_from=(source.version_id,), access_tags=("memory.space:all",))
    )
    assert own.share is None
    row = await (
        await owner.execute("SELECT tags FROM memory.document WHERE id = %s", [own.document_id])
    ).fetchone()
    assert row == (["memory.space:all", "memory.owner:ann"],)


async def test_a_share_widens_a_claim_no_further_than_an_add_could(store: PostgresDocumentStore) -> None:
    grants = InMemoryGrantStore([grant("memory.space:eng")])
    memory = await memory_over(store, grants)
    source = await memory.add(
        **ANN,
        content=Content(title="source", text="the harbour"),
        access_tags=["memory.space:eng", "memory.space:ops"],
    )
    claim = await memory.add(
        **BOB, content=Content(title="claim", text="a lighthouse"), derived_from=[source.version_id]
    )
    shared = await memory.share(
        **BOB,
        document_id=claim.document_id,
        tags=["memory.space:ops", "memory.space:all"],
        principals=["eve"],
        tenant=True,
    )
    assert set(shared.share.tags) == {"memory.owner:bob", "memory.space:ops"}
    assert set(shared.share.withheld) == {"memory.space:all", "memory.tenant:acme", "eve"}
    assert (shared.share.principals, shared.share.grants_materialized) == ((), False)
    assert await found_by(memory, "eve") == []
    # What the source's owner shows to more, its claims may show to as many.
    await memory.share(**ANN, document_id=source.document_id, tags=["memory.space:all"])
    again = await memory.share(**BOB, document_id=claim.document_id, tags=["memory.space:all"])
    assert "memory.space:all" in again.share.tags
    own = await memory.share(**ANN, document_id=source.document_id, principals=["eve"])
    assert own.share.grants_materialized


async def test_a_claim_gets_no_wider_by_what_its_document_carried(store: PostgresDocumentStore) -> None:
    grants = InMemoryGrantStore([grant("memory.space:eng"), grant(WIDE, to="eve"), grant(TENANT, to="eve")])
    memory = await memory_over(store, grants)
    secret = await memory.add(
        **ANN, content=Content(title="source", text="the harbour"), access_tags=["memory.space:eng"]
    )

    async def by_bob(reference: str, text: str, **more: Any) -> AddResult:
        content = Content(title=reference, text=f"{text}, {reference} sheet")
        return await memory.add(**BOB, content=content, external_ref=reference, **more)

    claimed: Any = {"text": "a lighthouse by the harbour", "derived_from": [secret.version_id]}
    await by_bob("tagged", "a lighthouse", access_tags=[WIDE, "memory.space:eng"])
    narrowed = await by_bob("tagged", **claimed)
    assert narrowed.share is not None
    assert narrowed.share.tags == ("memory.space:eng", "memory.owner:bob")
    assert narrowed.share.withheld == (WIDE,)
    await by_bob("shared", "a lighthouse", share=Share(tenant=True, principals=("eve",)))
    narrowed = await by_bob("shared", **claimed)
    assert narrowed.share is not None
    assert set(narrowed.share.withheld) == {TENANT, f"memory.doc:{narrowed.document_id}"}
    # The same again and a new version, both without saying what it was made from.
    for text in (claimed["text"], "a lighthouse by the quay"):
        await by_bob("later", **claimed)
        again = await by_bob("later", text, access_tags=[WIDE], share=Share(principals=("eve",)))
        assert again.share is not None
        assert set(again.share.withheld) == {WIDE, "eve"}
    assert await found_by(memory, "eve") == []
    assert set(await found_by(memory, "bob")) == {"tagged", "shared", "later"}


async def test_who_may_add_to_a_document_cant_put_a_claim_before_its_readers(
    store: PostgresDocumentStore,
) -> None:
    grants = InMemoryGrantStore(
        [
            grant("memory.space:eng"),
            grant(WIDE),
            grant(WIDE, action="add"),
        ]
    )
    memory = await memory_over(store, grants)
    (secret, both) = [
        await memory.add(**ANN, content=Content(title="source", text="the harbour"), access_tags=tags)
        for tags in (["memory.space:eng"], ["memory.space:eng", WIDE])
    ]
    await memory.add(
        tenant_id=T,
        principal_id="dave",
        content=Content(title="lighthouse", text="a lighthouse"),
        external_ref="dave",
        access_tags=[WIDE],
    )
    content = Content(title="lighthouse", text="a lighthouse by the harbour")
    with pytest.raises(ForbiddenError, match="fewer readers"):
        await memory.add(**BOB, content=content, external_ref="dave", derived_from=[secret.version_id])
    made = await memory.add(**BOB, content=content, external_ref="dave", derived_from=[both.version_id])
    assert (made.version, made.share) == (2, None)


async def test_reserved_tags_are_only_ever_copies(store: PostgresDocumentStore) -> None:
    (source,) = await add(store, note("the harbour", access_tags=("memory.space:eng",)))
    access = await access_of(grant("memory.space:eng"))
    forged = note("a claim", derived_from=(source.version_id,), access_tags=("memory.owner:eve",))
    (refused,) = await store.add(**BOB, documents=[forged], access=access)
    assert isinstance(refused, InvalidInputError)


async def test_only_the_owner_or_a_holder_of_add_writes_a_new_version(store: PostgresDocumentStore) -> None:
    await add(store, note("first", external_ref="doc", access_tags=("memory.space:eng",)))
    update = note("second", external_ref="doc")
    (refused,) = await store.add(**BOB, documents=[update], access=await access_of(grant("memory.space:eng")))
    assert isinstance(refused, ExternalRefInUseError)
    access = await access_of(grant("memory.space:eng", action="add"))
    (updated,) = await store.add(**BOB, documents=[update], access=access)
    assert isinstance(updated, AddResult)
    assert (updated.version, updated.status) == (2, AddStatus.UPDATED)
    (retag,) = await store.add(
        **BOB, documents=[note("third", external_ref="doc", access_tags=("memory.space:hr",))], access=access
    )
    assert isinstance(retag, ForbiddenError)
    # The document is still its creator's, who finds the new text.
    events = await store.list(**ANN, query=TimelineQuery(limit=5))
    assert [(event.owner, event.title) for event in events] == [("ann", "Note")]


# --- sharing through the plane ---


async def memory_over(store: PostgresDocumentStore, grants: InMemoryGrantStore | None = None) -> Memory:
    memory = Memory(store, grant_store=grants or InMemoryGrantStore())
    await memory.open()
    return memory


async def found_by(memory: Memory, principal: str, query: str = "lighthouse") -> list[str]:
    return titles(await memory.search(tenant_id=T, principal_id=principal, query=query))


async def test_a_share_lets_the_peer_in_and_unsharing_shuts_it_out(store: PostgresDocumentStore) -> None:
    memory = await memory_over(store)
    made = await memory.add(
        **ANN,
        content=Content(title="plan", text="the lighthouse"),
        share=Share(principals=("ann", " ", "bob")),
    )
    assert made.share is not None
    assert (made.share.grants_materialized, made.share.principals) == (True, ("bob",))
    assert await found_by(memory, "bob") == ["plan"]
    assert await found_by(memory, "eve") == []
    for _ in range(2):
        await memory.unshare(**ANN, document_id=made.document_id, principals=["bob"])
        assert await found_by(memory, "bob") == []
    for _ in range(2):
        shared = await memory.share(**ANN, document_id=made.document_id, principals=["bob", "eve"])
        assert shared.share.grants_materialized
    assert await found_by(memory, "eve") == ["plan"]
    await memory.unshare(**ANN, document_id=made.document_id, principals=["eve"])
    assert (await found_by(memory, "bob"), await found_by(memory, "eve")) == (["plan"], [])


async def test_a_share_survives_new_versions_and_repeats(store: PostgresDocumentStore) -> None:
    memory = await memory_over(store)
    made = await memory.add(
        **ANN,
        content=Content(title="plan", text="the lighthouse"),
        external_ref="plan",
        share=Share(principals=("bob",)),
    )
    await memory.add(
        **ANN,
        content=Content(title="plan 2", text="the lighthouse again"),
        external_ref="plan",
        access_tags=["a:b"],
    )
    assert await found_by(memory, "bob") == ["plan 2"]
    again = await memory.add(
        **ANN,
        content=Content(title="plan 2", text="the lighthouse again"),
        external_ref="plan",
        share=Share(tenant=True),
    )
    assert again.document_id == made.document_id
    assert await found_by(memory, "bob") == ["plan 2"]


async def test_only_the_creator_shares_and_others_learn_nothing(store: PostgresDocumentStore) -> None:
    grants = InMemoryGrantStore([grant("memory.space:eng")])
    memory = await memory_over(store, grants)
    seen_by_bob = await memory.add(
        **ANN, content=Content(title="plan", text="the lighthouse"), access_tags=["memory.space:eng"]
    )
    hidden = await memory.add(**ANN, content=Content(title="diary", text="the lighthouse"))
    for verb in (memory.share, memory.unshare):
        with pytest.raises(ForbiddenError):
            await verb(**BOB, document_id=seen_by_bob.document_id, principals=["eve"])
        messages = set()
        for document_id in (hidden.document_id, "kdoc_of_nobody"):
            with pytest.raises(NotFoundError) as caught:
                await verb(**BOB, document_id=document_id, principals=["eve"])
            messages.add(str(caught.value))
        assert len(messages) == 1
        with pytest.raises(NotFoundError):
            await verb(tenant_id="other", principal_id="ann", document_id=hidden.document_id, tags=["a:b"])
    assert await found_by(memory, "eve") == []


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"principals": []},
        {"principals": ["ann", " "]},
        {"principals": ["p" * 257]},
        {"principals": [f"p{i}" for i in range(65)]},
        {"principals": [f"p{i}" for i in range(10_000)]},
        {"principals": "bob"},
        {"principals": [5]},
        {"tags": ["memory.owner:eve"]},
        {"tags": ["memory.tenant:other"]},
        {"tags": ["memory"]},
        {"tags": ["*"]},
        {"tags": ["a:\nb"]},
        {"tenant": "yes"},
    ],
)
async def test_a_share_that_makes_no_sense_changes_nothing(
    store: PostgresDocumentStore, given: dict[str, Any]
) -> None:
    memory = await memory_over(store)
    made = await memory.add(**ANN, content=Content(title="plan", text="the lighthouse"))
    with pytest.raises(InvalidInputError):
        await memory.share_for(given, **ANN, document_id=made.document_id)
    assert await found_by(memory, "eve") == []


async def test_sixty_four_peers_are_not_too_many(store: PostgresDocumentStore) -> None:
    memory = await memory_over(store)
    made = await memory.add(**ANN, content=Content(title="plan", text="the lighthouse"))
    shared = await memory.share(**ANN, document_id=made.document_id, principals=[f"p{i}" for i in range(64)])
    assert len(shared.share.principals) == 64
    assert await found_by(memory, "p63") == ["plan"]


async def test_without_a_writable_grant_store_the_receipt_says_so(store: PostgresDocumentStore) -> None:
    memory = Memory(store)
    await memory.open()
    made = await memory.add(
        **ANN, content=Content(title="plan", text="the lighthouse"), share=Share(principals=("bob",))
    )
    assert made.share is not None
    assert (made.share.grants_materialized, made.share.reason) == (
        False,
        "no writable grant store is mounted",
    )
    insisted = Share(principals=("bob",), required=True)
    with pytest.raises(NotSupportedError):
        await memory.add(**ANN, content=Content(title="other", text="the harbour"), share=insisted)
    assert [event.title for event in await memory.list(**ANN)] == ["plan"]


async def test_a_failing_grant_store_loses_no_document(store: PostgresDocumentStore) -> None:
    class Broken(InMemoryGrantStore):
        def put_grant(self, rule: GrantRule) -> None:
            raise RuntimeError("the grant store is down")

    memory = await memory_over(store, Broken())
    made = await memory.add(
        **ANN, content=Content(title="plan", text="the lighthouse"), share=Share(principals=("bob",))
    )
    assert made.share is not None
    assert (made.share.grants_materialized, made.share.reason) == (
        False,
        "the grant store failed; share again",
    )
    assert await found_by(memory, "ann") == ["plan"]


async def test_racing_shares_and_unshares_leave_a_clear_state(store: PostgresDocumentStore) -> None:
    memory = await memory_over(store)
    made = await memory.add(**ANN, content=Content(title="plan", text="the lighthouse"))
    tags = [f"memory.space:{i}" for i in range(12)]
    await asyncio.gather(*(memory.share(**ANN, document_id=made.document_id, tags=[tag]) for tag in tags))
    last = await memory.share(**ANN, document_id=made.document_id, tags=["a:b"])
    assert set(last.share.tags) == {*tags, "a:b", "memory.owner:ann"}
    await asyncio.gather(*(memory.unshare(**ANN, document_id=made.document_id, tags=[tag]) for tag in tags))
    last = await memory.unshare(**ANN, document_id=made.document_id, tags=["a:b"])
    assert last.share.tags == ("memory.owner:ann",)


async def test_vectors_that_mix_readers_are_made_anew(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    """A turn is embedded with the one before it; once their readers differ, its vector must not tell of it."""
    store = await open_store(embed_url=word_server.url)
    first, second = await add(store, turn(1, "the treasure map"), turn(2, "under the oak"))
    texts = [text for request in word_server.requests for text in request.body["input"]]
    assert any("treasure" in text and "oak" in text for text in texts)
    word_server.requests.clear()
    await store.change_access_tags(**ANN, document_id=second.document_id, add=["memory.space:eng"])
    rows = await (
        await owner.execute(
            "SELECT c.document_id FROM memory.embed_queue q JOIN memory.chunk c ON c.id = q.chunk_id"
        )
    ).fetchall()
    assert {row[0] for row in rows} >= {second.document_id}
    await store.embedding.drain(T)
    texts = [text for request in word_server.requests for text in request.body["input"]]
    assert any("oak" in text for text in texts)
    assert not any("treasure" in text and "oak" in text for text in texts)
    assert first.document_id != second.document_id


async def test_items_of_a_batch_are_shared_each_for_itself(store: PostgresDocumentStore) -> None:
    memory = await memory_over(store)
    items = [
        AddInput(content=Content(title="for bob", text="the lighthouse"), share=Share(principals=("bob",))),
        AddInput(content=Content(title="for eve", text="the lighthouse"), share=Share(principals=("eve",))),
        AddInput(content=Content(title="for none", text="the lighthouse")),
    ]
    await memory.add_batch(**ANN, items=items)
    assert await found_by(memory, "bob") == ["for bob"]
    assert await found_by(memory, "eve") == ["for eve"]
