"""The command ``corbits-memory serve`` as a process."""

import json
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx2
import psutil

COMMAND = Path(sys.executable).with_name("corbits-memory")
TOKEN = "bench-token-of-at-least-thirty-two-characters"
ROUTES = "/api/tenants/default/memory"


class Host:
    """A running server on a data directory; ``seconds`` from its start until it answered a search with a hit."""

    def __init__(self, data_dir: Path, environment: dict[str, str]) -> None:
        self._started = time.perf_counter()
        self.process = subprocess.Popen(
            [COMMAND, "serve", "--json", "--port", "0", "--data-dir", data_dir],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**environment, "CORBITS_MEMORY_TOKEN": TOKEN},
        )
        assert self.process.stdout is not None
        self.told: dict[str, Any] = json.loads(_document(self.process.stdout))
        self.client = httpx2.Client(
            base_url=self.told["url"],
            headers={"authorization": f"Bearer {TOKEN}"},
            trust_env=False,
            timeout=60,
        )

    def until_hit(self) -> float:
        """Add a document if it is not there, and search until it is found; seconds since the start."""
        body = {"title": "Deploys", "text": "We never deploy on Fridays.", "external_ref": "bench"}
        self.client.post(f"{ROUTES}/add", json=body).raise_for_status()
        found = self.client.post(f"{ROUTES}/search", json={"query": "deploy on Fridays"})
        assert found.json()["items"], "nothing was found"
        return time.perf_counter() - self._started

    def resident_bytes(self) -> int:
        """Of every Python process that serves."""
        whole = psutil.Process(self.process.pid)
        family = [whole, *whole.children(recursive=True)]
        return sum(p.memory_info().rss for p in family if "python" in Path(p.exe()).name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()
        self.process.terminate()
        self.process.wait(30)


def _document(lines: Iterable[str]) -> str:
    """The first JSON document of a stream that stays open."""
    text = ""
    for line in lines:
        text += line
        try:
            json.loads(text)
        except ValueError:
            continue
        return text
    raise RuntimeError("the server ended before it was ready")
