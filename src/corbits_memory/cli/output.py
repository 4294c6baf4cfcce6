"""What commands print: results on standard output, everything else on standard error."""

import json
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def print_json(document: Any) -> None:
    # The name of a file may be no Unicode; an escape of Python is one of JSON too.
    text = json.dumps(document, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()
    sys.stdout.write(text + "\n")


def note(line: str) -> None:
    """A line for people, beside the result."""
    sys.stderr.write(line + "\n")


def console() -> "Console":
    """Standard output with colours on a terminal; nothing is wrapped or marked up."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True)


def on_terminal() -> bool:
    """Whether somebody watches, so that progress is worth showing."""
    return sys.stdout.isatty() and sys.stderr.isatty()


def clean(text: str, *, lines: bool = False) -> str:
    """Stored text without characters that could drive the terminal; on one line, unless ``lines`` are kept."""
    shown = _CONTROLS.sub(" ", text)
    return shown if lines else " ".join(shown.split())


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns, as wide as they need."""
    cells = [[clean(cell) for cell in row] for row in rows]
    widths = [
        max([len(heading), *(len(row[column]) for row in cells)]) for column, heading in enumerate(headings)
    ]
    for row in [list(headings), *cells]:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write(line.rstrip() + "\n")
