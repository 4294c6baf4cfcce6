"""Real files are read, and hostile ones are refused, each with its own error."""

import io
import json
import os
import struct
import time
import zipfile

import docx
import pytest

from corbits_memory.errors import (
    EncryptedFileError,
    FileTooLargeError,
    FileWithoutTextError,
    MemoryError,
    UnreadableFileError,
)
from corbits_memory.extract import Bounds, FileTextExtractor
from corbits_memory.extract.child import answer
from corbits_memory.extract.kinds import Kind
from corbits_memory.ports import ExtractedText, TextExtractor
from tests.extract.files import document_xml, paragraph, pdf, saved, unpacked, with_part, word

DOCUMENT = "word/document.xml"


async def read(
    data: bytes, name: str | None = None, *, mime_type: str | None = None, bounds: Bounds | None = None
) -> ExtractedText:
    return await FileTextExtractor(bounds=bounds).extract(data, mime_type=mime_type, filename=name)


def test_it_is_a_text_extractor() -> None:
    assert isinstance(FileTextExtractor(), TextExtractor)


# --- PDF ---


async def test_a_pdf_is_read_page_by_page() -> None:
    found = await read(pdf("Fridays are frozen.", "", "Deploys need two."), "a.pdf")
    assert found.text == "Fridays are frozen.\n\nDeploys need two."
    assert found.title in {None, "untitled"}


async def test_a_pdf_has_its_title() -> None:
    assert (await read(pdf("a", title="Harbour rules"))).title == "Harbour rules"


@pytest.mark.parametrize("kept", [0.3, 0.6, 0.9])
async def test_a_cut_pdf_is_refused(kept: float) -> None:
    whole = pdf(*("words " * 20 for _ in range(5)))
    with pytest.raises(UnreadableFileError, match="broken"):
        await read(whole[: int(len(whole) * kept)], "a.pdf")


async def test_an_encrypted_pdf_is_refused() -> None:
    with pytest.raises(EncryptedFileError):
        await read(pdf("secret", password="open sesame"), "a.pdf")


async def test_a_scan_has_no_text() -> None:
    with pytest.raises(FileWithoutTextError, match="OCR"):
        await read(pdf("", ""), "scan.pdf")


@pytest.mark.parametrize(("pages", "fits"), [(1, True), (2, True), (3, False)])
async def test_pages_are_limited(pages: int, fits: bool) -> None:
    data = pdf(*("a" for _ in range(pages)))
    bounds = Bounds(pages=2)
    if fits:
        assert (await read(data, bounds=bounds)).text
        return
    with pytest.raises(FileTooLargeError, match="3 pages"):
        await read(data, bounds=bounds)


def many_pages(count: int) -> bytes:
    """A small PDF that says it has very many pages, all of them one."""
    kids = b"3 0 R " * count
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Count %d/Kids[%s]>>" % (count, kids),
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>",
    ]
    body = b"%PDF-1.4\n"
    places = []
    for number, content in enumerate(objects, 1):
        places.append(len(body))
        body += b"%d 0 obj%sendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    return (
        body
        + b"xref\n0 4\n0000000000 65535 f \n%strailer<</Size 4/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF"
        % (
            table,
            len(body),
        )
    )


async def test_a_pdf_of_a_hundred_thousand_pages_is_refused_at_once() -> None:
    began = time.monotonic()
    with pytest.raises(FileTooLargeError, match="100,000 pages"):
        await read(many_pages(100_000), "a.pdf")
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(("most", "fits"), [(13, True), (12, True), (11, False)])
async def test_the_text_of_a_pdf_is_limited(most: int, fits: bool) -> None:
    data, bounds = pdf("abcde", "vwxyz"), Bounds(text_chars=most)
    if fits:
        assert len((await read(data, bounds=bounds)).text) == 12
        return
    with pytest.raises(FileTooLargeError, match="11 characters"):
        await read(data, bounds=bounds)


# --- DOCX ---


