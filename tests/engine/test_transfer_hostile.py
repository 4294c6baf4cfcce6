"""What somebody wrote into an export by hand: refused with the line and the field, and nothing of it is kept."""

import copy
import math
import re
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from corbits_memory.core import limits
from corbits_memory.core.hashing import sha256_hex
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.engine.transfer import pieces
from corbits_memory.errors import ConflictError, InvalidInputError, MemoryError
from corbits_memory.ports import EntityHint, NewDocument, Share, TextPart
from tests.engine.support import OpenStore, T, add, find, note, titles
from tests.engine.test_access import access_of, grant
from tests.engine.transferring import (
    Lines,
    changed,
    content,
    lines_of,
    of_documents,
    of_kind,
    place_of,
    restore,
    rows_of_all_tables,
)
from tests.models.conftest import ModelServer

Owner = psycopg.AsyncConnection[Any]
ABSENT: Any = ...

BAD: dict[str, Any] = {
    "absent": ABSENT,
    "null": None,
    "true": True,
    "number": 5,
    "negative": -1,
    "beyond bigint": 10**30,
    "half": 1.5,
    "not a number": math.nan,
    "infinite": math.inf,
    "empty": "",
    "blank": "  ",
    "text": "surely not this",
    "long": "x" * 300_000,
    "NUL": "a\x00b",
    "half a character": "a\ud800b",
    "newline": "a\nb",
    "list": [],
    "list of null": [None],
    "list of objects": [{}],
    "long list": ["a:b"] * 5_000,
    "object": {},
    "nested": {"a": {"b": 1}},
    "no date": "2026-13-45",
}
OPTIONAL = {
    "thread", "author", "supersedes_version_id", "superseded_at", "deprecated_at", "deprecated_reason", "role", "label",
    "created_by_principal_id", "generator_agent_id", "raw_capture_id", "valid_from", "valid_until",
}  # fmt: skip
TEXTS = {
    "title", "kind", "thread", "author", "content_type", "created_by_principal_id", "generator_agent_id",
    "supersedes_version_id", "role", "label", "text",
}  # fmt: skip
ANY_ID = {("chunk", "id"), ("edge", "id")}
"""Nothing else in the file repeats these."""
NUMBERS = {"thread_seq", "actor_count", "token_count", "version"}
LINES_OF_TEXT = {"title", "text", "role", "label"}


@pytest.fixture
async def lines(store: PostgresDocumentStore) -> Lines:
    """An export in which each kind of line stands, with each field that a line may have."""
    (source,) = await add(store, note("the source", external_ref="s", title="Source"))
    hint = EntityHint(kind="person", identifier="ada", label="Ada")
    await add(
        store,
        note(
            "a claim",
            external_ref="c",
            title="Claim",
            thread="t",
            author="Ann",
            attributes={"n": 1},
            access_tags=("memory.space:eng",),
            derived_from=(source.version_id,),
            entity_hints=(hint,),
        ),
    )
    return await lines_of(store)


@pytest.fixture
async def untouched(owner: Owner, lines: Lines) -> AsyncIterator[None]:
    before = await rows_of_all_tables(owner)
    yield
    assert await rows_of_all_tables(owner) == before


def fits(kind: str, field: str, what: str) -> bool:
    """Whether one of the values is no mistake in this field."""
    if what in ("absent", "null"):
        return field in OPTIONAL
    if what in ("text", "no date"):
        return field in TEXTS or (kind, field) in ANY_ID
    if what == "newline":
        return field in LINES_OF_TEXT
    if what in ("empty", "blank"):
        return field in {"text", "role"}
    if what == "object":
        return field in {"attributes", "metadata"}
    if what == "list":
        return field in {"access_tags", "system_tags"}
    if what == "true":
        return field == "has_social_signal"
    return what == "number" and field in NUMBERS


