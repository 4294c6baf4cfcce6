"""What an idle server holds, its model loaded."""

import asyncio
import os
import tempfile
from pathlib import Path

from benchmarks.host import Host
from benchmarks.report import Table

IDLE_SECONDS = 5.0


async def run_memory() -> str:
    """Markdown of the table."""
    with (
        tempfile.TemporaryDirectory(prefix="corbits-memory-bench-") as folder,
        Host(Path(folder) / "data", dict(os.environ)) as host,
    ):
        host.until_hit()
        await asyncio.sleep(IDLE_SECONDS)
        megabytes = host.resident_bytes() / 1e6
    table = Table(["serve, idle", "MB resident in its Python processes", "budget"])
    table.add("local model loaded", f"{megabytes:.0f}", "400")
    return table.markdown()
