"""Searches of a generation that is not live: its own tuning and model, the rules of access, nobody else's sight."""

from typing import Any

import pytest

from corbits_memory.core.enums import SearchProfile
from corbits_memory.engine.generations import Generation
from corbits_memory.engine.search import compat, default
from corbits_memory.ports import TimelineQuery
from tests.engine.replay.support import PLAIN, SMALL, Owner, begin, promote, replay, rows, work
from tests.engine.support import OpenStore, T, add, find, note, titles
from tests.engine.test_access import access_of, grant
from tests.engine.test_search_pages import page, walk_on
from tests.models.conftest import Answer, ModelServer

LONG = "The vault opens at nine. Maria keeps the key in her desk. Nobody else may have it, said Tom."
ENG, OPS_TAG = "memory.space:eng", "memory.space:ops"


async def test_a_staged_generation_is_seen_by_nobody_who_does_not_ask(
    store_of: OpenStore, owner: Owner
) -> None:
    store = await store_of()
    await add(store, note(LONG, title="Vault"))
    live = await find(store, "vault")
    listed = await store.list(tenant_id=T, principal_id="ann", query=TimelineQuery(limit=9))
    run = await work(store, await begin(store, SMALL), slices=1)
    for profile in SearchProfile:
        assert [item.chunk_id for item in (await find(store, "vault", profile=profile)).items] == [
            item.chunk_id for item in live.items
        ]
    assert await store.list(tenant_id=T, principal_id="ann", query=TimelineQuery(limit=9)) == listed
    (staged,) = (await find(store, "vault", generation=run.generation)).items
    assert staged.chunk_id != live.items[0].chunk_id
    assert staged.attribution is not None
    assert await rows(
        owner, "SELECT generation FROM memory.version WHERE id = %s", staged.attribution.version_id
    ) == [(run.generation,)]
    # The archived one, too, is searched on request, with the model that it was archived with.
    await promote(store, run)
    found = await find(store, "vault", generation="g0")
    assert [item.chunk_id for item in found.items] == [item.chunk_id for item in live.items]
    assert "dense_unavailable" not in found.degraded


@pytest.mark.parametrize("profile", list(SearchProfile))
async def test_access_rules_hold_in_it(store_of: OpenStore, profile: SearchProfile) -> None:
    store = await store_of()
    await add(
        store,
        note("Eng vault.", title="Eng", access_tags=(ENG,)),
        note("Ops vault.", title="Ops", access_tags=(OPS_TAG,)),
        note("Own vault.", title="Own"),
    )
    run = await replay(store)

    async def seen(who: str, *tags: str) -> list[str]:
        access = await access_of(*(grant(tag) for tag in tags)) if tags else None
        from corbits_memory.ports import SearchQuery

        query = SearchQuery(query="vault", generation=run.generation, profile=profile)
        result = await store.search(tenant_id=T, principal_id=who, query=query, access=access)
        return sorted(titles(result))

    assert await seen("ann") == ["Eng", "Ops", "Own"]
    assert await seen("bob") == []
    assert await seen("bob", ENG) == ["Eng"]
    assert await find(store, "vault", tenant="other", generation=run.generation) is not None
    assert titles(await find(store, "vault", tenant="other", generation=run.generation)) == []


async def test_it_has_its_own_model(
    store_of: OpenStore, server: ModelServer, word_server: ModelServer
) -> None:
    def answer(request: Any) -> Answer:
        count = len(request.body["input"])
        return Answer({"data": [{"index": i, "embedding": [1.0] * 96} for i in range(count)]})

    server.script(answer)
    store = await store_of()
    await add(store, note(LONG, title="Vault"))
    run = await replay(store, {**PLAIN, "embed": {"baseUrl": server.url, "model": "m", "apiKey": "sekret"}})
    server.requests.clear()
    word_server.requests.clear()
    found = await find(store, "key", generation=run.generation)
    assert titles(found) == ["Vault"]
    assert "dense_unavailable" not in found.degraded
    assert [request.headers["authorization"] for request in server.requests] == ["Bearer sekret"]
    assert word_server.requests == []
    await find(store, "key")
    assert len(server.requests) == 1
    # A process that has never seen the run finds its model, and the key, in the database.
    other = await store_of()
    assert titles(await find(other, "keys", generation=run.generation)) == ["Vault"]
    assert server.requests[-1].headers["authorization"] == "Bearer sekret"