@pytest.mark.parametrize("kind", ["document", "raw_capture", "version", "chunk", "edge", "entity"])
async def test_each_field_of_each_kind_of_line_is_checked(
    store: PostgresDocumentStore, lines: Lines, owner: Owner, kind: str
) -> None:
    before = await rows_of_all_tables(owner)
    place = next(p for p in reversed(range(len(lines))) if kind in lines[p])
    for field in lines[place][kind]:
        for what, value in BAD.items():
            if fits(kind, field, what):
                continue
            bad = copy.deepcopy(lines)
            bad[place][kind][field] = value
            if value is ABSENT:
                del bad[place][kind][field]
            refusal = await refusal_of(store, bad)
            assert re.match(r"line \d+: ", refusal), (field, what, refusal)
    assert await rows_of_all_tables(owner) == before


async def refusal_of(store: PostgresDocumentStore, lines: Lines) -> str:
    """The message with which lines are refused, which may be such as no JSON could hold."""

    async def source() -> AsyncIterator[tuple[Any, int]]:
        for line in lines:
            yield line, 100

    try:
        async for _ in store.restorer.restore(source(), tenant_id="other"):
            pass
    except MemoryError as error:
        return error.message
    return "none"


HEADER = "corbits-memory-export"


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    "fields",
    [
        {HEADER: True},
        {HEADER: 1.0},
        {HEADER: "1"},
        {HEADER: 1},
        {HEADER: 3},
        {HEADER: 0},
        {HEADER: None},
        {"tenant": None},
        {"tenant": ABSENT},
        {"tenant": 5},
        {"tenant": "x" * 257},
        {"exported_at": "yesterday"},
        {"model": 5},
        {"model": {"model_key": "k"}},
        {"model": {"model_key": "k", "dims": True}},
        {"model": {"model_key": "k", "dims": 10**9}},
    ],
)
async def test_the_first_line_is_checked(
    store: PostgresDocumentStore, lines: Lines, fields: dict[str, Any]
) -> None:
    head = {name: value for name, value in {**lines[0], **fields}.items() if value is not ABSENT}
    with pytest.raises(InvalidInputError, match="line 1"):
        await restore(store, [head, *lines[1:]], tenant="other")


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    "extra",
    [
        {"nonsense": {}},
        {},
        {"document": {}, "version": {}},
        {"document": []},
        {"chunk": None},
        {"edge": 5},
        {"edge": {"id": "e", "from_type": "chunk"}},
        {"edge": {"id": "e", "from_type": ["version"]}},
        {"end": {}},
        {"end": {"documents": 1}},
    ],
)
async def test_what_is_no_line_of_an_export_is_refused(
    store: PostgresDocumentStore, lines: Lines, extra: dict[str, Any]
) -> None:
    for place in range(1, len(lines) + 1):
        with pytest.raises(InvalidInputError, match="line"):
            await restore(store, [*lines[:place], extra, *lines[place:]], tenant="other")


@pytest.mark.usefixtures("untouched")
async def test_lines_in_another_order_are_refused(store: PostgresDocumentStore, lines: Lines) -> None:
    for place in range(1, len(lines) - 1):
        swapped = [*lines[:place], lines[place + 1], lines[place], *lines[place + 2 :]]
        with pytest.raises(InvalidInputError, match="line"):
            await restore(store, swapped, tenant="other")


RESERVED = [
    "memory.owner:bob",
    "memory.tenant:elsewhere",
    "memory.doc:kdoc_other",
    "*",
    "nocolon",
    " a:b",
    "a:" + "b" * 300,
]


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("tag", RESERVED)
@pytest.mark.parametrize(
    ("kind", "field"), [("document", "access_tags"), ("document", "system_tags"), ("version", "access_tags")]
)
async def test_tags_that_add_would_refuse_are_refused(
    store: PostgresDocumentStore, lines: Lines, tag: str, kind: str, field: str
) -> None:
    place = place_of(lines, kind)
    tags = [*lines[place][kind][field], tag]
    with pytest.raises(InvalidInputError, match=r"^line \d+: .*tags"):
        await restore(store, changed(lines, place, **{field: tags}), tenant="other")


