"""One writer: what is kept, what is compared, what is refused."""

import dataclasses
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from corbits_memory.core.enums import AddStatus, EdgeRel, HintEnd
from corbits_memory.core.hashing import source_hash
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.errors import (
    ExternalRefInUseError,
    InvalidAdaptedDocumentError,
    InvalidInputError,
    MemoryError,
    TooLargeError,
)
from corbits_memory.ports import AddResult, EdgeHint, EntityHint, NewDocument, TextPart, TimelineQuery
from tests.engine.support import NOON, P, T, add, find, note, refs, titles, turn

Owner = psycopg.AsyncConnection[Any]


async def rows(owner: Owner, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
    return await (await owner.execute(query, parameters)).fetchall()


async def test_a_new_document_is_found_at_once(store: PostgresDocumentStore) -> None:
    (added,) = await add(store, note("The deploy freeze starts on Friday.", external_ref="n1"))
    assert (added.status, added.version, added.chunks) == (AddStatus.CREATED, 1, 1)
    assert added.degraded == ("embed_unavailable", "lexical_only")
    assert refs(await find(store, "when does the freeze start?")) == ["n1"]


async def test_the_same_again_writes_nothing_but_last_seen(
    store: PostgresDocumentStore, owner: Owner
) -> None:
    document = note("Five years.", external_ref="n1")
    (one,) = await add(store, document)
    (seen,) = await rows(owner, "SELECT last_seen_at FROM memory.document")
    (two,) = await add(store, document)
    assert (two.document_id, two.version_id, two.status, two.chunks) == (
        one.document_id,
        one.version_id,
        AddStatus.UNCHANGED,
        0,
    )
    assert (await rows(owner, "SELECT last_seen_at FROM memory.document"))[0] > seen
    assert await rows(owner, "SELECT count(*) FROM memory.raw_capture") == [(1,)]
    assert await rows(owner, "SELECT count(*) FROM memory.version") == [(1,)]


async def test_a_correction_is_a_new_version(store: PostgresDocumentStore, owner: Owner) -> None:
    (one,) = await add(store, note("She worked there for 5 years.", external_ref="n1"))
    (two,) = await add(store, note("She worked there for 6 years.", external_ref="n1"))
    assert (two.status, two.version, two.document_id) == (AddStatus.UPDATED, 2, one.document_id)
    found = await find(store, "how many years")
    assert [item.snippet for item in found.items] == ["She worked there for 6 years."]
    assert await rows(
        owner, "SELECT version, status, supersedes_version_id FROM memory.version ORDER BY version"
    ) == [
        (1, "superseded", None),
        (2, "active", one.version_id),
    ]
    assert await rows(owner, "SELECT chunk_count, document_count FROM memory.tenant_state") == [(1, 1)]


@pytest.mark.parametrize(
    "change",
    [
        {"title": "Another"},
        {"kind": "report"},
        {"attributes": {"team": "core"}},
        {"author": "Bob"},
        {"thread": "t9"},
        {"valid_until": NOON},
        {"occurred_at": NOON},
        {"temporal_class": "deadline"},
        {"entity_hints": (EntityHint(kind="person", identifier="bob"),)},
        {"edges": (EdgeHint(rel=EdgeRel.ABOUT, type=HintEnd.NATIVE, ref="bob"),)},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_what_else_makes_a_version(store: PostgresDocumentStore, change: dict[str, Any]) -> None:
    await add(store, note("Text.", external_ref="n1"))
    (again,) = await add(store, note("Text.", external_ref="n1", **change))
    assert (again.status, again.version) == (AddStatus.UPDATED, 2)


async def test_other_tags_alone_change_the_tags(store: PostgresDocumentStore, owner: Owner) -> None:
    (one,) = await add(store, note("Text.", external_ref="n1", access_tags=("memory.space:a",)))
    (two,) = await add(store, note("Text.", external_ref="n1", access_tags=("memory.space:b",)))
    assert (two.status, two.version_id) == (AddStatus.UPDATED, one.version_id)
    assert await rows(owner, "SELECT access_tags, system_tags FROM memory.document") == [
        (["memory.space:b"], ["memory.owner:ann"])
    ]
    assert await rows(owner, "SELECT access_tags FROM memory.search_row") == [
        (["memory.space:b", "memory.owner:ann"],)
    ]
    (three,) = await add(store, note("Text.", external_ref="n1"))
    assert three.status is AddStatus.UNCHANGED


async def test_somebody_elses_reference_is_refused_and_untouched(
    store: PostgresDocumentStore, owner: Owner
) -> None:
    await add(store, note("Ann's.", external_ref="n1"))
    before = await rows(owner, "SELECT title, last_seen_at FROM memory.document")
    (answer,) = await store.add(
        tenant_id=T, principal_id="eve", documents=[note("Eve's.", external_ref="n1")]
    )
    assert isinstance(answer, ExternalRefInUseError)
    assert await rows(owner, "SELECT title, last_seen_at FROM memory.document") == before
    assert await rows(owner, "SELECT count(*) FROM memory.version") == [(1,)]
    assert refs(await find(store, "Eve", principal="eve")) == []


async def test_the_same_reference_of_another_tenant_or_adapter_is_another_document(
    store: PostgresDocumentStore,
) -> None:
    (one,) = await add(store, note("A.", external_ref="n1"))
    (two,) = await add(store, note("B.", external_ref="n1"), tenant="acme-corp")
    (three,) = await add(store, note("C.", external_ref="n1", adapter="mail"))
    assert len({one.document_id, two.document_id, three.document_id}) == 3


async def test_one_refused_document_spoils_no_other(store: PostgresDocumentStore) -> None:
    answers = await store.add(
        tenant_id=T,
        principal_id=P,
        documents=[
            note("One.", external_ref="a"),
            note("Two.", title="  ", external_ref="b"),
            note("Three.", language="klingon", external_ref="c"),
            note("Four.", derived_from=("kver_unknown",), external_ref="d"),
            NewDocument(title="Five", parts=tuple(TextPart(text="x") for _ in range(2001)), external_ref="e"),
            note("Six.", external_ref="f"),
        ],
    )
    kinds = [type(answer) for answer in answers]
    assert kinds == [
        AddResult,
        InvalidAdaptedDocumentError,
        InvalidInputError,
        InvalidInputError,
        TooLargeError,
        AddResult,
    ]
    assert sorted(refs(await find(store, "one two three four five six"))) == ["a", "f"]


async def test_what_the_database_refuses_spoils_no_other(store: PostgresDocumentStore, owner: Owner) -> None:
    await owner.execute("ALTER TABLE memory.chunk ADD CHECK (text <> 'poison')")
    answers = await store.add(
        tenant_id=T,
        principal_id=P,
        documents=[
            note("One.", external_ref="a"),
            note("poison", external_ref="b"),
            note("Three.", external_ref="c"),
        ],
    )
    assert [isinstance(answer, MemoryError) for answer in answers] == [False, True, False]
    assert "poison" not in str(answers[1])
    assert await rows(owner, "SELECT external_ref FROM memory.document ORDER BY 1") == [("a",), ("c",)]


async def test_a_reference_twice_in_one_batch_counts_in_order(store: PostgresDocumentStore) -> None:
    answers = await add(
        store,
        note("First.", external_ref="n1"),
        note("Second.", external_ref="n1"),
        note("Second.", external_ref="n1"),
    )
    assert [(a.version, a.status) for a in answers] == [
        (1, AddStatus.CREATED),
        (2, AddStatus.UPDATED),
        (2, AddStatus.UNCHANGED),
    ]


async def test_numbers_go_on_when_no_version_is_active(store: PostgresDocumentStore, owner: Owner) -> None:
    await add(store, note("One.", external_ref="n1"))
    await owner.execute("UPDATE memory.version SET status = 'tombstoned'")
    await owner.execute("DELETE FROM memory.search_row")
    (again,) = await add(store, note("One.", external_ref="n1"))
    assert (again.version, again.status) == (2, AddStatus.UPDATED)


async def test_the_raw_capture_is_kept_once_and_replayable(
    store: PostgresDocumentStore, owner: Owner
) -> None:
    document = note("One.", external_ref="n1", occurred_at=NOON)
    await add(store, document)
    await add(store, note("Two.", external_ref="n1", occurred_at=NOON))
    await add(store, document)
    assert await rows(owner, "SELECT count(*) FROM memory.raw_capture") == [(2,)]
    assert await rows(owner, "SELECT count(*) FROM memory.version WHERE raw_capture_id IS NOT NULL") == [(3,)]
    ((raw,),) = await rows(
        owner, "SELECT raw_text::jsonb -> 'document' FROM memory.raw_capture ORDER BY id LIMIT 1"
    )
    assert raw["chunks"] == [{"ordinal": 0, "text": "One."}]
    ((hashed,),) = await rows(owner, "SELECT source_hash FROM memory.raw_capture ORDER BY id LIMIT 1")
    assert hashed == source_hash(adapter="http", occurred_at="2026-05-07T12:00:00.000Z", document=raw)
    assert raw["externalRef"] == "n1"


async def test_attribution_defaults(store: PostgresDocumentStore, owner: Owner) -> None:
    await add(
        store, note("Human.", external_ref="h"), note("Agent.", external_ref="a", generator_agent_id="bot")
    )
    assert await rows(
        owner,
        "SELECT v.created_by_kind, v.provenance, v.source_class, v.temporal_class, "
        "round(v.authority::numeric, 2)::text "
        "FROM memory.version v JOIN memory.document d ON d.id = v.document_id ORDER BY d.external_ref DESC",
    ) == [("human", "stated", "native", "event", "0.42"), ("agent", "inferred", "derived", "state", "0.30")]


async def test_entities_and_edges_stand_once(store: PostgresDocumentStore, owner: Owner) -> None:
    hints = (EntityHint(kind="person", identifier="bob", label="Bob"),)
    edges = (EdgeHint(rel=EdgeRel.INVOLVES, type=HintEnd.NATIVE, ref="carol"),)
    for text in ("One.", "Two."):
        await add(store, note(text, external_ref="n1", entity_hints=hints, edges=edges))
    assert await rows(owner, "SELECT kind, identifiers ->> 'value' FROM memory.entity ORDER BY 1, 2") == [
        ("person", "bob"),
        ("principal", "carol"),
    ]
    assert await rows(owner, "SELECT rel, from_type, to_type FROM memory.edge ORDER BY rel") == [
        ("involves", "document", "entity"),
        ("mentions", "document", "entity"),
    ]


async def test_claims_point_from_version_to_version(store: PostgresDocumentStore) -> None:
    (source,) = await add(store, note("The pool closes at nine.", external_ref="s"))
    await add(
        store,
        note(
            "Pool hours: until nine.",
            external_ref="c",
            derived_from=(source.version_id,),
            supports=(source.version_id,),
            generator_agent_id="bot",
        ),
    )
    found = {item.external_ref: item.attribution for item in (await find(store, "pool nine")).items}
    claim, origin = found["c"], found["s"]
    assert claim is not None
    assert origin is not None
    assert claim.derived_from == (source.version_id,)
    assert (origin.supports, origin.contradicts) == (1, 0)


async def test_somebody_elses_version_can_not_be_cited(store: PostgresDocumentStore) -> None:
    (secret,) = await add(store, note("Secret."), principal="eve")
    (answer,) = await store.add(
        tenant_id=T, principal_id=P, documents=[note("X.", derived_from=(secret.version_id,))]
    )
    assert isinstance(answer, InvalidInputError)


async def test_the_feed_numbers_commits_without_a_gap(store: PostgresDocumentStore, owner: Owner) -> None:
    await add(store, *(note(f"Text {i}.", external_ref=f"n{i}") for i in range(5)))
    await add(store, note("Text 0.", external_ref="n0"), note("Text 1, changed.", external_ref="n1"))
    assert await rows(owner, "SELECT seq, op FROM memory.feed_event ORDER BY seq") == [
        (seq, "upsert") for seq in range(1, 7)
    ]
    assert await rows(
        owner,
        "SELECT count(*) FROM memory.feed_event e JOIN memory.version v ON v.id = e.version_id AND v.feed_seq = e.seq",
    ) == [(6,)]


async def test_turns_keep_input_order_where_times_are_alike(
    store: PostgresDocumentStore, owner: Owner
) -> None:
    same = [turn(i, f"Turn {i}.") for i in range(4)]
    await add(store, *(replace_time(document) for document in same[:2]))
    await add(store, *(replace_time(document) for document in same[2:]))
    assert await rows(owner, "SELECT external_ref, thread_seq FROM memory.document ORDER BY thread_seq") == [
        (f"t1:{i}", i + 1) for i in range(4)
    ]


def replace_time(document: NewDocument) -> NewDocument:
    return dataclasses.replace(document, occurred_at=NOON)


async def test_a_long_document_stays_one_document_in_order(
    store: PostgresDocumentStore, owner: Owner
) -> None:
    parts = tuple(TextPart(text=f"Paragraph {i} says {'word ' * 700}.\n\n") for i in range(40))
    (added,) = await add(store, NewDocument(title="Log", parts=parts, external_ref="log"))
    assert added.chunks > 40
    stored = await rows(owner, "SELECT text FROM memory.chunk ORDER BY ordinal")
    assert len(stored) == added.chunks
    assert [t[:12] for (t,) in stored if t.startswith("Paragraph")] == [
        f"Paragraph {i} "[:12] for i in range(40)
    ]


async def test_list_is_newest_first_and_ones_own(store: PostgresDocumentStore) -> None:
    await add(
        store, note("Old.", title="Old", occurred_at=NOON - timedelta(days=1)), note("New.", title="New")
    )
    await add(store, note("Eve.", title="Eve"), principal="eve")
    events = await store.list(tenant_id=T, principal_id=P, query=TimelineQuery(limit=10))
    assert [event.title for event in events] == ["New", "Old"]
    assert titles(await find(store, "eve")) == []


async def test_naming_the_own_owner_tag_again_changes_nothing(store: PostgresDocumentStore) -> None:
    given = note("A claim.", external_ref="claim", access_tags=("memory.owner:ann",))
    (first,), (again,) = [await add(store, given) for _ in range(2)]
    assert (first.status, again.status) == ("created", "unchanged")


async def test_text_without_its_version_is_refused_at_the_commit(owner: Owner) -> None:
    """Captures write text before the version that it is of: the end of the transaction asks for it."""
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        async with owner.transaction():
            await owner.execute(
                "INSERT INTO memory.chunk (tenant_id, id, version_id, document_id, ordinal, text, token_count) "
                "VALUES ('acme', 'c', 'none', 'none', 0, 'Text.', 2)"
            )


async def test_a_version_is_written_once(store: PostgresDocumentStore, owner: Owner) -> None:
    """With its number: a second write of each row would be the half of what a capture costs there."""
    await add(store, *(note(f"Text {i}.") for i in range(20)))
    places = (
        "SELECT sum(last) FROM (SELECT max((ctid::text::point)[1]) AS last FROM memory.version "
        "GROUP BY (ctid::text::point)[0]) AS pages"
    )
    assert await rows(owner, places) == [(20,)]
