"""``Idempotency-Key`` on the adding routes."""

import json

import httpx2
import pytest

from corbits_memory.core.limits import IDEMPOTENCY_KEY_CHARS
from corbits_memory.http import memory_app
from corbits_memory.plane import Memory
from corbits_memory.ports import StoreCapabilities
from corbits_memory.testing import FakeDocumentStore
from tests.http.conftest import client_of, identity

BODY = {"title": "Deploys", "text": "Fridays are frozen."}
KEY = {"Idempotency-Key": "5b1b9f5e"}


@pytest.mark.parametrize(("path", "body"), [("/add", BODY), ("/add/batch", {"items": [BODY, BODY]})])
async def test_a_retry_gets_the_first_answer(
    http: httpx2.AsyncClient, store: FakeDocumentStore, path: str, body: object
) -> None:
    first = await http.post(path, json=body, headers=KEY)
    kept = len(store.documents)
    again = await http.post(path, json=body, headers=KEY)
    assert first.status_code == again.status_code == 200
    assert again.json() == first.json()
    assert len(store.documents) == kept
    assert (await http.post(path, json=body, headers={"Idempotency-Key": "other"})).json() != first.json()


@pytest.mark.parametrize(
    "other", [{"text": "Thursdays."}, {"kind": "rule"}, {"share": {"tenant": True}}, {"attributes": {"a": 1}}]
)
async def test_the_same_key_for_something_else_is_409(
    http: httpx2.AsyncClient, store: FakeDocumentStore, other: dict[str, object]
) -> None:
    await http.post("/add", json=BODY, headers=KEY)
    refused = await http.post("/add", json=BODY | other, headers=KEY)
    assert refused.status_code == 409
    assert refused.json()["error"]["code"] == "idempotency_key_reused"
    assert len(store.documents) == 1


async def test_what_says_the_same_is_the_same(http: httpx2.AsyncClient) -> None:
    first = await http.post("/add", json=BODY, headers=KEY)
    content = b'{"text":"Fridays are frozen.",  "title":"Deploys", "kind": null, "unknown": 1}'
    again = await http.post(
        "/add", content=content, headers=KEY | {"content-type": "application/json; charset=utf-8"}
    )
    assert again.json() == first.json()


async def test_a_key_is_each_principals_own(memory: Memory, store: FakeDocumentStore) -> None:
    app = memory_app(memory, identity=identity)
    for token in ("ann", "bob"):
        async with client_of(app, token=token) as client:
            assert (await client.post("/add", json=BODY, headers=KEY)).status_code == 200
    assert len(store.documents) == 2


async def test_bad_input_uses_no_key_up(http: httpx2.AsyncClient) -> None:
    assert (await http.post("/add", json={"title": "a"}, headers=KEY)).status_code == 400
    assert (await http.post("/add", json=BODY, headers=KEY)).status_code == 200


@pytest.mark.parametrize(
    ("key", "status"),
    [
        ("x", 200),
        ("x" * IDEMPOTENCY_KEY_CHARS, 200),
        ("x" * (IDEMPOTENCY_KEY_CHARS + 1), 400),
        *[(refused, 400) for refused in ("", "a b", "é", "a\tb")],
    ],
)
async def test_keys_have_a_shape(http: httpx2.AsyncClient, key: str, status: int) -> None:
    answer = await http.post("/add", json=BODY, headers={b"idempotency-key": key.encode("latin-1")})
    assert answer.status_code == status
    if status == 400:
        assert "idempotency_key" in answer.json()["error"]["message"]


@pytest.mark.parametrize("depth", [1, 100, 240, 300, 900])
async def test_what_is_nested_too_deeply_is_bad_input(http: httpx2.AsyncClient, depth: int) -> None:
    content = '{"title":"a","text":"b","attributes":' + '{"a":' * depth + "1" + "}" * depth + "}"
    headers = KEY | {"content-type": "application/json"}
    answer = await http.post("/add", content=content, headers=headers)
    assert answer.status_code == (200 if depth == 1 else 400)


@pytest.mark.parametrize("text", ["a\ud800", "a\x00", "\udfff"])
async def test_odd_text_is_judged_as_without_a_key(http: httpx2.AsyncClient, text: str) -> None:
    content = json.dumps({"title": "a", "text": text})
    headers = {"content-type": "application/json"}
    keyed = await http.post("/add", content=content, headers=KEY | headers)
    assert keyed.status_code == 400
    assert keyed.json() == (await http.post("/add", content=content, headers=headers)).json()


async def test_two_keys_are_none(http: httpx2.AsyncClient) -> None:
    answer = await http.post("/add", json=BODY, headers=[("Idempotency-Key", "a"), ("Idempotency-Key", "b")])
    assert answer.status_code == 400


class ForgetfulStore(FakeDocumentStore):
    """Keeps no answers."""

    add_once = None  # type: ignore[assignment]


async def test_a_store_that_keeps_no_answers_refuses_before_it_writes() -> None:
    store = ForgetfulStore(capabilities=StoreCapabilities())
    async with Memory(store) as memory, client_of(memory_app(memory, identity=identity)) as client:
        refused = await client.post("/add", json=BODY, headers=KEY)
        assert refused.status_code == 501
        assert refused.json()["error"]["code"] == "idempotency_not_supported"
        assert store.documents == []
        assert (await client.post("/add", json=BODY)).status_code == 200