async def test_tags_that_sharing_gave_come_back(store: PostgresDocumentStore, owner: Owner) -> None:
    share = Share(tenant=True, principals=("bob",), tags=("memory.project:x",))
    (added,) = await add(store, note("lighthouse", share=share, access_tags=("memory.space:eng",)))
    lines = await lines_of(store)
    for tenant in ("other", "again"):
        await restore(store, lines, tenant=tenant)
    rows = await owner.execute('SELECT tenant_id, tags FROM memory.document ORDER BY tenant_id COLLATE "C"')
    tags = {tenant: set(found) for tenant, found in await rows.fetchall()}
    own = {"memory.space:eng", "memory.owner:ann", "memory.project:x", f"memory.doc:{added.document_id}"}
    assert tags == {name: own | {f"memory.tenant:{name}"} for name in (T, "other", "again")}


async def test_a_claim_keeps_the_tags_of_its_source(store: PostgresDocumentStore) -> None:
    lines = await claimed(store)
    done = await restore(store, lines, tenant="other", batch_lines=1)
    assert done.withheld == 0
    assert [
        document["access_tags"] for document in of_kind(await lines_of(store, tenant="other"), "document")
    ] == [
        [],
        ["memory.owner:ann"],
    ]


async def test_a_claim_whose_source_comes_later_keeps_its_tags(store: PostgresDocumentStore) -> None:
    """Documents come in the order of their ids, and an old one may have a version made from a new one."""
    await add(store, note("before", external_ref="c"), principal="bob")
    lines = await claimed(store)
    assert "memory.owner:ann" in of_kind(lines, "document")[0]["access_tags"]
    done = await restore(store, lines, tenant="other", batch_lines=1)
    assert done.withheld == 0
    assert content(await lines_of(store, tenant="other")) == content(lines)


async def test_without_its_source_a_claim_comes_back_for_fewer(store: PostgresDocumentStore) -> None:
    lines = await claimed(store)
    alone = of_documents(lines, of_kind(lines, "document")[1]["id"])
    done = await restore(store, alone, tenant="other")
    assert (done.documents, done.withheld) == (1, 1)
    (document,) = of_kind(await lines_of(store, tenant="other"), "document")
    assert (document["access_tags"], document["system_tags"]) == ([], ["memory.owner:bob"])


async def test_a_claim_whose_source_was_purged_comes_back_for_fewer(store: PostgresDocumentStore) -> None:
    lines = await claimed(store)
    source = of_kind(lines, "document")[0]["id"]
    await store.purge(tenant_id=T, principal_id="ann", document_id=source)
    done = await restore(store, await lines_of(store), tenant="other")
    assert (done.documents, done.withheld) == (1, 1)


def claim_of(version_id: str) -> Any:
    return note("a claim", external_ref="c", derived_from=(version_id,), access_tags=("memory.owner:ann",))


async def claimed(store: PostgresDocumentStore) -> Lines:
    """A source of ann's that bob may see, and bob's claim with a copy of its tag."""
    (source,) = await add(store, note("the source", external_ref="s"))
    access = await access_of(grant("memory.owner:ann"))
    await store.add(tenant_id=T, principal_id="bob", documents=[claim_of(source.version_id)], access=access)
    return await lines_of(store)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("document", {"owner_principal_id": "mallory", "system_tags": [], "access_tags": []}),
        ("document", {"adapter": "mail"}),
        ("document", {"external_ref": "elsewhere"}),
        ("version", {"content_hash": "0" * 64}),
        ("version", {"version": 7}),
        ("chunk", {"id": "kchk_forged"}),
    ],
)
async def test_what_is_here_is_not_written_to(
    store: PostgresDocumentStore, lines: Lines, owner: Owner, kind: str, fields: dict[str, Any]
) -> None:
    before = await rows_of_all_tables(owner)
    bad = copy.deepcopy(lines)
    for line in bad[1 : place_of(lines, "document", 1)]:
        row = next(iter(line.values()))
        # What has to repeat the document does.
        row.update({n: v for n, v in fields.items() if n in row and (kind == "document" or kind in line)})
    blamed = place_of(lines, "document" if kind == "document" else "version")
    with pytest.raises(ConflictError, match=f"^line {blamed + 1}: "):
        await restore(store, bad)
    assert await rows_of_all_tables(owner) == before


