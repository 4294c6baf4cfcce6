"""What a chunk takes up: bytes of each table and each index, for real documents and for corpora of the speed tables."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import psycopg

from benchmarks.datasets import load_collection, load_conversations
from benchmarks.embeddings import DiskCachedEmbedder
from benchmarks.report import Table
from benchmarks.retrieval import load
from benchmarks.server import Server, open_store

REAL = "real documents"
LEAST = 1.0
"""Bytes a chunk below which a table or an index is left out; the sum has them."""
_MODEL = re.compile("^embedding_[a-f0-9]{16}")
Sizes = Mapping[tuple[str, str], int]
"""Bytes by table and index; ``""`` for the rows themselves, with what stands out of line."""
_SIZES = """
WITH leaf AS (
  SELECT c.oid, coalesce(r.relname, c.relname) AS name
  FROM pg_class c LEFT JOIN pg_class r ON r.oid = pg_partition_root(c.oid)
  WHERE c.relnamespace = 'memory'::regnamespace AND c.relkind = 'r'
)
SELECT name, '', sum(pg_table_size(oid))::bigint FROM leaf GROUP BY 1
UNION ALL
SELECT l.name, coalesce(r.relname, x.relname), sum(pg_relation_size(x.oid))::bigint
FROM leaf l JOIN pg_index i ON i.indrelid = l.oid JOIN pg_class x ON x.oid = i.indexrelid
LEFT JOIN pg_class r ON r.oid = pg_partition_root(x.oid)
GROUP BY 1, 2
"""


@dataclass(frozen=True, slots=True)
class Corpus:
    """Bytes that a corpus of so many chunks added to an empty database."""

    sizes: Sizes
    chunks: int
    text: float
    """Bytes of a chunk's text, on average."""

    def of_chunk(self, place: tuple[str, str]) -> float:
        return self.sizes.get(place, 0) / self.chunks


def sizes_of(conn: psycopg.Connection) -> Sizes:
    """Those of a database, partitions under the name of what they are parts of, and of one model."""
    return {
        (_MODEL.sub("embedding", table), _MODEL.sub("embedding", index)): size
        for table, index, size in conn.execute(_SIZES).fetchall()
    }


def corpus_of(conn: psycopg.Connection, empty: Sizes) -> Corpus:
    """What has been added since the database was ``empty``."""
    row = conn.execute("SELECT count(*), avg(octet_length(text)) FROM memory.chunk").fetchone()
    assert row is not None
    grown = {place: size - empty.get(place, 0) for place, size in sizes_of(conn).items()}
    return Corpus(grown, int(row[0]), float(row[1]))


async def real_corpus(server: Server, embedder: DiskCachedEmbedder, *, quick: bool) -> tuple[Corpus, str]:
    """Conversations and articles, added and embedded by the product; and in words what they are."""
    sets = load_conversations(1 if quick else None)
    if not quick:
        sets += [load_collection(name, "english") for name in ("xquad-en", "cranfield")]
    url = await server.create_database("sizes")
    async with open_store(url, embedder) as store:
        await store.embedding.enqueue_missing("first")
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute("CHECKPOINT")
            empty, began = sizes_of(conn), _written(conn)
            for data in sets:
                await load(store, data.name, data)
            written = _written(conn) - began
            conn.execute("VACUUM (ANALYZE)")
            corpus = corpus_of(conn, empty)
    documents = sum(len(data.documents) for data in sets)
    return corpus, (
        f"{REAL.capitalize()}: {documents:,} of {len(sets)} data sets, {corpus.chunks:,} chunks of "
        f"{corpus.text:.0f} bytes on average, {await embedder.dims()} dimensions, one version each, added and embedded "
        f"by the product; {written / corpus.chunks:,.0f} bytes of write-ahead log a chunk."
    )


def size_table(corpora: Mapping[str, Corpus]) -> Table:
    """Bytes a chunk, the largest first; of each table its rows, then its indexes."""
    table = Table(("bytes a chunk", *corpora))
    first = next(iter(corpora.values()))
    names = {name for corpus in corpora.values() for name, _ in corpus.sizes}
    sums = {name: sum(first.of_chunk(place) for place in first.sizes if place[0] == name) for name in names}
    for name in sorted(names, key=lambda name: (-sums[name], name)):
        places = sorted(
            {place for corpus in corpora.values() for place in corpus.sizes if place[0] == name},
            key=lambda place: (place[1] != "", -first.of_chunk(place), place[1]),
        )
        for place in places:
            if max(corpus.of_chunk(place) for corpus in corpora.values()) >= LEAST:
                label = f"`{name}`" if place[1] == "" else f"– `{place[1]}`"
                table.add(label, *(f"{corpus.of_chunk(place):,.0f}" for corpus in corpora.values()))
    total = {label: sum(map(corpus.of_chunk, corpus.sizes)) for label, corpus in corpora.items()}
    table.add("all", *(f"{total[label]:,.0f}" for label in corpora))
    table.add("of it text", *(f"{corpus.text:,.0f}" for corpus in corpora.values()))
    return table


def _written(conn: psycopg.Connection) -> int:
    """Bytes of write-ahead log that the server has written so far."""
    row = conn.execute("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn").fetchone()
    assert row is not None
    return int(row[0])
