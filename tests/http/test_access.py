"""The acceptance vectors of access: grants decide what a machine caller may do, its resolver only who it is."""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import httpx2
import pytest
from starlette.requests import Request

from corbits_memory.access.memory_store import InMemoryGrantStore
from corbits_memory.core.enums import Capability, Effect
from corbits_memory.errors import ConfigError
from corbits_memory.http import memory_app
from corbits_memory.http.calls import Operation
from corbits_memory.http.operations import OPERATIONS
from corbits_memory.plane import Memory
from corbits_memory.ports import Caller, GrantRule
from corbits_memory.testing import FakeDocumentStore
from tests.http.conftest import client_of
from tests.http.test_guard import error_of

NOTE = {"title": "Deploys", "text": "Nobody deploys on a Friday."}
P1 = {"tenantId": "acme", "principalId": "p1"}
BY_ID = {operation.id: operation for operation in OPERATIONS}
EACH = pytest.mark.parametrize("operation", OPERATIONS, ids=BY_ID)

Resolver = Callable[[Request], Any]


def grant(
    action: str, *, to: str = "p1", resource: str = "memory", effect: Effect = Effect.ALLOW, **fields: Any
) -> GrantRule:
    return GrantRule(
        id=f"{to}:{resource}:{action}:{effect}",
        principal_id=to,
        resource=resource,
        action=action,
        effect=effect,
        **fields,
    )


async def ask(
    store: FakeDocumentStore,
    method: str,
    path: str,
    *,
    grants: Any = None,
    resolver: Resolver = lambda request: P1,
    json: Any = None,
    headers: dict[str, str] | None = None,
) -> httpx2.Response:
    """One request to a memory over ``store``; nobody is logged in but whom the resolver seats."""
    memory = Memory(store, grant_store=InMemoryGrantStore() if grants is None else grants)
    # Not closed: a fake store that is closed forgets, and the tests look at what it kept.
    await memory.open()
    async with client_of(memory_app(memory, caller_resolver=resolver), token=None) as client:
        return await client.request(method, path, json=json, headers=headers)


def seated(principal: str) -> Resolver:
    return lambda request: {**P1, "principalId": principal}


def path_of(operation: Operation) -> str:
    return operation.path.replace("{", "").replace("}", "")


# --- grants ------------------------------------------------------------------------------------------


async def test_a_grant_to_add_adds_as_the_resolved_caller(store: FakeDocumentStore) -> None:
    grants = InMemoryGrantStore([grant("add")])
    answer = await ask(store, "POST", "/add", grants=grants, json=NOTE)
    assert answer.status_code == 200
    assert [(kept.tenant_id, kept.owner) for kept in store.documents] == [("acme", "p1")]


@pytest.mark.parametrize(
    "rules",
    [
        [],
        [grant("search")],
        [grant("capture")],
        [grant("add", to="p2")],
        [grant("add", resource="memory.space:eng")],
        [grant("add", effect=Effect.ASK)],
        [grant("add"), grant("add", effect=Effect.DENY)],
        [grant("*"), grant("add", effect=Effect.DENY)],
        [grant("add", tenant_id="acme-corp")],
        [grant("add", conditions={"unknown": True})],
    ],
)
async def test_without_a_grant_to_add_it_is_403_and_the_store_is_untouched(
    store: FakeDocumentStore, rules: list[GrantRule]
) -> None:
    answer = await ask(store, "POST", "/add", grants=InMemoryGrantStore(rules), json=NOTE)
    assert (answer.status_code, error_of(answer)["code"]) == (403, "forbidden")
    assert store.documents == []


@pytest.mark.parametrize("action", ["find", "recent", "add", "read", "Search"])
async def test_other_actions_do_not_let_search(store: FakeDocumentStore, action: str) -> None:
    grants = InMemoryGrantStore([grant(action)])
    for method, path, json in (("POST", "/search", {"query": "friday"}), ("GET", "/list", None)):
        answer = await ask(store, method, path, grants=grants, json=json)
        assert (answer.status_code, error_of(answer)["code"]) == (403, "forbidden")


