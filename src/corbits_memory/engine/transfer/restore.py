"""Reads an export back. Ids, numbers, times, owners and tags stay; what search reads is made here anew.

What holds, wherever a batch ends and wherever the process is killed: a version stands here with all of its text or
not at all, so that the same import, started again, adds what is missing and nothing else. What was erased here stays
erased, also when that happens while an import runs. Nothing is left out in silence.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg

from corbits_memory.engine.pool import Database, run_again
from corbits_memory.engine.transfer.batch import Withheld, Written
from corbits_memory.engine.transfer.fields import located
from corbits_memory.engine.transfer.lines import Here, check_header
from corbits_memory.engine.transfer.pieces import Piece, Reader
from corbits_memory.engine.transfer.write import settle_claims, write_batch
from corbits_memory.engine.vectors import Standing, VectorRegistry, VectorSpace
from corbits_memory.errors import DatabaseError, InvalidInputError, MemoryError
from corbits_memory.ports import Embedder
from corbits_memory.validation import check_identifier

BATCH_LINES = 1_000
BATCH_CHARS = 8_000_000
UNSETTLED = 10_000
"""So many claims may wait for what they were made from, which the file may hold further down."""

Source = AsyncIterator[tuple[Mapping[str, Any], int]]


@dataclass(slots=True)
class Restored:
    """How much has come back so far.

    ``chunks`` are those that became searchable. Left out were: ``skipped`` documents, whose reference is another's
    here; ``erased`` versions, which were forgotten or purged here; ``conflicts``, versions whose place another one
    has here. ``withheld``: claims without some of their tags, since what they were made from doesn't carry them.
    """

    documents: int = 0
    versions: int = 0
    chunks: int = 0
    vectors: int = 0
    skipped: int = 0
    erased: int = 0
    conflicts: int = 0
    withheld: int = 0


class Restorer:
    def __init__(self, database: Database, registry: VectorRegistry, embedder: Embedder | None) -> None:
        self._database = database
        self._registry = registry
        self._embedder = embedder

    async def restore(
        self, lines: Source, *, tenant_id: str, batch_lines: int = BATCH_LINES
    ) -> AsyncIterator[Restored]:
        """Read ``(line, its size)``, and tell after each batch how much has come back.

        A batch is a transaction; it ends with the version that makes it ``batch_lines`` or more.

        Raises ``InvalidInputError`` (what stands in a line can't be), ``ConflictError`` (or can't be here) and
        ``DatabaseError``, with the numbers of the lines; what was read before stays.
        """
        check_identifier("tenant_id", tenant_id)
        run: _Run | None = None
        number = 0
        try:
            async for line, size in lines:
                number += 1
                if run is None:
                    run = await self._open(line, tenant_id)
                    continue
                run.take(line, number, size)
                if run.lines >= batch_lines or run.chars >= BATCH_CHARS:
                    yield await run.write()
            if run is None:
                raise InvalidInputError(
                    "the file is empty; an export begins with a line that says what it is"
                )
            run.reader.close()
            yield await run.write()
        except MemoryError:
            if run is not None:
                await run.settle()
            raise
        await run.settle()
        yield run.done

    async def _open(self, line: Mapping[str, Any], tenant_id: str) -> "_Run":
        try:
            header = check_header(line)
        except InvalidInputError as error:
            raise located(error, 1) from None
        async with self._database.tenant(tenant_id) as conn:
            rows = await conn.execute("SELECT cfgname FROM pg_ts_config WHERE pg_ts_config_is_visible(oid)")
            languages = frozenset([str(row[0]) async for row in rows])
        return _Run(self, Here(tenant_id=tenant_id, languages=languages, header=header))

    async def space(self, here: Here) -> VectorSpace | None:
        """Where the export's vectors go: only when the model that is configured here made them."""
        if self._embedder is None or here.header.model_key != self._embedder.model_key:
            return None
        claim = await self._registry.claim(here.tenant_id, self._embedder)
        return (
            claim.space
            if claim.standing is Standing.ACTIVE and here.header.dims == claim.space.dims
            else None
        )

    async def write(self, here: Here, space: VectorSpace | None, pieces: list[Piece]) -> Written:
        async def write() -> Written:
            async with self._database.tenant(here.tenant_id) as conn:
                return await write_batch(conn, here.tenant_id, pieces, space)

        try:
            return await run_again(write)
        except DatabaseError as error:
            if not isinstance(error.__cause__, psycopg.Error):
                raise
            place = f"lines {pieces[0].first} to {pieces[-1].last}"
            raise DatabaseError(f"{place}: {error.message}", details=error.details) from error.__cause__

    async def settle(self, here: Here, withheld: list[Withheld]) -> int:
        async def settle() -> int:
            async with self._database.tenant(here.tenant_id) as conn:
                return await settle_claims(conn, here.tenant_id, withheld)

        return await run_again(settle) if withheld else 0


class _Run:
    """One restore: the batch that is being filled, and what is known of those before."""

    def __init__(self, restorer: Restorer, here: Here) -> None:
        self._restorer = restorer
        self._here = here
        self._space: VectorSpace | None = None
        self._asked = False
        self._pieces: list[Piece] = []
        self._unsettled: list[Withheld] = []
        self._skipped = ""
        self.reader = Reader(here)
        self.done = Restored()
        self.lines = 0
        self.chars = 0

    def take(self, line: Mapping[str, Any], number: int, size: int) -> None:
        for piece in self.reader.take(line, number, size):
            self._pieces.append(piece)
            self.lines += piece.last - piece.first + 1
            self.chars += piece.size

    async def write(self) -> Restored:
        pieces, self._pieces = self._pieces, []
        self.lines = self.chars = 0
        if not pieces:
            return self.done
        if not self._asked:
            self._space = await self._restorer.space(self._here)
            self._asked = True
        written = await self._restorer.write(self._here, self._space, pieces)
        for name in ("documents", "versions", "chunks", "vectors", "erased", "conflicts"):
            setattr(self.done, name, getattr(self.done, name) + getattr(written, name))
        # A document may go on in the next batch: documents come in order, so it is the last of this one.
        self.done.skipped += sum(document > self._skipped for document in written.skipped)
        self._skipped = max([self._skipped, *written.skipped])
        self._unsettled += written.unsettled
        if len(self._unsettled) > UNSETTLED:
            await self.settle()
        return self.done

    async def settle(self) -> None:
        """Of the claims that wait, take the tags away that nothing they were made from carries."""
        waiting, self._unsettled = self._unsettled, []
        self.done.withheld += await self._restorer.settle(self._here, waiting)
