"""Real processes of the command ``corbits-memory``."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import httpx2

REPO = Path(__file__).parents[2]
EXAMPLES = REPO / "examples"
COMMAND = Path(sys.executable).with_name("corbits-memory")
SECONDS = 60.0
NO_MODEL = {"EMBED_PROVIDER": "none"}
Run = Callable[..., tuple[int, str, str]]
"""A command in this process: exit code, output, errors."""


def environment(**extra: str) -> dict[str, str]:
    return {**os.environ, "NO_COLOR": "1", **extra}


def corbits_memory(*words: object, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [COMMAND, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
        env=environment(**extra),
    )


def start(*words: object, **extra: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [COMMAND, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env=environment(**extra),
    )


class Server:
    """A running ``serve``; everything that its banner says is in ``told``."""

    def __init__(self, *words: object, extra: Mapping[str, str] = NO_MODEL) -> None:
        self.process = start("serve", "--port", 0, *words, **extra)
        self._lines: queue.Queue[str | None] = queue.Queue()
        self.errors: list[str] = []
        threading.Thread(target=self._read_out, daemon=True).start()
        threading.Thread(target=self._read_errors, daemon=True).start()
        self.text = self._read_banner()

    @property
    def told(self) -> dict[str, str]:
        pairs = (line.split(":", 1) for line in self.text.splitlines() if ":" in line and line[0] != " ")
        return {name: value.strip() for name, value in pairs}

    @property
    def url(self) -> str:
        return self.told["URL"]

    def client(self, token: str) -> httpx2.Client:
        return httpx2.Client(
            base_url=self.url, headers={"authorization": f"Bearer {token}"}, trust_env=False, timeout=30
        )

    def search(self, token: str, query: str) -> dict[str, Any]:
        with self.client(token) as client:
            answer = client.post("/api/tenants/default/memory/search", json={"query": query})
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

    def stop(self, number: int = signal.SIGINT) -> int:
        """Send a signal to the process alone; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop(signal.SIGKILL if error[0] is not None else signal.SIGINT)

    def _read_out(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            self.errors.extend(lines)

    def _read_banner(self) -> str:
        text = ""
        while "Ctrl-C" not in text:
            line = self._lines.get(timeout=SECONDS)
            if line is None:
                self.process.wait(SECONDS)
                raise AssertionError(f"serve ended with {self.process.returncode}: {''.join(self.errors)}")
            text += line
        return text


def write_lines(path: Path, bodies: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(body) + "\n" for body in bodies), encoding="utf-8")
    return path


def one_json(text: str) -> Any:
    """The one JSON document that a command printed."""
    assert text.count("\n") == 1, text
    return json.loads(text)


def add(corbits: Run, text: str, *words: object) -> Any:
    code, out, errors = corbits("add", text, "--title", "Harbour", "--json", *words)
    assert code == 0, errors
    return one_json(out)
