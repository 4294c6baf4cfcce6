"""What one file may take and give."""

from dataclasses import dataclass

from corbits_memory.core import limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits for one file; sizes in bytes, ``seconds`` from the start of its process."""

    file_bytes: int = limits.FILE_BYTES
    pages: int = limits.FILE_PAGES
    text_chars: int = limits.FILE_TEXT_CHARS
    unpacked_bytes: int = limits.FILE_UNPACKED_BYTES
    memory_bytes: int = limits.FILE_MEMORY_BYTES
    seconds: float = limits.FILE_SECONDS
