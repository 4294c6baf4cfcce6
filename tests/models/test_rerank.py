from typing import Any

import pytest

from corbits_memory.config import RerankConfig, RerankStyle
from corbits_memory.errors import (
    ConfigError,
    RerankConfigError,
    RerankHttpError,
    RerankQueryTooLongError,
    RerankTimeoutError,
)
from corbits_memory.models.factory import build_reranker
from corbits_memory.models.rerank import (
    CohereReranker,
    HttpReranker,
    TeiReranker,
    VoyageReranker,
    fit_documents,
)
from corbits_memory.ports import Reranker, RerankScore
from tests.models.conftest import Answer, ModelServer, Request

CLIENTS: dict[RerankStyle, type[HttpReranker]] = {
    "tei": TeiReranker,
    "cohere": CohereReranker,
    "voyage": VoyageReranker,
}
KEY = "rk-very-secret-0123456789"
each_style = pytest.mark.parametrize("style", list(CLIENTS))


def client(url: str, style: RerankStyle = "tei", **fields: Any) -> HttpReranker:
    settings: dict[str, Any] = {"timeout_ms": 10_000, "api_key": KEY, **fields}
    return CLIENTS[style](RerankConfig(base_url=url, api_style=style, **settings))


def wrap(path: str, scores: list[tuple[Any, Any]]) -> Any:
    name = "score" if path == "/rerank" else "relevance_score"
    rows = [{"index": index, name: score} for index, score in scores]
    return {"/rerank": rows, "/v2/rerank": {"results": rows}, "/v1/rerank": {"data": rows}}[path]


def scores(*pairs: tuple[Any, Any]) -> Any:
    return lambda request: Answer(wrap(request.path, list(pairs)))


def documents_of(request: Request) -> list[str]:
    documents: list[str] = request.body.get("texts") or request.body["documents"]
    return documents


def by_length(request: Request) -> Answer:
    return Answer(
        wrap(request.path, [(i, len(text) / 1_000) for i, text in enumerate(documents_of(request))])
    )


@each_style
async def test_documents_are_scored_best_first(server: ModelServer, style: RerankStyle) -> None:
    server.script(scores((2, 0.5), (0, 0.9), (1, -3)))
    reranker = client(server.url, style)
    assert isinstance(reranker, Reranker)
    assert await reranker.rerank("q", ["a", "b", "c"]) == [
        RerankScore(0, 0.9),
        RerankScore(2, 0.5),
        RerankScore(1, -3.0),
    ]
    request = server.requests[0]
    assert request.headers["authorization"] == f"Bearer {KEY}"
    pair = {"query": "q", "documents": ["a", "b", "c"], "model": "bge-reranker-v2-m3"}
    assert (request.path, request.body) == {
        "tei": ("/rerank", {"query": "q", "texts": ["a", "b", "c"]}),
        "cohere": ("/v2/rerank", pair),
        "voyage": ("/v1/rerank", pair),
    }[style]
    await reranker.aclose()


async def test_the_model_is_sent_by_name(server: ModelServer) -> None:
    server.script(by_length)
    reranker = client(server.url, "cohere", model="rerank-v4", api_key=None)
    await reranker.rerank("q", ["a"])
    assert reranker.model == server.requests[0].body["model"] == "rerank-v4"
    assert "authorization" not in server.requests[0].headers
    await reranker.aclose()


@pytest.mark.parametrize(("query", "documents"), [("q", []), ("", ["d"]), (" \n", ["d"])])
async def test_nothing_to_score_no_call(server: ModelServer, query: str, documents: list[str]) -> None:
    reranker = client(server.url)
    assert await reranker.rerank(query, documents) == []
    assert server.requests == []
    await reranker.aclose()


@each_style
async def test_an_answer_may_leave_documents_out(server: ModelServer, style: RerankStyle) -> None:
    server.script(scores((1, 0.5)))
    reranker = client(server.url, style)
    assert await reranker.rerank("q", ["a", "b"]) == [RerankScore(1, 0.5)]
    await reranker.aclose()


@pytest.mark.parametrize(("count", "sizes"), [(32, [32]), (33, [32, 1]), (70, [32, 32, 6])])
async def test_documents_travel_in_batches_of_32(server: ModelServer, count: int, sizes: list[int]) -> None:
    server.script(by_length)
    reranker = client(server.url)
    found = await reranker.rerank("q", ["x" * (i + 1) for i in range(count)])
    assert [score.index for score in found] == list(reversed(range(count)))
    assert sorted((len(documents_of(r)) for r in server.requests), reverse=True) == sizes
    await reranker.aclose()


async def test_equal_scores_keep_the_order_sent(server: ModelServer) -> None:
    server.script(scores((2, 0.5), (0, 0.5), (1, 0.5)))
    reranker = client(server.url)
    assert [score.index for score in await reranker.rerank("q", ["a", "b", "c"])] == [0, 1, 2]
    await reranker.aclose()


@each_style
@pytest.mark.parametrize(
    ("pairs", "problem"),
    [
        ([(2, 0.5)], "not sent"),
        ([(-1, 0.5)], "not sent"),
        ([("0", 0.5)], "not sent"),
        ([(True, 0.5)], "not sent"),
        ([(0, 0.5), (0, 0.6)], "twice"),
        ([(0, float("nan"))], "finite"),
        ([(0, float("-inf"))], "finite"),
        ([(0, 10**400)], "finite"),
        ([(0, "0.5")], "finite"),
        ([(0, None)], "finite"),
    ],
)
async def test_a_bad_score_is_refused(
    server: ModelServer, style: RerankStyle, pairs: list[tuple[Any, Any]], problem: str
) -> None:
    server.script(scores(*pairs))
    reranker = client(server.url, style)
    with pytest.raises(RerankHttpError, match=problem) as raised:
        await reranker.rerank("q", ["a", "b"])
    assert raised.value.http_status == 200
    await reranker.aclose()


