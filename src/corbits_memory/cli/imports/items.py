"""What files hold: documents to add, and what can't be one."""

import hashlib
import json
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from corbits_memory.cli.imports.files import ADAPTER, EXTRACTED, LINES, TEXTS, SourceFile
from corbits_memory.core.limits import FILE_BYTES, TITLE_CHARS
from corbits_memory.extract.texts import heading_of

PIECE_BYTES_MAX = FILE_BYTES
"""The largest file, and the longest line, that becomes one document."""

IMPORTED = ".md, .txt, .html, .pdf, .docx and .jsonl"
_TOO_LARGE = f"is larger than {PIECE_BYTES_MAX // 2**20} MB; split it"
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Item:
    """A document to add; ``size`` is what it took in its file, in bytes."""

    origin: str
    body: Mapping[str, Any]
    size: int


@dataclass(frozen=True, slots=True)
class Unread:
    """A file whose text is still to be extracted; ``body`` is what is said of it besides."""

    path: Path
    body: Mapping[str, Any]
    size: int

    @property
    def origin(self) -> str:
        return str(self.path)


@dataclass(frozen=True, slots=True)
class Refused:
    """Something that can't be a document, and why."""

    origin: str
    problem: str
    size: int = 0


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that nobody asked for by name and that is not text."""

    origin: str
    size: int = 0
    notice: str | None = None
    """Why, where somebody could have expected it to be read."""


Found = Item | Unread | Refused | Skipped


def read_items(file: SourceFile, defaults: Mapping[str, Any]) -> Iterator[Found]:
    """What is in a file. ``defaults`` fill in what an item does not say itself."""
    try:
        if file.leads_out:
            yield Skipped(str(file.path), notice="is a link that leads out of the folder")
        elif not stat.S_ISREG(file.path.stat().st_mode):
            # A pipe would block for ever, a device may never end.
            yield _not_a_file(file)
        elif file.suffix in LINES:
            yield from _read_lines(file, defaults)
        elif file.suffix in TEXTS:
            yield _read_text(file, defaults)
        else:
            yield _other(file, defaults)
    except OSError as error:
        yield Refused(str(file.path), f"can't be read ({error.strerror})")


def _not_a_file(file: SourceFile) -> Found:
    problem = "is not a regular file"
    if file.named:
        return Refused(str(file.path), problem)
    return Skipped(str(file.path), notice=problem)


def _other(file: SourceFile, defaults: Mapping[str, Any]) -> Found:
    origin, size = str(file.path), _size(file.path)
    if file.suffix in EXTRACTED:
        if size > PIECE_BYTES_MAX:
            return Refused(origin, _TOO_LARGE, size)
        return Unread(file.path, {**defaults, "external_ref": file.ref, "adapter": ADAPTER}, size)
    if not file.named:
        return Skipped(origin, size)
    return Refused(origin, f"this kind of file can't be imported; {IMPORTED} can", size)


def _read_text(file: SourceFile, defaults: Mapping[str, Any]) -> Found:
    origin, size = str(file.path), _size(file.path)
    if size > PIECE_BYTES_MAX:
        return Refused(origin, _TOO_LARGE, size)
    try:
        text = file.path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        return Refused(origin, "is not UTF-8 text", size)
    if not text.strip():
        return Refused(origin, "is empty", size) if file.named else Skipped(origin, size)
    own = {"title": _title(file, text), "text": text, "external_ref": file.ref, "adapter": ADAPTER}
    return Item(origin, {**defaults, **own}, size)


def _title(file: SourceFile, text: str) -> str:
    heading = heading_of(text) if file.suffix in {".md", ".markdown"} else None
    name = file.path.stem.encode("utf-8", "backslashreplace").decode()
    return (heading or name.replace("_", " "))[:TITLE_CHARS]


def _read_lines(file: SourceFile, defaults: Mapping[str, Any]) -> Iterator[Found]:
    with file.path.open("rb") as stream:
        for number, line, size in numbered_lines(stream):
            origin = f"{file.path}:{number}"
            body = line_value(line, origin, size)
            yield body if isinstance(body, Refused) else _line_item(body, line, origin, size, file, defaults)


def numbered_lines(stream: IO[bytes]) -> Iterator[tuple[int, bytes | None, int]]:
    """Each line that is not blank, its number and its size; None for one that is too long to be held."""
    number = 0
    while line := stream.readline(PIECE_BYTES_MAX + 1):
        number += 1
        size = len(line)
        if size > PIECE_BYTES_MAX:
            size += 0 if line.endswith(b"\n") else _skip_line(stream)
            yield number, None, size
            continue
        line = line.removeprefix(_BOM).strip() if number == 1 else line.strip()
        if line:
            yield number, line, size


def line_value(line: bytes | None, origin: str, size: int) -> dict[str, Any] | Refused:
    """The object that a line of JSON is."""
    if line is None:
        return Refused(origin, f"is longer than {PIECE_BYTES_MAX // 2**20} MB", size)
    try:
        body = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
        # Python reads half a character ("\\ud800") and 1e400; neither can be sent or kept.
        json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeDecodeError:
        return Refused(origin, "is not UTF-8 text", size)
    except UnicodeEncodeError:
        return Refused(origin, "holds a lone surrogate, which is no text", size)
    except json.JSONDecodeError as error:
        return Refused(origin, f"is not valid JSON (column {error.colno})", size)
    except (ValueError, RecursionError) as error:
        reason = (
            "nested too deeply" if isinstance(error, RecursionError) else "with a number that JSON can't hold"
        )
        return Refused(origin, f"is not valid JSON ({reason})", size)
    return body if isinstance(body, dict) else Refused(origin, "must be a JSON object", size)


def _line_item(
    body: Mapping[str, Any],
    line: bytes | None,
    origin: str,
    size: int,
    file: SourceFile,
    defaults: Mapping[str, Any],
) -> Item:
    given = {name: value for name, value in body.items() if value is not None}
    if "external_ref" not in given:
        # The same line of the same file is the same document, wherever in the file it stands.
        digest = hashlib.sha256(line or b"").hexdigest()[:16]
        given = {"adapter": ADAPTER, **given, "external_ref": f"{file.ref}#{digest}"}
    return Item(origin, {**defaults, **given}, size)


def _skip_line(stream: IO[bytes]) -> int:
    """Read on to the line's end, a little at a time; how many bytes that was."""
    skipped = 0
    while piece := stream.readline(1024 * 1024):
        skipped += len(piece)
        if piece.endswith(b"\n"):
            break
    return skipped


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


def _size(path: Path) -> int:
    return path.stat().st_size
