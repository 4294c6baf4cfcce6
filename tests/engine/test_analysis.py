"""What a row is indexed by: hashes that never change, weights that follow the formula, rows written before."""

import random
import struct
from typing import Any

import psycopg
import pytest

from corbits_memory.core import limits
from corbits_memory.core.chunking import CHARS_PER_TOKEN, ChunkCaps
from corbits_memory.core.strategies import Cutting
from corbits_memory.engine.migrate import engine_migrations, run_memory_migrations
from corbits_memory.engine.store import PostgresDocumentStore
from tests.engine.support import OpenStore, add, find, note, titles
from tests.support.postgres import NewDatabase

Owner = psycopg.AsyncConnection[Any]


async def one(owner: Owner, query: str, *parameters: Any) -> tuple[Any, ...]:
    row: tuple[Any, ...] | None = await (await owner.execute(query, parameters or None)).fetchone()
    assert row is not None
    return row


def weights(text: str) -> dict[int, float]:
    """A sparsevec's text as weights by dimension."""
    inner = text.partition("}")[0].lstrip("{")
    return {int(d): float(w) for d, w in (pair.split(":") for pair in inner.split(",") if pair)}


def single(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


@pytest.mark.parametrize(
    ("lexeme", "dim", "term"),
    [("hello", 8755242, 1900119823), ("straße", 57890295, 895488820), ("", 132793966, 1788248135)],
)
async def test_hashes_are_pinned(owner: Owner, lexeme: str, dim: int, term: int) -> None:
    """Rows are stored under them: another value would lose all that was written before."""
    found = await one(
        owner, "SELECT memory.lexeme_dim(%s), memory.term_hash('acme', 'g0', %s)", lexeme, lexeme
    )
    assert found == (dim, term)


async def test_terms_are_a_tenants_and_a_generations_own(owner: Owner) -> None:
    found = await one(
        owner,
        "SELECT count(DISTINCT memory.term_hash(t, g, 'hello')) "
        "FROM unnest(ARRAY['acme', 'other', 'acme']) WITH ORDINALITY AS x(t, i), unnest(ARRAY['g0', 'g1']) AS g",
    )
    assert found == (4,)


async def test_a_rows_terms_and_weights_are_those_of_its_lexemes(owner: Owner) -> None:
    text = "The lazy cat, the quick cat, and a third cat saw the dog run; running dogs bark."
    await owner.execute(
        "CREATE TEMP TABLE row AS SELECT f.fts, i.* FROM memory.analyse('english', 'A title', %s) AS f(fts), "
        "memory.index_terms(memory.term_seed('acme', 'g0'), f.fts) AS i",
        [text],
    )
    lexemes = await (
        await owner.execute(
            "SELECT memory.lexeme_dim(l.lexeme), memory.term_hash('acme', 'g0', l.lexeme), cardinality(l.positions) "
            "FROM row, unnest(row.fts) AS l"
        )
    ).fetchall()
    length = sum(tf for _, _, tf in lexemes)
    assert {tf for _, _, tf in lexemes} == {1, 2, 3}
    terms, lex = await one(owner, "SELECT terms, lex::text FROM row")
    assert sorted(terms) == sorted(term for _, term, _ in lexemes)
    assert weights(lex) == {
        dim: pytest.approx(single(tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * length / 120))))
        for dim, _, tf in lexemes
    }


async def test_lexemes_that_meet_on_a_dimension_are_summed(owner: Owner) -> None:
    (pair,) = await one(
        owner,
        "SELECT array_agg('w' || i) FROM generate_series(1, 120000) AS i "
        "GROUP BY memory.lexeme_dim('w' || i) HAVING count(*) = 2 ORDER BY 1 LIMIT 1",
    )
    terms, lex, alone = await one(
        owner,
        "SELECT i.terms, i.lex::text, o.lex::text FROM memory.index_terms(1, to_tsvector('simple', %s)) AS i, "
        "memory.index_terms(1, to_tsvector('simple', %s)) AS o",
        f"{pair[0]} {pair[1]} other",
        f"{pair[0]} another other",
    )
    assert len(terms) == 2
    assert sorted(weights(lex).values()) == pytest.approx(
        [min(weights(alone).values()), 2 * min(weights(alone).values())]
    )


async def test_no_text_has_no_terms(owner: Owner) -> None:
    assert await one(
        owner, "SELECT i.terms, i.lex::text FROM memory.index_terms(1, to_tsvector('simple', '  ')) AS i"
    ) == ([], "{}/268435456")


async def test_a_text_of_stop_words_is_kept_word_by_word(owner: Owner) -> None:
    (found,) = await one(
        owner, "SELECT tsvector_to_array(memory.analyse('english', NULL, 'to be or not to be'))"
    )
    assert found == ["be", "not", "or", "to"]


