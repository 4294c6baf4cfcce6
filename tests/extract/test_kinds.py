"""Type, name and content say what a file is, and must agree."""

import pytest

from corbits_memory.errors import EncryptedFileError, MemoryError, UnreadableFileError, UnsupportedFileError
from corbits_memory.extract.kinds import DOCX_TYPE, Kind, kind_of

PDF, ZIP, HTML, TEXT = b"%PDF-1.7", b"PK\x03\x04", b"<!doctype html><p>a", b"some words"
PNG = b"\x89PNG\r\n\x1a\n"
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


@pytest.mark.parametrize(
    ("data", "mime_type", "filename", "expected"),
    [
        (PDF, "application/pdf", None, Kind.PDF),
        (b"\n" * 1000 + PDF, None, "a.PDF", Kind.PDF),
        (PDF, "application/octet-stream", "report", Kind.PDF),
        (PDF, None, None, Kind.PDF),
        (ZIP, DOCX_TYPE, "x", Kind.DOCX),
        (ZIP, None, "a.docx", Kind.DOCX),
        (HTML, "text/html; charset=utf-8", None, Kind.HTML),
        (HTML, None, None, Kind.HTML),
        (b"\xef\xbb\xbf <!-- made by --> <HTML>", None, None, Kind.HTML),
        (HTML, "application/xhtml+xml", None, Kind.HTML),
        (TEXT, "text/html", None, Kind.HTML),
        (HTML, "text/plain", None, Kind.TEXT),
        (HTML, "text/markdown", None, Kind.MARKDOWN),
        (TEXT, "text/plain", "a.md", Kind.MARKDOWN),
        (TEXT, "text/plain", "a.py", Kind.TEXT),
        (TEXT, "TEXT/CSV", None, Kind.TEXT),
        (TEXT, None, "notes", Kind.TEXT),
        (TEXT, "", "", Kind.TEXT),
    ],
)
def test_a_kind_is_found(data: bytes, mime_type: str | None, filename: str | None, expected: Kind) -> None:
    assert kind_of(data, mime_type=mime_type, filename=filename) is expected


@pytest.mark.parametrize(
    ("data", "mime_type", "filename", "error", "told"),
    [
        (TEXT, "application/pdf", None, UnreadableFileError, "should be PDF"),
        (PDF, DOCX_TYPE, None, UnreadableFileError, "should be DOCX"),
        (PDF, "text/html", None, UnreadableFileError, "should be HTML"),
        (ZIP, None, "a.txt", UnreadableFileError, "should be text"),
        (TEXT, None, "a.docx", UnreadableFileError, "should be DOCX"),
        (PNG, "image/png", "a.png", UnsupportedFileError, "OCR"),
        (PNG, None, None, UnsupportedFileError, "OCR"),
        (PNG, "application/pdf", "a.pdf", UnsupportedFileError, "OCR"),
        (b"RIFF1234WEBPVP8 ", None, None, UnsupportedFileError, "OCR"),
        (TEXT, "image/svg+xml", None, UnsupportedFileError, "OCR"),
        (OLE, "application/msword", "a.doc", UnsupportedFileError, "PDF, DOCX, HTML"),
        (OLE, None, "a.doc", UnsupportedFileError, "save it as .docx"),
        (OLE + "EncryptedPackage".encode("utf-16-le"), None, "a.docx", EncryptedFileError, "password"),
        (TEXT, "application/zip", None, UnsupportedFileError, "PDF, DOCX, HTML"),
        (b"\x00\x01\x02", None, "a.bin", UnsupportedFileError, "PDF, DOCX, HTML"),
    ],
)
def test_what_can_not_be_read_is_told(
    data: bytes, mime_type: str | None, filename: str | None, error: type[MemoryError], told: str
) -> None:
    with pytest.raises(error, match=told):
        kind_of(data, mime_type=mime_type, filename=filename)


@pytest.mark.parametrize("filler", [b"<!---->", b"<!-- -->\n", b"<!--", b" <!--->"])
def test_comments_in_front_take_no_time_and_hide_no_page(filler: bytes) -> None:
    assert kind_of(filler * 200 + b"x", mime_type="text/plain", filename=None) is Kind.TEXT
    head = b"<!-- made by -->\n<!----><html>"
    assert kind_of(head, mime_type=None, filename=None) is Kind.HTML
