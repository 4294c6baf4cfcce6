"""Which kind of file it is: by its type, else its name, else its first bytes; and whether these agree."""

import re
from enum import StrEnum
from pathlib import PurePath

from corbits_memory.errors import EncryptedFileError, UnreadableFileError, UnsupportedFileError


class Kind(StrEnum):
    PDF = "PDF"
    DOCX = "DOCX"
    HTML = "HTML"
    MARKDOWN = "Markdown"
    TEXT = "text"


DOCX_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
SUFFIXES = {
    ".pdf": Kind.PDF,
    ".docx": Kind.DOCX,
    ".html": Kind.HTML,
    ".htm": Kind.HTML,
    ".xhtml": Kind.HTML,
    ".md": Kind.MARKDOWN,
    ".markdown": Kind.MARKDOWN,
    ".txt": Kind.TEXT,
    ".text": Kind.TEXT,
}
_TYPES = {
    "application/pdf": Kind.PDF,
    DOCX_TYPE: Kind.DOCX,
    "text/html": Kind.HTML,
    "application/xhtml+xml": Kind.HTML,
    "text/markdown": Kind.MARKDOWN,
    "text/x-markdown": Kind.MARKDOWN,
}
_SAYS_NOTHING = frozenset({"", "application/octet-stream", "binary/octet-stream", "text/plain"})
"""Types that senders put when they don't know: the name then says more."""
_BINARY = frozenset({Kind.PDF, Kind.DOCX})
_LOOKED_AT = 1024
_MARKUP = re.compile(rb"<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE)
_PICTURES = (b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"II*\x00", b"MM\x00*")
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED_OFFICE = "EncryptedPackage".encode("utf-16-le")

NO_PICTURES = (
    "Text in pictures can't be read: that takes OCR, which is not built in. Run OCR first and add its text."
)


def kind_of(data: bytes, *, mime_type: str | None, filename: str | None) -> Kind:
    """Raises ``UnsupportedFileError``, ``EncryptedFileError``, and ``UnreadableFileError`` where the content is
    not what type or name say.
    """
    declared = _declared(mime_type, filename)
    found = _found(data)
    if declared is None:
        if found is None:
            raise UnsupportedFileError
        return found
    if (declared in _BINARY or found in _BINARY) and found is not declared:
        raise UnreadableFileError(f"The file should be {declared} by its type or name, and is not.")
    return declared


def _declared(mime_type: str | None, filename: str | None) -> Kind | None:
    """What type or name say; None when they say nothing. Raises ``UnsupportedFileError``."""
    media_type = (mime_type or "").partition(";")[0].strip().lower()
    suffix = PurePath(filename or "").suffix.lower()
    if media_type.startswith("image/"):
        raise UnsupportedFileError(NO_PICTURES)
    if media_type not in _SAYS_NOTHING:
        kind = _TYPES.get(media_type) or (Kind.TEXT if media_type.startswith("text/") else None)
        if kind is None:
            raise UnsupportedFileError
        return kind
    return SUFFIXES.get(suffix) or (Kind.TEXT if media_type == "text/plain" else None)


def _found(data: bytes) -> Kind | None:
    """What the bytes are; None when that can't be told. Raises for what nobody can read whatever it is called."""
    if data.startswith(_PICTURES) or (data[:4] == b"RIFF" and data[8:12] == b"WEBP"):
        raise UnsupportedFileError(NO_PICTURES)
    if data.startswith(_OLE):
        if _ENCRYPTED_OFFICE in data:
            raise EncryptedFileError
        raise UnsupportedFileError("Word files of before 2007 (.doc) can't be read: save it as .docx first.")
    if b"%PDF-" in data[:_LOOKED_AT]:
        return Kind.PDF
    if data.startswith(b"PK\x03\x04"):
        return Kind.DOCX
    if _MARKUP.match(_behind_comments(data[:_LOOKED_AT].removeprefix(b"\xef\xbb\xbf"))):
        return Kind.HTML
    return None if b"\x00" in data[:_LOOKED_AT] else Kind.TEXT


def _behind_comments(head: bytes) -> bytes:
    """Without the comments that it begins with. (By a pattern, comments that follow each other take for ever.)"""
    head = head.lstrip()
    while head.startswith(b"<!--"):
        head = head.partition(b"-->")[2].lstrip()
    return head
