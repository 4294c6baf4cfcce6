"""The async client."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable
from contextlib import aclosing
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self

import anyio
import httpx2
import stamina

from corbits_memory.client import following, policy, routes
from corbits_memory.client.calls import Call, R
from corbits_memory.client.errors import RedirectedError
from corbits_memory.errors import IdempotencyNotSupportedError, MemoryError
from corbits_memory.wire.events import EventReader
from corbits_memory.wire.feed import FeedEntryResponse

P = ParamSpec("P")


def _sent(
    route: Callable[P, Call[R]],
) -> Callable[Concatenate["MemoryClient", P], Coroutine[Any, Any, R]]:
    """A route as a method that sends it."""

    @wraps(route)
    async def verb(self: "MemoryClient", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self.send(route(*args, **kwargs))

    return verb


class MemoryClient:
    """One tenant of one server; the token says who acts. Close it, or use it in ``async with``.

    Every call has a time limit; those that may be repeated are tried again after 429, 502, 503, 504 and broken
    connections, as ``Retry-After`` says. Raises the errors of :mod:`corbits_memory.errors` as the server tells them,
    and :class:`~corbits_memory.client.ServerError` where it gives no usable answer.
    """

    def __init__(
        self,
        base_url: str,
        *,
        tenant: str,
        token: str,
        timeout: float | None = policy.TIMEOUT_SECONDS,
        attempts: int = policy.ATTEMPTS,
        prefix: str = policy.PREFIX,
        trust_env: bool = True,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """``base_url`` like ``https://memory.example``; ``timeout`` in seconds, of one attempt (None: none).

        ``attempts`` of a call that may be repeated, at least 1. ``prefix``: where the host has mounted the routes.
        ``trust_env``: use the proxies that the environment names. ``transport``: another way to the server, like
        ``httpx2.ASGITransport`` to an app in this process. Raises ``ConfigError``.
        """
        self._target = policy.target(base_url, tenant=tenant, token=token, prefix=prefix)
        self._timeout = timeout
        self._attempts = max(1, attempts)
        self._reached = False
        self._client = httpx2.AsyncClient(
            headers=self._target.headers,
            timeout=policy.timeout_of(timeout),
            follow_redirects=False,
            trust_env=trust_env,
            mounts=dict.fromkeys(policy.LOOPBACK),
            transport=transport,
        )

    add = _sent(routes.add)
    add_batch = _sent(routes.add_batch)
    add_file = _sent(routes.add_file)
    search = _sent(routes.search)
    context = _sent(routes.context)
    list = _sent(routes.list_documents)
    document = _sent(routes.document)
    history = _sent(routes.history)
    lookup = _sent(routes.lookup)
    version = _sent(routes.version)
    share = _sent(routes.share)
    unshare = _sent(routes.unshare)
    forget = _sent(routes.forget)
    purge = _sent(routes.purge)
    set_retention_class = _sent(routes.set_retention_class)
    audit = _sent(routes.audit)
    feed = _sent(routes.feed_page)
    subscribe = _sent(routes.subscribe)
    subscriptions = _sent(routes.subscriptions)
    unsubscribe = _sent(routes.unsubscribe)
    dead_letters = _sent(routes.dead_letters)
    replay = _sent(routes.replay)
    capabilities = _sent(routes.capabilities)
    create_transform = _sent(routes.create_transform)
    transforms = _sent(routes.transforms)
    transform = _sent(routes.transform)
    diff_transforms = _sent(routes.diff_transforms)
    delete_transform = _sent(routes.delete_transform)
    run_transform = _sent(routes.run_transform)
    transform_runs = _sent(routes.transform_runs)
    sampled_queries = _sent(routes.sampled_queries)
    transform_run = _sent(routes.transform_run)
    pause_transform_run = _sent(routes.pause_transform_run)
    resume_transform_run = _sent(routes.resume_transform_run)
    cancel_transform_run = _sent(routes.cancel_transform_run)
    retry_transform_run = _sent(routes.retry_transform_run)
    promote = _sent(routes.promote)
    demote = _sent(routes.demote)

    async def follow(
        self,
        *,
        after: int = 0,
        ops: Iterable[str] = (),
        exclude_generator: str | None = None,
        include_text: bool = False,
        on_break: following.OnBreak | None = None,
    ) -> AsyncGenerator[FeedEntryResponse, None]:
        """The entries after ``after`` as they come, for ever; takes what :meth:`feed` takes.

        A connection that breaks is made anew and goes on where it was; ``on_break`` is told why. To go on after
        a restart, remember the ``feed_seq`` of the last entry that was dealt with. Raises what the server
        refuses, also later on.
        """
        place = following.Following(
            after=after, ops=tuple(ops), exclude_generator=exclude_generator, include_text=include_text
        )
        while True:
            try:
                async for entry in self._connected(place):
                    yield entry
            except MemoryError as error:
                if following.is_final(error, reached=self._reached):
                    raise
                if on_break is not None:
                    on_break(error)
            await anyio.sleep(following.AGAIN_SECONDS)

    async def send(self, call: Call[R]) -> R:
        """Send what :mod:`corbits_memory.client.routes` describes, and again where that may help."""
        try:
            return await self._send_repeatedly(call)
        except IdempotencyNotSupportedError:
            if not call.own_key:
                raise
            # Nothing was written. Without the key it may not be sent twice.
            return await self._send_repeatedly(call.without_key())

    async def _send_repeatedly(self, call: Call[R]) -> R:
        async for attempt in stamina.retry_context(
            on=lambda error: policy.wait_before_retry(
                error, repeatable=call.repeatable, reached=self._reached
            ),
            attempts=self._attempts,
            timeout=policy.RETRYING_SECONDS,
            **policy.BACKOFF,
        ):
            with attempt:
                return await self._send_once(call)
        raise AssertionError("the retry loop returns or raises")

    async def _send_once(self, call: Call[R]) -> R:
        content, headers = policy.content_of(call)
        clock = policy.Clock(self._timeout)
        with policy.transport_errors(self._target):
            answer = await self._open(
                call.method,
                self._target.url(call.path),
                params=policy.query(call),
                content=content,
                headers=headers,
            )
            async with aclosing(answer):
                body = await _read(answer, clock)
        return policy.read_answer(call, answer, body)

    async def _connected(self, place: following.Following) -> AsyncIterator[FeedEntryResponse]:
        """The entries of one connection, until it ends."""
        events = EventReader()
        with policy.transport_errors(self._target):
            answer = await self._open(
                "GET",
                self._target.url(following.PATH),
                params=place.parameters,
                headers=following.HEADERS,
                timeout=following.TIMEOUT,
            )
            async with aclosing(answer):
                if not answer.is_success:
                    raise policy.refusal(answer, await _read(answer, policy.Clock(self._timeout)))
                following.check_stream(answer)
                async for line in answer.aiter_lines():
                    told = events.take(line)
                    entry = None if told is None else place.take(told)
                    if entry is not None:
                        yield entry

    async def _open(self, method: str, url: httpx2.URL, **given: Any) -> httpx2.Response:
        """An answer whose body is still to be read; redirects on the same server have been followed."""
        for _ in range(policy.REDIRECTS):
            request = self._client.build_request(method, url, **given)
            answer = await self._client.send(request, stream=True)
            self._reached = True
            try:
                there = policy.redirect_of(answer)
            except RedirectedError:
                await answer.aclose()
                raise
            if there is None:
                return answer
            await answer.aclose()
            # Its own query comes with it.
            url, given["params"] = there, None
        raise RedirectedError("The server redirects in a circle.")

    async def aclose(self) -> None:
        """Close the connections; calls after it fail."""
        await self._client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


async def _read(answer: httpx2.Response, clock: policy.Clock) -> bytes:
    body = bytearray()
    async for piece in answer.aiter_bytes():
        body += piece
        clock.check(len(body))
    return bytes(body)