async def test_ids_of_others_are_refused(store: PostgresDocumentStore, lines: Lines, owner: Owner) -> None:
    await restore(store, lines, tenant="other")
    await owner.execute("DELETE FROM memory.document WHERE tenant_id = 'other' AND external_ref = 's'")
    await owner.execute("UPDATE memory.tenant_state SET document_count = 1 WHERE tenant_id = 'other'")
    before = await rows_of_all_tables(owner, but=("access_tag",))
    (second,) = [row["id"] for row in of_kind(lines, "version")][1:]
    chunk = of_kind(lines, "chunk")[1]["id"]
    capture = of_kind(lines, "raw_capture")[1]["id"]

    forged = changed(lines, place_of(lines, "version"), id=second)
    forged = changed(forged, place_of(lines, "chunk"), version_id=second)
    with pytest.raises(ConflictError, match=r"line \d+: version\.id"):
        await restore(store, forged, tenant="other")
    with pytest.raises(ConflictError, match=r"line \d+: a chunk"):
        await restore(store, changed(lines, place_of(lines, "chunk"), id=chunk), tenant="other")
    text = of_kind(lines, "raw_capture")[0]["raw_text"] + " "
    stolen = changed(
        lines, place_of(lines, "raw_capture"), id=capture, raw_text=text, source_hash=sha256_hex(text)
    )
    stolen = changed(stolen, place_of(lines, "version"), raw_capture_id=capture)
    with pytest.raises(ConflictError, match=r"line \d+: version\.raw_capture_id"):
        await restore(store, stolen, tenant="other")
    absent = changed(lines, place_of(lines, "version"), raw_capture_id=capture)
    del absent[place_of(lines, "raw_capture")]
    absent[-1]["end"]["raw_captures"] -= 1
    with pytest.raises(ConflictError, match=r"line \d+: version\.raw_capture_id"):
        await restore(store, absent, tenant="other")
    assert await rows_of_all_tables(owner, but=("access_tag",)) == before


async def test_edges_and_entities_of_others_are_refused(
    store: PostgresDocumentStore, lines: Lines, owner: Owner
) -> None:
    hint = EntityHint(kind="person", identifier="eve")
    await add(store, note("eve", entity_hints=(hint,)), tenant="other")
    (edge, entity) = (
        await (
            await owner.execute(
                "SELECT e.id, n.id FROM memory.edge e JOIN memory.entity n USING (tenant_id) WHERE tenant_id = 'other'"
            )
        ).fetchall()
    )[0]
    before = await rows_of_all_tables(owner)
    place = place_of(lines, "entity")
    with pytest.raises(ConflictError, match=f"line {place + 1}: edge"):
        await restore(store, changed(lines, place, id=edge), tenant="other")
    stolen = changed(lines, place, to_ref=entity)
    stolen[place]["entity"]["id"] = entity
    with pytest.raises(ConflictError, match=f"line {place + 1}: entity"):
        await restore(store, stolen, tenant="other")
    assert await rows_of_all_tables(owner) == before


async def test_limits_hold_at_and_not_above(store: PostgresDocumentStore, lines: Lines) -> None:
    document, version, chunk = (place_of(lines, kind) for kind in ("document", "version", "chunk"))
    cases: list[tuple[int, str, Any, Any]] = [
        (document, "title", "x" * limits.TITLE_CHARS, "x" * (limits.TITLE_CHARS + 1)),
        (document, "kind", "x" * limits.KIND_CHARS, "x" * (limits.KIND_CHARS + 1)),
        (document, "author", "x" * limits.AUTHOR_CHARS, "x" * (limits.AUTHOR_CHARS + 1)),
        (version, "thread", "x" * limits.ID_CHARS, "x" * (limits.ID_CHARS + 1)),
        (chunk, "text", "x" * limits.CHUNK_CHARS, "x" * (limits.CHUNK_CHARS + 1)),
        (
            version,
            "attributes",
            {str(n): n for n in range(limits.ATTRIBUTES)},
            {str(n): n for n in range(limits.ATTRIBUTES + 1)},
        ),
        (version, "attributes", {"k": limits.SAFE_INTEGER}, {"k": limits.SAFE_INTEGER + 1}),
        (
            document,
            "access_tags",
            [f"a:{n}" for n in range(limits.TAGS_PER_DOCUMENT - 1)],
            [f"a:{n}" for n in range(limits.TAGS_PER_DOCUMENT)],
        ),
        (version, "authority", 1, 1.01),
    ]
    for number, (place, field, most, too_much) in enumerate(cases):
        await restore(store, changed(lines, place, **{field: most}), tenant=f"at {number}")
        with pytest.raises(InvalidInputError, match=f"line {place + 1}"):
            await restore(store, changed(lines, place, **{field: too_much}), tenant="above")
    assert of_kind(await lines_of(store, tenant="above"), "document") == []


