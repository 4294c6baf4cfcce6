"""How a body is read: its size, its type, its JSON."""

from collections.abc import AsyncIterator

import httpx2
import pytest

from corbits_memory.core.limits import BODY_BYTES
from corbits_memory.testing import FakeDocumentStore
from tests.http.test_guard import error_of

JSON = {"content-type": "application/json"}


def body_of(size: int) -> bytes:
    """A valid add of exactly so many bytes."""
    frame = b'{"title":"a","text":"b","ignored":""}'
    return frame[:-2] + b"x" * (size - len(frame)) + frame[-2:]


async def pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 1 << 20):
        yield body[start : start + (1 << 20)]


@pytest.mark.parametrize(
    ("size", "status"), [(BODY_BYTES - 1, 200), (BODY_BYTES, 200), (BODY_BYTES + 1, 413)]
)
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_has_at_most_ten_mebibytes(
    http: httpx2.AsyncClient, store: FakeDocumentStore, size: int, status: int, chunked: bool
) -> None:
    body = body_of(size)
    answer = await http.post("/add", content=pieces(body) if chunked else body, headers=JSON)
    assert answer.status_code == status
    assert len(store.documents) == (status == 200)
    if status == 413:
        assert error_of(answer)["code"] == "too_large"


async def test_too_large_comes_before_not_valid(http: httpx2.AsyncClient) -> None:
    answer = await http.post("/search", content=pieces(b"{" * (BODY_BYTES + 1)), headers=JSON)
    assert answer.status_code == 413


async def test_an_absurd_declared_length_is_too_large(http: httpx2.AsyncClient) -> None:
    answer = await http.post("/add", content=b"", headers={**JSON, "content-length": "9" * 5_000})
    assert answer.status_code == 413


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "application/json; charset=utf-8", "APPLICATION/JSON", "application/ld+json"],
)
async def test_json_types_are_parsed(http: httpx2.AsyncClient, content_type: str) -> None:
    body = b'{"title":"a","text":"b"}'
    assert (await http.post("/add", content=body, headers={"content-type": content_type})).status_code == 200


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/jsonx", "application/+json", "json"])
async def test_another_type_counts_as_an_empty_object(http: httpx2.AsyncClient, content_type: str) -> None:
    body = b'{"title":"a","text":"b"}'
    answer = await http.post("/add", content=body, headers={"content-type": content_type})
    assert answer.status_code == 400
    error = error_of(answer)
    assert {"field": "title", "problem": "is required"} in error["details"]
    assert {"field": "content-type", "problem": "must be application/json"} in error["details"]


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b'{"title":"secret",}', "line 1"),
        (b'{"title": NaN}', "NaN"),
        (b'{"title": -Infinity}', "Infinity"),
        (b'{"title":"secret","title":"b"}', "repeated key"),
        (b'{"share":{"tenant":true,"tenant":false}}', "repeated key"),
        (b'{"title":"\xff"}', "UTF-8"),
        ('{"title":"secret"}'.encode("utf-16"), "UTF-8"),
        (b"\xef\xbb\xbf{}", "not valid JSON"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'{"a":' + b"9" * 5_000 + b"}", "number"),
        (b"[]", "object"),
        (b'"secret"', "object"),
        (b"null", "object"),
    ],
)
async def test_what_is_no_json_object_is_400(http: httpx2.AsyncClient, body: bytes, word: str) -> None:
    for path in ("/add", "/add/batch", "/search"):
        answer = await http.post(path, content=body, headers=JSON)
        assert answer.status_code == 400
        error = error_of(answer)
        assert error["code"] == "invalid_input"
        assert word in error["message"]
        assert "secret" not in answer.text


async def test_a_number_beyond_floats_is_no_attribute(http: httpx2.AsyncClient) -> None:
    body = b'{"title":"a","text":"b","attributes":{"x":1e999}}'
    answer = await http.post("/add", content=body, headers=JSON)
    assert error_of(answer)["details"] == [
        {"field": "attributes value 0", "problem": "must be a number within ±(2^53 - 1)"}
    ]


async def test_lone_surrogates_are_refused_where_they_are_kept(http: httpx2.AsyncClient) -> None:
    body = b'{"title":"a\\ud800","text":"b"}'
    answer = await http.post("/add", content=body, headers=JSON)
    assert error_of(answer)["details"][0]["field"] == "title"
    pair = b'{"title":"\\ud83d\\ude00","text":"b","ignored":"\\ud800"}'
    assert (await http.post("/add", content=pair, headers=JSON)).status_code == 200


async def test_get_takes_no_body(http: httpx2.AsyncClient) -> None:
    assert (await http.request("GET", "/list", content=b"{", headers=JSON)).status_code == 200
