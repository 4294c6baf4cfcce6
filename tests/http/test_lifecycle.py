"""Forgetting, retention and the audit over HTTP."""

from typing import Any

import httpx2
import pytest

from corbits_memory.access.memory_store import InMemoryGrantStore
from corbits_memory.access.tags import document_tag
from corbits_memory.core.enums import AuditAction, Effect
from corbits_memory.http import memory_app
from corbits_memory.plane import Memory
from corbits_memory.ports import GrantRule
from corbits_memory.testing import FakeDocumentStore
from tests.http.conftest import client_of, identity

NOTE = {"title": "Deploys", "text": "Fridays are frozen."}


async def added(http: httpx2.AsyncClient, **fields: Any) -> dict[str, Any]:
    answer = await http.post("/add", json={**NOTE, **fields})
    assert answer.status_code == 200
    told: dict[str, Any] = answer.json()
    return told


def told(answer: httpx2.Response, status: int) -> tuple[str, str]:
    assert answer.status_code == status
    error = answer.json()["error"]
    return error["code"], error["message"]


@pytest.fixture
async def bob(memory: Memory) -> Any:
    async with client_of(memory_app(memory, identity=identity), token="bob") as client:
        yield client


async def test_a_document_is_forgotten_once(http: httpx2.AsyncClient) -> None:
    document = (await added(http))["documentId"]
    answer = await http.post(f"/documents/{document}/forget")
    assert (answer.status_code, answer.json()) == (
        200,
        {"documentId": document, "versions": 1, "derived": []},
    )
    again = await http.post(f"/documents/{document}/forget", json={"reason": "it is nobody's business"})
    assert again.json()["versions"] == 0
    assert (await http.post("/search", json={"query": "frozen"})).json()["items"] == []


async def test_what_was_derived_is_told_and_taken_along(http: httpx2.AsyncClient) -> None:
    source = await added(http)
    claim = await added(http, title="Claim", derived_from=[source["versionId"]])
    path = f"/documents/{source['documentId']}/forget"
    expected = {"documentId": claim["documentId"], "versionId": claim["versionId"]}
    assert (await http.post(path)).json()["derived"] == [{**expected, "forgotten": False}]
    assert (await http.get("/list")).json()["events"] != []


async def test_a_cascade_takes_claims_along(http: httpx2.AsyncClient) -> None:
    source = await added(http)
    await added(http, title="Claim", derived_from=[source["versionId"]])
    answer = await http.post(f"/documents/{source['documentId']}/forget", json={"cascade": True})
    assert [claim["forgotten"] for claim in answer.json()["derived"]] == [True]
    assert (await http.get("/list")).json()["events"] == []


@pytest.mark.parametrize("cascade", ["yes", 1, 0, "", []])
async def test_cascade_is_true_or_false(http: httpx2.AsyncClient, cascade: object) -> None:
    document = (await added(http))["documentId"]
    answer = await http.post(f"/documents/{document}/forget", json={"cascade": cascade})
    assert told(answer, 400) == ("invalid_input", "cascade must be true or false")
    assert len((await http.get("/list")).json()["events"]) == 1


async def test_a_purged_document_is_unknown(http: httpx2.AsyncClient) -> None:
    document = (await added(http))["documentId"]
    answer = await http.post(f"/documents/{document}/purge")
    assert answer.json() == {"documentId": document, "deleted": True, "versions": 1, "derived": []}
    for verb in ("purge", "forget"):
        assert told(await http.post(f"/documents/{document}/{verb}"), 404) == (
            "not_found",
            "document not found",
        )


async def test_a_durable_document_is_not_purged_before_it_is_forgotten(http: httpx2.AsyncClient) -> None:
    document = await added(http)
    changed = await http.post(
        f"/versions/{document['versionId']}/retention-class", json={"retention_class": "durable"}
    )
    assert changed.json() == {
        "versionId": document["versionId"],
        "documentId": document["documentId"],
        "status": "active",
        "retentionClass": "durable",
    }
    path = f"/documents/{document['documentId']}"
    code, message = told(await http.post(f"{path}/purge"), 409)
    assert code == "durable_document"
    assert "forget it first" in message
    await http.post(f"{path}/forget")
    assert (await http.post(f"{path}/purge")).status_code == 200


@pytest.mark.parametrize("body", [{"retention_class": "nonsense"}, {}, {"retention_class": 5}])
async def test_a_class_is_one_of_four(http: httpx2.AsyncClient, body: dict[str, Any]) -> None:
    version = (await added(http))["versionId"]
    code, message = told(await http.post(f"/versions/{version}/retention-class", json=body), 400)
    assert code == "invalid_input"
    assert message.startswith("retention_class ")


async def test_an_unknown_version_is_404(http: httpx2.AsyncClient) -> None:
    answer = await http.post("/versions/kver_x/retention-class", json={"retention_class": "durable"})
    assert told(answer, 404) == ("not_found", "version not found")


@pytest.mark.parametrize(
    "path", ["/documents/%20/forget", "/documents/%20/purge", "/versions/%20/retention-class"]
)
async def test_a_blank_id_is_400(http: httpx2.AsyncClient, path: str) -> None:
    answer = await http.post(path, json={"retention_class": "durable"})
    assert told(answer, 400)[1].endswith("must not be blank")


