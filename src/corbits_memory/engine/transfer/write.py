"""One batch of a restore, in one transaction.

Locks are taken as captures and erasures take them: the tenant's row, then erasures are kept out, then the documents.
What is known of them is asked after that, so that whoever was first is seen.
"""

from collections.abc import Sequence

from corbits_memory.engine.pool import Connection
from corbits_memory.engine.transfer import documents, graph, texts, versions
from corbits_memory.engine.transfer.batch import Statements, Withheld, Written, grouped
from corbits_memory.engine.transfer.pieces import Piece
from corbits_memory.engine.vectors import VectorSpace


async def write_batch(
    conn: Connection, tenant_id: str, pieces: Sequence[Piece], space: VectorSpace | None
) -> Written:
    """Write what is new here and may be. Raises ``ConflictError`` for what can't be what the file says."""
    done = Written()
    first = Statements(conn, tenant_id)
    await first.capture.run("create_tenant")
    (tenant,) = await first.capture.fetch("lock_tenant")
    await first.run("hold_erasures")
    db = Statements(conn, tenant_id, generation=tenant["live_generation"])
    groups = await documents.claim(db, grouped(pieces), done)
    await versions.sort_out(db, groups, done)
    groups = await documents.drop_empty(db, groups)
    units = [unit for group in groups for unit in group.units]
    if units:
        await versions.insert(db, groups)
        await texts.insert(db, units, space, done)
    await graph.insert(db, groups)
    await documents.admit(db, groups, done)
    done.documents = sum(group.fresh for group in groups)
    done.versions = len(units)
    await db.capture.run(
        "finish",
        versions=[unit.id for unit in units],
        documents=done.documents,
        chunks=done.chunks,
        languages=sorted({unit.row["language"] for unit in units}),
    )
    return done


async def settle_claims(conn: Connection, tenant_id: str, waiting: Sequence[Withheld]) -> int:
    """Of claims' reserved tags, take those away that nothing they were made from carries; from how many claims."""
    db = Statements(conn, tenant_id)
    await db.run("hold_erasures")
    return await documents.settle(db, waiting)
