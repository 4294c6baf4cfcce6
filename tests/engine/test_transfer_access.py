"""What an export for a principal tells, and that tags come back as they were."""

import json
from typing import Any

import psycopg

from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.ports import EntityHint, SearchQuery, Share
from tests.engine.support import OpenStore, P, T, add, note, turn
from tests.engine.test_access import access_of, grant
from tests.engine.transferring import content, lines_of, of_kind, restore
from tests.models.conftest import ModelServer

Owner = psycopg.AsyncConnection[Any]
ENG, LAYOFFS = "memory.space:eng", "memory.space:layoffs-2027"


async def corpus(store: PostgresDocumentStore) -> None:
    """Ann's documents, of which bob sees one, and one of bob's own that names the same person as hers."""
    ada = EntityHint(kind="person", identifier="ada", label="SECRETLABEL")
    (hidden,) = await add(store, note("hidden", title="Hidden", external_ref="h", entity_hints=(ada,)))
    (seen,) = await add(
        store,
        note(
            "seen by bob",
            title="Seen",
            external_ref="seen",
            access_tags=(ENG, LAYOFFS),
            share=Share(principals=("carol",)),
            derived_from=(hidden.version_id,),
            entity_hints=(EntityHint(kind="project", identifier="titan", label="Titan"),),
        ),
    )
    assert seen.version == 1
    await add(
        store,
        note(
            "bob's own",
            title="Own",
            access_tags=("memory.space:bobs",),
            entity_hints=(
                EntityHint(kind="person", identifier="ada"),
                EntityHint(kind="place", identifier="x", label="X"),
            ),
        ),
        principal="bob",
    )


async def test_of_others_it_tells_what_a_read_tells(store: PostgresDocumentStore) -> None:
    await corpus(store)
    access = await access_of(grant(ENG))
    lines = await lines_of(store, principal_id="bob", access=access)
    assert [document["title"] for document in of_kind(lines, "document")] == ["Seen", "Own"]
    seen, own = of_kind(lines, "document")
    detail = await store.document(tenant_id=T, principal_id="bob", document_id=seen["id"], access=access)
    assert seen["access_tags"] + seen["system_tags"] == list(detail.access_tags) == [ENG]
    assert set(own["access_tags"] + own["system_tags"]) == {"memory.space:bobs", "memory.owner:bob"}
    version, _ = of_kind(lines, "version")
    assert (version["access_tags"], version["raw_capture_id"]) == ([ENG], None)
    assert version["content_hash"] == f"withheld:{version['id']}"
    # The capture's payload holds all tags, what it was derived from can't be seen, what it is about no read tells.
    text = json.dumps(lines)
    assert "layoffs" not in text
    assert "carol" not in text
    assert f"memory.doc:{seen['id']}" not in text
    assert [edge["from_ref"] for edge in of_kind(lines, "edge")] == [own["id"]] * 2
    assert len(of_kind(lines, "raw_capture")) == 1
    assert lines[0]["documents"] is None


async def test_labels_are_told_where_nobody_elses_document_can_have_given_them(
    store: PostgresDocumentStore,
) -> None:
    await corpus(store)
    for owned in (True, False):
        lines = await lines_of(store, principal_id="bob", access=await access_of(grant(ENG)), owned=owned)
        assert "SECRETLABEL" not in json.dumps(lines)
        labels = {entity["identifiers"]["value"]: entity["label"] for entity in of_kind(lines, "entity")}
        assert labels == {"ada": None, "x": "X"}
    whole = {entity["label"] for entity in of_kind(await lines_of(store), "entity")}
    assert whole == {"SECRETLABEL", "Titan", "X"}


async def test_vectors_of_others_stay_where_they_are(open_store: OpenStore, word_server: ModelServer) -> None:
    store = await open_store(embed_url=word_server.url)
    await add(
        store, turn(0, "said by ann", access_tags=(ENG,)), turn(1, "and said by her", access_tags=(ENG,))
    )
    await add(store, note("said by bob"), principal="bob")
    await store.embedding.drain(T)
    lines = await lines_of(store, principal_id="bob", access=await access_of(grant(ENG)))
    told = {line["chunk"]["text"]: "vector" in line for line in lines if "chunk" in line}
    assert told == {"said by ann": False, "and said by her": False, "said by bob": True}


async def test_an_export_for_a_principal_can_be_read_back(store: PostgresDocumentStore) -> None:
    await corpus(store)
    lines = await lines_of(store, principal_id="bob", access=await access_of(grant(ENG)))
    for _ in range(2):
        await restore(store, lines, tenant="other")
        found = await lines_of(store, tenant="other", principal_id="bob", access=await access_of(grant(ENG)))
        assert content(found) == content(lines)


async def test_an_earlier_version_keeps_the_tags_that_it_was_written_with(
    store: PostgresDocumentStore, owner: Owner
) -> None:
    """It was private; its document was shared later, and it is found by its owner alone, here and after an import."""
    (first,) = await add(store, note("salary 4711", external_ref="d", title="Private"))
    await store.deprecate_version(tenant_id=T, actor_id="op", version_id=first.version_id)
    await add(store, note("in the open", external_ref="d", title="Open", access_tags=(ENG,)))
    lines = await lines_of(store)
    versions = of_kind(lines, "version")
    assert [version["status"] for version in versions] == ["deprecated", "active"]
    assert [ENG in version["access_tags"] for version in versions] == [False, True]
    await restore(store, lines, tenant="other", batch_lines=1)
    assert content(await lines_of(store, tenant="other")) == content(lines)
    for tenant in (T, "other"):
        access = await access_of(grant(ENG), tenant=tenant)
        query = SearchQuery(query="salary open", include_deprecated=True, max_per_document=5)
        seen = await store.search(tenant_id=tenant, principal_id="bob", query=query, access=access)
        own = await store.search(tenant_id=tenant, principal_id=P, query=query)
        assert [item.title for item in seen.items] == ["Open"]
        assert sorted(item.title for item in own.items) == ["Open", "Private"]
    rows = await owner.execute(
        "SELECT tenant_id, status, access_tags FROM memory.search_row ORDER BY status, tenant_id"
    )
    found = await rows.fetchall()
    assert [row[2] for row in found[:2]] == [found[0][2]] * 2
    assert [row[2] for row in found[2:]] == [found[2][2]] * 2


async def test_a_retag_between_the_batches_has_vectors_made_anew(
    open_store: OpenStore, word_server: ModelServer
) -> None:
    """The second turn's vector holds the first one's text, which its readers may not see any more here."""
    store = await open_store(embed_url=word_server.url)
    first, _ = await add(
        store, turn(0, "the first", access_tags=(ENG,)), turn(1, "the second", access_tags=(ENG,))
    )
    await store.embedding.drain(T)
    lines = await lines_of(store)
    assert [line.get("previous") is not None for line in lines if "chunk" in line] == [False, True]
    steps = store.restorer.restore(_source(lines), tenant_id="here", batch_lines=1)
    done = await anext(steps)
    assert (done.versions, done.vectors) == (1, 1)
    await add(store, turn(0, "the first", access_tags=()), tenant="here")
    *_, done = [step async for step in steps]
    assert (done.versions, done.vectors) == (2, 1)
    assert first.document_id == of_kind(lines, "document")[0]["id"]


async def _source(lines: Any) -> Any:
    for line in lines:
        yield line, 100
