"""The blocking client: the same calls as :mod:`corbits_memory.client.client`."""

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self

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
) -> Callable[Concatenate["SyncMemoryClient", P], R]:
    """A route as a method that sends it."""

    @wraps(route)
    def verb(self: "SyncMemoryClient", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.send(route(*args, **kwargs))

    return verb


class SyncMemoryClient:
    """:class:`~corbits_memory.client.MemoryClient`, but each call blocks. May be used from several threads."""

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
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        """Takes what :class:`~corbits_memory.client.MemoryClient` takes. Raises ``ConfigError``."""
        self._target = policy.target(base_url, tenant=tenant, token=token, prefix=prefix)
        self._timeout = timeout
        self._attempts = max(1, attempts)
        self._reached = False
        self._client = httpx2.Client(
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

    def follow(
        self,
        *,
        after: int = 0,
        ops: Iterable[str] = (),
        exclude_generator: str | None = None,
        include_text: bool = False,
        on_break: following.OnBreak | None = None,
    ) -> Generator[FeedEntryResponse, None, None]:
        """See :meth:`~corbits_memory.client.MemoryClient.follow`."""
        place = following.Following(
            after=after, ops=tuple(ops), exclude_generator=exclude_generator, include_text=include_text
        )
        while True:
            try:
                yield from self._connected(place)
            except MemoryError as error:
                if following.is_final(error, reached=self._reached):
                    raise
                if on_break is not None:
                    on_break(error)
            time.sleep(following.AGAIN_SECONDS)

    def send(self, call: Call[R]) -> R:
        """See :meth:`~corbits_memory.client.MemoryClient.send`."""
        try:
            return self._send_repeatedly(call)
        except IdempotencyNotSupportedError:
            if not call.own_key:
                raise
            # Nothing was written. Without the key it may not be sent twice.
            return self._send_repeatedly(call.without_key())

    def _send_repeatedly(self, call: Call[R]) -> R:
        for attempt in stamina.retry_context(
            on=lambda error: policy.wait_before_retry(
                error, repeatable=call.repeatable, reached=self._reached
            ),
            attempts=self._attempts,
            timeout=policy.RETRYING_SECONDS,
            **policy.BACKOFF,
        ):
            with attempt:
                return self._send_once(call)
        raise AssertionError("the retry loop returns or raises")

    def _send_once(self, call: Call[R]) -> R:
        content, headers = policy.content_of(call)
        clock = policy.Clock(self._timeout)
        with policy.transport_errors(self._target):
            answer = self._open(
                call.method,
                self._target.url(call.path),
                params=policy.query(call),
                content=content,
                headers=headers,
            )
            with closing(answer):
                body = _read(answer, clock)
        return policy.read_answer(call, answer, body)

    def _connected(self, place: following.Following) -> Iterator[FeedEntryResponse]:
        """The entries of one connection, until it ends."""
        events = EventReader()
        with policy.transport_errors(self._target):
            answer = self._open(
                "GET",
                self._target.url(following.PATH),
                params=place.parameters,
                headers=following.HEADERS,
                timeout=following.TIMEOUT,
            )
            with closing(answer):
                if not answer.is_success:
                    raise policy.refusal(answer, _read(answer, policy.Clock(self._timeout)))
                following.check_stream(answer)
                for line in answer.iter_lines():
                    told = events.take(line)
                    entry = None if told is None else place.take(told)
                    if entry is not None:
                        yield entry

    def _open(self, method: str, url: httpx2.URL, **given: Any) -> httpx2.Response:
        """An answer whose body is still to be read; redirects on the same server have been followed."""
        for _ in range(policy.REDIRECTS):
            request = self._client.build_request(method, url, **given)
            answer = self._client.send(request, stream=True)
            self._reached = True
            try:
                there = policy.redirect_of(answer)
            except RedirectedError:
                answer.close()
                raise
            if there is None:
                return answer
            answer.close()
            # Its own query comes with it.
            url, given["params"] = there, None
        raise RedirectedError("The server redirects in a circle.")

    def close(self) -> None:
        """Close the connections; calls after it fail."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _read(answer: httpx2.Response, clock: policy.Clock) -> bytes:
    body = bytearray()
    for piece in answer.iter_bytes():
        body += piece
        clock.check(len(body))
    return bytes(body)
