"""The compat profile on a real database: two lists, fusion, one chunk a document, the reranked path."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from corbits_memory.core.enums import Channel, EvidenceLevel, SearchProfile
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.ports import SearchResult
from tests.engine.support import NOON, OpenStore, add, find, first, note, refs
from tests.models.conftest import Answer, ModelServer, Request, Script

COMPAT = SearchProfile.COMPAT


@pytest.fixture
async def store(open_store: OpenStore) -> PostgresDocumentStore:
    return await open_store(profile=COMPAT)


@pytest.fixture
def rerank_server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


def scores_by(words: dict[str, float]) -> Script:
    """A reranker that gives each text the score of the first word of ours in it."""

    def answer(request: Request) -> Answer:
        texts = request.body["texts"]
        return Answer(
            [
                {"index": i, "score": next((s for word, s in words.items() if word in text), 0.0)}
                for i, text in enumerate(texts)
            ]
        )

    return answer


async def ask(store: PostgresDocumentStore, query: str, **fields: object) -> SearchResult:
    return await find(store, query, **fields)  # type: ignore[arg-type]


async def test_every_word_must_match(store: PostgresDocumentStore) -> None:
    await add(store, note("Maria mentioned enterprise pricing.", external_ref="n1"))
    assert refs(await ask(store, "enterprise pricing")) == ["n1"]
    assert refs(await ask(store, "enterprise pricing plan")) == []


async def test_titles_are_not_searched(store: PostgresDocumentStore) -> None:
    await add(store, note("Body.", title="Handbook"))
    assert refs(await ask(store, "handbook")) == []


async def test_the_flags_of_a_wordy_store_in_order(store: PostgresDocumentStore) -> None:
    await add(store, note("alpha"))
    assert (await ask(store, "alpha")).degraded == ("dense_unavailable", "lexical_only", "rerank_unavailable")


async def test_fused_scores_are_the_originals(open_store: OpenStore, word_server: ModelServer) -> None:
    store = await open_store(profile=COMPAT, embed_url=word_server.url)
    await add(store, note("alpha beta", external_ref="a"), note("gamma delta", external_ref="b"))
    found = await ask(store, "alpha beta", explain=True)
    by_ref = {item.external_ref: item for item in found.items}
    assert refs(found) == ["a", "b"]
    # Authority 0.42: first in both channels, then second in the dense one alone.
    assert by_ref["a"].score == pytest.approx(2 / 61 * 1.21, rel=1e-6)
    assert by_ref["b"].score == pytest.approx(1 / 62 * 1.21, rel=1e-6)
    shown = by_ref["a"].attribution
    assert shown is not None
    assert shown.channels == (Channel.LEXICAL, Channel.DENSE)
    assert found.evidence is EvidenceLevel.STRONG


async def test_one_chunk_a_document(store: PostgresDocumentStore) -> None:
    await add(store, note("\n\n".join("zeppelin " + "filler " * 390 for _ in range(4)), external_ref="long"))
    assert refs(await ask(store, "zeppelin", max_per_document=5)) == ["long"]


async def test_equal_ranks_go_by_time(store: PostgresDocumentStore) -> None:
    await add(
        store, *(note("alpha", external_ref=f"n{i}", occurred_at=NOON + timedelta(days=i)) for i in range(3))
    )
    assert refs(await ask(store, "alpha")) == ["n2", "n1", "n0"]


async def test_filters_without_a_query(store: PostgresDocumentStore) -> None:
    await add(
        store,
        *(
            note(f"n{i}", kind="k", external_ref=f"n{i}", occurred_at=NOON + timedelta(days=i))
            for i in range(3)
        ),
    )
    assert refs(await ask(store, " ", kinds=("k",))) == ["n2", "n1", "n0"]


async def test_the_reranker_decides(open_store: OpenStore, rerank_server: ModelServer) -> None:
    rerank_server.script(scores_by({"first": 0.9, "second": 0.6, "third": 0.3}))
    store = await open_store(profile=COMPAT, rerank_url=rerank_server.url)
    await add(
        store,
        note("alpha third", external_ref="c", occurred_at=NOON),
        note("alpha first", external_ref="a", occurred_at=NOON),
        note("alpha second", external_ref="b", occurred_at=NOON),
    )
    found = await ask(store, "alpha", explain=True)
    assert refs(found) == ["a", "b", "c"]
    assert found.items[-1].score == 0
    assert first(found).explain is not None
    assert first(found).explain["rerankScore"] == 0.9  # type: ignore[index]
    assert "rerank_unavailable" not in found.degraded
    assert found.evidence is EvidenceLevel.STRONG


async def test_a_failing_reranker_leaves_the_fused_order(
    open_store: OpenStore, rerank_server: ModelServer
) -> None:
    rerank_server.script(Answer(status=400, body={}))
    store = await open_store(profile=COMPAT, rerank_url=rerank_server.url)
    await add(store, note("alpha", external_ref="a"))
    found = await ask(store, "alpha")
    assert refs(found) == ["a"]
    assert found.degraded[-1] == "rerank_unavailable"


async def test_a_query_too_long_to_rerank_is_said(open_store: OpenStore, rerank_server: ModelServer) -> None:
    store = await open_store(profile=COMPAT, rerank_url=rerank_server.url, rerank_model="bge-reranker-base")
    await add(store, note("alpha " + "word " * 300, external_ref="a"))
    found = await ask(store, "alpha " + "word " * 280)
    assert refs(found) == ["a"]
    assert found.degraded[-1] == "rerank_query_too_long"
    assert rerank_server.requests == []


async def test_the_default_profile_mixes_a_reranker_in(
    open_store: OpenStore, rerank_server: ModelServer
) -> None:
    rerank_server.script(scores_by({"second": 0.95, "first": 0.05}))
    store = await open_store(rerank_url=rerank_server.url)
    await add(store, note("alpha first", external_ref="a"), note("alpha second", external_ref="b"))
    found = await ask(store, "alpha")
    assert refs(found)[0] == "b"
    assert "rerank_unavailable" not in found.degraded
