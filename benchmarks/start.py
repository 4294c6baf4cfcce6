"""How long until the first hit: a first start on an empty directory, and a start on what is there."""

import os
import statistics
import tempfile
from pathlib import Path

from benchmarks.host import Host
from benchmarks.report import Table


async def run_start(*, quick: bool = False) -> str:
    """Markdown of the table. Nothing of the environment is made anew: the packages are installed."""
    firsts: list[float] = []
    seconds: list[float] = []
    for _ in range(1 if quick else 3):
        with tempfile.TemporaryDirectory(prefix="corbits-memory-bench-") as folder:
            for times in (firsts, seconds):
                with Host(Path(folder) / "data", dict(os.environ)) as host:
                    times.append(host.until_hit())
    table = Table(["start", "seconds to the first hit, median", "budget"])
    table.add("first, empty data directory", f"{statistics.median(firsts):.1f}", "60 (installing included)")
    table.add("second", f"{statistics.median(seconds):.1f}", "3")
    return table.markdown()
