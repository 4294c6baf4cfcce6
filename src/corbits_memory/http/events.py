"""Server-sent events: an answer that goes on until somebody ends it."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

MEDIA_TYPE = "text/event-stream"
HEARTBEAT = b": still here\n\n"
"""A comment: keeps proxies from closing what is silent."""
STALLED_SECONDS = 30.0
"""Longest wait for a client to take one event; whoever reads slower than that has to come again."""
LAST_WORDS_SECONDS = 1.0

Watch = Callable[[], Awaitable[bytes]]
"""Returns when the stream shall end, with the last words (an event, or nothing)."""


def event(*, name: str | None = None, number: int | None = None, data: Mapping[str, Any]) -> bytes:
    head = (f"id: {number}\n" if number is not None else "") + (f"event: {name}\n" if name else "")
    # JSON holds no line break: one line of data.
    body = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return f"{head}data: {body}\n\n".encode("utf-8", "backslashreplace")


def position(number: int) -> bytes:
    """Nothing to tell, but to go on from here after a break."""
    return f"id: {number}\n\n".encode()


class EventStream(Response):
    """Sends events as fast as the client takes them: one is read when the one before is gone.

    Ends when the client goes away or stops reading, when a watch returns, or with its events.
    """

    media_type = MEDIA_TYPE

    def __init__(self, events: AsyncIterator[bytes], *, watches: Sequence[Watch]) -> None:
        super().__init__(media_type=MEDIA_TYPE)
        del self.headers["content-length"]
        # Else some proxies keep events until they have a buffer full of them.
        self.headers["x-accel-buffering"] = "no"
        self._events = events
        self._watches = watches
        self._last_words = b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        gone = await self._run(receive, send)
        if gone:
            return
        # A client that does not take even this is not waited for.
        with anyio.move_on_after(LAST_WORDS_SECONDS):
            await send({"type": "http.response.body", "body": self._last_words, "more_body": False})

    async def _run(self, receive: Receive, send: Send) -> bool:
        """Whether the client is gone, or reads no more."""
        gone = False
        async with anyio.create_task_group() as group:

            async def watch_client() -> None:
                nonlocal gone
                while (await receive())["type"] != "http.disconnect":
                    pass
                gone = True
                group.cancel_scope.cancel()

            async def obey(watch: Watch) -> None:
                self._last_words = await watch()
                group.cancel_scope.cancel()

            group.start_soon(watch_client)
            for watch in self._watches:
                group.start_soon(obey, watch)
            gone = not await self._write(send)
            group.cancel_scope.cancel()
        return gone

    async def _write(self, send: Send) -> bool:
        """Whether the client took all of it."""
        async for piece in self._events:
            with anyio.move_on_after(STALLED_SECONDS) as patience:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            if patience.cancelled_caught:
                return False
        return True
