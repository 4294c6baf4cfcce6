"""The command ``corbits-memory serve`` as a process, for what can only be measured from outside."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

COMMAND = Path(sys.executable).with_name("corbits-memory")
TEXT = "The heron at the old mill waits for trout every morning."
QUESTION = "Which bird waits at the mill?"
STOP_SECONDS, REQUEST_SECONDS = 30, 30
_PATH = "/api/tenants/default/memory"
_FOREIGN = ("DATABASE_URL", "CORBITS_MEMORY_DATA_DIR", "EMBED_PROVIDER", "EMBED_BASE_URL", "EMBED_MODEL")
"""Settings of the shell that would make it another server than a stranger's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A server that has said where it is."""

    pid: int
    url: str
    token: str

    def add(self) -> None:
        """Remember one text."""
        self._post("add", {"title": "A walk", "text": TEXT})

    def finds(self) -> bool:
        """Whether a search finds that text."""
        return bool(self._post("search", {"query": QUESTION})["items"])

    def _post(self, verb: str, body: dict[str, str]) -> dict[str, list[object]]:
        answer = httpx2.post(
            f"{self.url}{_PATH}/{verb}",
            json=body,
            headers={"authorization": f"Bearer {self.token}"},
            timeout=REQUEST_SECONDS,
            trust_env=False,
        )
        answer.raise_for_status()
        found: dict[str, list[object]] = answer.json()
        return found


@contextmanager
def serve(
    data_dir: Path, token: str | None = None, command: Sequence[str | Path] = (COMMAND, "serve")
) -> Iterator[Serving]:
    """Start on a free port and wait for what it says; a ``token`` of an earlier start goes on being used."""
    environment = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
    process = subprocess.Popen(
        [*command, "--json", "--port", "0", "--data-dir", data_dir],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    try:
        told = _read_document(process)
        yield Serving(pid=process.pid, url=told["url"], token=token or told["token"])
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)


def wait_for_hit(server: Serving, seconds: float = 30.0) -> None:
    """Search until the text is found. Raises ``TimeoutError``."""
    deadline = time.monotonic() + seconds
    while not server.finds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"The added text was not found within {seconds:.0f} s.")
        time.sleep(0.02)


def _read_document(process: "subprocess.Popen[str]") -> dict[str, str]:
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        try:
            told: dict[str, str] = json.loads(text)
        except json.JSONDecodeError:
            continue
        return told
    raise RuntimeError(
        f"`serve` ended with status {process.wait()} before it answered; run it by hand to see why."
    )
