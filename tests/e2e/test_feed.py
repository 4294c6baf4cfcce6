"""``corbits-memory feed``: pages, and following, on a database and on a server, also when one is killed."""

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import httpx2
import pytest

from corbits_memory.cli.run import run
from tests.e2e.support import NO_MODEL, Server, corbits_memory, one_json, start

PATH = "/api/tenants/default/memory"
SECONDS = 20.0


@pytest.fixture
def client(server: Server, token: str) -> Iterator[httpx2.Client]:
    with server.client(token) as client:
        yield client


def add(client: httpx2.Client, title: str) -> dict[str, Any]:
    answer = client.post(f"{PATH}/add", json={"title": title, "text": f"About {title}."})
    assert answer.status_code == 200, answer.text
    added: dict[str, Any] = answer.json()
    return added


class Follower:
    """A running ``feed --follow --json``."""

    def __init__(self, *words: object, **extra: str) -> None:
        self.process = start("feed", "--follow", "--json", *words, **extra)
        self._lines: Queue[str] = Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def next(self) -> dict[str, Any]:
        entry: dict[str, Any] = json.loads(self._lines.get(timeout=SECONDS))
        return entry

    def stop(self, number: int = signal.SIGINT) -> tuple[int, str]:
        """Exit code and what it complained of."""
        self.process.send_signal(number)
        code = self.process.wait(SECONDS)
        assert self.process.stderr is not None
        return code, self.process.stderr.read()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)


@contextmanager
def following(*words: object, **extra: str) -> Iterator[Follower]:
    follower = Follower(*words, **extra)
    try:
        yield follower
    finally:
        if follower.process.poll() is None:
            follower.process.kill()
        follower.process.communicate()


@pytest.fixture(params=["server", "database"])
def target(request: pytest.FixtureRequest, server: Server, token: str, data_dir: Path) -> tuple[object, ...]:
    """How to name the same memory."""
    return ("--url", server.url, "--token", token) if request.param == "server" else ("--data-dir", data_dir)


Told = tuple[int, str, str]


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Told]:
    """``feed(…)`` in this process: exit code, output, errors."""
    monkeypatch.setenv("EMBED_PROVIDER", "none")

    def call(*words: object) -> Told:
        code = run(["feed", *map(str, words)])
        told = capsys.readouterr()
        return code, told.out, told.err

    return call


def test_a_page(target: tuple[object, ...], client: httpx2.Client, feed: Callable[..., Told]) -> None:
    added = add(client, "one")
    code, out, errors = feed("--json", *target)
    assert (code, errors) == (0, "")
    page = one_json(out)
    assert page["entries"][0]["feedSeq"] == 1
    assert page["entries"][-1]["versionId"] == added["versionId"]
    after = page["entries"][-1]["feedSeq"]
    assert feed("--after", after, *target) == (0, "", "There is nothing new.\n")
    code, out, errors = feed("--after", after - 1, "--limit", 1, "--text", *target)
    assert "About one." in out
    add(client, "two")
    assert f"--after {after}" in feed("--after", after - 1, "--limit", 1, *target)[2]


def test_a_cursor_beyond_the_feed_is_an_error(target: tuple[object, ...], feed: Callable[..., Told]) -> None:
    for words in ((), ("--follow",)):
        code, out, errors = feed("--after", 10**9, *words, *target)
        assert (code, out) == (1, "")
        assert "cursor" in errors


@pytest.mark.parametrize("words", [("--after", "-1"), ("--limit", "0"), ("--limit", "101"), ("--op", "drop")])
def test_bad_options_are_misuse(words: tuple[str, str], feed: Callable[..., Told]) -> None:
    assert feed(*words)[0] == 2


def test_following_tells_what_comes_and_ends_with_ctrl_c(
    target: tuple[object, ...], client: httpx2.Client
) -> None:
    before = add(client, "before")
    with following(*target, **NO_MODEL) as follower:
        while follower.next()["versionId"] != before["versionId"]:
            pass
        for number in range(3):
            added = add(client, f"during {number}")
            seen = follower.next()
            assert (seen["title"], seen["versionId"]) == (f"during {number}", added["versionId"])
        code, errors = follower.stop()
        assert code == 130
        assert errors == ""


def test_a_follower_outlives_its_server(tmp_path: Path) -> None:
    with Server("--data-dir", tmp_path / "memory") as server:
        token = server.told["Token"]
        port = server.url.rsplit(":", 1)[1]
        with server.client(token) as client:
            add(client, "before")
        with following("--url", server.url, "--token", token) as follower:
            assert follower.next()["title"] == "before"
            began = time.monotonic()
            assert server.stop(signal.SIGTERM) == 0
            # Open streams end at once, so nothing has to be waited for.
            assert time.monotonic() - began < 4
            again = Server("--data-dir", tmp_path / "memory", "--port", port)
            with again, again.client(token) as client:
                add(client, "after")
                assert follower.next()["title"] == "after"


def test_a_revoked_token_ends_the_stream(server: Server, data_dir: Path, client: httpx2.Client) -> None:
    created = one_json(
        corbits_memory(
            "token", "create", "--tenant", "default", "--principal", "owner", "--capabilities", "search",
            "--data-dir", data_dir, "--json", **NO_MODEL,
        ).stdout
    )  # fmt: skip
    add(client, "something")
    with following("--url", server.url, "--token", created["token"]) as follower:
        assert follower.next()["op"] == "upsert"
        corbits_memory("token", "revoke", created["id"], "--data-dir", data_dir, **NO_MODEL)
        assert follower.process.wait(SECONDS) == 1
        assert follower.process.stderr is not None
        assert "does not know" in follower.process.stderr.read()


def test_following_a_server_that_is_not_there_says_so(feed: Callable[..., Told]) -> None:
    code, out, errors = feed("--follow", "--url", "http://127.0.0.1:9", "--token", "x")
    assert (code, out) == (1, "")
    assert "127.0.0.1:9" in errors