async def test_a_docx_becomes_markdown() -> None:
    document = docx.Document()
    document.add_heading("Harbour", 0)
    document.add_heading("Rules", 1)
    document.add_paragraph("No *swimming* in dock_4.")
    document.add_paragraph("first", style="List Bullet")
    table = document.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "berth", "seven"
    found = await read(saved(document), "a.docx")
    assert found.title == "Harbour"
    assert found.text.startswith("# Harbour\n\n# Rules\n\nNo *swimming* in dock_4.\n\n- first")
    assert "| berth | seven |" in found.text


async def test_a_docx_without_a_heading_has_no_title() -> None:
    assert await read(word("plain"), "a.docx") == ExtractedText(text="plain")


async def test_an_empty_docx_has_no_text() -> None:
    with pytest.raises(FileWithoutTextError):
        await read(word(), "a.docx")


@pytest.mark.parametrize(
    "data",
    [
        b"PK\x03\x04",
        word("a")[:-40],
        with_part(word("a"), DOCUMENT, b"<broken"),
        with_part(word("a"), "_rels/.rels", b"<broken"),
    ],
)
async def test_a_broken_docx_is_refused(data: bytes) -> None:
    with pytest.raises(UnreadableFileError, match="broken"):
        await read(data, "a.docx")


async def test_another_zip_file_is_no_docx() -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("a.txt", "words")
    with pytest.raises(UnreadableFileError, match="another zip file"):
        await read(made.getvalue())


@pytest.mark.parametrize(("spare", "fits"), [(1, True), (0, True), (-1, False)])
async def test_what_a_docx_unpacks_to_is_limited(spare: int, fits: bool) -> None:
    data = word("words")
    bounds = Bounds(unpacked_bytes=unpacked(data) + spare)
    if fits:
        assert (await read(data, bounds=bounds)).text == "words"
        return
    with pytest.raises(FileTooLargeError, match="unpacks"):
        await read(data, bounds=bounds)


async def test_a_zip_bomb_is_not_unpacked() -> None:
    bomb = with_part(word("a"), DOCUMENT, b" " * (200 * 1024 * 1024))
    assert len(bomb) < 1024 * 1024
    began = time.monotonic()
    with pytest.raises(FileTooLargeError, match="unpacks"):
        await read(bomb, "a.docx")
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("name", ["word/d.bin", "word/media/d.png"])
async def test_a_zip_bomb_of_another_name_is_not_unpacked(name: str) -> None:
    bomb = with_part(word("a"), name, b" " * (100 * 1024 * 1024))
    with pytest.raises(FileTooLargeError, match="unpacks"):
        await read(bomb, "a.docx")


async def test_pictures_of_any_size_are_passed_over() -> None:
    data = word("words")
    large = with_part(data, "word/media/image1.png", os.urandom(1_000_000))
    assert (await read(large, bounds=Bounds(unpacked_bytes=unpacked(data)))).text == "words"


async def test_a_zip_bomb_that_lies_about_its_size_is_refused() -> None:
    content = document_xml(paragraph("a" * 50_000_000))
    bomb = bytearray(with_part(word("a"), DOCUMENT, content))
    real, told = struct.pack("<I", len(content)), struct.pack("<I", 1_000)
    assert bomb.count(real) >= 2
    with pytest.raises(UnreadableFileError, match="broken"):
        await read(bytes(bomb.replace(real, told)), "a.docx", bounds=Bounds(memory_bytes=1 << 30))


async def test_entities_that_explode_are_refused() -> None:
    entities = '<!ENTITY a0 "lol">' + "".join(
        f'<!ENTITY a{n} "{"".join(f"&a{n - 1};" for _ in range(10))}">' for n in range(1, 12)
    )
    body = document_xml(paragraph("&a11;"), prolog=f"<!DOCTYPE x [{entities}]>")
    with pytest.raises(MemoryError) as refused:
        await read(with_part(word("a"), DOCUMENT, body), "a.docx")
    assert isinstance(refused.value, UnreadableFileError | FileTooLargeError)


