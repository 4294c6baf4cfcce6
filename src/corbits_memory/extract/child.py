"""The process in which one file is parsed: bytes come in, one JSON object goes out.

``python -P -m corbits_memory.extract.child KIND BOUNDS [TYPE]``. Whatever a file makes of its parser (all the memory,
no end, a crash) ends with this process.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

from corbits_memory.errors import (
    ExtractNotInstalledError,
    FileTooLargeError,
    UnreadableFileError,
)
from corbits_memory.errors import (
    MemoryError as PlaneError,
)
from corbits_memory.extract.bounds import Bounds
from corbits_memory.extract.kinds import Kind
from corbits_memory.ports import ExtractedText


def main() -> None:
    kind, bounds = Kind(sys.argv[1]), Bounds(**json.loads(sys.argv[2]))
    mime_type = sys.argv[3] if len(sys.argv) > 3 else None
    _limit(bounds)
    told = answer(kind, sys.stdin.buffer.read(), bounds, mime_type)
    sys.stdout.buffer.write(json.dumps(told, ensure_ascii=False).encode("utf-8", "replace"))


def answer(kind: Kind, data: bytes, bounds: Bounds, mime_type: str | None) -> Mapping[str, Any]:
    """``{"text", "title"}``, or ``{"error", "message"}`` with the code of an error."""
    try:
        read = _read(kind, data, bounds, mime_type)
        if len(read.text) > bounds.text_chars:
            raise FileTooLargeError(f"The file holds more than {bounds.text_chars:,} characters; split it.")
    except PlaneError as error:
        return {"error": error.code, "message": error.message}
    except ImportError:
        return {"error": ExtractNotInstalledError.code, "message": ExtractNotInstalledError().message}
    except MemoryError:
        return {
            "error": FileTooLargeError.code,
            "message": "The file takes too much memory to read; split it.",
        }
    except RecursionError:
        return {"error": UnreadableFileError.code, "message": "The file is nested too deeply to be read."}
    # PDFs of many a maker hold NUL, which no document may.
    title = (read.title or "").replace("\x00", "").strip()
    return {"text": read.text.replace("\x00", ""), "title": title or None}


def _read(kind: Kind, data: bytes, bounds: Bounds, mime_type: str | None) -> ExtractedText:
    if kind is Kind.PDF:
        from corbits_memory.extract.pdf import read_pdf

        return read_pdf(data, bounds)
    if kind is Kind.DOCX:
        from corbits_memory.extract.docx import read_docx

        return read_docx(data, bounds)
    from corbits_memory.extract.html import read_html

    return read_html(data, mime_type=mime_type)


def _limit(bounds: Bounds) -> None:
    """Memory and processor time, where the system can; the parent minds the clock in any case."""
    try:
        import resource
    except ImportError:
        return
    seconds = int(bounds.seconds) + 1
    for what, most in ((resource.RLIMIT_AS, bounds.memory_bytes), (resource.RLIMIT_CPU, seconds)):
        try:
            resource.setrlimit(what, (most, most))
        except (OSError, ValueError):  # the system has a lower one already, or none
            continue


if __name__ == "__main__":
    main()
