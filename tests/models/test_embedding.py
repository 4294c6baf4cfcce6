import asyncio
import time

import pytest

from corbits_memory.config import EmbedStyle
from corbits_memory.core.hashing import model_key
from corbits_memory.errors import ConfigError, DimsOutOfBoundsError, EmbedHttpError, EmbedTimeoutError
from corbits_memory.ports import Embedder
from tests.models.conftest import Answer, ModelServer, Request
from tests.models.embedding import CLIENTS, KEY, client, embed, texts_of, vector, vectors, wrap

STYLES: list[EmbedStyle] = list(CLIENTS)
each_style = pytest.mark.parametrize("style", STYLES)


@each_style
async def test_texts_become_vectors_in_order(server: ModelServer, style: EmbedStyle) -> None:
    server.script(embed)
    embedder = client(server.url, style)
    assert isinstance(embedder, Embedder)
    assert await embedder.embed(["a", "bb"], purpose="passage") == [vector("a"), vector("bb")]
    request = server.requests[0]
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["content-type"] == "application/json"
    assert (request.path, request.body) == {
        "openai": ("/v1/embeddings", {"model": "m", "input": ["a", "bb"]}),
        "tei": ("/embed", {"inputs": ["a", "bb"]}),
        "ollama": ("/api/embed", {"model": "m", "input": ["a", "bb"], "truncate": True}),
    }[style]
    assert (embedder.base_url, embedder.model, embedder.api_style) == (server.url, "m", style)
    assert embedder.model_key == model_key(server.url, "m")
    await embedder.aclose()


async def test_without_a_key_none_is_sent(server: ModelServer) -> None:
    server.script(embed)
    embedder = client(server.url, api_key=None)
    await embedder.embed(["a"], purpose="query")
    assert "authorization" not in server.requests[0].headers
    await embedder.aclose()


async def test_no_texts_no_call(server: ModelServer) -> None:
    embedder = client(server.url)
    assert await embedder.embed([], purpose="passage") == []
    assert server.requests == []
    await embedder.aclose()


async def test_openai_answers_are_ordered_by_their_index(server: ModelServer) -> None:
    server.script(
        Answer({"data": [{"index": 1, "embedding": [2.0, 2.0]}, {"index": 0, "embedding": [1.0, 1.0]}]})
    )
    embedder = client(server.url)
    assert await embedder.embed(["a", "b"], purpose="passage") == [[1.0, 1.0], [2.0, 2.0]]
    await embedder.aclose()


async def test_openai_answers_without_an_index_keep_their_order(server: ModelServer) -> None:
    server.script(Answer({"data": [{"embedding": [1.0, 1.0]}, {"embedding": [2.0, 2.0]}]}))
    embedder = client(server.url)
    assert await embedder.embed(["a", "b"], purpose="passage") == [[1.0, 1.0], [2.0, 2.0]]
    await embedder.aclose()


@pytest.mark.parametrize("indexes", [(0, 0), (0, 2), (-1, 0), (None, 0), ("0", "1"), (False, True)])
async def test_openai_indexes_that_number_no_texts_are_refused(
    server: ModelServer, indexes: tuple[object, object]
) -> None:
    server.script(Answer({"data": [{"index": i, "embedding": [1.0, 1.0]} for i in indexes]}))
    embedder = client(server.url)
    with pytest.raises(EmbedHttpError, match="index"):
        await embedder.embed(["a", "b"], purpose="passage")
    await embedder.aclose()


@pytest.mark.parametrize(("count", "sizes"), [(1, [1]), (3, [3]), (4, [3, 1]), (7, [3, 3, 1])])
async def test_texts_travel_in_batches(server: ModelServer, count: int, sizes: list[int]) -> None:
    server.script(embed)
    embedder = client(server.url, batch_size=3)
    texts = ["x" * (i + 1) for i in range(count)]
    assert await embedder.embed(texts, purpose="passage") == [vector(text) for text in texts]
    assert sorted((len(texts_of(r)) for r in server.requests), reverse=True) == sizes
    await embedder.aclose()


async def test_at_most_four_batches_are_in_flight_and_a_query_waits_for_none(server: ModelServer) -> None:
    gate = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slowly(request: Request) -> Answer:
        return embed(request)

    server.script(slowly)
    embedder = client(server.url, batch_size=1, timeout_ms=5_000)
    held: list[str] = []
    real = embedder._endpoint.post

    async def hold(body: dict[str, list[str]], *rest: object, **more: object) -> object:
        held.extend(body["input"])
        if body["input"][0].startswith("p"):
            await gate.wait()
        return await real(body, *rest, **more)  # type: ignore[arg-type]

    embedder._endpoint.post = hold  # type: ignore[assignment, method-assign]
    bulk = loop.create_task(embedder.embed([f"p{i}" for i in range(9)], purpose="passage"))
    await asyncio.sleep(0.01)
    assert len(held) == 4
    assert await embedder.embed(["q"], purpose="query") == [vector("q")]
    gate.set()
    assert await bulk == [vector(f"p{i}") for i in range(9)]
    assert server.most_in_flight <= 5
    await embedder.aclose()


