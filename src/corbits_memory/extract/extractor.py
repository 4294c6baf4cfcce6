"""The text extractor that comes with the memory."""

import os

import anyio
from anyio import to_thread

from corbits_memory.errors import FileTooLargeError, FileWithoutTextError
from corbits_memory.extract.bounds import Bounds
from corbits_memory.extract.kinds import Kind, kind_of
from corbits_memory.extract.process import Reading
from corbits_memory.extract.texts import decode_text, heading_of
from corbits_memory.ports import ExtractedText


class FileTextExtractor:
    """Reads PDF, DOCX, HTML (as Markdown), Markdown and plain text; a :class:`~corbits_memory.ports.TextExtractor`.

    Each file but plain text is parsed in a process of its own that ends with it, at most ``processes`` at once
    (default: one a processor); the others wait. Time spent waiting doesn't count.
    """

    def __init__(self, *, bounds: Bounds | None = None, processes: int | None = None) -> None:
        self._bounds = bounds or Bounds()
        self._processes = processes or os.cpu_count() or 1
        self._limiter: anyio.CapacityLimiter | None = None

    async def extract(self, data: bytes, *, mime_type: str | None, filename: str | None) -> ExtractedText:
        """The text, and the title that the file itself has.

        Raises ``InvalidFileError`` or one of its kinds, ``FileTooLargeError`` (also for what takes too long), and
        ``ExtractNotInstalledError``.
        """
        if len(data) > self._bounds.file_bytes:
            raise FileTooLargeError(f"The file is larger than {self._bounds.file_bytes:,} bytes; split it.")
        kind = kind_of(data, mime_type=mime_type, filename=filename)
        if kind in {Kind.TEXT, Kind.MARKDOWN}:
            read = await to_thread.run_sync(self._read_text, kind, data, mime_type)
        else:
            read = await self._parse(Reading(kind, data, self._bounds, mime_type=mime_type))
        if not read.text or read.text.isspace():
            raise FileWithoutTextError
        return read

    def _read_text(self, kind: Kind, data: bytes, mime_type: str | None) -> ExtractedText:
        text = decode_text(data, mime_type=mime_type)
        if len(text) > self._bounds.text_chars:
            raise FileTooLargeError(
                f"The file holds more than {self._bounds.text_chars:,} characters; split it."
            )
        return ExtractedText(text=text, title=heading_of(text) if kind is Kind.MARKDOWN else None)

    async def _parse(self, reading: Reading) -> ExtractedText:
        if self._limiter is None:  # belongs to an event loop, so it is made in one
            self._limiter = anyio.CapacityLimiter(self._processes)
        try:
            # A caller that gives up is let go at once; its process and thread end right after.
            return await to_thread.run_sync(reading.run, abandon_on_cancel=True, limiter=self._limiter)
        except BaseException:
            reading.stop()
            raise