async def test_capabilities_are_asked_one_by_one(http: httpx2.AsyncClient, bob: httpx2.AsyncClient) -> None:
    """Whoever may search and add may neither forget nor purge, and learns nothing of the document."""
    document = await added(http)
    for path in (
        f"/documents/{document['documentId']}/forget",
        f"/documents/{document['documentId']}/purge",
        f"/versions/{document['versionId']}/retention-class",
        "/documents/unknown/forget",
    ):
        assert told(await bob.post(path), 403)[0] == "forbidden"
    assert told(await bob.get("/audit"), 403)[0] == "forbidden"


def may(action: str, resource: str = "memory", *, who: str = "bob") -> GrantRule:
    return GrantRule(
        id=f"{who} {action} {resource}",
        principal_id=who,
        resource=resource,
        action=action,
        effect=Effect.ALLOW,
    )


async def test_others_that_see_it_are_told_that_it_is_not_theirs() -> None:
    grants = InMemoryGrantStore([may("forget"), may("search", "memory.space:eng")])
    store = FakeDocumentStore()

    def bob_without_list(request: Any) -> Any:
        caller = identity(request)
        assert caller is not None
        return type(caller)(caller.tenant_id, caller.principal_id) if caller.principal_id == "bob" else caller

    async with Memory(store, grant_store=grants) as memory:
        app = memory_app(memory, identity=bob_without_list)
        async with client_of(app) as ann, client_of(app, token="bob") as bob:
            shown = await added(ann, access_tags=["memory.space:eng"])
            hidden = await added(ann)
            answer = await bob.post(f"/documents/{shown['documentId']}/forget")
            assert told(answer, 403)[1] == "only the document's creator may forget it"
            answer = await bob.post(f"/documents/{hidden['documentId']}/forget")
            assert told(answer, 404)[1] == "document not found"
            # A grant to forget is none to purge.
            answer = await bob.post(f"/documents/{shown['documentId']}/purge")
            assert told(answer, 403)[1] != "only the document's creator may purge it"


@pytest.mark.parametrize("verb", ["forget", "purge"])
async def test_what_was_shared_ends_with_the_document(verb: str) -> None:
    grants = InMemoryGrantStore()
    async with (
        Memory(FakeDocumentStore(), grant_store=grants) as memory,
        client_of(memory_app(memory, identity=identity)) as http,
    ):
        document = (await added(http, share={"principals": ["bob"]}))["documentId"]
        assert [r.resource for r in grants.collect_grants("bob", "acme")] == [document_tag(document)]
        await http.post(f"/documents/{document}/{verb}")
    assert grants.collect_grants("bob", "acme") == []


class BrokenGrants(InMemoryGrantStore):
    def delete_resource_grants(self, tenant_id: str, resource: str) -> int:
        raise ConnectionResetError("the grants are away")


async def test_a_grant_store_that_fails_undoes_no_erasure() -> None:
    async with (
        Memory(FakeDocumentStore(), grant_store=BrokenGrants()) as memory,
        client_of(memory_app(memory, identity=identity)) as http,
    ):
        document = (await added(http))["documentId"]
        assert (await http.post(f"/documents/{document}/purge")).status_code == 200


async def test_the_audit_tells_who_did_what(http: httpx2.AsyncClient) -> None:
    document = (await added(http))["documentId"]
    await http.post(f"/documents/{document}/forget", json={"reason": "secret"})
    await http.post(f"/documents/{document}/purge")
    events = (await http.get("/audit")).json()["events"]
    assert [(e["actorId"], e["action"], e["targetType"], e["targetId"], e["outcome"]) for e in events] == [
        ("ann", AuditAction.PURGE, "document", document, "done"),
        ("ann", AuditAction.FORGET, "document", document, "done"),
    ]
    assert events[0]["at"].endswith("Z")
    page = (await http.get("/audit?limit=1")).json()
    assert len(page["events"]) == 1
    rest = (await http.get(f"/audit?limit=1&before={page['before']}")).json()
    assert [e["action"] for e in rest["events"]] == ["forget"]
    assert "before" not in rest
    assert (await http.get("/audit?target_id=unknown")).json() == {"events": []}


@pytest.mark.parametrize("limit", ["0", "501", "x", "1.5"])
async def test_other_audit_limits_are_400(http: httpx2.AsyncClient, limit: str) -> None:
    assert told(await http.get(f"/audit?limit={limit}"), 400)[1] == "limit must be an integer from 1 to 500"


async def test_the_largest_audit_page_is_500(http: httpx2.AsyncClient) -> None:
    assert (await http.get("/audit?limit=500")).status_code == 200


class Bare:
    """A store with the verbs that every store has, and no more."""

    def __init__(self) -> None:
        inner = FakeDocumentStore()
        self.capabilities = inner.capabilities
        self.open, self.close = inner.open, inner.close
        self.add, self.search, self.list = inner.add, inner.search, inner.list


async def test_a_store_without_retention_says_so() -> None:
    async with Memory(Bare()) as memory, client_of(memory_app(memory, identity=identity)) as http:
        for path in (
            "/documents/x/forget",
            "/documents/x/purge",
            "/versions/x/retention-class",
        ):
            answer = await http.post(path, json={"retention_class": "durable"})
            assert told(answer, 501)[0] == "not_supported"
        assert told(await http.get("/audit"), 501)[0] == "not_supported"


async def test_nothing_for_operators_is_a_route(http: httpx2.AsyncClient) -> None:
    version = (await added(http))["versionId"]
    for path in (f"/versions/{version}/deprecate", "/sweep"):
        assert (await http.post(path)).status_code == 404