@each_style
@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ([1.0, float("nan")], "not finite"),
        ([1.0, float("inf")], "not finite"),
        ([1.0, 10**400], "not finite"),
        ([1.0, "2"], "not a number"),
        ([1.0, True], "not a number"),
        ([1.0, None], "not a number"),
        ([1.0, 2.0, 3.0], "3 dimensions where the model has 2"),
        ([], "not a vector"),
        ("text", "not a vector"),
        ([0.0, 0.0], "zeros"),
    ],
)
async def test_a_bad_vector_is_refused(
    server: ModelServer, style: EmbedStyle, row: object, problem: str
) -> None:
    server.script(vectors([1.0, 2.0], row))
    embedder = client(server.url, style)
    with pytest.raises(EmbedHttpError, match=problem) as raised:
        await embedder.embed(["a", "b"], purpose="passage")
    assert raised.value.http_status == 200
    assert len(server.requests) == 1
    await embedder.aclose()


@each_style
@pytest.mark.parametrize("count", [0, 1, 3])
async def test_a_wrong_number_of_vectors_is_refused(
    server: ModelServer, style: EmbedStyle, count: int
) -> None:
    server.script(vectors(*[[1.0, 2.0]] * count))
    embedder = client(server.url, style)
    with pytest.raises(EmbedHttpError, match=f"{count} vectors for 2 texts"):
        await embedder.embed(["a", "b"], purpose="passage")
    await embedder.aclose()


async def test_dims_that_change_between_calls_are_refused_by_name(server: ModelServer) -> None:
    server.script(vectors([1.0] * 3), vectors([1.0] * 4))
    embedder = client(server.url)
    await embedder.embed(["a"], purpose="passage")
    with pytest.raises(EmbedHttpError, match="4 dimensions where the model has 3"):
        await embedder.embed(["b"], purpose="passage")
    await embedder.aclose()


@each_style
@pytest.mark.parametrize(
    "raw", [b"", b"{", b"<html>502</html>", b"null", b'{"error": "no"}', b"[" * 100_000, b"\xff\xfe"]
)
async def test_an_answer_that_is_not_the_protocol_is_refused(
    server: ModelServer, style: EmbedStyle, raw: bytes
) -> None:
    server.script(Answer(raw=raw))
    embedder = client(server.url, style)
    with pytest.raises(EmbedHttpError, match="EMBED_API_STYLE") as raised:
        await embedder.embed(["a"], purpose="passage")
    assert len(raised.value.message) < 900
    await embedder.aclose()


@pytest.mark.parametrize("status", [429, 500, 503, 599])
async def test_a_passing_failure_is_tried_again(server: ModelServer, status: int) -> None:
    server.script(Answer({}, status=status, headers={"retry-after": "0"}), embed)
    embedder = client(server.url)
    assert await embedder.embed(["a"], purpose="passage") == [vector("a")]
    assert len(server.requests) == 2
    await embedder.aclose()


async def test_retry_after_is_honoured(server: ModelServer) -> None:
    server.script(Answer({}, status=429, headers={"retry-after": "0.3"}), embed)
    embedder = client(server.url)
    started = time.monotonic()
    await embedder.embed(["a"], purpose="passage")
    assert time.monotonic() - started >= 0.3
    await embedder.aclose()


@pytest.mark.parametrize("style", ["date", "date without a zone", "nonsense", "-5"])
async def test_every_form_of_retry_after_is_read_or_passed_over(server: ModelServer, style: str) -> None:
    when = {"date": "Fri, 31 Dec 2999 23:59:59 GMT", "date without a zone": "Fri, 31 Dec 2999 23:59:59"}
    server.script(Answer({}, status=429, headers={"retry-after": when.get(style, style)}), embed)
    embedder = client(server.url)
    if style.startswith("date"):
        with pytest.raises(EmbedHttpError) as raised:
            await embedder.embed(["a"], purpose="query")
        assert raised.value.retry_after is not None
        assert raised.value.retry_after > 1e9
    else:
        assert await embedder.embed(["a"], purpose="query") == [vector("a")]
    await embedder.aclose()


