"""Bytes to text, by what says how they are encoded. Nothing is guessed: a wrong guess would be stored as rubbish."""

import codecs
import re

from corbits_memory.errors import UnreadableFileError

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CHARSET = re.compile(r"""charset\s*=\s*["']?([A-Za-z0-9._:+-]+)""", re.IGNORECASE)
_META = re.compile(rb"<meta\b[^>]{0,500}?charset\s*=\s*[\"']?\s*([A-Za-z0-9._:+-]+)", re.IGNORECASE)
_META_WITHIN = 4096
_NO_CHARSETS = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"})
"""Codecs of Python that no file is in; some take the square of a text's length."""
_HEADING = re.compile(r"^#{1,6}[ \t]+(\S.*?)[ \t#\r]*$", re.MULTILINE)
_HEADING_WITHIN = 4_000


def decode_text(data: bytes, *, mime_type: str | None) -> str:
    """Plain text or Markdown: by its byte order mark, else the type's charset, else UTF-8.

    Raises ``UnreadableFileError``.
    """
    encoding, body = _marked(data)
    encoding = encoding or _charset_of(mime_type) or "utf-8"
    try:
        text = body.decode(encoding)
    except UnicodeError:
        raise UnreadableFileError(
            f"The file is not {encoding.upper()} text; if it is in another encoding, say so in its type, like "
            "text/plain; charset=windows-1252."
        ) from None
    if "\x00" in text:
        raise UnreadableFileError("The file is not text: it holds NUL characters.")
    return text


def decode_html(data: bytes, *, mime_type: str | None) -> str:
    """HTML as browsers read it: byte order mark, type, ``<meta charset>``, UTF-8, and else Windows-1252."""
    encoding, body = _marked(data)
    meta = _META.search(body[:_META_WITHIN])
    named = encoding or _charset_of(mime_type) or (_known(meta[1].decode("ascii")) if meta else None)
    if named is not None and not (meta and encoding is None and named.startswith("utf-16")):
        return body.decode(named, "replace")
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return body.decode("windows-1252", "replace")


def heading_of(text: str) -> str | None:
    """The first heading of a Markdown text, near its beginning."""
    heading = _HEADING.search(text, 0, _HEADING_WITHIN)
    return heading[1] if heading else None


def _marked(data: bytes) -> tuple[str | None, bytes]:
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return encoding, data[len(mark) :]
    return None, data


def _charset_of(mime_type: str | None) -> str | None:
    found = _CHARSET.search(mime_type or "")
    return _known(found[1]) if found else None


def _known(name: str) -> str | None:
    """The codec of a charset's name; None for one that nobody knows, or that makes no text of bytes."""
    try:
        codec = codecs.lookup(name)
    except LookupError:
        return None
    # What browsers take Latin-1 for.
    if codec.name in _NO_CHARSETS:
        return None
    known = "windows-1252" if codec.name in {"iso8859-1", "ascii"} else codec.name
    return known if codec._is_text_encoding else None  # noqa: SLF001 - there is no other way to ask
