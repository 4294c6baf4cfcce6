"""HTML to Markdown. Runs in the child process alone."""

from html_to_markdown import ConversionOptions, PreprocessingOptions, convert

from corbits_memory.errors import UnreadableFileError
from corbits_memory.extract.texts import decode_html, heading_of
from corbits_memory.ports import ExtractedText

_NO_TEXT = ("script", "style", "nav", "svg", "iframe", "button", "template", "noscript", "select", "head")
_HEAD_CHARS = 64 * 1024
_TOO_DEEP = "depth_limit_exceeded"


def read_html(data: bytes, *, mime_type: str | None) -> ExtractedText:
    """All that a reader sees but menus and controls; the title, else the first heading."""
    source = decode_html(data, mime_type=mime_type)
    text = to_markdown(source)
    return ExtractedText(text=text, title=_title(source) or heading_of(text))


def to_markdown(source: str) -> str:
    """Raises ``UnreadableFileError`` rather than leave out what lies too deep."""
    made = convert(
        source,
        ConversionOptions(
            extract_metadata=False,
            # The library's own idea of what matters drops headers and forms with their text.
            preprocessing=PreprocessingOptions(enabled=False),
            exclude_selectors=list(_NO_TEXT),
            inline_data_media="alt_text_only",
        ),
    )
    if any(str(warning.kind) == _TOO_DEEP for warning in made.warnings):
        raise UnreadableFileError("The file's elements are nested too deeply to be read.")
    return (made.content or "").strip()


def _title(source: str) -> str | None:
    title = convert(source[:_HEAD_CHARS], ConversionOptions(extract_metadata=True)).metadata.document.title
    return " ".join(title.split()) if title else None
