"""Transform configs: versions, ranges, keys that no read returns."""

import asyncio
from collections.abc import Mapping
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from corbits_memory.core.limits import CHUNK_TOKENS_MAX, CHUNK_TOKENS_MIN
from corbits_memory.core.strategies import BUILT_IN
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.errors import (
    InvalidInputError,
    TransformConfigInUseError,
    TransformConfigNotFoundError,
)
from corbits_memory.ports.transform import ParamChange
from corbits_memory.validation import params_json, transform_params, transform_scope
from tests.engine.replay.support import PLAIN, Owner, begin, config, promote, replay, rows, work
from tests.engine.support import OpenStore, T, add, find, note, titles

KEY, OTHER_KEY = "sk-first-0123456789", "sk-second-0123456789"
FULL: dict[str, Any] = {
    "chunk": {"strategy": "token.recursive", "maxTokens": 300, "minTokens": 20, "overlapTokens": 30},
    "embed": {"baseUrl": "http://models.test", "model": "e5", "apiStyle": "tei", "apiKey": KEY},
    "rerank": {"baseUrl": "http://models.test", "model": "bge", "apiStyle": "cohere", "apiKey": OTHER_KEY},
    "authorityWeight": 0.4,
    "recencyHalfLifeDays": 12.5,
    "mmrLambda": 0.7,
    "overfetch": 4.0,
}


def with_chunk(**sizes: Any) -> dict[str, Any]:
    return {"chunk": {"strategy": "token.recursive", **sizes}}


async def test_versions_of_a_name_are_counted(store: PostgresDocumentStore) -> None:
    first, second = await config(store, name="a"), await config(store, FULL, name="a")
    other = await config(store, name="b")
    assert [(c.name, c.version) for c in (first, second, other)] == [("a", 1), ("a", 2), ("b", 1)]
    elsewhere = await config(store, name="a", tenant="other")
    assert elsewhere.version == 1
    configs = store.transforms
    assert await configs.transform_configs(tenant_id=T, name=None, limit=10) == [other, second, first]
    assert await configs.transform_configs(tenant_id=T, name="a", limit=1) == [second]
    assert await configs.transform_config(tenant_id=T, config_id=first.id) == first
    for tenant, config_id in ((T, "tcfg_unknown"), (T, elsewhere.id), ("other", first.id)):
        with pytest.raises(TransformConfigNotFoundError):
            await configs.transform_config(tenant_id=tenant, config_id=config_id)


async def test_many_versions_at_once_have_numbers_of_their_own(store: PostgresDocumentStore) -> None:
    made = await asyncio.gather(*(config(store, name="a") for _ in range(8)))
    assert sorted(one.version for one in made) == list(range(1, 9))


