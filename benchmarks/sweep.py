"""A sweep of a large corpus: how long it takes, and how long it makes others wait."""

import asyncio
import random
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

import psycopg

from benchmarks.calls import TENANT, add, search, timed
from benchmarks.lock_waits import LEAST_MS, LockWaits
from benchmarks.report import Table
from benchmarks.server import PRINCIPAL, Server, open_store
from corbits_memory.core.relevance import percentile
from corbits_memory.engine.retention import SWEEP_VERSIONS
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.ports import NewDocument, TextPart

Owner = psycopg.AsyncConnection[Any]
Probe = Callable[[int], Awaitable[float | None]]
"""The n-th call: seconds, or None where there was nothing to call for."""

PROBES = ("adds", "searches", "edits")
PROBE_PAUSE = 0.02
IDLE_SECONDS = 3.0
HELD_SECONDS = 0.1

_EXPIRED = """
WITH made AS MATERIALIZED (
  SELECT n, memory.analyse('english', '', 'expired note ' || n) AS fts FROM generate_series(%(low)s, %(high)s) AS n
), documents AS (
  INSERT INTO memory.document (tenant_id, id, kind, title, adapter, external_ref, owner_principal_id)
  SELECT %(tenant)s, 'kdoc_' || n, 'note', 'Note', 'bench', 'n' || n, %(owner)s FROM made
), versions AS (
  INSERT INTO memory.version (tenant_id, id, document_id, version, content_hash, title, kind, language, occurred_at,
    owner_principal_id, created_by_principal_id, created_by_kind, authority, generation, retention_class, valid_until,
    feed_seq)
  SELECT %(tenant)s, 'kver_' || n, 'kdoc_' || n, 1, n, 'Note', 'note', 'english', now(), %(owner)s, %(owner)s, 'human',
    0.42, 'g0', 'ephemeral', now() - interval '1 day', n FROM made
), chunks AS (
  INSERT INTO memory.chunk (tenant_id, id, version_id, document_id, ordinal, text, token_count)
  SELECT %(tenant)s, 'kchk_' || n, 'kver_' || n, 'kdoc_' || n, 0, 'expired note ' || n, 4 FROM made
)
INSERT INTO memory.search_row (tenant_id, chunk_id, generation, document_id, version_id, ordinal, status, owner_id,
  access_tags, kind, thread_seq, occurred_at, temporal_class, authority, words, asks, language, fts, terms, lex)
SELECT %(tenant)s, 'kchk_' || n, 'g0', 'kdoc_' || n, 'kver_' || n, 0, 'active', %(owner)s, '{}', 'note', 0, now(),
  'event', 0.42, 3, false, 'english', fts, memory.term_hashes(%(tenant)s, 'g0', fts), memory.bm25_vector(fts) FROM made
"""

_FIRST_EXPIRED = """
SELECT v.id FROM memory.version v
WHERE v.tenant_id = %(tenant)s AND v.status = 'active' AND v.retention_class IN ('ephemeral', 'source_only')
  AND v.retention_class = 'ephemeral' AND v.valid_until < now() AND v.id >= %(from)s
ORDER BY v.id LIMIT 1
"""
_SOON_SWEPT = """
SELECT d.external_ref FROM (
  SELECT v.document_id FROM memory.version v
  WHERE v.tenant_id = %(tenant)s AND v.status = 'active' AND v.retention_class IN ('ephemeral', 'source_only')
    AND v.retention_class = 'ephemeral' AND v.valid_until < now() AND v.id >= %(from)s
  ORDER BY v.id OFFSET %(place)s LIMIT 1) AS v
JOIN memory.document d ON d.tenant_id = %(tenant)s AND d.id = v.document_id
"""
_LEFT = """
SELECT count(*) FILTER (WHERE status = 'active'), count(*) FILTER (WHERE status = 'deprecated')
FROM memory.version WHERE tenant_id = %(tenant)s AND valid_until < now()
"""


class Edits:
    """Edits documents that are being swept: the first that have expired are those of the transaction under way."""

    def __init__(self, store: PostgresDocumentStore, owner: Owner) -> None:
        self._store, self._owner = store, owner
        self._draw = random.Random(7)
        self._from = ""

    async def __call__(self, number: int) -> float | None:
        reference = await self._being_swept()
        return None if reference is None else await timed(add(self._store, _edit_of(reference, number)))

    async def _being_swept(self) -> str | None:
        """Known to the sweep's order, which is that of the ids."""
        values = {"tenant": TENANT, "from": self._from, "place": self._draw.randrange(SWEEP_VERSIONS)}
        first = await (await self._owner.execute(_FIRST_EXPIRED, values)).fetchone()
        if first is None:
            return None
        self._from = values["from"] = str(first[0])
        found = await (await self._owner.execute(_SOON_SWEPT, values)).fetchone()
        return None if found is None else str(found[0])


