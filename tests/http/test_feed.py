"""The feed over HTTP: pages, and streams on real sockets."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from starlette.requests import Request

from corbits_memory.core import limits
from corbits_memory.core.enums import Capability, FeedOp
from corbits_memory.errors import DatabaseError
from corbits_memory.http import events as http_events
from corbits_memory.http import feed as http_feed
from corbits_memory.http import memory_app
from corbits_memory.plane import Memory
from corbits_memory.ports import Caller
from corbits_memory.testing import FakeDocumentStore
from tests.http.conftest import client_of, identity
from tests.http.feeding import FeedingStore, open_stream
from tests.http.test_guard import error_of
from tests.http.test_server import PATH, running

NOTE = {"title": "Deploys", "text": "Fridays are frozen."}
ANN: Any = {"tenant_id": "acme", "principal_id": "ann"}


@pytest.fixture
def store() -> FeedingStore:
    return FeedingStore()


@pytest.fixture
def memory(store: FeedingStore) -> Memory:
    return Memory(store)


@pytest.fixture
async def http(memory: Memory) -> AsyncIterator[httpx2.AsyncClient]:
    async with memory, client_of(memory_app(memory, identity=identity)) as client:
        yield client


@pytest.fixture
async def client(memory: Memory) -> AsyncIterator[httpx2.AsyncClient]:
    """Ann's, of a real server."""
    async with (
        running(memory_app(memory, identity=identity)) as port,
        httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}{PATH}", headers={"authorization": "Bearer ann"}
        ) as client,
    ):
        yield client
        memory.stop_following()


# --- pages -------------------------------------------------------------------------------------------


async def test_a_page_to_the_letter(http: httpx2.AsyncClient) -> None:
    await http.post("/add", json=NOTE)
    answer = (await http.get("/feed")).json()
    at = answer["entries"][0]["createdAt"]
    assert answer == {
        "entries": [
            {
                "feedSeq": 1,
                "op": "upsert",
                "versionId": "fake_ver_1",
                "documentId": "fake_doc_1",
                "kind": "note",
                "title": "Deploys",
                "status": "active",
                "createdByKind": "human",
                "generatorAgentId": None,
                "provenance": "unknown",
                "sourceClass": "native",
                "occurredAt": at,
                "createdAt": at,
                "accessTags": [],
                "text": "Fridays are frozen.",
            }
        ],
        "nextCursor": 1,
        "hasMore": False,
    }
    assert at.endswith("Z")


async def test_an_empty_page_has_a_null_cursor(http: httpx2.AsyncClient) -> None:
    assert (await http.get("/feed")).json() == {"entries": [], "nextCursor": None, "hasMore": False}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", {"after": 0, "limit": 50}),
        ("?after=&limit=&exclude_generator=&ops=&include=", {"after": 0, "limit": 50}),
        ("?limit=1", {"limit": 1}),
        ("?limit=100", {"limit": 100}),
        ("?exclude_generator=%20bot%20", {"exclude_generator": "bot"}),
        ("?exclude_generator=%20", {"exclude_generator": None}),
        ("?include=text", {"include_text": True}),
        ("?include_text=true", {"include_text": True}),
        ("?include_text=false", {"include_text": False}),
        ("?ops=upsert,retract", {"ops": {FeedOp.UPSERT, FeedOp.RETRACT}}),
        ("?ops=retract&ops=promote", {"ops": {FeedOp.RETRACT, FeedOp.PROMOTE}}),
    ],
)
async def test_what_is_asked_reaches_the_store(
    http: httpx2.AsyncClient, store: FeedingStore, query: str, expected: dict[str, Any]
) -> None:
    assert (await http.get(f"/feed{query}")).status_code == 200
    asked = store.feed_queries[-1]
    assert {name: getattr(asked, name) for name in expected} == expected


AFTER = "after must be a non-negative integer"
LIMIT = "limit must be an integer from 1 to 100"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("after=-1", AFTER),
        ("after=1.5", AFTER),
        ("after=x", AFTER),
        ("after=%00", AFTER),
        ("after=٣", AFTER),
        ("after=1e3", AFTER),
        ("after=null", AFTER),
        (f"after={limits.SAFE_INTEGER + 1}", AFTER),
        ("after=" + "9" * 5_000, AFTER),
        ("limit=0", LIMIT),
        ("limit=101", LIMIT),
        ("limit=-1", LIMIT),
        ("limit=many", LIMIT),
        ("ops=upsert,drop", "ops must be some of: upsert, retract, promote"),
        ("include=vectors", "include must be some of: text"),
        ("include_text=maybe", "include_text must be true or false"),
        ("exclude_generator=" + "x" * 257, "exclude_generator must be at most 256 characters"),
    ],
)
async def test_bad_input_is_named(http: httpx2.AsyncClient, query: str, message: str) -> None:
    for path in ("/feed", "/feed/stream"):
        if path == "/feed/stream" and message == LIMIT:
            continue
        answer = await http.get(f"{path}?{query}")
        assert answer.status_code == 400
        assert error_of(answer)["message"] == message


