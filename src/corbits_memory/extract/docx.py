"""DOCX, with mammoth: Word's styles become HTML, and that Markdown. Runs in the child process alone."""

import io
import zipfile
from typing import Any

import mammoth

from corbits_memory.errors import EncryptedFileError, FileTooLargeError, UnreadableFileError
from corbits_memory.extract.bounds import Bounds
from corbits_memory.extract.html import to_markdown
from corbits_memory.extract.texts import heading_of
from corbits_memory.ports import ExtractedText

_PARTS = 10_000
_STYLES = "p[style-name='Title'] => h1:fresh\np[style-name='Subtitle'] => h2:fresh"
_ENCRYPTED_FLAG = 0x1


def read_docx(data: bytes, bounds: Bounds) -> ExtractedText:
    """Headings, lists, tables, links, foot and end notes; the alternative text stands for a picture."""
    _check_parts(data, bounds)
    try:
        # No picture is unpacked.
        made = mammoth.convert_to_html(
            io.BytesIO(data), style_map=_STYLES, convert_image=mammoth.images.img_element(_no_source)
        )
    except (MemoryError, RecursionError):
        raise
    except Exception as error:
        # mammoth has no errors of its own: what a broken part leads to is of any type.
        raise UnreadableFileError("The DOCX is broken: a part of it can't be read.") from error
    text = to_markdown(made.value)
    return ExtractedText(text=text, title=heading_of(text))


def _check_parts(data: bytes, bounds: Bounds) -> None:
    """Before anything is unpacked. What the directory says is what zipfile reads at most."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            parts = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError):
        raise UnreadableFileError("The DOCX is broken: it is no whole zip file.") from None
    if any(part.flag_bits & _ENCRYPTED_FLAG for part in parts):
        raise EncryptedFileError
    if "[Content_Types].xml" not in {part.filename for part in parts}:
        raise UnreadableFileError("The file should be DOCX by its type or name, and is another zip file.")
    unpacked = sum(part.file_size for part in parts if not _is_picture(part))
    if unpacked > bounds.unpacked_bytes or len(parts) > _PARTS:
        raise FileTooLargeError(
            f"The DOCX unpacks to more than {bounds.unpacked_bytes:,} bytes of text, or has more than {_PARTS:,} "
            "parts; split it."
        )


def _is_picture(part: zipfile.ZipInfo) -> bool:
    """What is never unpacked. Pictures are packed already: what shrinks far more is no picture, whatever its name."""
    return part.filename.startswith("word/media/") and part.file_size <= 8 * max(part.compress_size, 1)


def _no_source(image: Any) -> dict[str, str]:
    return {}