async def test_credentials_of_the_url_are_sent_when_there_is_no_key(server: ModelServer) -> None:
    server.script(embed)
    embedder = client(server.url.replace("http://", "http://user:hunter22@"), api_key=None)
    await embedder.embed(["a"], purpose="query")
    assert server.requests[0].headers["authorization"] == "Basic dXNlcjpodW50ZXIyMg=="
    await embedder.aclose()


async def test_a_retry_after_beyond_the_limit_is_reported_and_not_waited_for(server: ModelServer) -> None:
    server.script(Answer({}, status=429, headers={"retry-after": "60"}))
    embedder = client(server.url)
    started = time.monotonic()
    with pytest.raises(EmbedHttpError, match="429") as raised:
        await embedder.embed(["a"], purpose="passage")
    assert raised.value.retry_after == 60
    assert time.monotonic() - started < 5
    assert len(server.requests) == 1
    await embedder.aclose()


async def test_a_lasting_failure_is_given_up_with_its_status(server: ModelServer) -> None:
    server.script(Answer({"error": "overloaded"}, status=500, headers={"retry-after": "0"}))
    embedder = client(server.url)
    with pytest.raises(EmbedHttpError, match="overloaded") as raised:
        await embedder.embed(["a"], purpose="passage")
    assert raised.value.http_status == 500
    assert len(server.requests) == 4
    await embedder.aclose()


async def test_when_time_runs_out_between_tries_the_last_answer_is_the_error(server: ModelServer) -> None:
    server.script(Answer({}, status=503))
    embedder = client(server.url, timeout_ms=600)
    with pytest.raises(EmbedHttpError, match="503"):
        await embedder.embed(["a"], purpose="passage")
    await embedder.aclose()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_what_the_caller_must_mend_is_not_tried_again(server: ModelServer, status: int) -> None:
    server.script(Answer({"error": "no"}, status=status))
    embedder = client(server.url)
    with pytest.raises(EmbedHttpError) as raised:
        await embedder.embed(["a"], purpose="passage")
    assert raised.value.http_status == status
    assert len(server.requests) == 1
    await embedder.aclose()


async def test_a_hanging_server_is_a_timeout_that_names_url_and_limit(server: ModelServer) -> None:
    server.script(Answer(hang=True))
    embedder = client(server.url, timeout_ms=150)
    started = time.monotonic()
    with pytest.raises(EmbedTimeoutError, match=f"{server.url}/v1/embeddings .* 150 ms.*EMBED_TIMEOUT_MS"):
        await embedder.embed(["a"], purpose="query")
    assert time.monotonic() - started < 5
    await embedder.aclose()


async def test_a_refused_connection_is_an_embed_error(nobody: str) -> None:
    embedder = client(nobody)
    with pytest.raises(EmbedHttpError, match=r"can't be reached: ConnectError") as raised:
        await embedder.embed(["a"], purpose="query")
    assert raised.value.http_status is None
    await embedder.aclose()


async def test_a_redirect_is_not_followed(server: ModelServer) -> None:
    server.script(Answer({}, status=307, headers={"location": f"{server.url}/elsewhere"}))
    embedder = client(server.url)
    with pytest.raises(EmbedHttpError, match=r"307.*not followed"):
        await embedder.embed(["a"], purpose="passage")
    assert len(server.requests) == 1
    await embedder.aclose()


@pytest.mark.parametrize(("size", "shown"), [(0, 0), (499, 499), (500, 500), (501, 500), (2_000_000, 500)])
async def test_an_error_body_is_cut(server: ModelServer, size: int, shown: int) -> None:
    server.script(Answer(status=400, raw=b"Z" * size))
    embedder = client(server.url)
    with pytest.raises(EmbedHttpError) as raised:
        await embedder.embed(["a"], purpose="passage")
    assert raised.value.message.count("Z") == shown
    await embedder.aclose()


async def test_neither_key_nor_texts_nor_url_credentials_get_into_an_error(server: ModelServer) -> None:
    text = 'The "patient" said: naïve\nand more'
    said = f"x{'.' * 480} wrong key {KEY}"

    def echo(request: Request) -> Answer:
        return Answer({"detail": [said, {"input": request.body["input"]}]}, status=422)

    server.script(echo)
    address = server.url.replace("http://", "http://user:hunter22@") + "?token=t0ken"
    embedder = client(address)
    with pytest.raises(EmbedHttpError, match="422") as raised:
        await embedder.embed([text], purpose="passage")
    for secret in (KEY, KEY[:12], "hunter22", "t0ken", "patient", "naïve"):
        assert secret not in str(raised.value)
    assert server.requests[0].path == "/v1/embeddings?token=t0ken"
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    await embedder.aclose()


