"""Documents by the names that their source gave them: what is found, a page at a time, and how it is planned."""

import json
from typing import Any

import psycopg
import pytest

from corbits_memory.core import limits
from corbits_memory.engine import documents
from corbits_memory.engine.queries import load_queries
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.ports import LookupPage, LookupQuery, NewDocument, TextPart
from tests.engine.support import P, T, add, note

Owner = psycopg.AsyncConnection[Any]


async def look(store: PostgresDocumentStore, *, who: str = P, tenant: str = T, **asked: Any) -> LookupPage:
    return await store.lookup(
        tenant_id=tenant, principal_id=who, query=LookupQuery(**{"adapter": "notes", **asked})
    )


def refs(page: LookupPage) -> list[str]:
    return [document.external_ref for document in page.documents]


async def put(store: PostgresDocumentStore, *names: str, who: str = P, text: str = "Text.") -> None:
    await add(store, *(note(text, external_ref=name, adapter="notes") for name in names), principal=who)


async def test_by_name_and_by_how_names_begin(store: PostgresDocumentStore) -> None:
    await put(store, "acme/1", "acme/2", "acme-corp/1", "acmé/1", "b")
    await add(store, note("Elsewhere.", external_ref="acme/1", adapter="other"))
    assert refs(await look(store, external_refs=("b", "acme/1", "nowhere"))) == ["acme/1", "b"]
    assert refs(await look(store, prefix="acme/")) == ["acme/1", "acme/2"]
    assert refs(await look(store, prefix="acm")) == ["acme-corp/1", "acme/1", "acme/2", "acmé/1"]
    assert refs(await look(store, prefix="acme/", external_refs=("b",))) == []
    assert refs(await look(store, after="acme/2")) == ["acmé/1", "b"]
    assert refs(await look(store, tenant="nobody")) == []


async def test_only_what_the_caller_may_see_and_what_is_active(
    store: PostgresDocumentStore, owner: Owner
) -> None:
    await put(store, "bobs", who="bob")
    await put(store, "mine", "gone", "old")
    (found,) = [d for d in (await look(store)).documents if d.external_ref == "gone"]
    await store.forget(tenant_id=T, principal_id=P, document_id=found.document_id)
    await owner.execute(
        "UPDATE memory.version SET status = 'deprecated' WHERE document_id = "
        "(SELECT id FROM memory.document WHERE external_ref = 'old')"
    )
    assert refs(await look(store)) == ["mine"]
    assert refs(await look(store, who="bob")) == ["bobs"]


async def test_a_page_ends_with_its_limit_and_says_where_to_go_on(store: PostgresDocumentStore) -> None:
    await put(store, *"abcde")
    first = await look(store, limit=2)
    assert (refs(first), first.next_after) == (["a", "b"], "b")
    second = await look(store, limit=3, after="b")
    assert (refs(second), second.next_after) == (["c", "d", "e"], None)


async def test_no_page_tells_names_that_are_not_shown(store: PostgresDocumentStore) -> None:
    """However many lie between what is asked for and the next that is shown, or behind it."""
    await put(store, *(f"hr/fire-{number:04}" for number in range(1_100)), who="bob")
    await put(store, "a", "z")
    questions: tuple[dict[str, Any], ...] = (
        {},
        {"prefix": "hr/"},
        {"after": "hr/fire-"},
        {"after": "hr/fire-0050", "limit": 1},
    )
    for asked in questions:
        page = await look(store, **asked)
        assert refs(page) == [
            ref for ref in ("a", "z") if ref > asked.get("after", "") and "prefix" not in asked
        ]
        assert page.next_after is None
    assert (await look(store, limit=1)).next_after == "a"


async def test_a_text_comes_as_it_went_in_however_it_was_cut(store: PostgresDocumentStore) -> None:
    text = json.dumps({"words": [f"word {number}" for number in range(4_000)]}, indent=1)
    await put(store, "long", text=text)
    await add(
        store,
        NewDocument(
            title="P",
            parts=(TextPart(text="one "), TextPart(text="two", role="bot")),
            external_ref="parts",
            adapter="notes",
        ),
    )
    page = await look(store, include_text=True)
    assert [document.text for document in page.documents] == [text, "one two"]
    assert [document.text for document in (await look(store)).documents] == [None, None]


@pytest.mark.parametrize(("room", "kept"), [(-1, 1), (0, 2), (1, 2)])
async def test_texts_of_a_page_have_a_limit(
    store: PostgresDocumentStore, owner: Owner, monkeypatch: pytest.MonkeyPatch, room: int, kept: int
) -> None:
    await put(store, *"ab", text="A text of a few words.")
    row = await (await owner.execute("SELECT sum(octet_length(raw_text)) FROM memory.raw_capture")).fetchone()
    assert row is not None
    monkeypatch.setattr(documents, "LOOKUP_TEXT_BYTES", int(row[0]) + room)
    page = await look(store, include_text=True)
    assert (len(page.documents), page.next_after) == (kept, "a" if kept == 1 else None)
    assert len((await look(store)).documents) == 2
    assert limits.LOOKUP_TEXT_BYTES == 1024 * 1024


@pytest.mark.parametrize(
    ("prefix", "behind"),
    [
        ("", None),
        ("a", "b"),
        ("a\U0010ffff", "b"),
        ("\U0010ffff", None),
        ("a\ud7ff", "a\ue000"),
        ("a/", "a0"),
    ],
)
def test_what_begins_alike_ends_before(prefix: str, behind: str | None) -> None:
    assert documents._behind(prefix) == behind


async def test_a_page_reads_the_index_of_names_alone(store: PostgresDocumentStore, owner: Owner) -> None:
    await put(store, "seed")
    await owner.execute(
        "INSERT INTO memory.document (tenant_id, id, kind, title, adapter, external_ref, owner_principal_id) "
        "SELECT 'acme', 'kdoc_' || n, 'note', 't', 'notes', lpad(n::text, 8, '0'), 'ann' "
        "FROM generate_series(1, 100000) n"
    )
    await owner.execute("ANALYZE memory.document")
    parameters: dict[str, Any] = {
        "tenant": T, "adapter": "notes", "refs": None, "low": "0005", "high": "0006", "after": "",
        "limit": 20, "principal": P, "everything": False, "allowed": [], "refused": [], "vetoed": [],
    }  # fmt: skip
    statement = load_queries("documents")["lookup"]
    plan = await (await owner.execute("EXPLAIN " + statement, parameters)).fetchall()
    told = "\n".join(line for (line,) in plan)
    assert "Index Scan using document_reference on document" in told
    assert "Seq Scan on document" not in told
