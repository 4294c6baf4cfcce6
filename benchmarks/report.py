"""Markdown tables, and their places in ``docs/benchmarks.md``."""

import os
import platform
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.datasets import REPOSITORY

DOCUMENT = REPOSITORY / "docs" / "benchmarks.md"


class Table:
    """Rows under a heading, as GitHub reads them."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = tuple(columns)
        self._rows: list[tuple[str, ...]] = []

    def add(self, *cells: object) -> None:
        if len(cells) != len(self._columns):
            raise ValueError(f"{len(cells)} cells for {len(self._columns)} columns")
        self._rows.append(tuple(str(cell).replace("|", "\\|") for cell in cells))

    def markdown(self) -> str:
        lines = [self._columns, ("---",) * len(self._columns), *self._rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def verdict(*, held: bool) -> str:
    return "holds" if held else "**does not hold**"


def machine() -> str:
    """Cores, processor and memory of this machine, and the Python that ran."""
    cores = os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{cores} cores ({_processor()}), {memory:.0f} GiB, {platform.system()}, Python {platform.python_version()}"


def section(*, body: str, command: str) -> str:
    """A part's figures with what is needed to judge and repeat them."""
    day = datetime.now(UTC).date().isoformat()
    return f"Measured {day} on {machine()}. Command: `{command}`\n\n{body}"


def replace_section(name: str, text: str, document: Path = DOCUMENT) -> None:
    """Put ``text`` between the markers of ``name``; a document without them gets them at its end."""
    start, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    whole = document.read_text(encoding="utf-8") if document.exists() else "# Benchmarks\n"
    block = f"{start}\n{text.strip()}\n{end}"
    pattern = re.compile(f"{re.escape(start)}.*?{re.escape(end)}", re.DOTALL)
    if pattern.search(whole):
        whole = pattern.sub(lambda _: block, whole, count=1)
    else:
        whole = f"{whole.rstrip()}\n\n## {name.capitalize()}\n\n{block}\n"
    document.parent.mkdir(parents=True, exist_ok=True)
    document.write_text(whole, encoding="utf-8")


def _processor() -> str:
    try:
        names = re.findall(
            r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE
        )
    except OSError:
        names = []
    return names[0].strip() if names else platform.processor() or platform.machine()
