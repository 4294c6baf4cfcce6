"""The routes of replays: over a store that replays, and over one that can't."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from corbits_memory.config import EmbedConfig, EngineConfig
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.http import memory_app
from corbits_memory.http.transform import TRANSFORM_OPERATIONS
from corbits_memory.models.factory import ConfiguredModels, build_embedder
from corbits_memory.plane import Memory
from tests.engine.conftest import database_url, migrated_template, word_server
from tests.http.conftest import client_of, identity
from tests.models.conftest import ModelServer

__all__ = ["database_url", "migrated_template", "word_server"]

PARAMS = {"chunk": {"strategy": "token.recursive", "maxTokens": 10}, "embed": {"apiKey": "sekret"}}


def store_of(database_url: str, model_url: str, *, run_worker: bool) -> PostgresDocumentStore:
    embed = EmbedConfig(base_url=model_url, model="words")
    return PostgresDocumentStore(
        EngineConfig(database_url=database_url, embed=embed, run_worker=run_worker),
        embedder=build_embedder(embed),
        reranker=None,
        models=ConfiguredModels(),
    )


@pytest.fixture
async def app(database_url: str, word_server: ModelServer) -> AsyncIterator[Any]:
    """A memory with a worker, on a real database."""
    async with Memory(store_of(database_url, word_server.url, run_worker=True)) as memory:
        yield memory_app(memory, identity=identity)


@pytest.fixture
async def ann(app: Any) -> AsyncIterator[httpx2.AsyncClient]:
    async with client_of(app) as client:
        yield client


async def ended(client: httpx2.AsyncClient, run: dict[str, Any]) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while run["status"] == "running":
            await asyncio.sleep(0.1)
            run = (await client.get(f"/transform-runs/{run['id']}")).json()
    return run


async def test_from_a_config_to_a_promotion_and_back(ann: httpx2.AsyncClient) -> None:
    text = "The vault opens at nine. Maria keeps the key in her desk. Nobody else may have it."
    await ann.post("/add", json={"title": "Vault", "text": text, "external_ref": "n1"})
    made = (await ann.post("/transforms", json={"name": "small", "params": PARAMS})).json()
    assert (made["version"], made["secrets"]) == (1, ["embed.apiKey"])
    assert made["params"]["chunk"] == PARAMS["chunk"]
    path = f"/transforms/{made['id']}"
    assert (await ann.get(path)).json() == made
    assert (await ann.get("/transforms", params={"name": "small"})).json() == {"configs": [made]}
    again = (
        await ann.post("/transforms", json={"name": "small", "params": {"chunk": PARAMS["chunk"]}})
    ).json()
    diff = (await ann.get(f"{path}/diff/{again['id']}")).json()
    assert diff == {"changes": [{"path": "embed.apiKey", "before": "a key", "after": None}]}
    assert (await ann.delete(f"/transforms/{again['id']}")).json() == {"id": again["id"], "deleted": True}

    run = await ended(ann, (await ann.post(f"{path}/runs")).json())
    assert (run["status"], run["raw_count"], run["version_count"], run["generation"]) == (
        "completed",
        1,
        1,
        run["id"],
    )
    assert run["progress"] == {"done": 1, "total": 1, "rate": None, "seconds_left": None}
    assert (await ann.get("/transform-runs")).json()["runs"][0]["id"] == run["id"]
    refused = await ann.delete(path)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "transform_config_in_use")

    staged = await ann.post("/search", json={"query": "vault", "generation": run["generation"]})
    assert len(staged.json()["items"]) == 1
    promoted = (await ann.post(f"/generations/{run['generation']}/promote")).json()
    assert (promoted["live"], promoted["archived_live_generation"]) == (True, "g0")
    refused = await ann.post(f"/generations/{run['generation']}/promote")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "transform_promote")
    assert (await ann.post(f"/generations/{run['generation']}/demote")).json()["live"] is False
    assert (await ann.post(f"/generations/{run['generation']}/demote")).status_code == 409
    for word in ("pause", "resume", "cancel", "retry"):
        refused = await ann.post(f"/transform-runs/{run['id']}/{word}")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "transform_run")
    told = repr([made, again, diff, run, promoted, (await ann.get("/transforms")).text])
    assert "sekret" not in told


async def test_a_run_is_paused_resumed_cancelled_and_tried_again(
    database_url: str, word_server: ModelServer
) -> None:
    """Nobody works on it but the test, so that each state lasts until it was looked at."""
    store = store_of(database_url, word_server.url, run_worker=False)
    async with Memory(store) as memory, client_of(memory_app(memory, identity=identity)) as ann:
        await ann.post("/add", json={"title": "Vault", "text": "The vault opens at nine."})
        params = {"chunk": PARAMS["chunk"]}
        config = (await ann.post("/transforms", json={"name": "small", "params": params})).json()
        run = (await ann.post(f"/transforms/{config['id']}/runs")).json()
        path = f"/transform-runs/{run['id']}"

        async def change(word: str) -> dict[str, Any]:
            answer = await ann.post(f"{path}/{word}")
            assert answer.status_code == 200, answer.text
            told: dict[str, Any] = answer.json()
            assert (await ann.get(path)).json() == told
            return told

        async def work() -> tuple[str, int]:
            await store.replays.slices.work("acme", run["id"])
            told = (await ann.get(path)).json()
            return told["status"], told["version_count"]

        assert (run["status"], run["paused"]) == ("running", False)
        for word in ("pause", "pause"):
            told = await change(word)
            assert (told["status"], told["paused"]) == ("running", True)
        assert await work() == ("running", 0)
        told = await change("resume")
        assert (told["status"], told["paused"]) == ("running", False)
        told = await change("cancel")
        assert (told["status"], told["paused"], told["error"]) == ("failed", False, "cancelled")
        assert told["completed_at"] is not None
        assert await work() == ("failed", 0)
        for word in ("pause", "resume", "cancel"):
            assert (await ann.post(f"{path}/{word}")).status_code == 409
        told = await change("retry")
        assert (told["status"], told["paused"], told["error"]) == ("running", False, None)
        assert told["completed_at"] is None
        await change("pause")
        await change("resume")
        assert await work() == ("completed", 1)


async def test_bad_input_is_told(ann: httpx2.AsyncClient) -> None:
    made = (await ann.post("/transforms", json={"name": "a", "params": {"chunk": PARAMS["chunk"]}})).json()
    cases: list[tuple[str, dict[str, Any], list[str]]] = [
        ("/transforms", {}, ["params"]),
        ("/transforms", {"params": {"chunk": PARAMS["chunk"]}}, ["name"]),
        ("/transforms", {"name": "a", "params": {"mmrLambda": 2}}, ["chunk", "mmrLambda"]),
        (f"/transforms/{made['id']}/runs", {"since": "soon", "kinds": "x"}, ["since", "kinds"]),
        (f"/transforms/{made['id']}/runs", {"since": "2026-02-01", "until": "2026-01-01"}, ["since"]),
        (f"/transforms/{made['id']}/runs", {"document_ids": ["d"] * 1_001}, ["document_ids"]),
        ("/generations/g/promote", {"partial": "yes"}, ["allow_partial"]),
    ]
    for path, body, fields in cases:
        answer = await ann.post(path, json=body)
        assert answer.status_code == 400, path
        assert [found["field"] for found in answer.json()["error"]["details"]] == fields
    for path in ("/transforms/tcfg_x", "/transform-runs/trun_x", "/transforms/tcfg_x/diff/tcfg_y"):
        assert (await ann.get(path)).status_code == 404
    assert (await ann.post("/generations/trun_x/promote")).status_code == 404
    assert (await ann.get("/transform-runs", params={"limit": "0"})).status_code == 400
    empty = (await ann.post(f"/transforms/{made['id']}/runs", json={"adapter": "nobody"})).json()
    empty = await ended(ann, empty)
    assert (empty["status"], empty["error"]) == ("failed", "no raw capture is in the run's scope")


@pytest.mark.parametrize("operation", TRANSFORM_OPERATIONS, ids=lambda operation: operation.id)
async def test_every_route_is_for_administrators(
    operation: Any, http: httpx2.AsyncClient, memory: Memory
) -> None:
    path = operation.path.format(config_id="c", other_id="o", run_id="r", generation="g")
    body = {"name": "a", "params": {"chunk": PARAMS["chunk"]}} if operation.path == "/transforms" else {}
    content: dict[str, Any] = {} if operation.method in ("GET", "DELETE") else {"json": body}
    # This store can't replay.
    answer = await http.request(operation.method, path, **content)
    assert (answer.status_code, answer.json()["error"]["code"]) == (501, "not_supported")
    async with client_of(memory_app(memory, identity=identity), token="bob") as bob:
        assert (await bob.request(operation.method, path, **content)).status_code == 403
