"""The verb ``add``: plans a batch, cuts it into transactions, and has each written (``writer.py``).

What holds, however many processes write at once: the same content twice is a no-op; of racing different
contents one is active and the versions are 1..n; nothing of a refused document is kept; a batch that
fails as a whole is tried again one document at a time, so that one spoils no other.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime

import psycopg

from corbits_memory.core import limits
from corbits_memory.core.erasure import ERASED
from corbits_memory.core.strategies import Cutting
from corbits_memory.engine import drafts
from corbits_memory.engine.drafts import Draft
from corbits_memory.engine.generations import REMEMBERED, Generations
from corbits_memory.engine.idempotency import OnceOnly
from corbits_memory.engine.lanes import split_evenly, split_lanes, split_transactions
from corbits_memory.engine.pool import Database, run_again
from corbits_memory.engine.writer import CaptureWriter
from corbits_memory.errors import (
    ChunkerError,
    DatabaseError,
    InvalidInputError,
    MemoryError,
    TooLargeError,
)
from corbits_memory.ports import Access, AddResult, NewDocument, Once

logger = logging.getLogger("corbits_memory.capture")

NOTED_TAGS = 100_000
"""Tags that a process remembers to be in use, so that not every capture writes them down again."""
PLANNED_DOCUMENTS = 500
"""About so many are planned while those before are written."""
_ABOUT_A_ROW = (
    psycopg.DataError,
    psycopg.IntegrityError,
    psycopg.ProgrammingError,
    psycopg.errors.ProgramLimitExceeded,
)
"""Errors that one document may have caused; all others concern the database itself."""


@dataclass(slots=True)
class Captured:
    """What a capture wrote: an answer a document, and the chunks that wait for vectors."""

    answers: list[AddResult | MemoryError]
    chunk_ids: list[str]
    retagged: bool
    """Other tags on known documents: some of their vectors may wait to be made anew."""


Answers = dict[int, AddResult | MemoryError]
"""By position."""
Planned = tuple[list[Draft], Answers]
"""What can be written, and the errors of what can't."""


class CaptureService:
    def __init__(
        self,
        database: Database,
        *,
        language: str,
        known_languages: frozenset[str],
        generations: Generations,
    ) -> None:
        self._database = database
        self._generations = generations
        self._cuttings: dict[str, Cutting] = {}
        """What a tenant's texts were last cut by; whoever writes them knows for sure."""
        self._language = language
        self._known_languages = known_languages
        self._noted_tags: set[tuple[str, str]] = set()

    async def capture(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        documents: Sequence[NewDocument],
        now: datetime,
        lease_seconds: float,
        access: Access | None = None,
        once: Once | None = None,
    ) -> Captured:
        """Write documents. ``lease_seconds`` is how long the caller itself will try to embed them.

        ``once``: what was answered to the same request before is answered again.
        """
        request = None if once is None else OnceOnly(tenant_id, principal_id, once)
        if request is not None and len(documents) > 1:
            async with self._database.tenant(tenant_id) as conn:
                await request.begin(conn)
        batch = _Batch(
            self,
            tenant_id=tenant_id,
            principal_id=principal_id,
            documents=documents,
            now=now,
            lease_seconds=lease_seconds,
            access=access,
            request=request,
        )
        return await batch.write()

    def draft(
        self, document: NewDocument, position: int, tenant_id: str, principal_id: str, now: datetime
    ) -> Draft:
        if document.language is not None and document.language not in self._known_languages:
            raise InvalidInputError(
                "language is not a text search configuration of this database, like english, german or simple.",
                details={"field": "language"},
            )
        if (document.external_ref or "").startswith(ERASED):
            raise InvalidInputError(
                f"external_ref must not begin with {ERASED} (what is left of a forgotten document's own).",
                details={"field": "external_ref"},
            )
        draft = drafts.draft_document(
            document,
            position=position,
            tenant_id=tenant_id,
            principal_id=principal_id,
            language=self._language,
            now=now,
            cutting=self._cuttings.get(tenant_id, self._generations.cutting),
        )
        if len(document.parts) > limits.CHUNKS_PER_DOCUMENT:
            raise TooLargeError(f"A document may have at most {limits.CHUNKS_PER_DOCUMENT} chunks.")
        return draft

    async def write(
        self,
        tenant_id: str,
        principal_id: str,
        access: Access | None,
        group: list[Draft],
        lease_seconds: float,
        request: OnceOnly | None,
    ) -> Answers:
        """Write drafts in one transaction. Raises what kept it from that.

        One that failed leaves the drafts in ``group`` as they were planned, for the next.
        """

        async def write() -> Answers:
            try:
                async with self._database.tenant(tenant_id) as conn:
                    writer = CaptureWriter(
                        conn,
                        tenant_id,
                        principal_id,
                        access,
                        lease_seconds,
                        self._noted_tags,
                        generations=self._generations,
                    )
                    answers = await writer.write(group, request)
            except MemoryError:
                group[:] = [drafts.planned_again(draft, tenant_id, principal_id) for draft in group]
                raise
            self._note(tenant_id, writer.new_tags)
            self._remember_cutting(tenant_id, writer.cutting)
            return answers

        return await run_again(write)

    def _remember_cutting(self, tenant_id: str, cutting: Cutting) -> None:
        if cutting == self._generations.cutting:
            self._cuttings.pop(tenant_id, None)
        elif len(self._cuttings) < REMEMBERED or tenant_id in self._cuttings:
            self._cuttings[tenant_id] = cutting

    def _note(self, tenant_id: str, tags: set[str]) -> None:
        """Remember, once it is committed, that tags are in use; they stay so."""
        if len(self._noted_tags) + len(tags) > NOTED_TAGS:
            self._noted_tags.clear()
        self._noted_tags.update((tenant_id, tag) for tag in tags)


