"""Following the feed: as it comes, over breaks, until it is refused."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import pytest

from corbits_memory import errors
from corbits_memory.client import (
    InvalidAnswerError,
    MemoryClient,
    SyncMemoryClient,
    UnreachableError,
    following,
)
from corbits_memory.core.enums import Capability
from corbits_memory.http import feed as http_feed
from corbits_memory.wire.feed import FeedEntryResponse
from tests.models.conftest import Answer, ModelServer
from tests.server.support import Host

STREAM = {"content-type": "text/event-stream"}


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "AGAIN_SECONDS", 0.0)


def event(seq: int) -> bytes:
    return f'id: {seq}\nevent: upsert\ndata: {{"feedSeq":{seq},"op":"upsert"}}\n\n'.encode()


def streamed(*pieces: bytes) -> Answer:
    return Answer(raw=b"retry: 2000\n\n" + b"".join(pieces), headers=STREAM)


async def take(entries: AsyncIterator[FeedEntryResponse], count: int) -> list[int]:
    seen: list[int] = []
    async with asyncio.timeout(20):
        async for entry in entries:
            seen.append(entry.feed_seq)
            if len(seen) == count:
                break
    return seen


def follow_sync(url: str, count: int, **options: Any) -> list[int]:
    with SyncMemoryClient(url, tenant="acme", token="t", trust_env=False) as client:
        entries: Iterator[FeedEntryResponse] = client.follow(**options)
        return [next(entries).feed_seq for _ in range(count)]


async def follow(colour: str, url: str, count: int, **options: Any) -> list[int]:
    if colour == "sync":
        return await asyncio.to_thread(follow_sync, url, count, **options)
    async with (
        MemoryClient(url, tenant="acme", token="t", trust_env=False) as client,
        aclosing(client.follow(**options)) as entries,
    ):
        return await take(entries, count)


async def test_it_goes_on_where_a_connection_broke(server: ModelServer, colour: str) -> None:
    server.script(
        streamed(event(4), b": still here\n\n", event(6), b"id: 9\n\n", b'id: 11\ndata: {"half'),
        Answer({"error": {"code": "unavailable", "message": "Restarting."}}, status=503),
        streamed(event(10), event(11)),
    )
    broke: list[str] = []
    seen = await follow(
        colour, server.url, 4, after=3, ops=["upsert"], on_break=lambda error: broke.append(error.message)
    )
    assert seen == [4, 6, 10, 11]
    assert [request.path.partition("?")[2] for request in server.requests] == [
        f"ops=upsert&after={after}" for after in (3, 9, 9)
    ]
    assert broke == ["Restarting."]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer({"error": {"code": "unauthorized", "message": "No."}}, status=401), errors.UnauthorizedError),
        (
            Answer({"error": {"code": "invalid_cursor", "message": "No."}}, status=400),
            errors.InvalidCursorError,
        ),
        (Answer({"error": {"code": "internal", "message": "No."}}, status=500), errors.MemoryError),
        (Answer(raw=b"<html>"), InvalidAnswerError),
        (streamed(b"id: 1\ndata: not json\n\n"), InvalidAnswerError),
        (streamed(b"id: one\ndata: {}\n\n"), InvalidAnswerError),
        (
            streamed(b'event: error\ndata: {"error": {"code": "forbidden", "message": "No more."}}\n\n'),
            errors.ForbiddenError,
        ),
        (Answer(status=307, headers={"location": "http://127.0.0.1:1/x"}), errors.UpstreamError),
    ],
)
async def test_what_is_final_is_raised(
    server: ModelServer, colour: str, answer: Answer, kind: type[Exception]
) -> None:
    server.script(answer)
    with pytest.raises(kind):
        await follow(colour, server.url, 1)
    assert len(server.requests) == 1


async def test_an_error_that_may_pass_is_waited_out(server: ModelServer, colour: str) -> None:
    told = b'event: error\ndata: {"error": {"code": "database_failed", "message": "Gone."}}\n\n'
    server.script(streamed(event(1), told), streamed(event(2)))
    assert await follow(colour, server.url, 2) == [1, 2]


async def test_a_redirect_on_the_same_server_is_followed(server: ModelServer, colour: str) -> None:
    server.script(Answer(status=307, headers={"location": "/new?after=0"}), streamed(event(1)))
    assert await follow(colour, server.url, 1) == [1]
    assert server.requests[1].path == "/new?after=0"


async def test_nobody_there_is_told_of_at_once(nobody: str, colour: str) -> None:
    with pytest.raises(UnreachableError):
        await follow(colour, nobody, 1)


async def test_entries_come_from_a_real_server_as_they_are_written(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_feed, "GUARD_SECONDS", 0.2)
    made = await host.tokens.create(tenant_id="acme", principal_id="ann", capabilities=frozenset(Capability))
    async with MemoryClient(host.url, tenant="acme", token=made.secret) as client:
        await client.add(title="before", text="one")
        async with aclosing(client.follow(include_text=True)) as entries:
            assert (await anext(entries)).text == "one"
            waiting = asyncio.ensure_future(anext(entries))
            await asyncio.sleep(0.1)
            await client.add(title="after", text="two")
            assert (await asyncio.wait_for(waiting, 20)).text == "two"
            waiting = asyncio.ensure_future(anext(entries))
            await host.tokens.revoke(made.token.id)
            with pytest.raises(errors.UnauthorizedError):
                await asyncio.wait_for(waiting, 30)
