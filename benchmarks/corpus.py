"""Large corpora for measuring speed, and their way into the tables.

Nothing here is real, and all of it is made of real things. A text is a sentence of the data sets with a third of
its words exchanged for others, drawn as often as they occur (which is Zipf's law), and in every second text a
made-up rare word. A vector is a copy of a real passage's, perturbed. Quality is measured elsewhere.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString

import numpy as np
import psycopg
from numpy.typing import NDArray
from pgvector import HalfVector
from pgvector.psycopg import register_vector
from psycopg import sql

from benchmarks.datasets import DataSet, load_collection, load_conversations
from benchmarks.embeddings import DiskCachedEmbedder
from benchmarks.server import PRINCIPAL
from corbits_memory.access.tags import owner_tag
from corbits_memory.core.passages import passage_text
from corbits_memory.core.text import ends_with_question, normalise, word_count
from corbits_memory.engine.store import PostgresDocumentStore

NOISE = 0.35
"""Length of the perturbation beside a unit vector: a copy's cosine to its original is about .94."""
EXCHANGED = 0.33
RARE_WORDS = 200_000
THREAD = 20
"""Texts in a thread; every third has none."""
SHARES = {"every:10": 10, "every:100": 100, "every:1000": 1_000}
"""Access tags, and which texts carry them."""
IN_MEMORY = 200_000
"""Chunks whose vector index is built within the memory that the product gives to it; a larger graph is given more."""
_START = datetime(2024, 1, 1, tzinfo=UTC)
_AUTHORS = ("Ada", "Grace", "Alan", "Edsger", "Barbara")
_BLOCK = 5_000
_SOURCES = ("cranfield", "xquad-en")


@dataclass(frozen=True, slots=True)
class Material:
    """What corpora are made of, and questions of the same sets to ask."""

    sentences: list[list[str]]
    words: list[str]
    weights: list[int]
    vectors: NDArray[np.float32]
    questions: list[str]


async def gather_material(embedder: DiskCachedEmbedder, *, quick: bool) -> Material:
    """Sentences, word frequencies and vectors of the English sets. Quick: of fewer texts."""
    sets: list[DataSet] = load_conversations(1 if quick else None)
    sets += [load_collection(name, "english") for name in (_SOURCES[1:] if quick else _SOURCES)]
    documents = [document for data in sets for document in data.documents]
    sentences = [
        part.split()
        for d in documents
        for part in d.text.replace("?", "?.").split(".")
        if len(part.split()) > 3
    ]
    counts = Counter(word for sentence in sentences for word in sentence)
    passages = [passage_text(d.title, d.text, d.author, d.occurred_at) for d in documents]
    vectors = np.asarray(await embedder.embed(passages, purpose="passage"), dtype=np.float32)
    questions = [question.text for data in sets for question in data.questions if '"' not in question.text]
    random.Random(7).shuffle(questions)
    return Material(sentences, list(counts), list(counts.values()), vectors, questions)


async def load_corpus(
    store: PostgresDocumentStore, url: str, tenant_id: str, material: Material, *, chunks: int, model_key: str
) -> None:
    """Write ``chunks`` documents of one chunk each as the product would have, but by COPY and index builds."""
    await store.embedding.enqueue_missing(tenant_id)  # registers the model and makes its table
    with psycopg.connect(url, autocommit=True) as conn:
        register_vector(conn)
        conn.execute("SET synchronous_commit = off")
        if chunks > IN_MEMORY:
            conn.execute("SET maintenance_work_mem = '2GB'")
        indexes = drop_search_indexes(conn, model_key)
        with conn.transaction():
            conn.execute(
                "CREATE TEMP TABLE stage (n integer, title text, head text, body text, text text, words integer, "
                "asks boolean, author text, thread text, at timestamptz, tags text[], embedding halfvec) "
                "ON COMMIT DROP"
            )
            _copy(conn, material, chunks)
            for statement in _INSERTS:
                conn.execute(
                    sql.SQL(statement).format(vectors=sql.Identifier("memory", f"embedding_{model_key}")),
                    {"tenant": tenant_id, "principal": PRINCIPAL},
                )
        for definition in indexes:
            conn.execute(definition)
        conn.execute("VACUUM (ANALYZE)")
    await store.statistics.refresh(tenant_id)


def _copy(conn: psycopg.Connection, material: Material, chunks: int) -> None:
    types = [
        "int4",
        "text",
        "text",
        "text",
        "text",
        "int4",
        "bool",
        "text",
        "text",
        "timestamptz",
        "text[]",
        "halfvec",
    ]
    with conn.cursor().copy("COPY stage FROM STDIN WITH (FORMAT BINARY)") as copy:
        copy.set_types(types)
        for row in _rows(material, chunks):
            copy.write_row(row)


