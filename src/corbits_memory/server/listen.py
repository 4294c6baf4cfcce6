"""The web server: its socket, its limits, its signals."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from corbits_memory.errors import ConfigError

HEAD_SECONDS = 20.0
"""How long a request's head may take, and a body that nobody reads any more."""
HEAD_BYTES = 32 * 1024
KEEP_ALIVE_SECONDS = 15
STOP_SECONDS = 5


class PortTakenError(ConfigError):
    """The port can't be listened on; choose another one with --port."""

    code = "port_taken"


def bind(host: str, port: int) -> socket.socket:
    """The socket to listen on, before anything else is started. Raises :class:`PortTakenError`."""
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # TCP by name: only so does asyncio switch Nagle's algorithm off, which holds the second part of an answer
        # back for 40 ms in a connection that was used before.
        found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except OSError as error:
        raise PortTakenError(
            f"{host} is no address of this machine ({error.strerror}): mend --host."
        ) from error
    try:
        # Else a restart would have to wait for the connections of the last run to be forgotten.
        if os.name == "posix":
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(128)
    except OSError as error:
        found.close()
        raise PortTakenError(
            f"Port {port} of {host} can't be listened on ({error.strerror}): is a server running there already? "
            "Choose another one with --port, or 0 for any free one."
        ) from error
    return found


class PatientProtocol(H11Protocol):
    """HTTP/1.1 whose patience ends: a head that trickles, or a body after its answer, closes the connection."""

    head_seconds = HEAD_SECONDS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._relax()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
            self._watch()

    def _watch(self) -> None:
        """Let the clock run, without winding it up again, while there is no request that is being worked on."""
        if self._waits() and not self.transport.is_closing():
            if self._patience is None:
                self._patience = self.loop.call_later(self.head_seconds, self.transport.close)
        else:
            self._relax()

    def _waits(self) -> bool:
        cycle: Any = self.cycle
        answered = cycle is not None and cycle.response_complete
        return self.conn.their_state is h11.IDLE or (answered and self.conn.their_state is h11.SEND_BODY)

    def _relax(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


class HostServer(uvicorn.Server):
    """Tells when it answers, and ends in good order on the first Ctrl-C or SIGTERM."""

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        on_start: Callable[[], None],
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(config)
        self._on_start = on_start
        self._on_stop = on_stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # First: the server waits for answers that are on their way, and some go on for ever.
        self._on_stop()
        await super().shutdown(sockets=sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Like the library's, but the signal is not raised again: what was opened is still to be closed."""
        watched = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in watched}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def server_config(app: Any, *, max_connections: int) -> uvicorn.Config:
    """uvicorn with the limits of this host; it logs nothing by itself but warnings."""
    return uvicorn.Config(
        app,
        http=PatientProtocol,
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=max_connections,
        h11_max_incomplete_event_size=HEAD_BYTES,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