async def measure_sweep(server: Server, versions: int) -> str:
    """Markdown of the figures; ``server`` logs waits for locks."""
    url = await server.create_database("sweep")
    async with AsyncExitStack() as stack:
        stores = {
            login: await stack.enter_async_context(open_store(await server.create_login(url, login), None))
            for login in (*PROBES, "sweep")
        }
        owner: Owner = await stack.enter_async_context(
            await psycopg.AsyncConnection.connect(url, autocommit=True)
        )
        await add(stores["adds"], NewDocument(title="First", kind="note", parts=(TextPart(text="kept"),)))
        await _load_expired(owner, versions)
        waits = LockWaits(server.log_file)
        await _check_that_waits_are_told(stores["adds"], owner, waits)
        probes: dict[str, Probe] = {
            "adds": lambda n: timed(add(stores["adds"], _note(f"probe {n}"))),
            "searches": lambda n: timed(search(stores["searches"], f"probe {n}")),
            "edits": Edits(stores["edits"], owner),
        }
        table = Table(
            (
                "beside",
                "what",
                "calls",
                "p50 ms",
                "longest ms",
                "waits for a lock",
                "longest wait for a lock, ms",
            )
        )
        idle = await _probe(probes, asyncio.create_task(asyncio.sleep(IDLE_SECONDS)))
        _tell(table, "nothing", idle, waits.read())
        began = time.perf_counter()
        sweeping = asyncio.create_task(stores["sweep"].sweep_ephemeral(tenant_id=TENANT, actor_id="bench"))
        ended = asyncio.create_task(_end_of(sweeping))
        busy = await _probe(probes, sweeping)
        seconds = await ended - began
        held_up = waits.read()
        _tell(table, "the sweep", busy, held_up)
        swept = sweeping.result().versions_deprecated
        left = await (await owner.execute(_LEFT, {"tenant": TENANT})).fetchone()
    assert left == (0, swept), (left, swept)
    return (
        f"A sweep of {swept:,} expired versions, each of one searched chunk: {seconds:.0f} s, {swept / seconds:,.0f} a "
        f"second, {SWEEP_VERSIONS:,} a transaction. Its own longest wait for a lock: "
        f"{_milliseconds(max(held_up['sweep'], default=None))} ms. {versions - swept:,} more were edited before it "
        f"came to them. What others did in the same tenant, all at once:\n\n{table.markdown()}"
    )


async def _load_expired(owner: Owner, versions: int) -> None:
    page = 50_000
    for low in range(1, versions + 1, page):
        values = {"tenant": TENANT, "owner": PRINCIPAL, "low": low, "high": min(low + page - 1, versions)}
        cursor = psycopg.AsyncClientCursor(owner)
        await owner.execute(cursor.mogrify(_EXPIRED, values).encode())
        sys.stderr.write(f"sweep: {values['high']} versions\n")
    await owner.execute(
        "UPDATE memory.tenant_state SET feed_seq = feed_seq + %s, chunk_count = chunk_count + %s",
        [versions] * 2,
    )
    await owner.execute("VACUUM ANALYZE")


async def _check_that_waits_are_told(store: PostgresDocumentStore, owner: Owner, waits: LockWaits) -> None:
    """Else a log that is written or read in another way would look like no wait at all."""
    async with owner.transaction():
        await owner.execute("SELECT FROM memory.tenant_state WHERE tenant_id = %s FOR UPDATE", [TENANT])
        adding = asyncio.create_task(add(store, _note("It waits.")))
        await asyncio.sleep(HELD_SECONDS)
    await adding
    told = waits.read()["adds"]
    assert max(told, default=0) > HELD_SECONDS * 1_000 / 2, told


async def _probe(probes: Mapping[str, Probe], beside: asyncio.Task[Any]) -> dict[str, list[float]]:
    """Seconds of each call: all probes beside each other, until ``beside`` is done."""

    async def one(probe: Probe) -> list[float]:
        seconds, number = [], 0
        while not beside.done():
            number += 1
            if (took := await probe(number)) is not None:
                seconds.append(took)
            await asyncio.sleep(PROBE_PAUSE)
        return seconds

    answers = await asyncio.gather(*map(one, probes.values()))
    await beside
    return dict(zip(probes, answers, strict=True))


def _tell(
    table: Table, beside: str, probes: Mapping[str, list[float]], waits: Mapping[str, list[float]]
) -> None:
    for name, seconds in probes.items():
        held_up = waits.get(name, [])
        table.add(
            beside, name, len(seconds), f"{percentile(seconds, 0.5) * 1_000:.1f}", f"{max(seconds) * 1_000:.0f}",
            len(held_up), _milliseconds(max(held_up, default=None)),
        )  # fmt: skip


def _milliseconds(wait: float | None) -> str:
    return f"under {LEAST_MS}" if wait is None else f"{wait:.0f}"


async def _end_of(task: asyncio.Task[Any]) -> float:
    await asyncio.wait([task])
    return time.perf_counter()


def _note(text: str) -> NewDocument:
    return NewDocument(title="Probe", kind="note", parts=(TextPart(text=text),))


def _edit_of(reference: str, number: int) -> NewDocument:
    return NewDocument(
        title="Note",
        kind="note",
        adapter="bench",
        external_ref=reference,
        parts=(TextPart(text=f"edit {number}"),),
    )
