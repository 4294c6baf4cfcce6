"""How long until the first answer: from a bare clone, with an empty data directory, and at a second start."""

import asyncio
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.datasets import REPOSITORY
from benchmarks.report import Table
from benchmarks.serving import serve, wait_for_hit
from corbits_memory.core.relevance import percentile

FIRST_TARGET, SECOND_TARGET, IMPORT_TARGET = 60.0, 3.0, 0.3
REPEATS = 5


async def run_start(*, quick: bool = False) -> str:
    """Markdown of the start times. Quick: without the clone."""
    return await asyncio.to_thread(_measure, quick)


def _measure(quick: bool) -> str:
    table = Table(("from the command to the first search hit", "seconds", "target"))
    with _folder() as folder:
        if not quick:
            seconds = _from_clone(folder)
            table.add(
                "bare clone, warm package cache: `make run`", f"{seconds:.1f}", _target(seconds, FIRST_TARGET)
            )
        began = time.perf_counter()
        with serve(folder / "data") as server:
            server.add()
            wait_for_hit(server)
            table.add("installed, empty data directory", f"{time.perf_counter() - began:.2f}", "")
        token = server.token
        seconds = min(_again(folder / "data", token) for _ in range(1 if quick else REPEATS))
        table.add("second start", f"{seconds:.2f}", _target(seconds, SECOND_TARGET))
    imports = Table(("import", "median seconds", "target"))
    seconds = percentile([_import_seconds() for _ in range(REPEATS)], 0.5)
    imports.add("`import corbits_memory`", f"{seconds:.3f}", _target(seconds, IMPORT_TARGET))
    return f"{table.markdown()}\n\n{imports.markdown()}"


def _from_clone(folder: Path) -> float:
    """Everything that ``make run`` does in a fresh clone, with the package cache as it is."""
    clone = folder / "clone"
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", REPOSITORY, clone], check=True)
    began = time.perf_counter()
    subprocess.run(["make", "--silent", ".venv/.installed"], cwd=clone, check=True, stdout=subprocess.DEVNULL)
    with serve(
        folder / "clone-data", command=(clone / ".venv" / "bin" / "corbits-memory", "serve")
    ) as server:
        server.add()
        wait_for_hit(server)
        return time.perf_counter() - began


def _again(data_dir: Path, token: str) -> float:
    began = time.perf_counter()
    with serve(data_dir, token) as server:
        wait_for_hit(server)
        return time.perf_counter() - began


def _import_seconds() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import corbits_memory"], check=True)
    whole = time.perf_counter() - began
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return max(0.0, whole - (time.perf_counter() - began))


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="corbits-memory-start-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _target(seconds: float, most: float) -> str:
    return f"≤ {most:g} {'holds' if seconds <= most else '**does not hold**'}"
