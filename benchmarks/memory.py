"""What an idle server holds, with the local model loaded and one text remembered."""

import asyncio
import shutil
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.report import Table
from benchmarks.serving import serve, wait_for_hit

TARGET_MB = 400
IDLE_SECONDS = 10.0
_MEGABYTE = 1_000_000


async def run_memory() -> str:
    """Markdown of the memory figures."""
    return await asyncio.to_thread(_measure)


def _measure() -> str:
    folder = Path(tempfile.mkdtemp(prefix="corbits-memory-memory-"))
    try:
        with serve(folder / "data") as server:
            server.add()
            wait_for_hit(server)  # its query was embedded, so the model is loaded
            time.sleep(IDLE_SECONDS)
            family = _family(server.pid, folder / "data")
            ours = [process for process in family if _is_python(process)]
            rest = [process for process in family if process not in ours]
            resident = sum(process.memory_info().rss for process in ours) / _MEGABYTE
            postgres = sum(_proportional(process) for process in rest) / _MEGABYTE
            count = len(ours)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    held = "holds" if resident <= TARGET_MB else "**does not hold**"
    table = Table(("`serve`, idle", "processes", "MB", "target"))
    table.add("Python, resident", count, f"{resident:.0f}", f"≤ {TARGET_MB} {held}")
    table.add("Postgres, its proportional share of what is shared", len(rest), f"{postgres:.0f}", "")
    return table.markdown()


def _family(pid: int, data_dir: Path) -> list[psutil.Process]:
    """The server, its children, and the guardian, which names the data directory, with Postgres below it."""
    named = [p for p in psutil.process_iter(["cmdline"]) if str(data_dir) in (p.info["cmdline"] or ())]
    found = {
        p.pid: p for root in (psutil.Process(pid), *named) for p in (root, *root.children(recursive=True))
    }
    return list(found.values())


def _is_python(process: psutil.Process) -> bool:
    return "python" in Path(process.exe()).name


def _proportional(process: psutil.Process) -> int:
    """PSS where the system tells it, else RSS."""
    held = process.memory_full_info()
    return int(getattr(held, "pss", held.rss))