async def test_no_other_file_comes_in_by_an_entity() -> None:
    prolog = '<!DOCTYPE x [<!ENTITY other SYSTEM "file:///etc/passwd">]>'
    body = document_xml(paragraph("left &other; right"), prolog=prolog)
    try:
        text = (await read(with_part(word("a"), DOCUMENT, body), "a.docx")).text
    except UnreadableFileError:
        return
    assert "root:" not in text


async def test_memory_is_limited() -> None:
    body = document_xml("".join(paragraph("words") for _ in range(400_000)))
    with pytest.raises(FileTooLargeError, match="memory"):
        await read(with_part(word("a"), DOCUMENT, body), "a.docx", bounds=Bounds(memory_bytes=400 << 20))


# --- HTML ---


async def test_html_becomes_markdown_without_what_nobody_reads() -> None:
    source = (
        "<!doctype html><title> Harbour\n rules </title><style>p{}</style><script>var a</script>"
        "<nav>Home</nav><header>By the port</header><h1>Rules</h1><p>No <b>swimming</b> in dock_4 &amp; 5."
        '<img alt="a map" src="data:image/png;base64,AAAA"><svg><text>x</text></svg><noscript>no</noscript>'
        "<form><button>Go</button><label>Name</label></form><footer>Since 1920</footer>"
    )
    found = await read(source.encode(), "a.html")
    assert found.title == "Harbour rules"
    assert "# Rules" in found.text
    assert "No **swimming** in dock_4 & 5." in found.text
    for word_ in ("By the port", "a map", "Name", "Since 1920"):
        assert word_ in found.text
    for word_ in ("var a", "p{}", "Home", "base64", "Go", "title:", "<"):
        assert word_ not in found.text


async def test_html_without_a_title_has_its_first_heading() -> None:
    assert (await read(b"<body><p>a<h2>Rules</h2>")).title == "Rules"


async def test_html_that_is_nested_too_deeply_is_refused_and_not_shortened() -> None:
    deep = b"<div>" * 100_000 + b"needle"
    with pytest.raises(UnreadableFileError, match="deeply"):
        await read(deep, "a.html")
    assert "needle" in (await read(b"<div>" * 500 + b"needle", "a.html")).text


async def test_html_without_text_is_refused() -> None:
    with pytest.raises(FileWithoutTextError):
        await read(b"<html><script>let a = 1</script>", "a.html")


# --- text ---


async def test_text_and_markdown_are_kept_as_they_are() -> None:
    text = "# Rules ##\r\n\n  No *swimming*.\n"
    assert await read(text.encode(), "a.md") == ExtractedText(text=text, title="Rules")
    assert await read(text.encode(), "a.txt") == ExtractedText(text=text)
    with pytest.raises(FileWithoutTextError):
        await read(b" \n", "a.txt")


@pytest.mark.parametrize(("most", "fits"), [(4, True), (3, True), (2, False)])
@pytest.mark.parametrize("name", ["a.txt", "a.html"])
async def test_text_is_limited(name: str, most: int, fits: bool) -> None:
    if fits:
        assert (await read(b"abc", name, bounds=Bounds(text_chars=most))).text == "abc"
        return
    with pytest.raises(FileTooLargeError, match="2 characters"):
        await read(b"abc", name, bounds=Bounds(text_chars=most))


@pytest.mark.parametrize(("most", "fits"), [(4, True), (3, True), (2, False)])
async def test_files_are_limited(most: int, fits: bool) -> None:
    if fits:
        assert (await read(b"abc", bounds=Bounds(file_bytes=most))).text == "abc"
        return
    with pytest.raises(FileTooLargeError, match="2 bytes"):
        await read(b"abc", bounds=Bounds(file_bytes=most))


def test_what_no_document_may_hold_is_taken_out() -> None:
    told = answer(Kind.HTML, b"<title>a\x00b</title><p>c\x00d\xed\xa0\x80", Bounds(), None)
    assert "\x00" not in json.dumps(told)
    assert not told.get("error")