@EACH
async def test_each_route_asks_for_the_grant_of_its_capability(
    store: FakeDocumentStore, operation: Operation
) -> None:
    others = [word.partition(":")[2] for word in Capability if word is not operation.capability]
    refused = await ask(
        store,
        operation.method,
        path_of(operation),
        grants=InMemoryGrantStore([grant(action) for action in others]),
        json={} if operation.request else None,
    )
    assert refused.status_code == 403
    allowed = await ask(
        store,
        operation.method,
        path_of(operation),
        grants=InMemoryGrantStore([grant(operation.capability.partition(":")[2])]),
        json={} if operation.request else None,
    )
    assert allowed.status_code not in {401, 403}


async def test_an_expired_grant_is_none(store: FakeDocumentStore) -> None:
    past = datetime.now(UTC) - timedelta(seconds=1)
    grants = InMemoryGrantStore([grant("add", expires_at=past)])
    assert (await ask(store, "POST", "/add", grants=grants, json=NOTE)).status_code == 403


async def test_with_a_grant_the_body_is_looked_at(store: FakeDocumentStore) -> None:
    grants = InMemoryGrantStore([grant("add"), grant("search")])
    missing = await ask(store, "POST", "/add", grants=grants, json={"title": "no text"})
    assert (missing.status_code, error_of(missing)["details"][0]["field"]) == (400, "text")
    for bad in ({"limit": 999}, {"kinds": [1, 2]}):
        answer = await ask(store, "POST", "/search", grants=grants, json={"query": "x"} | bad)
        assert answer.status_code == 400
    empty: dict[str, Any] = {"query": "x", "kinds": [], "entity_ids": [], "sources": []}
    assert (await ask(store, "POST", "/search", grants=grants, json=empty)).status_code == 200


async def test_searching_another_generation_needs_the_grant_of_an_administrator(
    store: FakeDocumentStore,
) -> None:
    body = {"query": "x", "generation": "g1"}
    grants = InMemoryGrantStore([grant("search")])
    assert (await ask(store, "POST", "/search", grants=grants, json=body)).status_code == 403
    grants.put_grant(grant("admin"))
    assert (await ask(store, "POST", "/search", grants=grants, json=body)).status_code == 200


# --- what a grant shows ------------------------------------------------------------------------------


async def titles(store: FakeDocumentStore, rules: list[GrantRule]) -> set[str]:
    """What p1 finds and lists, which is the same."""
    grants = InMemoryGrantStore([grant("search"), *rules])
    found = await ask(store, "POST", "/search", grants=grants, json={"query": "friday"})
    listed = await ask(store, "GET", "/list", grants=grants)
    seen = {item["title"] for item in found.json()["items"]}
    assert seen == {event["title"] for event in listed.json()["events"]}
    return seen


async def add_for_alice(store: FakeDocumentStore, grants: InMemoryGrantStore, **fields: Any) -> Any:
    grants.put_grant(grant("add", to="alice"))
    answer = await ask(
        store,
        "POST",
        "/add",
        grants=grants,
        resolver=seated("alice"),
        json={**NOTE, **fields},
    )
    assert answer.status_code == 200
    return answer.json()


async def test_a_grant_on_the_tenants_tag_shows_what_was_shared_with_the_tenant(
    store: FakeDocumentStore,
) -> None:
    await add_for_alice(store, InMemoryGrantStore(), share={"tenant": True})
    assert await titles(store, []) == set()
    assert await titles(store, [grant("search", resource="memory.tenant:acme")]) == {"Deploys"}
    assert await titles(store, [grant("search", resource="memory.tenant:*")]) == {"Deploys"}
    assert await titles(store, [grant("search", resource="memory.tenant:other")]) == set()


async def test_an_ask_shows_nothing_and_blank_conditions_are_none(store: FakeDocumentStore) -> None:
    await add_for_alice(store, InMemoryGrantStore(), access_tags=["memory.space:eng"])
    tag = "memory.space:eng"
    assert await titles(store, [grant("search", resource=tag, effect=Effect.ASK)]) == set()
    assert await titles(store, [grant("search", resource=tag, conditions={})]) == {"Deploys"}


