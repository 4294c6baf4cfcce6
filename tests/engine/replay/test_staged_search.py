"""Searches of a generation that is not live: its own tuning and model, the rules of access, nobody else's sight."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest

from corbits_memory.core.enums import CreatedByKind, RankingSource, SearchProfile
from corbits_memory.core.scale import prior_of, weighted
from corbits_memory.engine.generations import Generation
from corbits_memory.engine.search import compat, default
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.ports import SearchResult, TimelineQuery
from tests.engine.replay.support import PLAIN, SMALL, Owner, begin, promote, replay, rows, work
from tests.engine.support import NOW, OpenStore, T, add, find, note, titles
from tests.engine.test_access import access_of, grant
from tests.engine.test_search_pages import page, walk_on
from tests.models.conftest import Answer, ModelServer, Request

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


Tuned = Mapping[str, Any]


async def staged(
    store: PostgresDocumentStore, tuned: Tuned, text: str, *, profile: SearchProfile, limit: int = 10
) -> SearchResult:
    """What a search finds in a generation of its own with this tuning."""
    run = await replay(store, {**PLAIN, **tuned})
    return await find(
        store, text, generation=run.generation, profile=profile, limit=limit, explain=profile == "default"
    )


def rerank_by(scores: Mapping[str, float]) -> Callable[[Request], Answer]:
    """A reranker that knows what each text is worth by a word in it."""

    def answer(request: Request) -> Answer:
        texts = [text.lower() for text in request.body["texts"]]
        return Answer(
            [
                {"index": index, "score": next(score for word, score in scores.items() if word in text)}
                for index, text in enumerate(texts)
            ]
        )

    return answer


def parts(result: SearchResult, name: str) -> dict[str, float]:
    """One part of each score, by title."""
    return {item.title: item.explain["parts"][name] for item in result.items if item.explain}


async def test_old_text_loses_more_by_a_shorter_half_life(store_of: OpenStore) -> None:
    store = await store_of()
    days = {"New": 0, "Old": 1}
    await add(
        store,
        *(
            note(f"The vault of {title}.", title=title, occurred_at=NOW - timedelta(days=age))
            for title, age in days.items()
        ),
    )
    quick, slow = [
        parts(
            await staged(store, {"recencyHalfLifeDays": half}, "vault", profile=SearchProfile.DEFAULT),
            "temporal",
        )
        for half in (1 / 24, 36_500)
    ]
    assert quick["New"] == slow["New"] > 1
    # After a day, which is 24 half-lives, next to nothing of it is left.
    assert quick["Old"] < 1 < slow["Old"]
    assert quick["Old"] == pytest.approx(weighted(prior_of(2.0**-24), 0.3))
    assert slow["Old"] == pytest.approx(weighted(prior_of(2.0 ** (-1 / 36_500)), 0.3))


async def test_recency_decides_in_the_compat_profile(store_of: OpenStore, server: ModelServer) -> None:
    """There time counts where a reranker answers."""
    server.script(rerank_by({"gate": 0.9, "door": 0.85, "wall": 0.1}))
    store = await store_of()
    texts = {"Old": ("vault gate", 1), "New": ("vault door", 0), "Last": ("vault wall", 0)}
    await add(
        store,
        *(
            note(text, title=title, occurred_at=NOW - timedelta(days=age))
            for title, (text, age) in texts.items()
        ),
    )
    reranked = {"rerank": {"baseUrl": server.url, "apiStyle": "tei"}}
    quick, slow = [
        titles(
            await staged(
                store,
                {**reranked, "mmrLambda": 0.0, "recencyHalfLifeDays": half},
                "vault",
                profile=SearchProfile.COMPAT,
            )
        )
        for half in (1 / 24, 36_500)
    ]
    assert quick == ["New", "Old", "Last"]
    assert slow == ["Old", "New", "Last"]


@pytest.mark.parametrize("profile", list(SearchProfile))
async def test_authority_counts_as_much_as_it_is_told_to(store_of: OpenStore, profile: SearchProfile) -> None:
    """Whoever counts more stands first where authority counts, and what fits better where it doesn't."""
    store = await store_of()
    await add(
        store,
        note(
            "The vault key, a key of brass, is here.",
            title="Fits",
            created_by_kind=CreatedByKind.ADAPTER,
            occurred_at=NOW,
        ),
        note(
            "The vault key, a thing of brass, is here.",
            title="Counts",
            created_by_kind=CreatedByKind.HUMAN,
            actor_count=8,
            ranking_source=RankingSource.CHANNEL,
            has_social_signal=True,
            occurred_at=NOW,
        ),
    )
    none, full = [
        await staged(store, {"authorityWeight": weight}, "vault key", profile=profile)
        for weight in (0.0, 1.0)
    ]
    assert titles(none) == ["Fits", "Counts"]
    assert titles(full) == ["Counts", "Fits"]
    if profile is SearchProfile.DEFAULT:
        assert parts(none, "authority") == {"Fits": 1.0, "Counts": 1.0}
        assert parts(full, "authority")["Fits"] < 1 < parts(full, "authority")["Counts"]