@each_style
@pytest.mark.parametrize("raw", [b"", b"nope", b"{}", b"null", b"[1]", b'{"results": 1, "data": 1}'])
async def test_an_answer_that_is_not_the_protocol_is_refused(
    server: ModelServer, style: RerankStyle, raw: bytes
) -> None:
    server.script(Answer(raw=raw))
    reranker = client(server.url, style)
    with pytest.raises(RerankHttpError, match="RERANK_API_STYLE"):
        await reranker.rerank("q", ["a"])
    await reranker.aclose()


async def test_an_error_names_status_and_body_but_no_secret(server: ModelServer) -> None:
    server.script(lambda r: Answer({"bad key": KEY, "got": documents_of(r)}, status=401))
    reranker = client(server.url)
    with pytest.raises(RerankHttpError, match=r"401.*bad key") as raised:
        await reranker.rerank("q", ["the patient's file"])
    assert KEY not in raised.value.message
    assert "patient" not in raised.value.message
    await reranker.aclose()


async def test_a_hanging_reranker_is_a_timeout(server: ModelServer) -> None:
    server.script(Answer(hang=True))
    reranker = client(server.url, timeout_ms=150)
    with pytest.raises(RerankTimeoutError, match="RERANK_TIMEOUT_MS"):
        await reranker.rerank("q", ["d"] * 70)
    await reranker.aclose()


async def test_a_refused_connection_is_a_rerank_error(nobody: str) -> None:
    reranker = client(nobody)
    with pytest.raises(RerankHttpError, match="can't be reached"):
        await reranker.rerank("q", ["d"])
    await reranker.aclose()


@pytest.mark.parametrize(("query", "length"), [(1, 999), (150, 850), (800, 200)])
def test_the_query_takes_its_share_of_the_budget(query: int, length: int) -> None:
    [document] = fit_documents("q" * query, ["d" * 2_000], max_doc_chars=1_000, wide=1)
    assert len(document) == length


def test_a_query_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(RerankQueryTooLongError, match="801"):
        fit_documents("q" * 801, ["d"], max_doc_chars=1_000, wide=1)


async def test_a_query_that_leaves_no_room_is_not_sent(server: ModelServer) -> None:
    reranker = client(server.url, max_doc_chars=1_000)
    with pytest.raises(RerankQueryTooLongError):
        await reranker.rerank("q" * 801, ["d"])
    assert server.requests == []
    await reranker.aclose()


async def test_padding_never_fills_the_budget(server: ModelServer) -> None:
    server.script(by_length)
    reranker = client(server.url, max_doc_chars=220)
    await reranker.rerank("q", [" " * 220 + "the text"])
    assert documents_of(server.requests[0]) == ["the text"]
    await reranker.aclose()


@pytest.mark.parametrize(
    ("model", "length"),
    [
        ("bge-reranker-base", 1_499),
        ("bge-reranker-large", 1_499),
        ("bge-reranker-v2-m3", 24_539),
        ("BAAI/bge-reranker-v2-m3", 24_539),
        (None, 24_539),
        ("unknown", 1_499),
    ],
)
async def test_the_budget_follows_the_model(server: ModelServer, model: str | None, length: int) -> None:
    server.script(by_length)
    reranker = client(server.url, model=model)
    await reranker.rerank("q", ["d" * 30_000])
    assert len(documents_of(server.requests[0])[0]) == length
    await reranker.aclose()


async def test_a_script_without_spaces_gets_a_third_of_the_characters(server: ModelServer) -> None:
    server.script(by_length)
    reranker = client(server.url, model="bge-reranker-base")
    await reranker.rerank("q", ["好" * 2_000])
    assert documents_of(server.requests[0]) == ["好" * 499]
    await reranker.aclose()


async def test_other_styles_cut_nothing(server: ModelServer) -> None:
    server.script(by_length)
    reranker = client(server.url, "cohere", max_doc_chars=220)
    await reranker.rerank("q" * 500, ["d" * 5_000])
    assert len(documents_of(server.requests[0])[0]) == 5_000
    await reranker.aclose()


@pytest.mark.parametrize("style", list(CLIENTS))
async def test_the_factory_builds_each_style(server: ModelServer, style: RerankStyle) -> None:
    server.script(by_length)
    reranker = build_reranker(RerankConfig(base_url=server.url + "/", api_style=style))
    assert reranker is not None
    assert [score.index for score in await reranker.rerank("q", ["a", "bb"])] == [1, 0]
    await reranker.aclose()


def test_the_factory_builds_none_without_a_url_and_checks_the_rest() -> None:
    assert build_reranker(RerankConfig()) is None
    with pytest.raises(RerankConfigError):
        build_reranker(RerankConfig(base_url="http://h", model="unknown", max_doc_chars=1_537))
    with pytest.raises(ConfigError, match="tei, cohere, voyage"):
        build_reranker(RerankConfig(base_url="http://h", api_style="jina"))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="RERANK_BASE_URL"):
        build_reranker(RerankConfig(base_url="h:1"))
