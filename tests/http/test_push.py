"""The routes of webhooks: for administrators, to the letter."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from corbits_memory.core import limits
from corbits_memory.http import memory_app
from corbits_memory.plane import Memory
from corbits_memory.testing import FakeDocumentStore
from tests.http.conftest import client_of, identity
from tests.http.feeding import PushingStore
from tests.http.test_guard import error_of

HOOK = {"url": "https://hooks.example/x"}
ROUTES = [
    ("POST", "/subscriptions", HOOK),
    ("GET", "/subscriptions", None),
    ("DELETE", "/subscriptions/msub_1", None),
    ("GET", "/subscriptions/msub_1/dead", None),
    ("POST", "/subscriptions/msub_1/replay", {}),
]
TOLD: dict[str, Any] = {
    "id": "msub_1",
    "url": "https://hooks.example/x",
    "principal": "ann",
    "createdBy": "ann",
    "ops": ["upsert"],
    "excludeGenerator": None,
    "includeText": False,
    "position": 0,
    "failures": 0,
    "lastError": None,
    "lastDeliveredAt": None,
    "createdAt": "2026-05-01T00:00:00.000Z",
    "dead": 1,
}


@pytest.fixture
def store() -> PushingStore:
    return PushingStore()


@pytest.fixture
async def http(store: PushingStore) -> AsyncIterator[httpx2.AsyncClient]:
    async with Memory(store) as memory, client_of(memory_app(memory, identity=identity)) as client:
        yield client


async def test_a_secret_is_told_at_birth_alone(http: httpx2.AsyncClient) -> None:
    answer = await http.post("/subscriptions", json=HOOK)
    assert answer.status_code == 200
    assert answer.json() == {**TOLD, "secret": "whsec_x"}
    assert (await http.get("/subscriptions")).json() == {"subscriptions": [TOLD]}


async def test_every_field_is_passed_on(http: httpx2.AsyncClient) -> None:
    answer = await http.post(
        "/subscriptions",
        json={
            **HOOK,
            "principal": "ann",
            "ops": ["retract", "upsert"],
            "exclude_generator": "bot",
            "include_text": True,
            "after": 0,
            "tenant_id": "other",
            "created_by": "eve",
        },
    )
    told = answer.json()
    assert (told["principal"], told["createdBy"]) == ("ann", "ann")
    assert (told["ops"], told["excludeGenerator"], told["includeText"]) == (
        ["retract", "upsert"],
        "bot",
        True,
    )


async def test_dead_letters_and_replays(http: httpx2.AsyncClient, store: PushingStore) -> None:
    await http.post("/subscriptions", json=HOOK)
    dead = await http.get("/subscriptions/msub_1/dead")
    assert dead.json() == {
        "dead": [
            {
                "feedSeq": 7,
                "op": "upsert",
                "versionId": "kver_1",
                "failures": 12,
                "error": "no",
                "failedAt": "2026-05-01T00:00:00.000Z",
            }
        ]
    }
    assert (await http.get("/subscriptions/msub_1/dead?after=7")).json() == {"dead": []}
    replay = "/subscriptions/msub_1/replay"
    assert (await http.post(replay, json={})).json() == {"replayed": 1}
    assert (await http.post(replay, json={"seqs": [7, 8]})).json() == {"replayed": 2}
    assert store.replayed == [None, (7, 8)]


async def test_removing(http: httpx2.AsyncClient) -> None:
    await http.post("/subscriptions", json=HOOK)
    answer = await http.delete("/subscriptions/msub_1")
    assert answer.json() == {"id": "msub_1", "removed": True}
    again = await http.delete("/subscriptions/msub_1")
    assert again.status_code == 404
    assert error_of(again)["message"] == "subscription not found"


async def test_an_administrator_gets_nobody_elses_view(http: httpx2.AsyncClient) -> None:
    """Else ``memory:admin`` would read every document of the tenant, at a URL of its choice."""
    refused = await http.post("/subscriptions", json={**HOOK, "principal": "bob", "include_text": True})
    assert refused.status_code == 403
    assert (await http.get("/subscriptions")).json() == {"subscriptions": []}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "url"),
        ({"url": None}, "url"),
        ({"url": ""}, "url"),
        ({"url": 1}, "url"),
        ({"url": "http://hooks.example/"}, "url"),
        ({"url": "https://u:p@hooks.example/"}, "url"),
        ({"url": "https://hooks.example/" + "x" * limits.URL_CHARS}, "url"),
        ({**HOOK, "principal": " "}, "principal"),
        ({**HOOK, "ops": ["drop"]}, "ops"),
        ({**HOOK, "ops": "upsert"}, "ops"),
        ({**HOOK, "include_text": "yes"}, "include_text"),
        ({**HOOK, "after": -1}, "after"),
        ({**HOOK, "after": limits.SAFE_INTEGER + 1}, "after"),
        ({**HOOK, "after": "1"}, "after"),
        ({**HOOK, "exclude_generator": "x" * 257}, "exclude_generator"),
    ],
)
async def test_bad_subscriptions_are_named(
    http: httpx2.AsyncClient, body: dict[str, Any], field: str
) -> None:
    answer = await http.post("/subscriptions", json=body)
    assert answer.status_code == 400
    error = error_of(answer)
    assert [found["field"] for found in error["details"]] == [field]
    assert "u:p" not in str(error)


@pytest.mark.parametrize(
    ("seqs", "field"),
    [
        ("7", "seqs"),
        ([-1], "seqs[0]"),
        ([1, "x"], "seqs[1]"),
        ([None], "seqs[0]"),
        ([True], "seqs[0]"),
        (list(range(limits.REPLAYED + 1)), "seqs"),
    ],
)
async def test_bad_replays_are_named(http: httpx2.AsyncClient, seqs: object, field: str) -> None:
    await http.post("/subscriptions", json=HOOK)
    answer = await http.post("/subscriptions/msub_1/replay", json={"seqs": seqs})
    assert answer.status_code == 400
    assert [found["field"] for found in error_of(answer)["details"]] == [field]


async def test_as_many_replays_as_there_may_be(http: httpx2.AsyncClient) -> None:
    await http.post("/subscriptions", json=HOOK)
    answer = await http.post("/subscriptions/msub_1/replay", json={"seqs": list(range(limits.REPLAYED))})
    assert answer.json() == {"replayed": limits.REPLAYED}


@pytest.mark.parametrize("query", ["after=-1", "after=x", "limit=0", "limit=101", "limit=x"])
async def test_bad_pages_of_dead_letters(http: httpx2.AsyncClient, query: str) -> None:
    await http.post("/subscriptions", json=HOOK)
    assert (await http.get(f"/subscriptions/msub_1/dead?{query}")).status_code == 400


@pytest.mark.parametrize(("method", "path", "body"), ROUTES)
async def test_only_administrators_may(http: httpx2.AsyncClient, method: str, path: str, body: Any) -> None:
    for token, status in (("bob", 403), ("other", 403), ("nobody", 401)):
        answer = await http.request(method, path, json=body, headers={"authorization": f"Bearer {token}"})
        assert answer.status_code == status


@pytest.mark.parametrize(("method", "path", "body"), ROUTES)
async def test_a_store_without_webhooks(method: str, path: str, body: Any) -> None:
    async with (
        Memory(FakeDocumentStore()) as memory,
        client_of(memory_app(memory, identity=identity)) as client,
    ):
        answer = await client.request(method, path, json=body)
    assert answer.status_code == 501
    assert error_of(answer)["message"] == "webhooks require the engine DocumentStore"


async def test_the_store_is_told_whose_grants_decide(store: PushingStore) -> None:
    Memory(store)
    assert store.access_of is not None
    assert await store.access_of("acme", "ann") is None
