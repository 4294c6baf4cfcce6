"""``POST /context``."""

from typing import Any

import httpx2
import pytest

from corbits_memory.core.limits import (
    CONTEXT_LIMIT_DEFAULT,
    CONTEXT_PER_DOCUMENT_DEFAULT,
    CONTEXT_TOKENS_DEFAULT,
    CONTEXT_TOKENS_MAX,
    CONTEXT_TOKENS_MIN,
)
from corbits_memory.http import memory_app
from corbits_memory.plane import Memory
from corbits_memory.testing import FakeDocumentStore
from tests.http.conftest import client_of, identity


async def fill(http: httpx2.AsyncClient, count: int = 3, words: int = 50) -> None:
    for n in range(count):
        body = {"title": f"Note {n}", "text": f"ocelot number {n} " + "hums " * words, "author": "Ann"}
        assert (await http.post("/add", json=body)).status_code == 200


async def ask(http: httpx2.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await http.post("/context", json={"query": "ocelot", **body})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def test_hits_are_one_cited_text(http: httpx2.AsyncClient, store: FakeDocumentStore) -> None:
    await fill(http)
    told = await ask(http)
    assert told["context"].startswith("[1] Note 0 (Ann, 20")
    assert "\n\n[2] Note 1 (Ann" in told["context"]
    assert [item["marker"] for item in told["items"]] == [1, 2, 3]
    assert {item["documentId"] for item in told["items"]} == {d.document_id for d in store.documents}
    assert told["items"][0]["citation"]["external_ref"]
    assert (told["omitted"], told["maxTokens"]) == ([], CONTEXT_TOKENS_DEFAULT)
    assert told["evidence"] == "weak"
    assert (store.queries[-1].limit, store.queries[-1].max_per_document) == (
        CONTEXT_LIMIT_DEFAULT,
        CONTEXT_PER_DOCUMENT_DEFAULT,
    )


async def test_what_has_no_room_is_named(http: httpx2.AsyncClient) -> None:
    await fill(http, 5)
    told = await ask(http, max_tokens=130)
    assert told["tokens"] <= 130
    assert [item["truncated"] for item in told["items"]] == [False, True]
    assert [left["title"] for left in told["omitted"]] == ["Note 2", "Note 3", "Note 4"]
    assert all(left["documentId"] for left in told["omitted"])


async def test_nothing_found_is_an_empty_text(http: httpx2.AsyncClient) -> None:
    told = await ask(http, query="nobody wrote this", includeEvidence=True)
    assert (told["context"], told["tokens"], told["items"], told["evidence"]) == ("", 0, [], "none")


@pytest.mark.parametrize(
    ("tokens", "status"),
    [
        (CONTEXT_TOKENS_MIN - 1, 400),
        (CONTEXT_TOKENS_MIN, 200),
        (CONTEXT_TOKENS_MAX, 200),
        (CONTEXT_TOKENS_MAX + 1, 400),
        ("500", 400),
        (500.5, 400),
        (True, 400),
        (None, 200),
    ],
)
async def test_the_budget_has_limits(http: httpx2.AsyncClient, tokens: object, status: int) -> None:
    answer = await http.post("/context", json={"query": "ocelot", "max_tokens": tokens})
    assert answer.status_code == status
    if status == 400:
        assert answer.json()["error"]["details"][0]["field"] == "max_tokens"


async def test_every_problem_is_told_at_once(http: httpx2.AsyncClient) -> None:
    answer = await http.post("/context", json={"max_tokens": 1, "limit": 99, "includeDeprecated": 1})
    fields = {found["field"] for found in answer.json()["error"]["details"]}
    assert fields == {"query", "limit", "includeDeprecated", "max_tokens"}


async def test_another_generation_needs_an_administrator(memory: Memory) -> None:
    async with client_of(memory_app(memory, identity=identity), token="bob") as client:
        refused = await client.post("/context", json={"query": "a", "generation": "g"})
    assert refused.status_code == 403


async def test_others_texts_stay_theirs(http: httpx2.AsyncClient, memory: Memory) -> None:
    await fill(http)
    async with client_of(memory_app(memory, identity=identity), token="bob") as client:
        told = await ask(client)
    assert told["context"] == ""
