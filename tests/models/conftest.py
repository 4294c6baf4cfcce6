"""A real HTTP server whose answers a test scripts."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Answer:
    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    hang: bool = False
    """Wait until the test is over, then say nothing."""

    def content(self) -> bytes:
        return self.raw if self.raw is not None else json.dumps(self.body).encode()


Script = Callable[[Request], Answer]


def _always(answer: Answer) -> Script:
    return lambda _: answer


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that goes away in the middle is what some tests are about."""


class ModelServer:
    """Answers the n-th request by ``scripts[n]``, later ones by the last script."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.scripts: list[Script] = []
        self.in_flight = self.most_in_flight = 0
        self.stopping = threading.Event()
        self.lock = threading.Lock()
        self._http = _Http(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def script(self, *scripts: Script | Answer) -> None:
        self.scripts = [_always(one) if isinstance(one, Answer) else one for one in scripts]

    def answer(self, request: Request) -> Answer:
        with self.lock:
            self.requests.append(request)
            script = self.scripts[min(len(self.requests), len(self.scripts)) - 1]
        # Not under the lock: one that waits holds up nobody else.
        return script(request)

    def __enter__(self) -> "ModelServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


def _handler(server: ModelServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            with server.lock:
                server.in_flight += 1
                server.most_in_flight = max(server.most_in_flight, server.in_flight)
            try:
                self._answer()
            finally:
                with server.lock:
                    server.in_flight -= 1

        do_GET = do_DELETE = do_POST  # noqa: N815 - named by the standard library

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = server.answer(Request(self.path, headers, json.loads(body) if body else None))
            if answer.hang:
                server.stopping.wait(10)
                self.close_connection = True
                return
            content = answer.content()
            try:
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
            except OSError:
                self.close_connection = True  # the client has gone: it read enough, or gave up

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@pytest.fixture(autouse=True, scope="session")
def few_certificates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test speaks TLS, and reading the machine's certificates takes longer than most tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_DIR", str(tmp_path_factory.mktemp("certificates")))
        yield


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture
def nobody() -> str:
    """A URL at which nobody listens."""
    with ModelServer() as gone:
        return gone.url
