"""The bar of ``transform run`` and ``transform compare``, seen at a terminal: real processes on a pty."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Self

import pytest

from tests.e2e.support import COMMAND, SECONDS, corbits_memory, environment, one_json, write_lines
from tests.engine.conftest import embed_words
from tests.models.conftest import Answer, ModelServer, Request
from tests.support.postgres import NewDatabase

CAPTURES, SLICE = 150, 100
PARAMS = json.dumps({"chunk": {"strategy": "token.recursive"}})
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A command on a terminal of its own; ``redirected``: its output goes elsewhere, its errors don't."""

    def __init__(self, *words: object, extra: Mapping[str, str], redirected: Path | None = None) -> None:
        self._ours, theirs = pty.openpty()
        out = theirs if redirected is None else os.open(redirected, os.O_CREAT | os.O_WRONLY)
        self.process = subprocess.Popen(
            [COMMAND, *map(str, words)],
            stdin=theirs,
            stdout=out,
            stderr=theirs,
            env=environment(TERM="xterm", COLUMNS="120", **extra),
        )
        for given in {theirs, out}:
            os.close(given)
        self.raw = ""

    @property
    def text(self) -> str:
        return _SEQUENCE.sub("", self.raw)

    def read_until(self, found: Callable[[], bool]) -> None:
        """What it writes, until something is found in it, or it ends."""
        deadline = time.monotonic() + SECONDS
        while not found():
            assert time.monotonic() < deadline, self.text
            if select.select([self._ours], [], [], 0.1)[0]:
                try:
                    read = os.read(self._ours, 65_536)
                except OSError:  # how Linux tells the end of a terminal
                    read = b""
                if not read:
                    return
                self.raw += read.decode()

    def end(self) -> int:
        self.read_until(lambda: False)
        return self.process.wait(SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(SECONDS)
        os.close(self._ours)


@pytest.fixture(scope="module")
def opened() -> threading.Event:
    """The second slice of a run gets its vectors once this is set."""
    return threading.Event()


@pytest.fixture(scope="module")
def model(opened: threading.Event) -> Iterator[ModelServer]:
    def answer(request: Request) -> Answer:
        numbers = re.findall(r"Number (\d+)", " ".join(request.body["input"]))
        if any(int(number) >= SLICE for number in numbers):
            opened.wait(SECONDS)
        return embed_words(request)

    with ModelServer() as server:
        server.script(answer)
        yield server
        opened.set()


@pytest.fixture(scope="module")
def environ(
    model: ModelServer,
    opened: threading.Event,
    new_module_database: NewDatabase,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, str]:
    """A memory of more captures than a slice has."""
    told = {
        "DATABASE_URL": new_module_database(),
        "EMBED_BASE_URL": model.url,
        "EMBED_MODEL": "words",
        "EMBED_TIMEOUT_MS": "60000",
    }
    assert corbits_memory("db", "migrate", **told).returncode == 0
    lines = write_lines(
        tmp_path_factory.mktemp("bar") / "captures.jsonl",
        [{"title": f"N{i}", "text": f"Number {i}.", "external_ref": f"n{i}"} for i in range(CAPTURES)],
    )
    opened.set()
    assert corbits_memory("import", lines, **told).returncode == 0
    return told


@pytest.fixture(scope="module")
def config(environ: dict[str, str]) -> str:
    made = corbits_memory("transform", "create", "small", "--params", PARAMS, "--json", **environ)
    return str(one_json(made.stdout)["id"])


def test_a_run_is_watched(environ: dict[str, str], config: str, opened: threading.Event) -> None:
    opened.clear()
    with Terminal("transform", "run", config, extra=environ) as terminal:
        terminal.read_until(lambda: f"{SLICE}/{CAPTURES}" in terminal.text)
        assert f"{CAPTURES}/{CAPTURES}" not in terminal.text
        assert re.search(rf"trun_\w+ \S+ +{SLICE}/{CAPTURES} +[\d.]+/s +\d+:\d\d:\d\d left", terminal.text)
        opened.set()
        assert terminal.end() == 0
    bar, _, result = terminal.raw.rpartition(SHOW_CURSOR)
    assert HIDE_CURSOR in bar
    # The last that is seen of the bar is all of it, and the result stands below.
    assert re.findall(r"\d+/\d+", _SEQUENCE.sub("", bar))[-1] == f"{CAPTURES}/{CAPTURES}"
    assert "completed" in result
    assert f"captures   {CAPTURES} of {CAPTURES}" in result


def test_whoever_stops_watching_gets_the_terminal_back(
    environ: dict[str, str], config: str, opened: threading.Event
) -> None:
    opened.clear()
    with Terminal("transform", "run", config, extra=environ) as terminal:
        terminal.read_until(lambda: f"{SLICE}/{CAPTURES}" in terminal.text)
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 130
        opened.set()
    assert terminal.raw.rindex(SHOW_CURSOR) > terminal.raw.rindex(HIDE_CURSOR)
    assert "goes on where workers run" in terminal.text
    assert "Traceback" not in terminal.text


def test_a_comparison_is_watched(
    environ: dict[str, str], config: str, opened: threading.Event, tmp_path: Path
) -> None:
    opened.set()
    made = one_json(corbits_memory("transform", "run", config, "--json", **environ).stdout)
    queries = tmp_path / "queries"
    queries.write_text("one\ntwo\nthree\n")
    with Terminal(
        "transform", "compare", made["generation"], "--queries", queries, extra=environ
    ) as terminal:
        assert terminal.end() == 0
    bar, _, result = terminal.raw.rpartition(SHOW_CURSOR)
    assert re.search(r"queries \S+ +3/3 +0:00:00 left", _SEQUENCE.sub("", bar))
    assert result.lstrip().startswith("3 queries, ")


def test_nothing_is_drawn_beside_a_result_that_goes_elsewhere(
    environ: dict[str, str], config: str, opened: threading.Event, tmp_path: Path
) -> None:
    opened.set()
    out = tmp_path / "run.json"
    with Terminal("transform", "run", config, "--json", redirected=out, extra=environ) as terminal:
        assert terminal.end() == 0
    assert terminal.raw == ""
    assert one_json(out.read_text())["status"] == "completed"