def _rows(material: Material, chunks: int) -> Iterator[tuple[Any, ...]]:
    chance = random.Random(chunks)
    noise = np.random.default_rng(chunks)
    dims = material.vectors.shape[1]
    for start in range(0, chunks, _BLOCK):
        size = min(_BLOCK, chunks - start)
        base = material.vectors[noise.integers(0, len(material.vectors), size)]
        vectors = base + noise.standard_normal((size, dims), dtype=np.float32) * np.float32(NOISE / dims**0.5)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        for place in range(size):
            number = start + place
            text = _text(material, chance)
            author = chance.choice(_AUTHORS)
            at = _START + timedelta(minutes=number)
            title = f"{author}, {at:%d %B %Y}"
            thread = None if number % 3 == 2 else f"thread-{number // (THREAD * 3 // 2)}"
            shares = [tag for tag, every in SHARES.items() if number % every == 0]
            tags = [owner_tag(PRINCIPAL), *shares]
            yield (
                number, title, normalise(title), normalise(text), text, word_count(text), ends_with_question(text),
                author, thread, at, tags, HalfVector(vectors[place]),
            )  # fmt: skip


def _text(material: Material, chance: random.Random) -> str:
    sentence = list(chance.choice(material.sentences))
    places = [place for place in range(len(sentence)) if chance.random() < EXCHANGED]
    for place, word in zip(
        places, chance.choices(material.words, material.weights, k=len(places)), strict=True
    ):
        sentence[place] = word
    if chance.random() < 0.5:
        sentence.append(f"zz{int(RARE_WORDS ** chance.random())}q")
    return " ".join(sentence)


def drop_search_indexes(conn: psycopg.Connection, model_key: str) -> list[LiteralString]:
    """Drop what is faster built than filled, and answer how to make it again."""
    rows = conn.execute(
        "SELECT i.indexrelid::regclass::text, replace(pg_get_indexdef(i.indexrelid), ' ON ONLY ', ' ON ') "
        "FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam "
        "WHERE i.indrelid IN ('memory.search_row'::regclass, %s::regclass, 'memory.chunk'::regclass) "
        "AND a.amname IN ('gin', 'hnsw')",
        [f"memory.embedding_{model_key}"],
    ).fetchall()
    definitions: list[LiteralString] = []
    for name, definition in rows:
        conn.execute(sql.SQL("DROP INDEX {}").format(sql.SQL(name)))
        definitions.append(definition)
    return definitions


_INSERTS: tuple[LiteralString, ...] = (
    (
        "INSERT INTO memory.access_tag (tenant_id, tag) SELECT DISTINCT %(tenant)s, unnest(tags) FROM stage "
        "ON CONFLICT DO NOTHING"
    ),
    (
        "INSERT INTO memory.tenant_state (tenant_id, document_count, chunk_count, languages) "
        "SELECT %(tenant)s, count(*), count(*), '{{english}}' FROM stage ON CONFLICT (tenant_id) DO UPDATE SET "
        "document_count = excluded.document_count, chunk_count = excluded.chunk_count, languages = excluded.languages"
    ),
    (
        "INSERT INTO memory.document (tenant_id, id, kind, title, adapter, external_ref, owner_principal_id, "
        "access_tags, thread, thread_seq, author) "
        "SELECT %(tenant)s, 'doc_' || lpad(n::text, 12, '0'), 'message', title, 'bench', n::text, %(principal)s, tags, "
        "thread, n, author FROM stage"
    ),
    (
        "INSERT INTO memory.version (tenant_id, id, document_id, version, content_hash, title, kind, access_tags, "
        "thread, author, language, occurred_at, owner_principal_id, created_by_kind, authority, generation) "
        "SELECT %(tenant)s, 'ver_' || lpad(n::text, 12, '0'), 'doc_' || lpad(n::text, 12, '0'), 1, n::text, title, "
        "'message', tags, thread, author, 'english', at, %(principal)s, 'human', 0.5, 'g0' FROM stage"
    ),
    (
        "INSERT INTO memory.chunk (tenant_id, id, version_id, document_id, ordinal, text, token_count) "
        "SELECT %(tenant)s, 'chk_' || lpad(n::text, 12, '0'), 'ver_' || lpad(n::text, 12, '0'), "
        "'doc_' || lpad(n::text, 12, '0'), 0, text, words FROM stage"
    ),
    (
        "INSERT INTO memory.search_row (tenant_id, chunk_id, generation, document_id, version_id, ordinal, status, "
        "owner_id, access_tags, kind, thread, thread_seq, context_key, author, occurred_at, temporal_class, authority, "
        "words, asks, language, fts, terms, lex) "
        "SELECT %(tenant)s, 'chk_' || lpad(n::text, 12, '0'), 'g0', 'doc_' || lpad(n::text, 12, '0'), "
        "'ver_' || lpad(n::text, 12, '0'), 0, 'active', %(principal)s, tags, 'message', thread, n, thread, author, at, "
        "'event', 0.5, words, asks, 'english', a.fts, memory.term_hashes(%(tenant)s, 'g0', a.fts), "
        "memory.bm25_vector(a.fts) "
        "FROM stage CROSS JOIN LATERAL (SELECT memory.analyse('english', head, body) AS fts OFFSET 0) AS a"
    ),
    (
        "INSERT INTO {vectors} (tenant_id, chunk_id, generation, document_id, owner_id, access_tags, kind, status, "
        "occurred_at, embedding) "
        "SELECT %(tenant)s, 'chk_' || lpad(n::text, 12, '0'), 'g0', 'doc_' || lpad(n::text, 12, '0'), %(principal)s, "
        "tags, 'message', 'active', at, embedding FROM stage"
    ),
)