@pytest.mark.parametrize("profile", list(SearchProfile))
async def test_a_promotion_between_two_pages_repeats_nothing(
    store_of: OpenStore, profile: SearchProfile
) -> None:
    store = await store_of()
    await add(store, *(note(f"Vault number{n}.", title=f"V{n}") for n in range(7)))
    first = await page(store, "vault", limit=3, profile=profile, max_per_document=2)
    await promote(store, await replay(store))
    pages = await walk_on(store, "vault", first, limit=3, profile=profile, max_per_document=2)
    assert sorted([*titles(first), *(title for found in pages for title in titles(found))]) == [
        f"V{n}" for n in range(7)
    ]


async def test_it_has_its_own_reranker(store_of: OpenStore, server: ModelServer) -> None:
    server.script(Answer({"results": [{"index": 0, "relevance_score": 0.9}]}))
    store = await store_of()
    await add(store, note(LONG, title="Vault"))
    params = {
        **PLAIN,
        "rerank": {"baseUrl": server.url, "apiStyle": "cohere", "model": "r", "apiKey": "sekret"},
    }
    run = await replay(store, params)
    assert "rerank_unavailable" in (await find(store, "vault")).degraded
    assert "rerank_unavailable" not in (await find(store, "vault", generation=run.generation)).degraded
    (request,) = server.requests
    assert (request.path, request.headers["authorization"]) == ("/v2/rerank", "Bearer sekret")
    await promote(store, run)
    assert "rerank_unavailable" not in (await find(store, "vault")).degraded


async def test_it_has_its_own_tuning(store_of: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[Generation] = []
    for profile in (default.DefaultProfile, compat.CompatProfile):
        real = profile.search

        async def spy(self: Any, *, plan: Any, _real: Any = real, **given: Any) -> Any:
            used.append(plan.settings)
            return await _real(self, plan=plan, **given)

        monkeypatch.setattr(profile, "search", spy)
    tuned = {"authorityWeight": 2.0, "recencyHalfLifeDays": 2.0, "mmrLambda": 0.3, "overfetch": 10.0}
    store = await store_of()
    await add(store, note(LONG, title="Vault"))
    run = await replay(store, {**PLAIN, **tuned})
    await find(store, "vault")
    await find(store, "vault", generation=run.generation)
    await find(store, "vault", generation=run.generation, profile=SearchProfile.COMPAT)
    plain, staged, same = used
    assert plain.params is None
    assert (staged.constants.mmr_lambda, staged.constants.half_life_ms) == (0.3, 2 * 86_400_000)
    # In the default profile a weight is a share.
    assert staged.constants.authority_weight == 1.0
    assert (same.tuning.authority_weight, same.tuning.overfetch, same.tuning.mmr_lambda) == (2.0, 10.0, 0.3)
    await promote(store, run)
    used.clear()
    await find(store, "vault")
    assert used[-1].id == run.generation


async def test_tuning_changes_scores(store_of: OpenStore) -> None:
    """Old text loses more by a shorter half-life."""
    store = await store_of()
    await add(store, note(LONG, title="Vault"))
    run = await replay(store, {**PLAIN, "recencyHalfLifeDays": 1 / 24})
    other = await replay(store, {**PLAIN, "recencyHalfLifeDays": 36_500})
    quick = (await find(store, "vault", generation=run.generation, explain=True)).items[0]
    slow = (await find(store, "vault", generation=other.generation, explain=True)).items[0]
    assert quick.explain is not None
    assert slow.explain is not None
    assert quick.explain["parts"]["temporal"] <= slow.explain["parts"]["temporal"]


async def test_terms_of_a_counted_tenant_are_known_in_a_staged_generation(
    store_of: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counts are the live generation's; a staged one has none of its own."""
    monkeypatch.setattr("corbits_memory.engine.search.retrieval.EXACT_ROWS", 3)
    store = await store_of()
    await add(store, *(note(f"vault number {i}", title=f"N{i}") for i in range(8)))
    await store.statistics.refresh(T)
    run = await replay(store)
    live = await find(store, "vault", limit=8)
    staged = await find(store, "vault", limit=8, generation=run.generation)
    assert [item.score for item in staged.items] == pytest.approx(
        [item.score for item in live.items], abs=0.05
    )
    assert len(staged.items) == len(live.items)
