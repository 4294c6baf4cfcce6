"""Turns whose vectors hold another turn's text, for whoever changes what that one is or who may read it."""

from collections.abc import Sequence
from typing import Any

from psycopg.rows import dict_row

from corbits_memory.engine.drafts import Row
from corbits_memory.engine.pool import Connection
from corbits_memory.engine.queries import load_queries
from corbits_memory.engine.vectors import registered_spaces


async def followers(conn: Connection, tenant_id: str, documents: Sequence[str]) -> list[Row]:
    """Rows of ``chunk_id, owner_id``: turns of other documents that may hold text of these, by their tags now."""
    return await _fetch(conn, "followers", tenant=tenant_id, documents=list(documents))


async def lock_rows(
    conn: Connection, tenant_id: str, documents: Sequence[str], others: Sequence[Row]
) -> list[Row]:
    """What of the documents and of other chunks is searched, held to the end of the transaction.

    Rows of ``chunk_id, owner_id, document_id, generation, turn``; of the others those that are still there.
    """
    chunks = [row["chunk_id"] for row in others]
    return await _fetch(conn, "lock_rows", tenant=tenant_id, documents=list(documents), chunks=chunks)


async def embed_anew(conn: Connection, tenant_id: str, rows: Sequence[Row]) -> None:
    """Drop the vectors of rows with a ``chunk_id``: until they are made anew they are found by their words."""
    chunks = [row["chunk_id"] for row in rows]
    for space in await registered_spaces(conn, tenant_id):
        await conn.execute(
            space.compose(load_queries("vectors")["drop_vectors"]), {"tenant": tenant_id, "chunks": chunks}
        )
    await enqueue(conn, tenant_id, rows)


async def enqueue(conn: Connection, tenant_id: str, rows: Sequence[Row]) -> None:
    """Have chunks embedded, again if they were."""
    await conn.execute(
        load_queries("neighbours")["embed_again"],
        {"tenant": tenant_id, "chunks": [row["chunk_id"] for row in rows]},
    )


async def _fetch(conn: Connection, query: str, **parameters: Any) -> list[Row]:
    cursor = conn.cursor(row_factory=dict_row)
    await cursor.execute(load_queries("neighbours")[query], parameters)
    return await cursor.fetchall()
