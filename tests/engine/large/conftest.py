"""A tenant of 5,000 rows."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from corbits_memory.config import EmbedConfig, EngineConfig
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.models.factory import build_embedder
from tests.engine.conftest import embed_words, word_vector
from tests.engine.support import OpenStore, Owner, add, note
from tests.models.conftest import ModelServer
from tests.support.postgres import NewDatabase

ROWS = 5_000
SEED = 7


def sentences() -> list[str]:
    """Zipfian nonsense: word ``w1`` in nearly every sentence, ``w400`` in a few."""
    draw = random.Random(SEED)
    weights = [1 / rank for rank in range(1, 401)]
    return [" ".join(f"w{n}" for n in draw.choices(range(1, 401), weights, k=12)) for _ in range(ROWS)]


@pytest.fixture(scope="module")
def module_server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        server.script(embed_words)
        yield server


@pytest.fixture(scope="module")
def large_template(
    new_module_database: NewDatabase, migrated_template: str, module_server: ModelServer
) -> str:
    """The name of a database with 5,000 rows of one tenant, to copy: 5,000 adds would take long."""
    url = new_module_database(migrated_template)
    asyncio.run(_fill(url, module_server.url))
    return urlsplit(url).path.lstrip("/")


@pytest.fixture
def database_url(new_database: NewDatabase, large_template: str) -> str:
    return new_database(large_template)


@pytest.fixture
async def corpus(open_store: OpenStore, module_server: ModelServer) -> PostgresDocumentStore:
    return await open_store(embed_url=module_server.url)


async def _fill(url: str, embed_url: str) -> None:
    embed = EmbedConfig(base_url=embed_url, model="words")
    config = EngineConfig(database_url=url, embed=embed, run_worker=False)
    store = PostgresDocumentStore(config, embedder=build_embedder(embed), reranker=None)
    await store.open()
    await add(store, note("seed", external_ref="seed"))
    await store.close()
    texts = sentences()
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
        table = await vector_table(conn)
        await conn.execute(
            "CREATE TEMP TABLE made AS SELECT lpad(i::text, 22, '0') AS i, text, vector "
            "FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY AS x(text, vector, i)",
            [texts, [str(word_vector(text)) for text in texts]],
        )
        script = Path(__file__).with_name("large_tenant.sql").read_text(encoding="utf-8")
        await conn.execute(sql.SQL(script).format(table=sql.Identifier(table)))


async def vector_table(conn: Owner) -> str:
    row = await (await conn.execute("SELECT 'embedding_' || model_key FROM memory.embed_model")).fetchone()
    assert row is not None
    return str(row[0])
