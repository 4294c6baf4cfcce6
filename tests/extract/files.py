"""Real files, made by what people make them with."""

import io
import zipfile
from typing import Any

import docx
from reportlab.pdfgen.canvas import Canvas

CONTENT_TYPES = "[Content_Types].xml"
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def pdf(*pages: str, title: str = "", password: str | None = None) -> bytes:
    """A PDF with a line of text a page; a blank one has no text."""
    made = io.BytesIO()
    canvas = Canvas(made, encrypt=password)
    canvas.setTitle(title)
    for page in pages:
        canvas.drawString(72, 700, page)
        canvas.showPage()
    canvas.save()
    return made.getvalue()


def word(*paragraphs: str, title: str | None = None) -> bytes:
    document = docx.Document()
    if title:
        document.add_heading(title, 0)
    for paragraph in paragraphs:
        document.add_paragraph(paragraph)
    return saved(document)


def saved(document: Any) -> bytes:
    made = io.BytesIO()
    document.save(made)
    return made.getvalue()


def with_part(data: bytes, name: str, content: bytes) -> bytes:
    """The same DOCX with another part of that name."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as new:
        for part in old.infolist():
            if part.filename != name:
                new.writestr(part.filename, old.read(part))
        new.writestr(name, content)
    return made.getvalue()


def document_xml(body: str, *, prolog: str = "") -> bytes:
    """What ``word/document.xml`` is, around a body."""
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>{prolog}<w:document xmlns:w="{_WORD}"><w:body>{body}</w:body>'
        "</w:document>"
    ).encode()


def paragraph(text: str) -> str:
    return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"


def unpacked(data: bytes) -> int:
    """How many bytes all of its parts have."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return sum(part.file_size for part in archive.infolist())
