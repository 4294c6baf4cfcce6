"""Sharing over HTTP, between people with tokens of their own: effective on the next request."""

from dataclasses import dataclass
from typing import Any

import pytest

from corbits_memory.access.postgres import PostgresGrantStore
from corbits_memory.core.enums import Capability, Effect
from corbits_memory.engine.pool import Database
from corbits_memory.ports import Caller, GrantRule
from tests.server.support import Host, route

MAY = frozenset({Capability.ADD, Capability.SEARCH})
ENG = "memory.space:eng"


@dataclass(frozen=True, slots=True)
class Person:
    host: Host
    tenant: str
    headers: dict[str, str]

    async def add(self, text: str, **fields: Any) -> dict[str, Any]:
        return await self.post("add", {"title": "Note", "text": text, **fields})

    async def post(self, verb: str, body: dict[str, Any], *, status: int = 200) -> dict[str, Any]:
        answer = await self.host.client.post(route(self.tenant, verb), json=body, headers=self.headers)
        assert answer.status_code == status, answer.text
        told: dict[str, Any] = answer.json()
        return told

    async def finds(self, query: str) -> list[str]:
        found = await self.post("search", {"query": query})
        return [item["documentId"] for item in found["items"]]

    async def lists(self) -> list[str]:
        answer = await self.host.client.get(route(self.tenant, "list"), headers=self.headers)
        return [event["documentId"] for event in answer.json()["events"]]


class People:
    """Somebody with a token, in a tenant of the test's own."""

    def __init__(self, host: Host, tenant: str) -> None:
        self.host = host
        self.tenant = tenant

    async def __call__(self, name: str, capabilities: frozenset[Capability] = MAY) -> Person:
        headers = await self.host.token(Caller(self.tenant, name, capabilities))
        return Person(self.host, self.tenant, headers)


@pytest.fixture
def person(host: Host, request: pytest.FixtureRequest) -> People:
    return People(host, request.node.name)


async def test_a_document_is_found_by_whom_it_is_shared_with_until_it_is_unshared(person: People) -> None:
    ann, bob, eve = await person("ann"), await person("bob"), await person("eve")
    kept = (await ann.add("The heron fishes at dawn."))["documentId"]
    assert await ann.finds("heron") == [kept]
    assert await bob.finds("heron") == []

    shared = await ann.post(f"documents/{kept}/share", {"principals": ["bob"]})
    assert shared["share"]["grantsMaterialized"] is True
    for _ in range(2):
        assert await bob.finds("heron") == [kept]
        assert await bob.lists() == [kept]
        assert await eve.finds("heron") == await eve.lists() == []

    await ann.post(f"documents/{kept}/unshare", {"principals": ["bob"]})
    assert await bob.finds("heron") == await bob.lists() == []
    assert await ann.finds("heron") == [kept]


async def test_a_document_may_be_shared_as_it_is_added(person: People) -> None:
    ann, bob = await person("ann"), await person("bob")
    added = await ann.add("The stork nests.", share={"principals": ["bob"]})
    assert added["share"]["grantsMaterialized"] is True
    assert await bob.finds("stork") == [added["documentId"]]


async def test_only_the_owner_shares(person: People) -> None:
    ann, bob, eve = await person("ann"), await person("bob"), await person("eve")
    kept = (await ann.add("The crane dances.", share={"principals": ["bob"]}))["documentId"]
    await bob.post(f"documents/{kept}/share", {"principals": ["eve"]}, status=403)
    await eve.post(f"documents/{kept}/share", {"principals": ["cy"]}, status=404)
    assert await eve.finds("crane") == []


async def test_a_token_without_search_finds_nothing_that_was_shared(person: People) -> None:
    ann, bob = await person("ann"), await person("bob", frozenset({Capability.ADD}))
    await ann.add("The owl hoots.", share={"principals": ["bob"]})
    await bob.post("search", {"query": "owl"}, status=403)


async def test_grants_and_roles_given_to_the_store_count_on_the_next_request(
    person: People, database: Database
) -> None:
    ann, bob = await person("ann"), await person("bob")
    kept = (await ann.add("The wren sings.", access_tags=[ENG]))["documentId"]
    assert await bob.finds("wren") == []

    grants = PostgresGrantStore(database)
    tenant = person.tenant
    await grants.put_role(tenant, "eng")
    await grants.put_grant(
        GrantRule(
            id="g1", tenant_id=tenant, role_id="eng", resource=ENG, action="search", effect=Effect.ALLOW
        )
    )
    assert await bob.finds("wren") == []
    await grants.assign(tenant, "eng", "bob")
    assert await bob.finds("wren") == [kept]
    veto = GrantRule(
        id="g2",
        tenant_id=tenant,
        principal_id="bob",
        resource=f"memory.doc:{kept}",
        action="search",
        effect=Effect.DENY,
    )
    await grants.put_grant(veto)
    # Also before the document is shared with anybody and carries a tag of its own.
    assert await bob.finds("wren") == []
    await grants.delete_grant(tenant, "g2")
    assert await bob.finds("wren") == [kept]
    await grants.unassign(tenant, "eng", "bob")
    assert await bob.finds("wren") == []


async def test_shares_stay_in_their_tenant(host: Host) -> None:
    here = await People(host, "here")("ann")
    there = await People(host, "there")("bob")
    await here.add("The swift flies.", share={"principals": ["bob"], "tenant": True})
    assert await there.finds("swift") == []
