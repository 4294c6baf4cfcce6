"""What each page of a replay asks of a large tenant, and how."""

from typing import Any

import pytest

from corbits_memory.engine.pool import APP_ROLE
from corbits_memory.engine.queries import load_queries
from corbits_memory.engine.store import PostgresDocumentStore
from tests.engine.replay.support import Owner, rows
from tests.engine.support import T

DOCUMENTS = 20_000
CAPTURES = [f"kraw_{number}" for number in range(0, DOCUMENTS, 1_000)]


@pytest.fixture
async def corpus(store: PostgresDocumentStore, owner: Owner) -> Owner:
    """A connection that sees one large tenant, as transactions do."""
    await owner.execute("INSERT INTO memory.tenant_state (tenant_id) VALUES (%s)", [T])
    for statement in (
        (
            "INSERT INTO memory.raw_capture (tenant_id, id, adapter, external_ref, fetched_at, content_type, raw_text, "
            "source_hash) SELECT %s, 'kraw_' || i, 'http', 'n' || i, now(), 'text/plain', 't', 'h' || i "
            "FROM generate_series(0, %s) AS i"
        ),
        (
            "INSERT INTO memory.document (tenant_id, id, kind, title, adapter, external_ref, owner_principal_id) "
            "SELECT %s, 'kdoc_' || i, 'note', 't', 'http', 'n' || i, 'ann' FROM generate_series(0, %s) AS i"
        ),
    ):
        await owner.execute(statement, [T, DOCUMENTS])
    await owner.execute("ANALYZE memory.raw_capture, memory.document")
    await owner.execute(f"SET ROLE {APP_ROLE}")
    await owner.execute("SELECT set_config('memory.tenant_id', %s, false)", [T])
    return owner


async def scanned(owner: Owner, file: str, name: str, **parameters: Any) -> list[str]:
    """Tables that a statement reads as a whole."""
    cursor = await owner.execute("EXPLAIN " + load_queries(file)[name], {"tenant": T, **parameters})
    return [line.split(" on ")[1].split()[0] for (line,) in await cursor.fetchall() if "Seq Scan on" in line]


async def test_documents_of_captures_are_looked_up(corpus: Owner) -> None:
    assert await scanned(corpus, "erasure", "hold_for_replay", captures=CAPTURES) == []
    cursor = await corpus.execute(
        load_queries("erasure")["hold_for_replay"], {"tenant": T, "captures": [*CAPTURES, "kraw_unknown"]}
    )
    assert cursor.rowcount == len(CAPTURES)
    assert await rows(corpus, "SELECT count(*) FROM memory.document") == [(DOCUMENTS + 1,)]
