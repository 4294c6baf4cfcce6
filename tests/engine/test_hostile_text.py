"""Any text that passes the door is kept as it is, and found."""

from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corbits_memory.core import limits
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.errors import TooLargeError
from corbits_memory.ports import AddResult, NewDocument, TextPart
from tests.engine.support import P, T, add, find, note, refs

Owner = psycopg.AsyncConnection[Any]

TEXTS = {
    "right to left": "שלום עולם، هذا نص عربي طويل",
    "combining": "e\u0301a\u0300" + "o" + "\u0308" * 50,
    "emoji": "👩‍👩‍👧‍👦 went to 🇳🇴 with 🧑🏽‍🚀",
    "control characters": "".join(map(chr, range(1, 32))) + "end",
    "a word of 100,000 characters": "x" * 100_000,
    "no spaces in 100,000 characters": "漢字" * 50_000,
    "astral": "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 🜁",
    "quotes and backslashes": "'; DROP TABLE memory.chunk; -- \\ \" $$ %s {} {{FTS_LANGUAGE}}",
    "zero width": "a\u200bb\u200dc\ufeffd",
    "only punctuation": "… — ¿? !!! ---",
    "whitespace inside": "a\t\n\r\u2028 b",
    "2,000 different words": " ".join(f"word{i}" for i in range(2000)),
    "numbers": "1e400 -0 0x7f NaN Infinity 99999999999999999999999",
}


@pytest.mark.parametrize("name", TEXTS)
async def test_text_is_kept_to_the_character(store: PostgresDocumentStore, owner: Owner, name: str) -> None:
    text = TEXTS[name]
    await add(store, note(text, title="marker " + text[:400], external_ref="n1"))
    chunks = await (await owner.execute("SELECT text FROM memory.chunk ORDER BY ordinal")).fetchall()
    assert chunks[0][0] == text[: len(chunks[0][0])]
    assert chunks[-1][0] == text[-len(chunks[-1][0]) :]
    assert refs(await find(store, "marker")) == ["n1"]
    await find(store, text[:8192])


async def test_two_thousand_parts_are_one_document(store: PostgresDocumentStore, owner: Owner) -> None:
    parts = tuple(TextPart(text=f"part {i}", role="user" if i % 2 else None) for i in range(2000))
    (added,) = await add(store, NewDocument(title="Log", parts=parts, external_ref="log"))
    assert added.chunks == 2000
    rows = await (await owner.execute("SELECT text, role FROM memory.chunk ORDER BY ordinal")).fetchall()
    assert [text for text, _ in rows] == [part.text for part in parts]
    assert refs(await find(store, "part 1234")) == ["log"]


async def test_one_part_more_is_refused_and_spoils_no_other(
    store: PostgresDocumentStore, owner: Owner
) -> None:
    parts = tuple(TextPart(text=f"part {i}") for i in range(limits.CHUNKS_PER_DOCUMENT + 1))
    refused, kept = await store.add(
        tenant_id=T,
        principal_id=P,
        documents=[NewDocument(title="Log", parts=parts, external_ref="log"), note("marker")],
    )
    assert isinstance(refused, TooLargeError)
    assert isinstance(kept, AddResult)
    assert await (await owner.execute("SELECT count(*) FROM memory.raw_capture")).fetchone() == (1,)


async def test_a_document_without_text_is_stored_and_never_found(store: PostgresDocumentStore) -> None:
    (added,) = await add(store, NewDocument(title="Empty", parts=(), external_ref="e"))
    assert added.chunks == 0
    assert refs(await find(store, "empty")) == []


STORABLE = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=300)


@given(text=STORABLE, title=STORABLE.filter(str.strip), query=STORABLE.filter(str.strip))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_no_text_and_no_query_breaks_anything(
    store: PostgresDocumentStore, text: str, title: str, query: str
) -> None:
    await add(store, note(text, title=title, author=title[:200], attributes={title[:50]: text}))
    await find(store, query)
    await find(store, f'"{query}" -{text[:50]}')