async def test_a_parameter_counts_once(http: httpx2.AsyncClient) -> None:
    answer = await http.get("/feed?after=1&after=2")
    assert answer.status_code == 400
    assert error_of(answer)["message"] == "after must be given once"


@pytest.mark.parametrize("after", [1, limits.SAFE_INTEGER])
async def test_a_cursor_that_the_feed_has_not_reached(http: httpx2.AsyncClient, after: int) -> None:
    for path in ("/feed", "/feed/stream"):
        answer = await http.get(f"{path}?after={after}")
        assert answer.status_code == 400
        assert error_of(answer)["code"] == "invalid_cursor"


@pytest.mark.parametrize("path", ["/feed", "/feed/stream"])
async def test_a_store_without_a_feed(path: str) -> None:
    async with (
        Memory(FakeDocumentStore()) as memory,
        client_of(memory_app(memory, identity=identity)) as client,
    ):
        answer = await client.get(path)
    assert answer.status_code == 501
    assert error_of(answer) == {
        "code": "not_supported",
        "message": "feed requires the engine DocumentStore",
    }


@pytest.mark.parametrize("path", ["/feed", "/feed/stream"])
async def test_reading_needs_the_capability_to_search(http: httpx2.AsyncClient, path: str) -> None:
    assert (await http.get(path, headers={"authorization": "Bearer writer"})).status_code == 403
    assert (await http.get(path, headers={"authorization": "Bearer other"})).status_code == 403
    assert (await http.get(path, headers={"authorization": "Bearer nobody"})).status_code == 401


# --- streams -----------------------------------------------------------------------------------------


async def test_a_stream_tells_what_was_and_what_comes(client: httpx2.AsyncClient) -> None:
    await client.post("/add", json=NOTE)
    async with open_stream(client) as events:
        first = await anext(events)
        assert (first.id, first.name, first.data["title"]) == ("1", "upsert", "Deploys")
        await client.post("/add", json={**NOTE, "title": "Two\nlines"})
        second = await anext(events)
        assert (second.id, second.data["title"]) == ("2", "Two\nlines")


async def test_a_stream_has_the_headers_of_one(client: httpx2.AsyncClient) -> None:
    async with client.stream("GET", "/feed/stream") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-request-id"]
        assert "content-length" not in answer.headers


async def test_a_stream_goes_on_after_the_last_event_that_was_seen(client: httpx2.AsyncClient) -> None:
    for number in range(3):
        await client.post("/add", json={**NOTE, "title": str(number)})
    async with open_stream(client, "/feed/stream?after=0", headers={"Last-Event-ID": "2"}) as events:
        assert (await anext(events)).id == "3"
    async with open_stream(client, "/feed/stream?after=1") as events:
        assert (await anext(events)).id == "2"


@pytest.mark.parametrize("number", ["-1", "x", str(limits.SAFE_INTEGER + 1), "9" * 4_000])
async def test_a_last_event_id_that_is_none(client: httpx2.AsyncClient, number: str) -> None:
    answer = await client.get("/feed/stream", headers={"Last-Event-ID": number})
    assert answer.status_code == 400
    assert error_of(answer)["message"] == f"Last-Event-ID {AFTER.removeprefix('after ')}"


async def test_a_long_backlog_comes_whole_and_in_order(client: httpx2.AsyncClient, memory: Memory) -> None:
    for number in range(5):
        await client.post(
            "/add/batch", json={"items": [{**NOTE, "title": f"{number}.{n}"} for n in range(50)]}
        )
    async with open_stream(client) as events:
        assert [int((await anext(events)).id) for _ in range(250)] == list(range(1, 251))


async def test_what_is_passed_over_moves_the_number_on(client: httpx2.AsyncClient) -> None:
    """So that coming back does not read all of it again."""
    await client.post("/add", json=NOTE, headers={"authorization": "Bearer bob"})
    async with open_stream(client) as events:
        passed = await anext(events)
        assert (passed.id, passed.name, passed.data) == ("1", None, None)


async def test_silence_is_broken_by_comments(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_feed, "HEARTBEAT_SECONDS", 0.05)
    async with open_stream(client) as events:
        assert [(await anext(events)).comment for _ in range(3)] == [True] * 3


async def test_a_client_that_goes_away_leaves_nothing_behind(client: httpx2.AsyncClient) -> None:
    before = len(asyncio.all_tasks())
    async with open_stream(client), open_stream(client):
        assert len(asyncio.all_tasks()) > before
    async with asyncio.timeout(5):
        while len(asyncio.all_tasks()) > before:  # noqa: ASYNC110 - the server notices by itself
            await asyncio.sleep(0.02)