class _Batch:
    """One call: its documents in lanes, each of which is planned a part at a time and written meanwhile."""

    def __init__(
        self,
        service: CaptureService,
        *,
        tenant_id: str,
        principal_id: str,
        documents: Sequence[NewDocument],
        now: datetime,
        lease_seconds: float,
        access: Access | None,
        request: OnceOnly | None,
    ) -> None:
        self._service = service
        self._tenant_id = tenant_id
        self._principal_id = principal_id
        self._documents = documents
        self._now = now
        self._lease_seconds = lease_seconds
        self._access = access
        self._request = request
        self._answers: Answers = {}
        self._chunk_ids: list[str] = []
        self._retagged = False
        self._failed = False
        self._planning = asyncio.Lock()

    async def write(self) -> Captured:
        lanes = split_lanes(self._documents)
        most = PLANNED_DOCUMENTS // len(lanes)
        # All are waited for, so that nothing is still being written when an error is reported.
        done = await asyncio.gather(*(self._write_lane(lane, most) for lane in lanes), return_exceptions=True)
        for error in done:
            if error is not None:
                raise error
        answers = [self._answers[position] for position in range(len(self._documents))]
        return Captured(answers, self._chunk_ids, self._retagged)

    async def _write_lane(self, lane: list[int], most: int) -> None:
        try:
            async with aclosing(self._plan_ahead(split_evenly(lane, most))) as parts:
                async for planned, refused in parts:
                    self._answers.update(refused)
                    for group in split_transactions(planned):
                        if self._failed:
                            return
                        self._take(group, await self._write_group(group))
        except BaseException:  # a cancelled lane ends the others, too
            self._failed = True
            raise

    def _take(self, group: list[Draft], answers: Answers) -> None:
        self._answers.update(answers)
        self._retagged = self._retagged or any(draft.retagged for draft in group)
        self._chunk_ids.extend(
            chunk_id
            for draft in group
            if isinstance(answers[draft.position], AddResult)
            for chunk_id in draft.chunk_ids
        )

    async def _plan_ahead(self, parts: list[list[int]]) -> AsyncGenerator[Planned, None]:
        """The documents in order, some at a time: while these are written, the next are planned."""
        planning = asyncio.create_task(self._plan(parts[0]))
        try:
            for part in parts[1:]:
                planned = await planning
                planning = asyncio.create_task(self._plan(part))
                yield planned
            yield await planning
        finally:
            planning.cancel()

    async def _plan(self, positions: list[int]) -> Planned:
        # One lane after the other, since threads would only take turns: so the first begins to write the sooner.
        async with self._planning:
            # In a thread: a long document takes seconds to plan, and others want answers meanwhile.
            return await asyncio.to_thread(self._draft_all, positions)

    def _draft_all(self, positions: list[int]) -> Planned:
        planned: list[Draft] = []
        refused: Answers = {}
        for position in positions:
            try:
                planned.append(
                    self._service.draft(
                        self._documents[position], position, self._tenant_id, self._principal_id, self._now
                    )
                )
            except MemoryError as error:
                refused[position] = error
        return planned, refused

    async def _write_group(self, group: list[Draft]) -> Answers:
        try:
            return await self._service.write(
                self._tenant_id, self._principal_id, self._access, group, self._lease_seconds, self._request
            )
        except ChunkerError as error:
            if len(group) == 1:
                return {group[0].position: error}
        except DatabaseError as error:
            if not isinstance(error.__cause__, _ABOUT_A_ROW):
                raise
            if len(group) == 1:
                logger.error("a document was refused by the database (SQLSTATE %s)", error.__cause__.sqlstate)
                return {group[0].position: error}
        answers: Answers = {}
        for place, draft in enumerate(group):
            alone = [draft]
            answers.update(await self._write_group(alone))
            group[place] = alone[0]
        return answers
