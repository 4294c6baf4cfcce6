"""What the parts of a restore's transaction share: its statements, its documents, and what came of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby

from corbits_memory.engine import statements
from corbits_memory.engine.pool import Connection
from corbits_memory.engine.transfer.format import Row
from corbits_memory.engine.transfer.lines import Document
from corbits_memory.engine.transfer.pieces import Piece, Unit

STATEMENT_CHARS = 8_000_000
"""Text that one statement carries, about."""


class Statements(statements.Statements):
    """Those of an import, and beside them those of captures."""

    def __init__(self, conn: Connection, tenant_id: str, *, generation: str = "") -> None:
        super().__init__(conn, tenant_id, "transfer", generation=generation)
        self.generation = generation
        self.capture = statements.Statements(conn, tenant_id, "capture", generation=generation)


@dataclass(frozen=True, slots=True)
class Withheld:
    """A document, and reserved tags of it that nothing it was made from carries by now."""

    document_id: str
    tags: frozenset[str]


@dataclass(slots=True)
class Written:
    """What one batch came to; see :class:`~corbits_memory.engine.transfer.restore.Restored`."""

    documents: int = 0
    versions: int = 0
    chunks: int = 0
    vectors: int = 0
    erased: int = 0
    conflicts: int = 0
    skipped: list[str] = field(default_factory=list)
    unsettled: list[Withheld] = field(default_factory=list)


@dataclass(slots=True)
class Group:
    """A document's pieces in this batch, and what is known of it here."""

    document: Document
    units: list[Unit]
    edges: list[Row]
    fresh: bool = False
    """Whether this transaction made it."""
    forgotten_at: datetime | None = None
    """When it was last forgotten here; what is older is erased."""

    def is_erased(self, instant: str) -> bool:
        return self.forgotten_at is not None and datetime.fromisoformat(instant) <= self.forgotten_at


def grouped(pieces: Sequence[Piece]) -> list[Group]:
    """By document; a retry of the transaction begins with groups of its own."""
    groups = []
    for _, members in groupby(pieces, key=lambda piece: piece.document.id):
        found = list(members)
        groups.append(
            Group(
                document=found[0].document,
                units=[piece.unit for piece in found if piece.unit is not None],
                edges=[piece.edge for piece in found if piece.edge is not None],
            )
        )
    return groups


def sliced(rows: Sequence[Row], text: str) -> Iterator[list[Row]]:
    """The rows in order, as many a statement as their texts, in the column ``text``, allow."""
    part: list[Row] = []
    size = 0
    for row in rows:
        if part and size + len(row[text]) > STATEMENT_CHARS:
            yield part
            part, size = [], 0
        part.append(row)
        size += len(row[text])
    if part:
        yield part