@pytest.mark.parametrize("base", ["", "/", "/proxy", "/proxy/", "/v1", "/v1/", "/proxy/v1"])
async def test_the_base_url_may_end_in_a_slash_or_in_the_version(server: ModelServer, base: str) -> None:
    server.script(embed)
    embedder = client(server.url + base)
    await embedder.embed(["a"], purpose="query")
    prefix = "/proxy" if "proxy" in base else ""
    assert server.requests[0].path == f"{prefix}/v1/embeddings"
    await embedder.aclose()


@pytest.mark.parametrize("url", ["", "localhost:11434", "ftp://host", "http://", "http://[bad", "http://h:x"])
def test_a_url_that_can_not_be_called_is_refused_when_the_client_is_built(url: str) -> None:
    with pytest.raises(ConfigError, match="EMBED_BASE_URL"):
        client(url)


async def test_nul_and_lone_surrogates_do_not_reach_the_server(server: ModelServer) -> None:
    server.script(embed)
    embedder = client(server.url)
    await embedder.embed(["a\0b\ud800c"], purpose="passage")
    assert texts_of(server.requests[0]) == ["ab?c"]
    await embedder.aclose()


@pytest.mark.parametrize(("dims", "fits"), [(63, False), (64, True), (4_000, True), (4_001, False)])
async def test_dims_are_probed_once_and_must_be_indexable(server: ModelServer, dims: int, fits: bool) -> None:
    server.script(vectors([0.5] * dims))
    embedder = client(server.url)
    for _ in range(2):
        if fits:
            assert await embedder.dims() == dims
        else:
            with pytest.raises(DimsOutOfBoundsError, match=f"{dims} dimensions"):
                await embedder.dims()
    assert len(server.requests) == 1
    await embedder.aclose()


def at_most(chars: int) -> object:
    """A server that refuses longer texts, as TEI does."""

    def answer(request: Request) -> Answer:
        if max(map(len, texts_of(request))) > chars:
            return Answer({"error": f"`inputs` must have less than {chars} tokens"}, status=413)
        return embed(request)

    return answer


async def test_a_text_too_long_for_the_model_is_read_in_windows(server: ModelServer) -> None:
    server.script(at_most(500))  # type: ignore[arg-type]
    embedder = client(server.url, "tei")
    text = "word " * 400
    long, short = await embedder.embed([text, "short"], purpose="passage")
    assert short == vector("short")
    assert sum(number**2 for number in long) == pytest.approx(1.0)
    sent = texts_of(server.requests[-1])
    assert "".join(sent[:-1]) == text
    asked = len(server.requests)
    await embedder.embed([text], purpose="passage")
    assert len(server.requests) == asked + 1  # the limit is known by now
    await embedder.aclose()


async def test_a_refusal_that_smaller_windows_do_not_mend_leaves_no_trace(server: ModelServer) -> None:
    text = "word " * 400
    server.script(at_most(0))  # type: ignore[arg-type]
    embedder = client(server.url, "tei")
    with pytest.raises(EmbedHttpError):
        await embedder.embed([text], purpose="passage")
    server.script(embed)
    assert await embedder.embed([text], purpose="passage") == [vector(text)]
    await embedder.aclose()


async def test_a_server_that_refuses_any_length_is_not_asked_for_ever(server: ModelServer) -> None:
    server.script(at_most(0))  # type: ignore[arg-type]
    embedder = client(server.url, "tei")
    with pytest.raises(EmbedHttpError, match="413"):
        await embedder.embed(["word " * 400], purpose="passage")
    assert len(server.requests) < 10
    await embedder.aclose()


async def test_a_server_with_a_smaller_batch_gets_smaller_batches(server: ModelServer) -> None:
    def at_most_eight(request: Request) -> Answer:
        texts = texts_of(request)
        if len(texts) > 8:
            return Answer({"error": f"batch size {len(texts)} > maximum allowed batch size 8"}, status=422)
        return Answer(wrap(request.path, [vector(text) for text in texts]))

    server.script(at_most_eight)
    embedder = client(server.url, "tei", batch_size=32)
    texts = ["x" * (i + 1) for i in range(20)]
    assert await embedder.embed(texts, purpose="passage") == [vector(text) for text in texts]
    await embedder.aclose()


async def test_a_closed_client_says_so(server: ModelServer) -> None:
    embedder = client(server.url)
    await embedder.aclose()
    with pytest.raises(EmbedHttpError, match="closed"):
        await embedder.embed(["a"], purpose="query")
