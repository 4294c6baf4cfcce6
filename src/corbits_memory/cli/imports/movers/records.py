"""JSON of any size, record by record; memory holds one of them."""

import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

import ijson
from ijson.common import ObjectBuilder

from corbits_memory.cli.imports.files import LINES
from corbits_memory.cli.imports.items import PIECE_BYTES_MAX, Refused, line_value, numbered_lines

READ_BYTES = 64 * 1024
_ENCRYPTED_FLAG = 0x1
_BOM = b"\xef\xbb\xbf"
_OPENING = frozenset({"start_map", "start_array"})
_CLOSING = frozenset({"end_map", "end_array"})


@dataclass(frozen=True, slots=True)
class Record:
    """A JSON value and where it stands."""

    origin: str
    value: Any
    stem: str
    """The name of its file, without folder and ending."""


@dataclass(frozen=True, slots=True)
class Part:
    """A file, or one in a zip file."""

    name: str
    suffix: str
    stem: str
    open: Callable[[], IO[bytes]]


def read_records(path: Path, *, files: re.Pattern[str], arrays: frozenset[str]) -> Iterator[Record | Refused]:
    """The records of an export: a file, a zip file or a folder, where ``files`` match the names that count.

    A record is an item of the outermost array or of one that the outermost object has under a name of ``arrays``;
    else the outermost object itself, of which a file may hold many. What can't be read is told in its place.
    """
    with _telling(str(path)) as told:
        found = False
        for part in _parts(path, files):
            found = True
            if isinstance(part, Refused):
                yield part
            else:
                yield from read_part(part, arrays)
        if not found:
            yield Refused(str(path), "holds no file of such an export")
    yield from told


def read_part(part: Part, arrays: frozenset[str]) -> Iterator[Record | Refused]:
    """The records of one file, up to where it breaks."""
    with _telling(part.name) as told, part.open() as stream:
        if part.suffix in LINES:
            yield from _by_line(stream, part)
        else:
            yield from _Reader(stream, part, arrays).records()
    yield from told


@contextmanager
def _telling(origin: str) -> Iterator[list[Refused]]:
    """What ends the reading of a file is put into the list."""
    told: list[Refused] = []
    try:
        yield told
    except OSError as error:
        told.append(Refused(origin, f"can't be read ({error.strerror or error})"))
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError):
        told.append(Refused(origin, "is a damaged zip file: what stands behind the damage was not read"))


def _parts(path: Path, files: re.Pattern[str]) -> Iterator[Part | Refused]:
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            if files.fullmatch(file.name) and file.is_file():
                yield _file(file)
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for part in sorted(archive.infolist(), key=lambda part: part.filename):
                if files.fullmatch(part.filename.rpartition("/")[2]):
                    yield _packed(path, archive, part)
    else:
        yield _file(path)


def _packed(path: Path, archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> Part | Refused:
    origin = f"{path}:{part.filename}"
    if part.flag_bits & _ENCRYPTED_FLAG:
        return Refused(origin, "is encrypted: unpack it first")
    inner = Path(part.filename)
    return Part(origin, inner.suffix.lower(), inner.stem, partial(archive.open, part))


def _file(path: Path) -> Part:
    return Part(
        str(path), path.suffix.lower(), path.stem, cast("Callable[[], IO[bytes]]", partial(path.open, "rb"))
    )


def _by_line(stream: IO[bytes], part: Part) -> Iterator[Record | Refused]:
    for number, line, size in numbered_lines(stream):
        origin = f"{part.name}:{number}"
        value = line_value(line, origin, size)
        yield value if isinstance(value, Refused) else Record(origin, value, part.stem)


class _TooLargeError(Exception):
    """An outermost object that can't be held."""


class _Counted:
    """A stream that knows how far it was read. A byte order mark is no JSON."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.position = 0

    def read(self, size: int = -1) -> bytes:
        piece = self._stream.read(size)
        at_start, self.position = self.position == 0, self.position + len(piece)
        return piece.removeprefix(_BOM) if at_start and size else piece


class _Reader:
    """Follows the parser's events, and builds what is a record."""

    def __init__(self, stream: IO[bytes], part: Part, arrays: frozenset[str]) -> None:
        self._stream = _Counted(stream)
        self._part = part
        self._arrays = arrays

    def records(self) -> Iterator[Record | Refused]:
        # As floats, one number that is too large would end the file.
        events = ijson.basic_parse(self._stream, buf_size=READ_BYTES, multiple_values=True)
        try:
            for event, value in events:
                yield from self._outermost(event, value, events)
        except _TooLargeError:
            yield Refused(
                self._part.name,
                f"has an object that is larger than {PIECE_BYTES_MAX // 2**20} MB; what stands after it was not read",
            )
        except (ijson.JSONError, UnicodeDecodeError):
            place = max(0, self._stream.position - READ_BYTES)
            yield Refused(
                self._part.name,
                f"is not valid JSON somewhere behind byte {place:,}; what stands after that was not read",
            )

    def _outermost(
        self, event: str, value: Any, events: Iterator[tuple[str, Any]]
    ) -> Iterator[Record | Refused]:
        if event == "start_array":
            yield from self._items(events, "")
        elif event == "start_map":
            yield from self._object(events)
        else:
            yield Refused(self._part.name, "must be JSON objects")

    def _items(self, events: Iterator[tuple[str, Any]], name: str) -> Iterator[Record | Refused]:
        """The items of an array that has begun, to its end."""
        for number, (event, value) in enumerate(events):
            if event == "end_array":
                return
            origin = f"{self._part.name}{f' {name}' if name else ''}[{number}]"
            yield self._built(origin, event, value, events)

    def _built(
        self, origin: str, event: str, value: Any, events: Iterator[tuple[str, Any]]
    ) -> Record | Refused:
        """One value whose first event this is, unless it is too large to be held."""
        began, depth = self._stream.position, 0
        builder: ObjectBuilder | None = ObjectBuilder()
        while True:
            if builder is not None:
                builder.event(event, float(value) if isinstance(value, Decimal) else value)
            depth += (event in _OPENING) - (event in _CLOSING)
            if depth == 0:
                break
            if self._stream.position - began > PIECE_BYTES_MAX:
                builder = None
            event, value = next(events)
        if builder is None:
            return Refused(origin, f"is larger than {PIECE_BYTES_MAX // 2**20} MB")
        return Record(origin, builder.value, self._part.stem)

    def _object(self, events: Iterator[tuple[str, Any]]) -> Iterator[Record | Refused]:
        """An object that has begun: the items of its known arrays as they come, or else itself."""
        began = self._stream.position
        built: dict[str, Any] = {}
        streamed = False
        for event, key in events:
            if event == "end_map":
                break
            event, value = next(events)
            if event == "start_array" and key in self._arrays:
                streamed = True
                yield from self._items(events, key)
                continue
            field = self._built(self._part.name, event, value, events)
            if isinstance(field, Refused) or (
                self._stream.position - began > PIECE_BYTES_MAX and not streamed
            ):
                raise _TooLargeError
            built[key] = field.value
        if not streamed:
            yield Record(self._part.name, built, self._part.stem)