async def test_no_read_returns_a_key(
    store: PostgresDocumentStore, owner: Owner, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    made = await config(store, FULL)
    assert made.secrets == ("embed.apiKey", "rerank.apiKey")
    configs = store.transforms
    changed = await config(store, {**FULL, "embed": {**FULL["embed"], "apiKey": OTHER_KEY}})
    told = repr(
        [
            made,
            await configs.transform_configs(tenant_id=T, name=None, limit=9),
            await configs.diff_transform_configs(tenant_id=T, before=made.id, after=changed.id),
            await configs.transform_config(tenant_id=T, config_id=made.id),
            transform_params(FULL),
        ]
    )
    assert KEY not in told + caplog.text
    assert OTHER_KEY not in told + caplog.text
    # Nor does a statement of the tenant's own transactions; the worker, as the owner, reads it.
    async with store._database.tenant(T) as conn:
        read = await conn.execute("SELECT secret FROM memory.transform_secret")
        assert await read.fetchall() == []
    assert await rows(owner, "SELECT count(*) FROM memory.transform_secret") == [(4,)]


async def test_what_differs_is_told_by_path(store: PostgresDocumentStore) -> None:
    before = await config(store, FULL)
    after = await config(
        store,
        {
            **FULL,
            "chunk": {**FULL["chunk"], "maxTokens": 200},
            "embed": {**FULL["embed"], "apiKey": OTHER_KEY},
            "rerank": None,
            "overfetch": None,
        },
    )

    async def changes(one: str, other: str) -> list[ParamChange]:
        return list(await store.transforms.diff_transform_configs(tenant_id=T, before=one, after=other))

    assert [(c.path, c.before, c.after) for c in await changes(before.id, after.id)] == [
        ("chunk.maxTokens", 300, 200),
        ("overfetch", 4.0, None),
        ("rerank.apiStyle", "cohere", None),
        ("rerank.baseUrl", "http://models.test", None),
        ("rerank.model", "bge", None),
        ("embed.apiKey", "a key", "another key"),
        ("rerank.apiKey", "a key", None),
    ]
    assert await changes(before.id, before.id) == []
    with pytest.raises(TransformConfigNotFoundError):
        await changes(before.id, "tcfg_unknown")


async def test_a_config_stays_as_long_as_its_runs(store: PostgresDocumentStore, owner: Owner) -> None:
    free, used = await config(store, FULL, name="free"), await begin(store)
    with pytest.raises(TransformConfigInUseError):
        await store.transforms.delete_transform_config(tenant_id=T, config_id=used.config_id)
    await store.transforms.delete_transform_config(tenant_id=T, config_id=free.id)
    with pytest.raises(TransformConfigNotFoundError):
        await store.transforms.delete_transform_config(tenant_id=T, config_id=free.id)
    assert await rows(owner, "SELECT count(*) FROM memory.transform_secret") == [(0,)]


def test_params_survive_a_round_trip() -> None:
    params = transform_params(FULL)
    stored = params_json(params)
    assert KEY not in str(stored)
    again = transform_params(stored)
    assert params_json(again) == stored
    assert again.embed is not None
    assert again.embed.api_key is None
    snake = {"chunk": {"strategy": "token.recursive", "max_tokens": 300}, "mmr_lambda": 0.5}
    assert params_json(transform_params(snake)) == {
        "chunk": {"strategy": "token.recursive", "maxTokens": 300},
        "mmrLambda": 0.5,
    }


def test_a_size_that_was_not_given_contradicts_none() -> None:
    caps = transform_params(with_chunk(maxTokens=CHUNK_TOKENS_MIN)).chunk.cutting.caps
    assert (caps.max_tokens, caps.min_tokens, caps.overlap_tokens) == (10, 10, 9)


@pytest.mark.parametrize(
    ("field", "low", "high", "step"),
    [
        ("authorityWeight", 0.0, 10.0, 0.01),
        ("recencyHalfLifeDays", 1 / 24, 36_500.0, 0.01),
        ("mmrLambda", 0.0, 1.0, 0.01),
        ("overfetch", 3.0, 10.0, 0.01),
        ("chunk.maxTokens", CHUNK_TOKENS_MIN, CHUNK_TOKENS_MAX, 1),
        ("chunk.minTokens", 0, 700, 1),
        ("chunk.overlapTokens", 0, 699, 1),
    ],
)
def test_every_parameter_has_its_range(field: str, low: float, high: float, step: float) -> None:
    def given(value: object) -> dict[str, Any]:
        name = field.rpartition(".")[2]
        return with_chunk(**{name: value}) if "." in field else {**PLAIN, name: value}

    transform_params(given(low))
    transform_params(given(high))
    beyond: list[object] = [low - step, high + step, "1", True, float("nan")]
    for value in beyond:
        with pytest.raises(InvalidInputError) as caught:
            transform_params(given(value))
        assert field.split(".")[0] in caught.value.message


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        (None, "params is required"),
        ([], "params must be an object"),
        ({}, "chunk is required"),
        ({"chunk": {}}, r"chunk.strategy must be one of: token.recursive"),
        ({"chunk": {"strategy": "token.other"}}, r"chunk.strategy must be one of: token.recursive"),
        ({**PLAIN, "colour": 1}, "params has 1 unknown name"),
        (with_chunk(size=3), "chunk has 1 unknown name"),
        (with_chunk(maxTokens=50, minTokens=60), "min_tokens is 60"),
        (with_chunk(maxTokens=50, overlapTokens=50), "overlap_tokens is 50"),
        ({**PLAIN, "embed": {"baseUrl": "ftp://x"}}, r"embed.baseUrl must be a URL"),
        ({**PLAIN, "embed": {"baseUrl": "http://u:p@x"}}, r"embed.baseUrl must not hold a password"),
        ({**PLAIN, "embed": {"baseUrl": "http://x?key=p"}}, r"embed.baseUrl must not hold a password"),
        ({**PLAIN, "embed": {"apiStyle": "cohere"}}, r"embed.apiStyle must be one of: openai"),
        ({**PLAIN, "rerank": {"apiStyle": "openai"}}, r"rerank"),
        ({**PLAIN, "rerank": {"model": "m"}}, r"rerank.baseUrl is required"),
        ({**PLAIN, "embed": {"apiKey": "a\nb"}}, r"embed.apiKey must not contain control"),
    ],
)
def test_what_is_wrong_is_named_and_not_repeated(params: object, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem) as caught:
        transform_params(params, strategies=BUILT_IN)
    assert "u:p" not in str(caught.value.details)