async def test_rows_written_before_are_hashed_anew(new_database: NewDatabase) -> None:
    url = new_database()
    before = [m for m in engine_migrations() if m.name < "0005"]
    await run_memory_migrations(url, migrations=before)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
        await conn.execute(
            """
            INSERT INTO memory.tenant_state (tenant_id, stats_rows) VALUES ('acme', 5);
            INSERT INTO memory.term_stat (tenant_id, generation, term, df) VALUES ('acme', 'g0', 1, 5);
            INSERT INTO memory.document (tenant_id, id, kind, title, adapter, external_ref, owner_principal_id)
              VALUES ('acme', 'd', 'note', 't', 'http', 'n', 'ann');
            INSERT INTO memory.version (tenant_id, id, document_id, version, content_hash, title, kind, language,
              occurred_at, owner_principal_id, created_by_kind, authority, generation)
              VALUES ('acme', 'v', 'd', 1, 'h', 't', 'note', 'english', now(), 'ann', 'human', 0.4, 'g0');
            INSERT INTO memory.chunk (tenant_id, id, version_id, document_id, ordinal, text, token_count)
              VALUES ('acme', 'c', 'v', 'd', 0, 'Cats and cats.', 4);
            INSERT INTO memory.search_row (tenant_id, chunk_id, generation, document_id, version_id, ordinal, status,
              owner_id, access_tags, kind, thread_seq, occurred_at, temporal_class, authority, words, asks, language,
              fts, terms, lex)
            SELECT 'acme', 'c', 'g0', 'd', 'v', 0, 'active', 'ann', '{}', 'note', 0, now(), 'event', 0.4, 3, false,
              'english', fts, memory.term_hashes('acme', 'g0', fts), memory.bm25_vector(fts)
            FROM (SELECT memory.analyse('english', 't', 'Cats and cats.') AS fts OFFSET 0) AS analysed
            """
        )
        (old,) = await one(conn, "SELECT terms FROM memory.search_row")
        await run_memory_migrations(url)
        terms, lex, same, fresh = await one(
            conn,
            "SELECT r.terms, r.lex::text, i.lex::text, i.terms FROM memory.search_row r, "
            "memory.index_terms(memory.term_seed('acme', 'g0'), r.fts) AS i",
        )
        assert (terms, lex) == (fresh, same)
        assert not set(terms) & set(old)
        assert await one(
            conn, "SELECT (SELECT count(*) FROM memory.term_stat), stats_rows FROM memory.tenant_state"
        ) == (0, None)


@pytest.mark.parametrize(
    ("table", "key", "index"),
    [
        ("document", "id", "document_pkey"),
        ("raw_capture", "id", "raw_capture_pkey"),
        ("version", "id", "version_pkey"),
        ("chunk", "id", "chunk_pkey"),
    ],
)
async def test_foreign_keys_are_checked_by_primary_key_before_any_statistics(
    owner: Owner, table: str, key: str, index: str
) -> None:
    """The plan of a check is kept while the table grows: another index would read all of the tenant's rows."""
    await owner.execute("SET enable_seqscan = off")
    plan = await (
        await owner.execute(
            f"EXPLAIN SELECT 1 FROM ONLY memory.{table} x WHERE tenant_id = 't' AND {key} = 'k' FOR KEY SHARE OF x"
        )
    ).fetchall()
    assert index in "\n".join(line for (line,) in plan)


@pytest.mark.parametrize("rows", [1, 50, 500])
async def test_places_in_the_queue_are_checked_by_primary_key(
    store: PostgresDocumentStore, owner: Owner, rows: int
) -> None:
    """One plan for all checks of a connection, made when the tenant has few rows or none."""
    await add(store, *(note(f"Text {i}.") for i in range(rows)))
    await owner.execute("SET plan_cache_mode = force_generic_plan")
    await owner.execute(
        "PREPARE checked (text, text) AS SELECT 1 FROM memory.search_row x "
        "WHERE tenant_id = $1 AND chunk_id = $2 FOR KEY SHARE OF x"
    )
    plan = await (await owner.execute("EXPLAIN EXECUTE checked ('acme', 'k')")).fetchall()
    text = "\n".join(line for (line,) in plan)
    assert "Index Cond: ((tenant_id = $1) AND (chunk_id = $2))" in text, text


async def test_analysis_becomes_a_part_of_the_statement(owner: Owner) -> None:
    """A function that is called for each row costs more than what it does."""
    plan = await (
        await owner.execute(
            "EXPLAIN (VERBOSE) SELECT i.terms, i.lex FROM (SELECT to_tsvector('simple', t) AS fts "
            "FROM unnest(ARRAY['a', 'b']) AS t OFFSET 0) AS a CROSS JOIN LATERAL memory.index_terms(1, a.fts) AS i"
        )
    ).fetchall()
    assert "index_terms" not in "\n".join(line for (line,) in plan)


@pytest.mark.parametrize("lexemes", [15_999, 16_000, 16_001, 40_000])
async def test_a_text_of_any_number_of_words_has_terms(owner: Owner, lexemes: int) -> None:
    """A vector holds 16,000 elements; a longer text is found by as many of its words."""
    terms, weighed = await one(
        owner,
        "SELECT cardinality(i.terms), i.lex::text FROM memory.analyse('simple', '', "
        "(SELECT string_agg('w' || n, ' ') FROM generate_series(1, %s) AS n)) AS f(fts), "
        "memory.index_terms(1, f.fts) AS i",
        lexemes,
    )
    assert min(lexemes, 16_000) - 5 <= terms <= min(lexemes, 16_000)
    assert len(weights(weighed)) == terms


@pytest.mark.parametrize("first", [0x4E00, 0xAC00, 0x20000], ids=["han", "hangul", "rare han"])
async def test_the_largest_chunk_of_a_dense_script_is_kept_and_found(
    open_store: OpenStore, owner: Owner, first: int
) -> None:
    """Nearly every character begins another lexeme."""
    most = limits.CHUNK_TOKENS_MAX
    store = await open_store(cutting=Cutting("token.recursive", ChunkCaps(most, most, 0)))
    draw = random.Random(first)
    words = ["".join(chr(first + draw.randrange(0x1000)) for _ in range(40)) for _ in range(1_500)]
    (added,) = await add(store, note(" ".join(words)))
    # A remnant that is too short to stand alone stays with the chunk before.
    assert added.chunks == 1
    length, terms = await one(
        owner,
        "SELECT length(c.text), cardinality(r.terms) FROM memory.chunk c "
        "JOIN memory.search_row r ON r.chunk_id = c.id",
    )
    assert length > 1.9 * most * CHARS_PER_TOKEN
    assert 15_900 < terms <= 16_000
    assert titles(await find(store, words[3])) == ["Note"]
