"""PDF, with PDFium. Runs in the process of :mod:`corbits_memory.extract.child` alone."""

import pypdfium2
from pypdfium2 import raw

from corbits_memory.errors import EncryptedFileError, FileTooLargeError, UnreadableFileError
from corbits_memory.extract.bounds import Bounds
from corbits_memory.ports import ExtractedText

_ENCRYPTED = frozenset({raw.FPDF_ERR_PASSWORD, raw.FPDF_ERR_SECURITY})


def read_pdf(data: bytes, bounds: Bounds) -> ExtractedText:
    """The text of all pages, a blank line between two. A page that can't be read refuses the file: to leave it out
    would look as if it were empty.
    """
    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if error.err_code in _ENCRYPTED:
            raise EncryptedFileError from None
        raise UnreadableFileError("The PDF is broken: it can't be opened.") from None
    if len(document) > bounds.pages:
        raise FileTooLargeError(
            f"The PDF has {len(document):,} pages, and {bounds.pages:,} can be read; split it."
        )
    pages: list[str] = []
    left = bounds.text_chars
    for index in range(len(document)):
        page = _read_page(document, index)
        left -= len(page) + 2
        if left < -2:
            raise FileTooLargeError(f"The PDF holds more than {bounds.text_chars:,} characters; split it.")
        pages.append(page)
    return ExtractedText(
        text="\n\n".join(page for page in pages if page), title=document.get_metadata_dict().get("Title")
    )


def _read_page(document: pypdfium2.PdfDocument, index: int) -> str:
    try:
        page = document[index]
        text = page.get_textpage()
    except pypdfium2.PdfiumError:
        raise UnreadableFileError(f"The PDF is broken: its page {index + 1:,} can't be read.") from None
    try:
        return str(text.get_text_range()).replace("\r\n", "\n").strip()
    finally:
        text.close()
        page.close()
