"""Export and import of a tenant by the commands themselves: how fast, and how much memory each holds at most."""

import asyncio
import os
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg

from benchmarks.datasets import load_conversations
from benchmarks.report import Table
from benchmarks.server import PRINCIPAL, bench_server, open_store
from corbits_memory.ports import AddResult, NewDocument, TextPart

TENANT = "default"
SIZES, QUICK_SIZES = (10_000, 100_000), (1_000, 3_000)
BATCH = 1_000
_MEGABYTE = 1_000_000
COMMAND = Path(sys.executable).with_name("corbits-memory")


@dataclass(frozen=True)
class Ran:
    seconds: float
    peak: float
    """Resident, in MB."""
    size: float
    """Of the file, in MB."""


async def run_transfer(*, quick: bool = False) -> str:
    """Markdown of the figures. Raises ``AssertionError`` when something did not come back."""
    table = Table(
        (
            "documents",
            "file, MB",
            "export, documents a second",
            "peak MB",
            "import, documents a second",
            "peak MB",
        )
    )
    with bench_server() as server, tempfile.TemporaryDirectory() as folder:
        for size in QUICK_SIZES if quick else SIZES:
            file = Path(folder, f"{size}.jsonl")
            source, target = [await server.create_database(f"{name}_{size}") for name in ("source", "target")]
            await _fill(source, size)
            exported = await asyncio.to_thread(_run, "export", file, source)
            imported = await asyncio.to_thread(_run, "import", file, target)
            await _compare(source, target, size)
            table.add(
                f"{size:,}",
                f"{exported.size:.0f}",
                f"{size / exported.seconds:,.0f}",
                f"{exported.peak:.0f}",
                f"{size / imported.seconds:,.0f}",
                f"{imported.peak:.0f}",
            )
        version = await server.version()
    return (
        "Turns of real conversations, repeated with a word of their own; every tenth was changed once and has two "
        "versions. Without vectors: where the same model is configured they are copied, else they are made anew. Each "
        "command is a process of its own and its start is counted; peak is its resident memory, the database's not "
        "included.\n\n"
        f"{table.markdown()}\n\n{version}"
    )


async def _fill(url: str, size: int) -> None:
    turns = [document for conversation in load_conversations() for document in conversation.documents]

    def copy(place: int, words: str) -> NewDocument:
        turn = turns[place % len(turns)]
        return replace(
            turn,
            external_ref=f"copy-{place}",
            parts=(TextPart(text=f"{turn.text} {words}"),),
            thread=f"{turn.thread}/{place // len(turns)}",
            access_tags=(f"memory.space:s{place % 5}",),
        )

    async with open_store(url, None) as store:
        for start in range(0, size, BATCH):
            places = range(start, min(size, start + BATCH))
            for documents in (
                [copy(place, f"No{place}.") for place in places],
                [copy(place, f"No{place}, changed.") for place in places if place % 10 == 0],
            ):
                answers = await store.add(tenant_id=TENANT, principal_id=PRINCIPAL, documents=documents)
                assert all(isinstance(answer, AddResult) for answer in answers)


def _run(command: str, file: Path, url: str) -> Ran:
    started = time.perf_counter()
    environment = {**os.environ, "EMBED_PROVIDER": "none"}
    words = [str(COMMAND), command, str(file), "--tenant", TENANT, "--database-url", url]
    pid = os.posix_spawn(COMMAND, words, environment)
    # What this one process used at most, whatever ran before it.
    _, status, used = os.wait4(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, f"{command} failed"
    return Ran(
        seconds=time.perf_counter() - started,
        peak=used.ru_maxrss * 1024 / _MEGABYTE,
        size=file.stat().st_size / _MEGABYTE,
    )


async def _compare(source: str, target: str, size: int) -> None:
    """Both databases hold the same text, and as much of it is searched."""
    found = []
    for url in (source, target):
        async with await psycopg.AsyncConnection.connect(url) as conn:
            rows = await conn.execute(
                "SELECT s.document_count, s.chunk_count, (SELECT count(*) FROM memory.version), (SELECT count(*) FROM "
                "memory.search_row), (SELECT md5(string_agg(md5(c.text), '' ORDER BY c.id)) FROM memory.chunk c) "
                "FROM memory.tenant_state s"
            )
            found.append(await rows.fetchone())
    assert found[0] == found[1], found
    assert found[0] is not None
    assert found[0][0] == size