async def test_a_revoked_caller_is_shown_out(
    store: FeedingStore, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_feed, "GUARD_SECONDS", 0.05)
    known = {"ann"}

    def who(request: Request) -> Caller | None:
        return Caller("acme", "ann", frozenset({Capability.SEARCH})) if known else None

    async with (
        running(memory_app(memory, identity=who)) as port,
        httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}{PATH}", headers={"authorization": "Bearer ann"}
        ) as client,
        open_stream(client) as events,
    ):
        known.clear()
        told = [event async for event in events]
        assert (told[-1].name, told[-1].data["error"]["code"]) == ("error", "unauthorized")
        assert (await client.get("/feed")).status_code == 401


async def test_a_failure_on_the_way_ends_the_stream_with_its_error(
    client: httpx2.AsyncClient, store: FeedingStore
) -> None:
    async with open_stream(client) as events:
        store.failure = DatabaseError("The database went away.")
        await client.post("/add", json=NOTE)
        told = [event async for event in events]
    assert (told[-1].name, told[-1].data["error"]["code"]) == ("error", "database_failed")


async def test_what_nobody_foresaw_is_told_without_its_text(
    client: httpx2.AsyncClient, store: FeedingStore
) -> None:
    async with open_stream(client) as events:
        store.failure = RuntimeError("a secret")
        await client.post("/add", json=NOTE)
        told = [event async for event in events]
    assert told[-1].data["error"]["code"] == "internal"
    assert "secret" not in str(told)


async def test_stopping_ends_open_streams_at_once(client: httpx2.AsyncClient, memory: Memory) -> None:
    async with open_stream(client) as events:
        memory.stop_following()
        async with asyncio.timeout(1):
            assert [event async for event in events if not event.comment] == []


async def test_a_client_that_reads_nothing_holds_one_page_and_is_given_up(
    store: FeedingStore, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_events, "STALLED_SECONDS", 0.3)
    async with running(memory_app(memory, identity=identity)) as port:
        for _ in range(3):
            await memory.add_batch(
                **ANN,
                items=[_big() for _ in range(100)],
            )
        read_before = len(store.feed_queries)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(
            f"GET {PATH}/feed/stream HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ann\r\n\r\n".encode()
        )
        await writer.drain()
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(1)
        assert len(store.feed_queries) - read_before <= 2
        reader._transport.resume_reading()  # type: ignore[attr-defined]
        async with asyncio.timeout(5):
            while await reader.read(1 << 16):
                pass
        writer.close()
        memory.stop_following()


def _big() -> Any:
    from corbits_memory.validation import AddInput, Content

    return AddInput(content=Content(title="t", text="x" * 90_000))


async def test_head_of_a_stream_is_its_head(client: httpx2.AsyncClient) -> None:
    answer = await client.head("/feed/stream")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")


# --- following in this process -----------------------------------------------------------------------


async def test_follow_yields_entries_as_they_come(memory: Memory) -> None:
    from corbits_memory.validation import Content

    async with memory:
        await memory.add(**ANN, content=Content(title="a", text="x"))
        entries = memory.follow(**ANN)
        assert (await anext(entries)).seq == 1
        await memory.add(**ANN, content=Content(title="b", text="y"))
        assert (await anext(entries)).seq == 2


async def test_closing_ends_those_who_follow(memory: Memory) -> None:
    async with memory:
        followed = asyncio.create_task(_all(memory))
        await asyncio.sleep(0.05)
        memory.stop_following()
        from corbits_memory.validation import Content

        await memory.add(**ANN, content=Content(title="a", text="x"))
        async with asyncio.timeout(5):
            assert await followed <= 1


async def _all(memory: Memory) -> int:
    return len([entry async for entry in memory.follow(**ANN)])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"after": -5, "limit": 0}, (0, 1)),
        ({"after": 0.9, "limit": 1_000}, (0, 100)),
        ({"after": None, "limit": None}, (0, 50)),
        ({"limit": -3}, (0, 1)),
    ],
)
async def test_in_this_process_numbers_are_moved_into_their_range(
    memory: Memory, store: FeedingStore, given: dict[str, Any], expected: tuple[int, int]
) -> None:
    async with memory:
        await memory.feed(**ANN, **given)
    assert (store.feed_queries[-1].after, store.feed_queries[-1].limit) == expected


@pytest.mark.parametrize(
    "given",
    [
        {"after": "1"},
        {"after": True},
        {"after": float("nan")},
        {"limit": []},
        {"ops": ["drop"]},
        {"ops": "upsert"},
    ],
)
async def test_in_this_process_what_is_no_number_is_refused(memory: Memory, given: dict[str, Any]) -> None:
    from corbits_memory.errors import InvalidInputError

    async with memory:
        with pytest.raises(InvalidInputError):
            await memory.feed(**ANN, **given)