async def test_sharing_writes_one_grant_for_each_other_principal(store: FakeDocumentStore) -> None:
    grants = InMemoryGrantStore()
    added = await add_for_alice(store, grants, share={"principals": ["alice", "  ", "bob", "bob"]})
    assert added["share"]["grantsMaterialized"] is True
    assert added["share"]["principals"] == ["bob"]
    written = [
        rule for rule in grants.collect_grants("bob", "acme") if rule.resource.startswith("memory.doc:")
    ]
    assert [(rule.principal_id, rule.action, rule.effect) for rule in written] == [
        ("bob", "search", Effect.ALLOW)
    ]
    assert [rule.action for rule in grants.collect_grants("alice", "acme")] == ["add"]


async def test_sharing_with_the_tenant_or_a_tag_writes_no_grant(store: FakeDocumentStore) -> None:
    grants = InMemoryGrantStore()
    await add_for_alice(store, grants, share={"tenant": True, "tags": ["memory.space:eng"]})
    assert [rule.resource for rule in grants.collect_grants("alice", "acme")] == ["memory"]
    for anyone in ("bob", "acme", "*", ""):
        assert grants.collect_grants(anyone, "acme") == []


async def test_whom_it_was_shared_with_sees_it_and_nobody_else(store: FakeDocumentStore) -> None:
    grants = InMemoryGrantStore([grant("search", to="bob"), grant("search", to="eve")])
    await add_for_alice(store, grants, share={"principals": ["bob"]})
    for who, count in (("bob", 1), ("eve", 0)):
        found = await ask(
            store,
            "POST",
            "/search",
            grants=grants,
            resolver=seated(who),
            json={"query": "friday"},
        )
        assert len(found.json()["items"]) == count


# --- who: the caller resolver ------------------------------------------------------------------------


async def sleepy(request: Request) -> Any:
    await asyncio.sleep(0)
    return P1


@pytest.mark.parametrize(
    "resolver",
    [
        lambda request: P1,
        sleepy,
        lambda request: MappingProxyType(P1),
        lambda request: {**P1, "roles": ["owner"], "capabilities": ["memory:admin"], "kind": "root"},
    ],
)
async def test_a_resolver_is_sync_or_async_and_only_its_two_ids_count(
    store: FakeDocumentStore, resolver: Resolver
) -> None:
    grants = InMemoryGrantStore([grant("search")])
    assert (await ask(store, "GET", "/list", grants=grants, resolver=resolver)).status_code == 200
    refused = await ask(store, "POST", "/add", grants=grants, resolver=resolver, json=NOTE)
    assert refused.status_code == 403


@pytest.mark.parametrize("nobody", [None, False, "", 0, ()])
@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer browser"}])
async def test_nobody_is_401_whatever_else_the_request_carries(
    store: FakeDocumentStore, nobody: Any, headers: dict[str, str]
) -> None:
    answer = await ask(
        store,
        "POST",
        "/add",
        grants=InMemoryGrantStore([grant("add")]),
        resolver=lambda request: nobody,
        json=NOTE,
        headers=headers,
    )
    assert (answer.status_code, error_of(answer)["code"]) == (401, "unauthorized")
    assert store.documents == []


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"tenantId": "acme"},
        {"principalId": "p1"},
        {"tenant_id": "acme", "principal_id": "p1"},
        {"tenantId": " ", "principalId": "\t\n"},
        {"tenantId": "acme", "principalId": ""},
        {"tenantId": "acme", "principalId": "a\x00b"},
        {"tenantId": "acme", "principalId": None},
        {"tenantId": ["acme"], "principalId": "p1"},
        {"tenantId": "acme", "principalId": 5},
        {"tenantId": b"acme", "principalId": b"p1"},
        {"tenantId": "a" * 257, "principalId": "p1"},
        {"tenantId": "acme", "principalId": "\ud800"},
        [("tenantId", "acme"), ("principalId", "p1")],
        ("acme", "p1"),
        "p1",
        True,
        object(),
        Caller("acme", "p1", frozenset(Capability)),
    ],
)
async def test_a_malformed_answer_is_500_and_seats_nobody(store: FakeDocumentStore, found: Any) -> None:
    """Even where a grant for exactly that id exists: a garbage scope is never a scope."""
    rules = [grant("*", to=to) for to in (" ", "\t\n", "", "None", "5", "p1", "['p1']")]
    answer = await ask(
        store, "POST", "/add", grants=InMemoryGrantStore(rules), resolver=lambda request: found, json=NOTE
    )
    assert (answer.status_code, error_of(answer)["code"]) == (500, "invalid_resolved_caller")
    assert store.documents == []


