"""Slow and oversized requests over real sockets."""

import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from corbits_memory.errors import ConfigError
from corbits_memory.server.listen import HEAD_BYTES, PatientProtocol, bind
from corbits_memory.server.middleware import TimelyBody
from tests.server.support import running

HEAD = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"
SOON = 5.0


class Hasty(PatientProtocol):
    head_seconds = 0.3


async def echo(request: Request) -> Response:
    try:
        body = await request.body()
    except ClientDisconnect:
        # Like the memory's endpoint: it gives up without an answer.
        async def nothing(scope: object, receive: object, send: object) -> None:
            return None

        return nothing  # type: ignore[return-value]
    return JSONResponse({"bytes": len(body)})


async def unread(request: Request) -> Response:
    return PlainTextResponse("not needed", status_code=401)


@asynccontextmanager
async def connected(
    *, pause: float = 0.3, grace: float = 5.0, rate: int = 1_000
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    app = Starlette(
        routes=[Route("/echo", echo, methods=["POST"]), Route("/unread", unread, methods=["POST"])],
        middleware=[Middleware(TimelyBody, pause_seconds=pause, grace_seconds=grace, bytes_a_second=rate)],
    )
    async with running(app, protocol=Hasty) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))
        try:
            yield reader, writer
        finally:
            writer.close()


async def rest(reader: asyncio.StreamReader) -> bytes:
    """All that comes until the server closes."""
    return await asyncio.wait_for(reader.read(), SOON)


async def test_a_body_in_time_is_read() -> None:
    async with connected() as (reader, writer):
        writer.write(HEAD + b"Content-Length: 4\r\nConnection: close\r\n\r\nab")
        await asyncio.sleep(0.1)
        writer.write(b"cd")
        answer = await rest(reader)
    assert answer.startswith(b"HTTP/1.1 200")
    assert json.loads(answer.rsplit(b"\r\n\r\n", 1)[1]) == {"bytes": 4}


async def test_a_body_that_pauses_is_given_up_with_408() -> None:
    async with connected() as (reader, writer):
        writer.write(HEAD + b"Content-Length: 4\r\n\r\nab")
        answer = await rest(reader)
    assert answer.startswith(b"HTTP/1.1 408")
    assert json.loads(answer.rsplit(b"\r\n\r\n", 1)[1])["error"]["code"] == "request_timeout"


async def test_a_body_that_trickles_is_given_up_with_408() -> None:
    async with connected(grace=0.4, rate=1_000_000) as (reader, writer):
        writer.write(HEAD + b"Content-Length: 1000\r\n\r\n")

        async def trickle() -> None:
            while not writer.is_closing():
                writer.write(b"x")
                await asyncio.sleep(0.05)

        drip = asyncio.create_task(trickle())
        head = await asyncio.wait_for(reader.readline(), SOON)
        drip.cancel()
    assert b"408" in head


async def test_a_head_that_trickles_closes_the_connection() -> None:
    async with connected() as (reader, writer):
        writer.write(b"GET /echo HT")
        await asyncio.sleep(0.15)
        writer.write(b"TP/1.1\r\nHo")
        assert await rest(reader) == b""


async def test_a_silent_connection_is_closed() -> None:
    async with connected() as (reader, _):
        assert await rest(reader) == b""


async def test_a_body_that_goes_on_after_its_answer_is_not_read_for_ever() -> None:
    async with connected() as (reader, writer):
        writer.write(b"POST /unread HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nab")
        assert b"401" in await asyncio.wait_for(reader.readline(), SOON)
        answer = await rest(reader)
    assert answer.endswith(b"not needed")


async def test_a_connection_may_be_used_again_after_its_head_took_a_while() -> None:
    async with connected() as (reader, writer):
        for _ in range(2):
            writer.write(HEAD + b"Content-Le")
            await asyncio.sleep(0.1)
            writer.write(b"ngth: 2\r\n\r\nab")
            answer = await asyncio.wait_for(reader.readuntil(b"}"), SOON)
            assert b" 200 " in answer


async def test_a_head_above_its_limit_is_refused() -> None:
    async with connected() as (reader, writer):
        writer.write(b"GET /echo HTTP/1.1\r\nHost: x\r\nX-Long: " + b"y" * HEAD_BYTES)
        assert (await rest(reader)).startswith(b"HTTP/1.1 4")


async def test_the_second_answer_in_a_connection_comes_as_soon_as_the_first() -> None:
    """Head and body are two segments: one that waits for the other's receipt costs 40 ms each time."""
    async with connected() as (reader, writer):
        times = []
        for _ in range(12):
            began = time.perf_counter()
            writer.write(HEAD + b"Content-Length: 2\r\n\r\nab")
            await asyncio.wait_for(reader.readuntil(b"}"), SOON)
            times.append(time.perf_counter() - began)
    assert statistics.median(times[2:]) < 0.03


def test_a_port_that_is_taken_is_told_with_the_way_out() -> None:
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"Port {port} .*--port"):
            bind("127.0.0.1", port)


def test_an_address_of_another_machine_is_told() -> None:
    with pytest.raises(ConfigError, match=r"203\.0\.113\.7"):
        bind("203.0.113.7", 0)
