"""Reading by id: the document, what each version changed, the text page by page; the invisible is unknown."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from corbits_memory.core.enums import Effect
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.errors import NotFoundError
from corbits_memory.ports import TextPart
from tests.engine.support import T, add, note
from tests.engine.test_access import access_of, grant

ANN: Any = {"tenant_id": T, "principal_id": "ann"}
BOB: Any = {"tenant_id": T, "principal_id": "bob"}


async def test_a_document_tells_what_it_is(store: PostgresDocumentStore) -> None:
    (made,) = await add(
        store,
        note(
            "the text",
            title="Plan",
            kind="policy",
            attributes={"n": 1},
            author="Ann",
            external_ref="wiki:1",
            adapter="wiki",
            access_tags=("memory.space:eng",),
            occurred_at=datetime(2026, 1, 2, tzinfo=UTC),
        ),
    )
    document = await store.document(**ANN, document_id=made.document_id)
    assert (document.adapter, document.external_ref, document.owner) == ("wiki", "wiki:1", "ann")
    assert document.access_tags == ("memory.space:eng", "memory.owner:ann")
    current = document.current
    assert (current.title, current.kind, current.author, dict(current.attributes)) == (
        "Plan",
        "policy",
        "Ann",
        {"n": 1},
    )
    assert (current.version, current.status, current.occurred_at) == (
        1,
        "active",
        datetime(2026, 1, 2, tzinfo=UTC),
    )
    access = await access_of(grant("memory.space:eng"))
    assert (await store.document(**BOB, document_id=made.document_id, access=access)).access_tags == (
        "memory.space:eng",
    )


async def test_history_says_what_each_version_changed(store: PostgresDocumentStore) -> None:
    versions = [
        note("one", title="A", external_ref="d"),
        note("two", title="A", external_ref="d"),
        note("two", title="B", external_ref="d", attributes={"x": 1}),
    ]
    for version in versions:
        (made,) = await add(store, version)
    page = await store.history(**ANN, document_id=made.document_id, limit=100)
    assert [(e.facts.version, e.facts.status, e.changed) for e in page.entries] == [
        (3, "active", ("title", "attributes")),
        (2, "superseded", ("text",)),
        (1, "superseded", ()),
    ]
    assert page.next_before is None
    assert page.entries[1].superseded_at is not None
    first = await store.history(**ANN, document_id=made.document_id, limit=2)
    assert [entry.facts.version for entry in first.entries] == [3, 2]
    assert first.entries[1].changed == ("text",)
    rest = await store.history(**ANN, document_id=made.document_id, limit=2, before=first.next_before)
    assert ([entry.facts.version for entry in rest.entries], rest.next_before) == ([1], None)


async def test_a_versions_text_comes_page_by_page(store: PostgresDocumentStore) -> None:
    document = note("")
    parts = tuple(TextPart(text=f"paragraph {n}", role="user") for n in range(5))
    (made,) = await add(store, replace(document, parts=parts))
    seen: list[str] = []
    after: int | None = None
    for _ in range(3):
        page = await store.version(**ANN, version_id=made.version_id, limit=2, after=after)
        seen += [part.text for part in page.text]
        after = page.next_after
    assert after is None
    assert seen == [f"paragraph {n}" for n in range(5)]


async def test_a_version_names_the_sources_that_the_caller_may_see(store: PostgresDocumentStore) -> None:
    (source,) = await add(store, note("source"))
    (claim,) = await add(
        store, note("claim", derived_from=(source.version_id,), access_tags=("memory.space:eng",))
    )
    own = await store.version(**ANN, version_id=claim.version_id, limit=10)
    assert own.derived_from == (source.version_id,)
    access = await access_of(grant("memory.space:eng"))
    theirs = await store.version(**BOB, version_id=claim.version_id, limit=10, access=access)
    assert theirs.derived_from == ()


async def test_an_earlier_version_is_seen_by_what_it_was_written_with(store: PostgresDocumentStore) -> None:
    """Text that was written for few stays with them, whoever may read the document now."""
    (before,) = await add(store, note("for hr", external_ref="d", access_tags=("memory.space:hr",)))
    (after,) = await add(store, note("for all", external_ref="d", access_tags=("memory.space:eng",)))
    access = await access_of(grant("memory.space:eng"))
    assert (await store.version(**BOB, version_id=after.version_id, limit=1, access=access)).text
    with pytest.raises(NotFoundError):
        await store.version(**BOB, version_id=before.version_id, limit=1, access=access)
    page = await store.history(**BOB, document_id=after.document_id, limit=10, access=access)
    assert [entry.facts.version for entry in page.entries] == [2]


@pytest.mark.parametrize("tenant", [T, "other"])
async def test_the_invisible_is_unknown(store: PostgresDocumentStore, tenant: str) -> None:
    (made,) = await add(store, note("secret", access_tags=("memory.space:hr",)))
    principal = "bob" if tenant == T else "ann"
    who: Any = {"tenant_id": tenant, "principal_id": principal}
    access = await access_of(grant("memory.space:eng"), grant("memory.space:hr", effect=Effect.DENY))
    messages = []
    for document_id, version_id in ((made.document_id, made.version_id), ("kdoc_none", "kver_none")):
        for call in (
            store.document(**who, document_id=document_id, access=access),
            store.history(**who, document_id=document_id, limit=5, access=access),
            store.version(**who, version_id=version_id, limit=5, access=access),
        ):
            with pytest.raises(NotFoundError) as caught:
                await call
            messages.append(str(caught.value))
    assert messages[:3] == messages[3:]
