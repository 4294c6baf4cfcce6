"""From lines to what can be written by itself: a version with its text and what it refers to, or an edge of a document.

A piece says all that its writing needs. So a batch may end between any two of them, and a version stands in the
database with all of its text or not at all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from corbits_memory.core.enums import EdgeEnd, EdgeRel, VersionStatus
from corbits_memory.core.limits import VERSION_EDGES, VERSION_TEXT_CHARS
from corbits_memory.engine.transfer import lines
from corbits_memory.engine.transfer.fields import located
from corbits_memory.engine.transfer.format import END, KINDS, Row, plural
from corbits_memory.engine.transfer.lines import Document, Here
from corbits_memory.errors import InvalidInputError

MARK = 1024
"""A line counts as so many characters at least: small ones take room too."""


@dataclass(slots=True)
class Unit:
    """A version, with the capture that stood before it and all that came after."""

    row: Row
    capture: Row | None
    foreign: frozenset[str]
    line: int
    chunks: list[Row] = field(default_factory=list)
    vectors: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    """By chunk: the vector, and the turn that it was embedded with."""
    edges: list[Row] = field(default_factory=list)
    chars: int = 0
    """Of its text."""

    @property
    def id(self) -> str:
        return str(self.row["id"])

    @property
    def derived(self) -> bool:
        """Whether it says what it was made from. A source that was purged has left its id in the capture alone."""
        if any(edge["rel"] == EdgeRel.DERIVED_FROM for edge in self.edges):
            return True
        return self.capture is not None and lines.captured_from_versions(self.capture)


@dataclass(slots=True)
class Piece:
    """A unit or an edge of its document, and where in the file it stands."""

    document: Document
    first: int
    last: int
    size: int
    unit: Unit | None = None
    edge: Row | None = None


class Reader:
    """Takes the lines after the first one by one. Every error is an ``InvalidInputError`` that names its line."""

    def __init__(self, here: Here) -> None:
        self._here = here
        self._counts = {plural(kind): 0 for kind in KINDS}
        self._document: Document | None = None
        self._capture: Row | None = None
        self._unit: Unit | None = None
        self._first = 0
        self._size = 0
        self._line = 1
        self._blamed = 1
        """The line that an error is about: the one that is taken, unless it shows that an earlier one is wrong."""
        self.ended = False

    def take(self, line: Mapping[str, Any], number: int, size: int) -> list[Piece]:
        """The pieces that are complete by this line; ``size`` is the line's, in characters or bytes."""
        self._line = self._blamed = number
        try:
            return self._take(line, max(size, MARK))
        except InvalidInputError as error:
            raise located(error, self._blamed) from None

    def close(self) -> None:
        """Raises when the last line, which says that nothing is missing, has not come."""
        if not self.ended:
            raise InvalidInputError(f"the export ends after line {self._line}, in the middle: it was cut off")

    def _take(self, line: Mapping[str, Any], size: int) -> list[Piece]:
        kinds = [kind for kind in (*KINDS, END) if kind in line]
        if len(kinds) != 1:
            raise InvalidInputError(f"a line of an export holds one of {', '.join((*KINDS, END))}")
        (kind,) = kinds
        if self.ended:
            raise InvalidInputError("stands behind the end of the export")
        if kind == END:
            done = self._close_document()
            lines.check_end(line[END], self._counts)
            self.ended = True
            return done
        self._counts[plural(kind)] += 1
        if kind == "document":
            return self._take_document(line[kind])
        if self._document is None:
            raise InvalidInputError(f"{kind} must follow its document")
        if kind == "raw_capture":
            return self._take_capture(line[kind], self._document, size)
        if kind == "version":
            return self._take_version(line[kind], self._document, size)
        if kind == "chunk":
            return self._take_chunk(line, size)
        return self._take_edge(line, self._document, size)

    def _take_document(self, given: object) -> list[Piece]:
        done = self._close_document()
        before = self._document
        document = lines.check_document(given, self._here, line=self._line)
        if before is not None and document.id.encode() <= before.id.encode():
            raise InvalidInputError(
                "document.id must come after the one before: documents stand in their order"
            )
        self._document = document
        return done

    def _take_capture(self, given: object, document: Document, size: int) -> list[Piece]:
        done = self._close_unit()
        self._capture = lines.check_raw_capture(given, document.row)
        self._first, self._size = self._line, size
        return done

    def _take_version(self, given: object, document: Document, size: int) -> list[Piece]:
        done = self._close_unit() if self._unit is not None else []
        row, foreign = lines.check_version(given, document.row, self._here)
        if row["version"] <= document.last_version:
            raise InvalidInputError("version.version must be higher than the one before")
        document.last_version = row["version"]
        if row["status"] == VersionStatus.ACTIVE:
            if document.active:
                raise InvalidInputError("version.status must not be active: the document has one that is")
            document.active = True
        capture, self._capture = self._capture, None
        if capture is None:
            self._first, self._size = self._line, 0
        elif capture["id"] != row["raw_capture_id"]:
            raise InvalidInputError("version.raw_capture_id must be that of the raw capture before it")
        self._size += size
        self._unit = Unit(row=row, capture=capture, foreign=foreign, line=self._line)
        return done

    def _take_chunk(self, line: Mapping[str, Any], size: int) -> list[Piece]:
        unit = self._unit
        if unit is None:
            raise InvalidInputError("chunk must follow its version")
        if unit.edges:
            raise InvalidInputError("chunk must stand before the edges of its version")
        chunk = lines.check_chunk(line["chunk"], unit.row, ordinal=len(unit.chunks))
        unit.chars += len(chunk["text"])
        if unit.chars > VERSION_TEXT_CHARS:
            raise InvalidInputError(
                f"chunk.text makes the version longer than {VERSION_TEXT_CHARS:,} characters"
            )
        unit.chunks.append(chunk)
        if line.get("vector") is not None and self._here.header.model_key is not None:
            unit.vectors[chunk["id"]] = lines.check_vector(
                line["vector"], line.get("previous"), self._here.header.dims
            )
        self._size += size
        return []

    def _take_edge(self, line: Mapping[str, Any], document: Document, size: int) -> list[Piece]:
        begins = lines.from_end(line["edge"])
        entity = line.get("entity")
        if begins is EdgeEnd.VERSION:
            unit = self._unit
            if unit is None:
                raise InvalidInputError("edge must follow the version that it begins at")
            if len(unit.edges) >= VERSION_EDGES:
                raise InvalidInputError(f"edge is one too many: a version has at most {VERSION_EDGES:,}")
            edge = lines.check_edge(line["edge"], entity, from_type=EdgeEnd.VERSION, from_ref=unit.id)
            unit.edges.append({**edge, "line": self._line})
            self._size += size
            return []
        if begins is not EdgeEnd.DOCUMENT:
            raise InvalidInputError("edge.from_type must be document or version")
        done = self._close_unit()
        if not document.last_version:
            raise InvalidInputError("edge must follow the versions of its document")
        edge = lines.check_edge(line["edge"], entity, from_type=EdgeEnd.DOCUMENT, from_ref=document.id)
        return [*done, Piece(document, self._line, self._line, size, edge={**edge, "line": self._line})]

    def _close_unit(self) -> list[Piece]:
        """The version that was open, complete."""
        if self._capture is not None:
            raise self._wrong(
                self._first, "raw_capture must be followed by the version that was made from it"
            )
        unit, self._unit = self._unit, None
        if unit is None or self._document is None:
            return []
        if len(unit.chunks) != unit.row["chunks"]:
            raise self._wrong(
                unit.line,
                f"version.chunks is {unit.row['chunks']:,}, but {len(unit.chunks):,} chunks follow it",
            )
        if (unit.foreign or self._document.foreign) and not self._document.claim:
            self._document.claim = unit.derived
        if unit.foreign and not self._document.claim:
            raise self._wrong(unit.line, f"version.access_tags {_NO_COPY}")
        return [Piece(self._document, self._first, self._line - 1, self._size, unit=unit)]

    def _close_document(self) -> list[Piece]:
        done = self._close_unit()
        document = self._document
        if document is None:
            return done
        if not document.last_version:
            raise self._wrong(document.line, "document has no version")
        if document.foreign and not document.claim:
            raise self._wrong(document.line, f"document.access_tags and system_tags {_NO_COPY}")
        return done

    def _wrong(self, line: int, problem: str) -> InvalidInputError:
        self._blamed = line
        return InvalidInputError(problem)


_NO_COPY = "may hold reserved tags of others only as copies of what the document was derived from"