async def test_a_version_has_no_more_chunks_than_any_text_is_cut_into(
    store: PostgresDocumentStore, lines: Lines
) -> None:
    place = place_of(lines, "version")
    for count, problem in (
        (limits.CHUNKS_PER_VERSION, "chunks follow it"),
        (limits.CHUNKS_PER_VERSION + 1, "must be an integer between"),
    ):
        with pytest.raises(InvalidInputError, match=problem):
            await restore(store, changed(lines, place, chunks=count), tenant="other")


async def test_a_version_has_no_more_edges_than_an_add_may_give(
    store: PostgresDocumentStore, lines: Lines
) -> None:
    place = next(p for p, line in enumerate(lines) if line.get("edge", {}).get("from_type") == "version")
    for count, fine in ((limits.VERSION_EDGES, True), (limits.VERSION_EDGES + 1, False)):
        edges = [{"edge": {**lines[place]["edge"], "id": f"e{n}", "to_ref": f"v{n}"}} for n in range(count)]
        many = [*lines[:place], *edges, *lines[place + 1 :]]
        many[-1] = {"end": {**many[-1]["end"], "edges": len(of_kind(many, "edge"))}}
        if fine:
            await restore(store, many, tenant="many")
        else:
            with pytest.raises(InvalidInputError, match="one too many"):
                await restore(store, many, tenant="too many")


async def test_the_text_of_a_version_is_limited_as_a_whole(
    store: PostgresDocumentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add(store, NewDocument(title="Long", parts=(TextPart(text="12345"), TextPart(text="67890"))))
    lines = await lines_of(store)
    monkeypatch.setattr(pieces, "VERSION_TEXT_CHARS", 9)
    with pytest.raises(InvalidInputError, match=r"^line 6: chunk\.text makes"):
        await restore(store, lines, tenant="other")
    monkeypatch.setattr(pieces, "VERSION_TEXT_CHARS", 10)
    assert (await restore(store, lines, tenant="other")).versions == 1


@pytest.mark.parametrize(
    "vector", ["[]", "[1, 2", "x", 5, [1.0], "[" + ",".join(["1e9"] * 64) + "]", "[" + "1," * 63 + "null]"]
)
async def test_vectors_are_checked(
    open_store: OpenStore, word_server: ModelServer, owner: Owner, vector: Any
) -> None:
    store = await open_store(embed_url=word_server.url)
    await add(store, note("lighthouse"))
    lines = await lines_of(store)
    place = place_of(lines, "vector")
    before = await rows_of_all_tables(owner)
    bad = copy.deepcopy(lines)
    bad[place]["vector"] = vector
    with pytest.raises(InvalidInputError, match=f"line {place + 1}: vector"):
        await restore(store, bad, tenant="other")
    assert await rows_of_all_tables(owner) == before


async def test_an_unknown_field_is_left_out(store: PostgresDocumentStore, lines: Lines) -> None:
    more = [{**line, "beside": 1} for line in copy.deepcopy(lines)]
    for line in more[1:]:
        next(iter(line.values()))["later"] = {"a": [1]}
    await restore(store, more, tenant="other")
    assert content(await lines_of(store, tenant="other")) == content(lines)
    assert sorted(titles(await find(store, "source claim", tenant="other"))) == ["Claim", "Source"]