async def test_lambda_puts_different_things_first(store_of: OpenStore) -> None:
    store = await store_of()
    texts = {
        "Key": "The vault key is in the desk of Maria.",
        "Same": "The vault key is in the desk of Tom.",
        "Other": "A vault opens at nine.",
    }
    await add(store, *(note(text, title=title, occurred_at=NOW) for title, text in texts.items()))
    alike, different = [
        titles(await staged(store, {"mmrLambda": lam}, "vault key desk", profile=SearchProfile.DEFAULT))
        for lam in (1.0, 0.1)
    ]
    assert alike[2] == "Other"
    assert different[1] == "Other"


async def test_lambda_puts_different_things_first_in_the_compat_profile(
    store_of: OpenStore, server: ModelServer
) -> None:
    """There by their vectors, where a reranker answers, and the other way round: a larger one is more different."""
    server.script(rerank_by({"maria": 0.9, "tom": 0.8, "nine": 0.7, "wall": 0.1}))
    store = await store_of()
    texts = {
        "Key": "vault key in the desk of maria",
        "Same": "vault key in the desk of tom",
        "Other": "vault opens at nine",
        "Last": "vault wall",
    }
    await add(store, *(note(text, title=title, occurred_at=NOW) for title, text in texts.items()))
    reranked = {"rerank": {"baseUrl": server.url, "apiStyle": "tei"}}
    alike, different = [
        titles(
            await staged(
                store, {**reranked, "mmrLambda": lam}, "vault", profile=SearchProfile.COMPAT, limit=3
            )
        )
        for lam in (0.0, 1.0)
    ]
    assert alike == ["Key", "Same", "Other"]
    assert different[:2] == ["Key", "Other"]


@pytest.mark.parametrize(("profile", "limit", "before"), [("default", 20, 70), ("compat", 1, 5)])
async def test_what_both_channels_put_further_down_is_found_by_fetching_more(
    store_of: OpenStore, profile: str, limit: int, before: int
) -> None:
    """Twenty answers: sixty rows a channel or two hundred, and in the compat profile three or ten for one. What counts
    most stands last among those that match."""
    store = await store_of()
    await add(
        store,
        *(
            note(f"Vault key word{i}.", title=f"N{i}", created_by_kind=CreatedByKind.ADAPTER, occurred_at=NOW)
            for i in range(before)
        ),
        note(
            "Vault key, of which " + " ".join(f"more{i}" for i in range(9)) + " is said.",
            title="Counts",
            created_by_kind=CreatedByKind.HUMAN,
            actor_count=8,
            ranking_source=RankingSource.CHANNEL,
            has_social_signal=True,
            occurred_at=NOW,
        ),
    )
    few, many = [
        titles(
            await staged(
                store,
                {"authorityWeight": 10.0, "overfetch": factor},
                "vault key",
                profile=SearchProfile(profile),
                limit=limit,
            )
        )
        for factor in (3.0, 10.0)
    ]
    assert len(few) == len(many) == limit
    assert "Counts" not in few
    assert "Counts" in many


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
