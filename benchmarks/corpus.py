"""Large tenants made of small data: words of real documents drawn anew, and perturbed copies of real vectors."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psycopg
from psycopg import sql

from benchmarks.datasets import load_collection, load_conversations
from benchmarks.embeddings import DiskCachedEmbedder
from benchmarks.server import PRINCIPAL
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.engine.vectors import vector_text
from corbits_memory.ports import NewDocument, TextPart

PORTION = 10_000
REAL_VECTORS = 500
NOISE = 0.03
"""Deviation of each of the 384 numbers: a copy's cosine to its original is about .86."""


class Corpus:
    """Texts with the word frequencies of the data sets, and vectors like theirs. Always the same ones."""

    def __init__(self, texts: list[str], vectors: list[list[float]]) -> None:
        self._words = np.array([word for text in texts for word in text.split()])
        self._vectors = np.asarray(vectors, dtype=np.float32)

    def portions(self, rows: int, seed: int) -> Iterator[list[tuple[str, int, str, str]]]:
        """(id digits, place, text, vector) in portions of at most 10,000."""
        draw = np.random.default_rng(seed)
        for start in range(0, rows, PORTION):
            count = min(PORTION, rows - start)
            picked = self._vectors[draw.integers(0, len(self._vectors), count)]
            noisy = picked + draw.normal(0, NOISE, picked.shape).astype(np.float32)
            noisy /= np.linalg.norm(noisy, axis=1, keepdims=True)
            lengths = draw.integers(8, 40, count)
            yield [
                (
                    f"{seed:04d}{start + row:018d}",
                    start + row,
                    " ".join(self._words[draw.integers(0, len(self._words), lengths[row])]),
                    vector_text(noisy[row].round(5)),
                )
                for row in range(count)
            ]


async def read_corpus(embedder: DiskCachedEmbedder) -> Corpus:
    documents = [
        d
        for data in (*load_conversations(None), load_collection("cranfield", "english"))
        for d in data.documents
    ]
    texts = [document.text for document in documents]
    vectors = await embedder.embed([text[:300] for text in texts[:REAL_VECTORS]], purpose="passage")
    return Corpus(texts, vectors)


async def load_tenant(
    url: str, store: PostgresDocumentStore, tenant_id: str, corpus: Corpus, *, rows: int, seed: int
) -> None:
    """Fill a tenant, build its index, count its terms. The first row goes in by ``add``, which makes the tables."""
    seeded = NewDocument(title="seed", parts=(TextPart(text="seed"),), external_ref=f"seed {seed}")
    await store.add(tenant_id=tenant_id, principal_id=PRINCIPAL, documents=[seeded])
    script = Path(__file__).with_name("bulk.sql").read_text(encoding="utf-8")
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("SET maintenance_work_mem = '1GB'")
        conn.execute("SET synchronous_commit = off")
        table = vector_table(conn, tenant_id)
        statements = sql.SQL(script).format(
            tenant=sql.Literal(tenant_id), owner=sql.Literal(PRINCIPAL), table=sql.Identifier("memory", table)
        )
        conn.execute(sql.SQL("DROP INDEX IF EXISTS {}").format(sql.Identifier("memory", f"{table}_hnsw")))
        for portion in corpus.portions(rows, seed):
            conn.execute("DROP TABLE IF EXISTS made")
            conn.execute("CREATE TEMP TABLE made (i text, place integer, text text, vector text)")
            with conn.cursor().copy("COPY made FROM STDIN") as copy:
                for row in portion:
                    copy.write_row(row)
            conn.execute(statements)
        conn.execute(
            sql.SQL("CREATE INDEX {} ON {} USING hnsw (embedding halfvec_cosine_ops)").format(
                sql.Identifier(f"{table}_hnsw"), sql.Identifier("memory", table)
            )
        )
        conn.execute("VACUUM (ANALYZE)")
    await store.statistics.refresh(tenant_id)


def vector_table(conn: psycopg.Connection, tenant_id: str) -> str:
    row = conn.execute(
        "SELECT 'embedding_' || model_key FROM memory.embed_model WHERE tenant_id = %s AND status = 'active'",
        [tenant_id],
    ).fetchone()
    assert row is not None
    return str(row[0])


def tenant_beside(conn: psycopg.Connection, tenant_id: str) -> str:
    """A tenant name whose rows fall into the same partition."""
    row = conn.execute(
        "SELECT name FROM generate_series(1, 1000) AS n, format('beside %%s', n) AS name, generate_series(0, 15) AS r "
        "WHERE satisfies_hash_partition('memory.search_row'::regclass, 16, r, name COLLATE \"C\") "
        "AND satisfies_hash_partition('memory.search_row'::regclass, 16, r, %s::text COLLATE \"C\") LIMIT 1",
        [tenant_id],
    ).fetchone()
    assert row is not None
    return str(row[0])
