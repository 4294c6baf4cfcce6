"""A text extractor that takes files for what they are: UTF-8 text."""

from dataclasses import dataclass, field

from corbits_memory.errors import InvalidInputError
from corbits_memory.ports import ExtractedText


@dataclass(slots=True, kw_only=True)
class FakeTextExtractor:
    """The bytes as text; a first line that begins with ``# `` is the title, and stays in the text.

    Raises ``InvalidInputError`` for what is not UTF-8.
    """

    asked: list[tuple[str | None, str | None]] = field(default_factory=list)
    """``(mime type, file name)`` of the files so far."""

    async def extract(self, data: bytes, *, mime_type: str | None, filename: str | None) -> ExtractedText:
        self.asked.append((mime_type, filename))
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            raise InvalidInputError("the file is not UTF-8 text") from None
        first = text.partition("\n")[0]
        return ExtractedText(text=text, title=first[2:].strip() or None if first.startswith("# ") else None)
