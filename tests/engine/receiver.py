"""A real receiver of webhooks, over HTTP or TLS, that answers as a test says."""

import json
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass(frozen=True)
class Received:
    path: str
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def seq(self) -> int:
        seq: int = self.json["entry"]["feedSeq"]
        return seq


@dataclass
class Reply:
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"ok"
    endless: bool = False
    """A body that never ends."""
    seconds: float = 0
    """Before the answer."""


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A sender that goes away in the middle is what some tests are about."""


class Receiver:
    """``reply`` decides each answer; ``most_at_once`` is how many requests were ever there together."""

    def __init__(
        self, reply: Callable[[Received], Reply] | None = None, *, tls: ssl.SSLContext | None = None
    ):
        self.reply = reply or (lambda _: Reply())
        self.received: list[Received] = []
        self.connections = self.now = self.most_at_once = 0
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._http = _Http(("127.0.0.1", 0), _handler(self))
        if tls is not None:
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True)
        self._scheme = "https" if tls else "http"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,))

    @property
    def port(self) -> int:
        return self._http.server_port

    @property
    def url(self) -> str:
        return self.url_of("127.0.0.1")

    def url_of(self, host: str) -> str:
        return f"{self._scheme}://{host}:{self.port}/hook?key=1"

    @property
    def seqs(self) -> list[int]:
        return [received.seq for received in self.received]

    def take(self, received: Received) -> Reply:
        with self._lock:
            self.received.append(received)
            self.now += 1
            self.most_at_once = max(self.most_at_once, self.now)
        try:
            reply = self.reply(received)
            self._stopping.wait(reply.seconds)
            return reply
        finally:
            with self._lock:
                self.now -= 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            receiver.connections += 1

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            reply = receiver.take(Received(self.path, headers, body, time.monotonic()))
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if reply.endless:
                self.end_headers()
                while not receiver._stopping.is_set():
                    self.wfile.write(b"x" * 65_536)
                return
            self.send_header("content-length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler
