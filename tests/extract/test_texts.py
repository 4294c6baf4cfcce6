"""How bytes become text."""

import codecs

import pytest

from corbits_memory.errors import UnreadableFileError
from corbits_memory.extract.texts import decode_html, decode_text, heading_of


@pytest.mark.parametrize(
    ("data", "mime_type"),
    [
        ("Grüße".encode(), None),
        (codecs.BOM_UTF8 + "Grüße".encode(), "text/plain"),
        (codecs.BOM_UTF16_LE + "Grüße".encode("utf-16-le"), "text/plain; charset=utf-8"),
        (codecs.BOM_UTF16_BE + "Grüße".encode("utf-16-be"), None),
        (codecs.BOM_UTF32_LE + "Grüße".encode("utf-32-le"), None),
        ("Grüße".encode("latin-1"), 'text/plain; charset="ISO-8859-1"'),
        ("Grüße".encode(), "text/plain; charset=made-up"),
        ("Grüße".encode(), "text/plain; charset=base64"),
        ("Grüße".encode(), "text/plain; charset=punycode"),
        ("Grüße".encode(), "text/plain; charset=Unicode_Escape"),
        ("Grüße".encode(), "text/plain; charset=idna"),
        ("Grüße".encode(), "text/plain; charset=undefined"),
    ],
)
def test_text_is_decoded_by_what_says_its_encoding(data: bytes, mime_type: str | None) -> None:
    assert decode_text(data, mime_type=mime_type) == "Grüße"


@pytest.mark.parametrize(
    ("data", "mime_type"),
    [
        ("Grüße".encode("latin-1"), None),
        (b"\xff", "text/plain; charset=us-ascii; charset=utf-8"),
        (b"\x81", "text/plain; charset=windows-1252"),
        (codecs.BOM_UTF16_LE + b"a", None),
        (b"a\x00b", None),
    ],
)
def test_text_is_never_guessed(data: bytes, mime_type: str | None) -> None:
    if mime_type and "us-ascii" in mime_type:
        assert decode_text(data, mime_type=mime_type) == "ÿ"  # as browsers take ASCII
        return
    with pytest.raises(UnreadableFileError):
        decode_text(data, mime_type=mime_type)


@pytest.mark.parametrize(
    ("data", "mime_type"),
    [
        ("<p>Grüße".encode(), None),
        ("<p>Grüße".encode("latin-1"), None),
        ("<p>Grüße".encode("latin-1"), "text/html; charset=latin1"),
        ('<meta charset="windows-1252"><p>Grüße'.encode("windows-1252"), None),
        ('<meta http-equiv=x content="text/html; charset=utf-8"><p>Grüße'.encode(), None),
        ('<meta charset="utf-16"><p>Grüße'.encode(), None),
        ('<meta charset="nonsense"><p>Grüße'.encode(), None),
    ],
)
def test_html_is_decoded_as_browsers_do(data: bytes, mime_type: str | None) -> None:
    assert decode_html(data, mime_type=mime_type).endswith("<p>Grüße")


@pytest.mark.parametrize(
    ("text", "heading"),
    [("a\n## B c ##\n# d", "B c"), ("no\n#tag", None), ("x" * 4_000 + "\n# late", None), ("", None)],
)
def test_a_title_is_the_first_heading_near_the_beginning(text: str, heading: str | None) -> None:
    assert heading_of(text) == heading