async def test_stored_params_are_checked_again(store: PostgresDocumentStore, owner: Owner) -> None:
    run = await begin(store)
    await owner.execute("""UPDATE memory.transform_config SET params = '{"chunk": {"strategy": 7}}'""")
    with pytest.raises(InvalidInputError):
        await store._generations.get(T, run.generation)


@pytest.mark.parametrize(
    ("stored", "largest", "smallest", "overlap"),
    [
        ({"maxTokens": 8_000, "overlapTokens": 4_000}, 8_000, 40, 4_000),
        ({"maxTokens": 8_001}, 8_000, 40, 60),
        ({"maxTokens": 25_000, "minTokens": 25_000, "overlapTokens": 24_999}, 8_000, 8_000, 7_999),
        ({"maxTokens": 16_000, "overlapTokens": 200}, 8_000, 40, 100),
    ],
)
async def test_larger_sizes_from_before_shrink_to_the_limit(
    store_of: OpenStore,
    owner: Owner,
    stored: Mapping[str, int],
    largest: int,
    smallest: int,
    overlap: int,
) -> None:
    """A release before allowed them: what they made live is searched and added to, and replays go on."""
    store = await store_of()
    await add(store, note("The vault opens at nine.", external_ref="n1"))
    run = await replay(store)
    await promote(store, run)
    waiting = await begin(store)
    chunk = Jsonb({"chunk": {"strategy": "token.recursive", **stored}})
    await owner.execute("UPDATE memory.transform_config SET params = %s", [chunk])
    store._generations._known.clear()
    caps = (await store._generations.get(T, run.generation)).cutting.caps
    assert (caps.max_tokens, caps.min_tokens, caps.overlap_tokens) == (largest, smallest, overlap)
    await add(store, note("Another vault.", external_ref="n2"))
    assert len(titles(await find(store, "vault"))) == 2
    assert (await work(store, waiting)).status == "completed"
    again = await store.transforms.run_transform(
        tenant_id=T, actor_id="ops", config_id=waiting.config_id, scope=transform_scope()
    )
    assert again.status == "running"


async def test_a_tenant_sees_no_config_of_another(database_url: str, store: PostgresDocumentStore) -> None:
    await config(store, FULL)
    async with await psycopg.AsyncConnection.connect(database_url) as conn:
        await conn.execute("SET ROLE corbits_memory_app")
        await conn.execute("SET memory.tenant_id = 'other'")
        for table in ("transform_config", "transform_run", "transform_slice", "transform_skip", "generation"):
            assert await (await conn.execute(f"SELECT * FROM memory.{table}")).fetchall() == []
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await conn.execute("INSERT INTO memory.generation VALUES ('acme', 'g', NULL, 0)")
