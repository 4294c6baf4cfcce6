"""A circuit breaker: after some failures in a row, calls are refused at once for a while."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from corbits_memory.errors import (
    EmbedError,
    EmbedHttpError,
    EmbedTimeoutError,
    RerankError,
    RerankHttpError,
    RerankTimeoutError,
)

FAILURES = 3
COOL_DOWN_SECONDS = 30.0
DOUBLINGS = 3
"""How often failed probes double the cool-down."""
GIVEN_UP_SECONDS = 1.0
"""A caller that waited this long and then gave up has met a failure too."""

T = TypeVar("T")


class BreakerOpenError(Exception):
    """The breaker is open; ``seconds`` are left until it lets a call through."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"refused for another {seconds:.1f} s")
        self.seconds = seconds


class CircuitBreaker:
    """Closed: calls pass. Open: they are refused. After the cool-down one call probes, alone.

    For one event loop. ``clock`` returns seconds that never go back.
    """

    def __init__(
        self,
        *,
        failures: int = FAILURES,
        cool_down: float = COOL_DOWN_SECONDS,
        given_up: float = GIVEN_UP_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = failures
        self._cool_down = cool_down
        self._given_up = given_up
        self._clock = clock
        self._failures = 0
        self._open_until: float | None = None
        self._probing = False

    @property
    def is_open(self) -> bool:
        return self._open_until is not None

    async def call(
        self, function: Callable[[], Awaitable[T]], *, is_outage: Callable[[Exception], bool]
    ) -> T:
        """Await ``function()``, or raise :class:`BreakerOpenError` without calling it.

        An error that is no outage shows that the other side is alive.
        """
        probe = self._admit()
        started = self._clock()
        try:
            result = await function()
        except asyncio.CancelledError:
            if self._clock() - started >= self._given_up:
                self._fail(probe)
            raise
        except Exception as error:
            if is_outage(error):
                self._fail(probe)
            else:
                self._succeed()
            raise
        else:
            self._succeed()
            return result
        finally:
            if probe:
                self._probing = False

    def _admit(self) -> bool:
        """Let a call through, and say whether it is the probe."""
        if self._open_until is None:
            return False
        left = self._open_until - self._clock()
        if left > 0 or self._probing:
            raise BreakerOpenError(max(left, 0.0))
        self._probing = True
        return True

    def _succeed(self) -> None:
        self._failures = 0
        self._open_until = None

    def _fail(self, probe: bool) -> None:
        if self.is_open and not probe:
            return  # a call from before it opened; only a failed probe prolongs the rest
        self._failures += 1
        if self._failures >= self._limit:
            doublings = min(self._failures - self._limit, DOUBLINGS)
            self._open_until = self._clock() + self._cool_down * 2**doublings


def is_outage(error: Exception) -> bool:
    """Whether a model error means that the endpoint is gone: no answer, no connection, 429 or 5xx."""
    if isinstance(error, (EmbedTimeoutError, RerankTimeoutError)):
        return True
    if isinstance(error, (EmbedHttpError, RerankHttpError)):
        status = error.http_status
        return status is None or status == 429 or status >= 500
    return not isinstance(error, (EmbedError, RerankError))
