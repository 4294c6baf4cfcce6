"""Following the feed over server-sent events: where to go on, and what an event means. No I/O."""

import json
from collections.abc import Callable, Iterable

import httpx2

from corbits_memory.client import policy
from corbits_memory.client.errors import InvalidAnswerError, RedirectedError
from corbits_memory.client.routes import feed_filters
from corbits_memory.errors import (
    ForbiddenError,
    InvalidCursorError,
    InvalidInputError,
    MemoryError,
    NotFoundError,
    NotSupportedError,
    UnauthorizedError,
)
from corbits_memory.wire.events import ServerEvent
from corbits_memory.wire.feed import FeedEntryResponse

PATH = "/feed/stream"
MEDIA_TYPE = "text/event-stream"
HEADERS = {"accept": MEDIA_TYPE}
TIMEOUT = httpx2.Timeout(35.0, connect=policy.CONNECT_SECONDS)
"""A stream says something every ten seconds, or is broken."""
AGAIN_SECONDS = 1.0
_FINAL = (
    UnauthorizedError,
    ForbiddenError,
    InvalidCursorError,
    InvalidInputError,
    InvalidAnswerError,
    NotFoundError,
    NotSupportedError,
    RedirectedError,
)
"""Another try would be answered in the same way."""

OnBreak = Callable[[MemoryError], None]


class Following:
    """One follower's place in the feed, over any number of connections."""

    def __init__(
        self, *, after: int, ops: Iterable[str], exclude_generator: str | None, include_text: bool
    ) -> None:
        self._after = after
        self._filters = feed_filters(ops, exclude_generator=exclude_generator, include_text=include_text)

    @property
    def parameters(self) -> httpx2.QueryParams:
        return httpx2.QueryParams([*self._filters, ("after", str(self._after))])

    def take(self, told: ServerEvent) -> FeedEntryResponse | None:
        """The entry that an event brings, if it brings one. Raises what the server ended the stream with."""
        try:
            if told.name == "error":
                error = json.loads(told.data)["error"]
                raise policy.told_error(
                    str(error["code"]), f"The server ended the stream: {error['message']}"
                )
            self._after = int(told.id or self._after)
            return FeedEntryResponse.model_validate_json(told.data) if told.data else None
        except (ValueError, KeyError, TypeError):
            raise InvalidAnswerError(
                "The server's stream holds something that is no event of the feed."
            ) from None


def check_stream(answer: httpx2.Response) -> None:
    """Raises ``InvalidAnswerError`` for a success that is no stream of events."""
    if not answer.headers.get("content-type", "").startswith(MEDIA_TYPE):
        raise InvalidAnswerError


def is_final(error: MemoryError, *, reached: bool) -> bool:
    """Whether a follower gives up; else it connects anew and goes on. Who never answered is not waited for."""
    answered = error.http_status is not None and error.http_status not in policy.AGAIN
    return not reached or answered or isinstance(error, _FINAL)
