"""What each route takes and answers, to the letter of its JSON names."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from corbits_memory.core.enums import Channel, EvidenceLevel, MinEvidence
from corbits_memory.http import memory_app
from corbits_memory.plane import Memory
from corbits_memory.ports import (
    Access,
    Attribution,
    Citation,
    OpenTarget,
    SearchItem,
    SearchQuery,
    SearchResult,
    StoreCapabilities,
)
from corbits_memory.testing import FakeDocumentStore
from tests.http.conftest import client_of, identity
from tests.http.test_guard import error_of

NOTE = {"title": "Deploys", "text": "Fridays are frozen."}


def fields_of(answer: httpx2.Response) -> list[str]:
    assert answer.status_code == 400
    return [found["field"] for found in error_of(answer)["details"]]


# --- add ---------------------------------------------------------------------------------------------


async def test_add_answers_what_it_made(http: httpx2.AsyncClient) -> None:
    answer = await http.post("/add", json=NOTE)
    assert answer.status_code == 200
    assert answer.json() == {
        "documentId": "fake_doc_1",
        "versionId": "fake_ver_1",
        "version": 1,
        "status": "created",
        "chunks": 1,
    }


async def test_add_passes_every_field_on(http: httpx2.AsyncClient, store: FakeDocumentStore) -> None:
    answer = await http.post(
        "/add",
        json={
            **NOTE,
            "kind": "policy",
            "access_tags": ["memory.space:ops"],
            "share": {"tenant": True, "principals": ["bob"], "tags": ["memory.project:x"], "more": 1},
            "generator_agent_id": "bot",
            "provenance": "stated",
            "lineage_class": "derived",
            "temporal_class": "lesson",
            "retention_class": "durable",
            "derived_from": ["kver_1"],
            "supports": ["kver_2"],
            "contradicts": ["kver_3"],
            "valid_from": "2026-01-01",
            "valid_until": "2026-02-01T10:00:00+01:00",
            "occurred_at": "2026-01-01T00:00:00Z",
            "external_ref": "wiki:1",
            "adapter": "wiki",
            "thread": "t-1",
            "author": "Ann",
            "attributes": {"a": 1, "b": None},
            "language": "english",
        },
    )
    assert answer.json()["share"] == {
        "tags": ["memory.owner:ann", "memory.space:ops", "memory.tenant:acme", "memory.project:x"],
        "principals": ["bob"],
        "grantsMaterialized": False,
        "reason": "no writable grant store is mounted",
    }
    (kept,) = store.documents
    content = kept.content
    assert (content.kind, content.adapter, content.external_ref, content.thread, content.author) == (
        "policy",
        "wiki",
        "wiki:1",
        "t-1",
        "Ann",
    )
    assert (
        content.generator_agent_id,
        content.provenance,
        content.lineage_class,
        content.temporal_class,
    ) == (
        "bot",
        "inferred",
        "derived",
        "lesson",
    )
    assert (content.retention_class, content.language) == ("durable", "english")
    assert (content.derived_from, content.supports, content.contradicts) == (
        ("kver_1",),
        ("kver_2",),
        ("kver_3",),
    )
    assert content.valid_from == content.occurred_at == datetime(2026, 1, 1, tzinfo=UTC)
    assert content.valid_until == datetime(2026, 2, 1, 9, tzinfo=UTC)
    assert content.attributes == {"a": 1, "b": None}


async def test_nulls_count_as_absent(http: httpx2.AsyncClient, store: FakeDocumentStore) -> None:
    answer = await http.post("/add", json={**NOTE, "kind": None, "share": None, "access_tags": None})
    assert answer.status_code == 200
    assert (store.documents[0].content.kind, store.documents[0].content.access_tags) == ("note", None)


async def test_add_says_all_that_is_wrong_and_echoes_nothing(http: httpx2.AsyncClient) -> None:
    answer = await http.post("/add", json={"title": "", "kind": 5, "valid_from": "secret", "share": "secret"})
    assert fields_of(answer) == ["title", "text", "share", "kind", "valid_from"]
    assert "secret" not in answer.text


@pytest.mark.parametrize(("chars", "status"), [(499, 200), (500, 200), (501, 400)])
async def test_a_title_has_500_characters(http: httpx2.AsyncClient, chars: int, status: int) -> None:
    assert (await http.post("/add", json={**NOTE, "title": "é" * chars})).status_code == status


async def test_the_same_name_of_somebody_else_is_409(memory: Memory) -> None:
    app = memory_app(memory, identity=identity)
    async with client_of(app) as ann, client_of(app, token="bob") as bob:
        assert (await ann.post("/add", json={**NOTE, "external_ref": "w:1"})).json()["status"] == "created"
        assert (await ann.post("/add", json={**NOTE, "external_ref": "w:1"})).json()["status"] == "unchanged"
        updated = await ann.post("/add", json={**NOTE, "text": "new", "external_ref": "w:1"})
        refused = await bob.post("/add", json={**NOTE, "external_ref": "w:1"})
    assert (updated.json()["status"], updated.json()["version"]) == ("updated", 2)
    assert (refused.status_code, error_of(refused)["code"]) == (409, "external_ref_in_use")


async def test_a_batch_answers_in_order(http: httpx2.AsyncClient) -> None:
    answer = await http.post("/add/batch", json={"items": [NOTE, {"title": "x"}, 5, {**NOTE, "title": "B"}]})
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [result.get("documentId") for result in results] == ["fake_doc_1", None, None, "fake_doc_2"]
    assert results[1] == {
        "error": {
            "code": "invalid_input",
            "message": "text is required",
            "details": [{"field": "text", "problem": "is required"}],
        }
    }


@pytest.mark.parametrize(("items", "status"), [(0, 200), (999, 200), (1_000, 200), (1_001, 400)])
async def test_a_batch_has_a_thousand_items(http: httpx2.AsyncClient, items: int, status: int) -> None:
    answer = await http.post("/add/batch", json={"items": [NOTE] * items})
    assert answer.status_code == status
    if status == 200:
        assert len(answer.json()["results"]) == items


@pytest.mark.parametrize("body", [{}, {"items": None}, {"items": "x"}, {"items": {"0": NOTE}}])
async def test_a_batch_needs_a_list(http: httpx2.AsyncClient, body: dict[str, Any]) -> None:
    assert fields_of(await http.post("/add/batch", json=body)) == ["items"]


# --- search ------------------------------------------------------------------------------------------

RICH = SearchItem(
    document_id="kdoc_1",
    chunk_id="kchk_1",
    title="T",
    snippet="S",
    score=0.5,
    kind="note",
    adapter="wiki",
    external_ref="wiki:1",
    citation=Citation(
        adapter="wiki", external_ref="wiki:1", open=OpenTarget(type="memory", id="kdoc_1", url=None)
    ),
    attribution=Attribution(
        version_id="kver_2",
        version=2,
        status="deprecated",
        created_by_kind="agent",
        owner="ann",
        author="Ann",
        thread="t-1",
        generator_agent_id="bot",
        provenance="inferred",
        source_class="derived",
        temporal_class="state",
        occurred_at=datetime(2026, 1, 2, 3, 4, 5, 678_900, tzinfo=UTC),
        valid_until=datetime(2026, 2, 1, tzinfo=UTC),
        evidence=EvidenceLevel.STRONG,
        supports=2,
        contradicts=1,
        derived_from=("kver_1",),
        entity_ids=("kent_1",),
        channels=(Channel.LEXICAL, Channel.DENSE),
    ),
    updated_at=datetime(2026, 1, 3, tzinfo=UTC),
    explain={"lexical": {"rank": 1, "score": 2.5}},
)


class RichStore(FakeDocumentStore):
    """Answers with everything that an item can have."""

    items: tuple[SearchItem, ...] = (RICH,)

    async def search(
        self, *, tenant_id: str, principal_id: str, query: SearchQuery, access: Access | None = None
    ) -> SearchResult:
        self.queries.append(query)
        return SearchResult(items=self.items, evidence=EvidenceLevel.STRONG, degraded=("dense_partial",))


async def test_a_hit_has_exactly_the_documented_names() -> None:
    async with Memory(RichStore()) as memory, client_of(memory_app(memory, identity=identity)) as client:
        answer = await client.post("/search", json={"query": "x"})
    assert answer.json() == {
        "items": [
            {
                "documentId": "kdoc_1",
                "chunkId": "kchk_1",
                "title": "T",
                "snippet": "S",
                "score": 0.5,
                "kind": "note",
                "externalRef": "wiki:1",
                "citation": {
                    "adapter": "wiki",
                    "external_ref": "wiki:1",
                    "open": {"type": "memory", "id": "kdoc_1"},
                },
                "attribution": {
                    "versionId": "kver_2",
                    "version": 2,
                    "status": "deprecated",
                    "createdByKind": "agent",
                    "chunkId": "kchk_1",
                    "owner": "ann",
                    "author": "Ann",
                    "thread": "t-1",
                    "generatorAgentId": "bot",
                    "provenance": "inferred",
                    "sourceClass": "derived",
                    "temporalClass": "state",
                    "occurredAt": "2026-01-02T03:04:05.678Z",
                    "validUntil": "2026-02-01T00:00:00.000Z",
                    "evidence": "strong",
                    "supports": 2,
                    "contradicts": 1,
                    "derivedFrom": ["kver_1"],
                    "entityIds": ["kent_1"],
                    "channels": ["lexical", "dense"],
                },
                "updatedAt": "2026-01-03T00:00:00.000Z",
                "explain": {"lexical": {"rank": 1, "score": 2.5}},
            }
        ],
        "nextCursor": None,
        "evidence": "strong",
        "degraded": ["dense_partial"],
    }


async def test_what_is_not_known_is_left_out_but_no_end_is_null() -> None:
    class Store(RichStore):
        items = (
            replace(
                RICH,
                chunk_id=None,
                updated_at=None,
                explain=None,
                attribution=Attribution(version_id="v", version=1, status="active", created_by_kind="human"),
            ),
            replace(RICH, attribution=None),
        )

    async with Memory(Store()) as memory, client_of(memory_app(memory, identity=identity)) as client:
        bare, foreign = (await client.post("/search", json={"query": "x"})).json()["items"]
    assert bare["attribution"] == {
        "versionId": "v",
        "version": 1,
        "status": "active",
        "createdByKind": "human",
        "validUntil": None,
        "supports": 0,
        "contradicts": 0,
    }
    assert not {"chunkId", "updatedAt", "explain"} & set(bare)
    assert "attribution" not in foreign


async def test_evidence_can_be_left_out_but_not_what_was_missing() -> None:
    async with Memory(RichStore()) as memory, client_of(memory_app(memory, identity=identity)) as client:
        answer = await client.post("/search", json={"query": "x", "includeEvidence": False})
    assert "evidence" not in answer.json()
    assert answer.json()["degraded"] == ["dense_partial"]


async def test_search_passes_every_field_on(http: httpx2.AsyncClient, store: FakeDocumentStore) -> None:
    answer = await http.post(
        "/search",
        json={
            "query": " x ",
            "limit": 50,
            "kinds": ["note"],
            "entity_ids": ["kent_1"],
            "sources": [],
            "includeEvidence": True,
            "includeDeprecated": True,
            "profile": "compat",
            "explain": True,
            "generation": "g1",
            "occurred_after": "2026-01-01",
            "occurred_before": "2026-02-01",
            "attributes": {"a": 1},
            "max_per_document": 3,
            "min_evidence": "weak",
            "k": 5,
        },
    )
    assert answer.json() == {"items": [], "nextCursor": None, "evidence": "none"}
    assert store.queries == [
        SearchQuery(
            query="x",
            limit=50,
            kinds=("note",),
            entity_ids=("kent_1",),
            include_deprecated=True,
            profile="compat",  # type: ignore[arg-type]
            generation="g1",
            explain=True,
            occurred_after=datetime(2026, 1, 1, tzinfo=UTC),
            occurred_before=datetime(2026, 2, 1, tzinfo=UTC),
            attributes={"a": 1},
            max_per_document=3,
            min_evidence=MinEvidence.WEAK,
        )
    ]


async def test_a_search_has_pages(http: httpx2.AsyncClient) -> None:
    for n in range(5):
        await http.post("/add", json={"title": f"Ferry {n}", "text": "x"})
    asked: dict[str, Any] = {"query": "ferry", "limit": 2}
    titles: list[str] = []
    cursor = None
    for size in (2, 2, 1):
        answer = (await http.post("/search", json={**asked, "cursor": cursor})).json()
        assert len(answer["items"]) == size
        titles += [item["title"] for item in answer["items"]]
        cursor = answer["nextCursor"]
    assert cursor is None
    assert sorted(titles) == [f"Ferry {n}" for n in range(5)]


@pytest.mark.parametrize("cursor", ["", "x", 5, ["x"], {}, False, "A" * 10_000])
async def test_a_cursor_of_none_is_a_typed_error(http: httpx2.AsyncClient, cursor: Any) -> None:
    answer = await http.post("/search", json={"query": "x", "cursor": cursor})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_cursor"


@pytest.mark.parametrize("path", ["/search", "/context"])
async def test_an_unknown_least_evidence_is_refused(http: httpx2.AsyncClient, path: str) -> None:
    answer = await http.post(path, json={"query": "x", "min_evidence": "none"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_input")
    assert answer.json()["error"]["details"] == [
        {"field": "min_evidence", "problem": "must be one of: strong, weak"}
    ]


async def test_a_generation_is_for_admins(memory: Memory) -> None:
    async with client_of(memory_app(memory, identity=identity), token="bob") as bob:
        assert (await bob.post("/search", json={"query": "x"})).status_code == 200
        refused = await bob.post("/search", json={"query": "x", "generation": "g1"})
    assert (refused.status_code, error_of(refused)["code"]) == (403, "forbidden")


@pytest.mark.parametrize("limit", [1, 50])
async def test_search_takes_1_to_50(http: httpx2.AsyncClient, limit: int) -> None:
    assert (await http.post("/search", json={"query": "x", "limit": limit})).status_code == 200


@pytest.mark.parametrize("limit", [0, 51, 999, "5", 1.5, True])
async def test_other_search_limits_are_400(http: httpx2.AsyncClient, limit: object) -> None:
    answer = await http.post("/search", json={"query": "x", "limit": limit})
    assert fields_of(answer) == ["limit"]
    assert error_of(answer)["message"] == "limit must be an integer between 1 and 50"


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, ["query"]),
        ({"query": ""}, ["query"]),
        ({"query": " ", "kinds": []}, ["query"]),
        ({"query": "x", "kinds": [1, 2]}, ["kinds[0]", "kinds[1]"]),
        ({"query": "x", "includeEvidence": "no"}, ["includeEvidence"]),
        ({"query": 5, "limit": 0, "profile": "x"}, ["query", "limit", "profile"]),
    ],
)
async def test_bad_searches_are_400(
    http: httpx2.AsyncClient, body: dict[str, Any], fields: list[str]
) -> None:
    assert fields_of(await http.post("/search", json=body)) == fields


@pytest.mark.parametrize("field", ["includeEvidence", "includeDeprecated"])
async def test_a_search_names_its_fields_as_json_does(http: httpx2.AsyncClient, field: str) -> None:
    answer = await http.post("/search", json={"query": "x", field: "yes"})
    assert fields_of(answer) == [field]
    assert error_of(answer)["message"] == f"{field} must be true or false"
    both = await http.post("/search", json={"query": "x", field: 1, "max_per_document": 0})
    assert set(fields_of(both)) == {field, "max_per_document"}
    assert field in error_of(both)["message"]
    assert "include_" not in both.text


# --- list and capabilities ---------------------------------------------------------------------------


async def test_list_answers_events(http: httpx2.AsyncClient) -> None:
    await http.post("/add", json={**NOTE, "author": "Ann", "occurred_at": "2026-01-02T03:04:05.678Z"})
    assert (await http.get("/list")).json() == {
        "events": [
            {
                "at": "2026-01-02T03:04:05.678Z",
                "title": "Deploys",
                "source": "fake",
                "tenantId": "acme",
                "principalId": "ann",
                "documentId": "fake_doc_1",
                "versionId": "fake_ver_1",
                "kind": "note",
                "owner": "ann",
                "author": "Ann",
            }
        ],
        "nextCursor": None,
    }


async def test_list_has_a_default_limit_and_filters_kinds(http: httpx2.AsyncClient) -> None:
    items = [{**NOTE, "kind": f"kind-{index % 3}"} for index in range(30)]
    await http.post("/add/batch", json={"items": items})
    for query, expected in (("", 20), ("?limit=", 20), ("?limit=100", 30), ("?limit=007", 7)):
        assert len((await http.get(f"/list{query}")).json()["events"]) == expected
    events = (await http.get("/list?limit=100&kinds=kind-0&kinds=kind-1")).json()["events"]
    assert len(events) == 20


@pytest.mark.parametrize("limit", ["1", "100"])
async def test_list_takes_1_to_100(http: httpx2.AsyncClient, limit: str) -> None:
    assert (await http.get(f"/list?limit={limit}")).status_code == 200


@pytest.mark.parametrize("limit", ["0", "101", "-1", "%2B5", "0x10", "1e1", "5.0", "%205", "٥", "9" * 5_000])
async def test_other_list_limits_are_400(http: httpx2.AsyncClient, limit: str) -> None:
    answer = await http.get(f"/list?limit={limit}")
    assert fields_of(answer) == ["limit"]
    assert error_of(answer)["message"] == "limit must be an integer from 1 to 100"


async def test_list_goes_on_where_a_page_ended(http: httpx2.AsyncClient) -> None:
    items = [{**NOTE, "title": f"t{i}", "occurred_at": f"2026-01-0{i}T00:00:00Z"} for i in range(1, 6)]
    await http.post("/add/batch", json={"items": items})
    seen: list[str] = []
    cursor = None
    for _ in range(3):
        page = (
            await http.get("/list", params={"limit": "2", **({"cursor": cursor} if cursor else {})})
        ).json()
        seen += [event["title"] for event in page["events"]]
        cursor = page["nextCursor"]
    assert (seen, cursor) == (["t5", "t4", "t3", "t2", "t1"], None)
    narrowed = await http.get("/list?occurred_after=2026-01-02&occurred_before=2026-01-04")
    assert [event["title"] for event in narrowed.json()["events"]] == ["t3", "t2"]


@pytest.mark.parametrize(
    "cursor", ["-1", "9" * 30, "x", "1.", ".v", "1.a b", "1.%00", "999999999999999999.v", "1.v%0A"]
)
async def test_a_cursor_of_no_page_is_400(http: httpx2.AsyncClient, cursor: str) -> None:
    answer = await http.get(f"/list?cursor={cursor}")
    assert (answer.status_code, error_of(answer)["code"]) == (400, "invalid_cursor")
    assert cursor not in error_of(answer)["message"]


@pytest.mark.parametrize("name", ["occurred_after", "occurred_before", "as_of"])
@pytest.mark.parametrize("value", ["yesterday", "2026-13-01", "12"])
async def test_an_instant_of_a_list_is_one(http: httpx2.AsyncClient, name: str, value: str) -> None:
    assert fields_of(await http.get("/list", params={name: value})) == [name]


async def test_the_future_is_not_asked(http: httpx2.AsyncClient) -> None:
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    assert fields_of(await http.get("/list", params={"as_of": tomorrow})) == ["as_of"]
    assert fields_of(await http.post("/search", json={"query": "x", "as_of": tomorrow})) == ["as_of"]
    # A clock that is a little ahead of ours is let pass.
    soon = (datetime.now(UTC) + timedelta(seconds=30)).isoformat()
    assert (await http.post("/search", json={"query": "x", "as_of": soon})).status_code == 200
    compat = {"query": "x", "as_of": "2026-01-01", "profile": "compat"}
    assert fields_of(await http.post("/search", json=compat)) == ["profile"]
    live = {"query": "x", "as_of": "2026-01-01", "sources": ["linear"]}
    assert fields_of(await http.post("/search", json=live)) == ["sources"]


async def test_a_repeated_limit_is_400(http: httpx2.AsyncClient) -> None:
    assert fields_of(await http.get("/list?limit=5&limit=5")) == ["limit"]


async def test_capabilities_tell_what_the_store_can_do() -> None:
    store = FakeDocumentStore(capabilities=StoreCapabilities(embeddings_configured=False, supports_feed=True))
    async with Memory(store) as memory, client_of(memory_app(memory, identity=identity)) as client:
        assert (await client.get("/capabilities")).json() == {
            "tenantId": "acme",
            "principalId": "ann",
            "embeddingsConfigured": False,
            "enforcesGrants": False,
            "supportsFeed": True,
            "supportsRetention": False,
            "supportsList": True,
            "pendingVectors": 0,
        }