async def test_a_raising_resolver_is_500_without_its_text(
    store: FakeDocumentStore, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "postgresql://app:hunter2@db"

    def resolver(request: Request) -> Any:
        raise RuntimeError(secret)

    with caplog.at_level(logging.DEBUG, "corbits_memory"):
        answer = await ask(store, "GET", "/list", resolver=resolver)
    assert (answer.status_code, error_of(answer)["code"]) == (500, "internal")
    assert "hunter2" not in answer.text + caplog.text


@pytest.mark.parametrize("principal", [" p1", "p1 ", "P1", "p1\u200b", "ｐ１"])
async def test_ids_are_taken_as_they_are(store: FakeDocumentStore, principal: str) -> None:
    """Neither trimmed nor folded: an id that looks like another has none of its grants."""
    answer = await ask(
        store,
        "POST",
        "/add",
        grants=InMemoryGrantStore([grant("add")]),
        resolver=seated(principal),
        json=NOTE,
    )
    assert answer.status_code == 403
    assert store.documents == []


@EACH
async def test_a_machine_caller_keeps_to_its_tenants_path(
    store: FakeDocumentStore, operation: Operation
) -> None:
    answer = await ask(
        store,
        operation.method,
        path_of(operation),
        grants=InMemoryGrantStore([grant("*")]),
        resolver=lambda request: {"tenantId": "tenant-run", "principalId": "p1"},
        json={} if operation.request else None,
    )
    assert (answer.status_code, error_of(answer)["code"]) == (403, "tenant_mismatch")


async def test_both_or_neither_way_to_say_who_is_refused(store: FakeDocumentStore) -> None:
    async with Memory(store) as memory:
        with pytest.raises(ConfigError, match="exactly one"):
            memory_app(memory)
        with pytest.raises(ConfigError, match="exactly one"):
            memory_app(memory, identity=lambda request: None, caller_resolver=lambda request: None)


async def test_without_a_grant_store_a_machine_caller_is_no_administrator(store: FakeDocumentStore) -> None:
    async with Memory(store) as memory:
        assert await memory.may(Caller("acme", "p1"), Capability.ADD)
        assert not await memory.may(Caller("acme", "p1"), Capability.ADMIN)


# --- a host's grant store that is wrong --------------------------------------------------------------


class Broken(InMemoryGrantStore):
    """Answers something."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self._answer = answer

    def collect_grants(self, principal_id: str, tenant_id: str) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@EACH
@pytest.mark.parametrize(
    "answer",
    [
        None,
        "allow",
        {"resource": "*", "action": "*", "effect": "allow"},
        [{"resource": "*", "action": "*", "effect": "allow"}],
        [grant("*", effect="allow")],  # type: ignore[arg-type]
        [grant("*", resource=None)],  # type: ignore[arg-type]
        RuntimeError("hunter2"),
    ],
)
async def test_a_broken_grant_store_is_500_and_lets_nobody_in(
    store: FakeDocumentStore, operation: Operation, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    got = await ask(
        store,
        operation.method,
        path_of(operation),
        grants=Broken(answer),
        json=NOTE if operation.request else None,
    )
    assert (got.status_code, error_of(got)["code"]) in {(500, "grant_store"), (500, "internal")}
    assert "hunter2" not in got.text + caplog.text
    assert store.documents == []


async def test_a_grant_store_that_answers_for_others_gives_nothing(store: FakeDocumentStore) -> None:
    rules = [grant("*", to="root"), grant("*", tenant_id="other")]
    answer = await ask(store, "POST", "/add", grants=Broken(rules), json=NOTE)
    assert answer.status_code == 403
    assert store.documents == []
