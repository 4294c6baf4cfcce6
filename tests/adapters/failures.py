"""What any vendor's API may do to a caller, and what must come of it: the tests of both stores."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, ClassVar

import httpx2
import pytest

from corbits_memory.adapters.bucket import BucketStore
from corbits_memory.adapters.vendor import VendorError, VendorHttpError, VendorTimeoutError
from corbits_memory.errors import (
    ConfigError,
    InvalidInputError,
    MemoryError,
    NotSupportedError,
    UnavailableError,
)
from corbits_memory.plane import Memory
from corbits_memory.ports import AddResult, SearchQuery, SearchResult
from corbits_memory.testing.conformance.world import note
from corbits_memory.validation import Content
from tests.adapters.service import KEY
from tests.models.conftest import Answer, ModelServer, Request

ANN: dict[str, Any] = {"tenant_id": "acme", "principal_id": "ann"}
CONTENT = Content(title="Animals", text="A zebra grazes.")
SECRET = "the zebra's secret stripes"


class VendorFailures:
    store_of: Callable[..., BucketStore]
    service: ClassVar[Any]
    """A script that behaves, one a test."""
    told: ClassVar[str]
    """How a message about HTTP 400 begins."""
    body_chars: ClassVar[int]

    def store(self, url: str, **options: Any) -> BucketStore:
        return type(self).store_of(**{"api_key": KEY, "base_url": url, **options})

    @pytest.mark.parametrize("key", ["", " ", "two words", "tab\t", "schlüssel"])
    def test_a_key_that_can_not_be_sent_is_refused_unrepeated(self, key: str) -> None:
        with pytest.raises(ConfigError) as refused:
            self.store("http://127.0.0.1:1", api_key=key)
        assert not key.strip() or key not in refused.value.message

    @pytest.mark.parametrize("url", ["", "127.0.0.1", "ftp://x", "http://", "http://[x"])
    def test_a_url_that_can_not_be_called_is_refused(self, url: str) -> None:
        with pytest.raises(ConfigError, match="base_url"):
            self.store(url)

    @pytest.mark.parametrize(("tenant", "principal"), [("", "ann"), (" ", "ann"), ("acme", "\t")])
    async def test_blank_names_are_refused_before_any_call(
        self, server: ModelServer, tenant: str, principal: str
    ) -> None:
        store = self.store(server.url)
        with pytest.raises(InvalidInputError):
            await store.add(tenant_id=tenant, principal_id=principal, documents=[note("zebra")])
        with pytest.raises(InvalidInputError):
            await store.search(tenant_id=tenant, principal_id=principal, query=SearchQuery(query="zebra"))
        assert server.requests == []

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422])
    async def test_a_refusal_is_told_once_without_key_and_text(
        self, server: ModelServer, status: int
    ) -> None:
        body = {"detail": f"bad {SECRET} for {KEY} " + "x" * 1_000}
        server.script(Answer(body, status=status))
        added, searched = await self.fail(server)
        for error in (added, searched):
            assert isinstance(error, VendorHttpError)
            assert (error.status, error.http_status) == (502, status)
            assert str(status) in error.message
            assert "secret stripes" not in error.message
            assert KEY not in error.message
            assert len(error.message) < self.body_chars + 120
        assert added.message.startswith(self.told.format(status=status))
        assert ("key is not accepted" in added.message) == (status in {401, 403})
        assert len(server.requests) == 2

    @pytest.mark.parametrize(("chars", "told"), [(199_000, True), (200_001, False)])
    async def test_of_a_very_long_text_no_answer_is_told(
        self, server: ModelServer, chars: int, told: bool
    ) -> None:
        server.script(Answer({"detail": "too long"}, status=400))
        store = self.store(server.url)
        (added,) = await store.add(**ANN, documents=[note("x" * chars)])
        assert isinstance(added, VendorHttpError)
        assert ("too long" in added.message) is told
        await store.close()

    async def test_too_many_requests_are_tried_again_when_it_says(self, server: ModelServer) -> None:
        server.script(Answer({}, status=429, headers={"retry-after": "0.05"}), self.service())
        async with Memory(self.store(server.url)) as memory:
            await memory.add(**ANN, content=CONTENT)
        assert len(server.requests) == 2

    async def test_a_wait_that_is_too_long_is_told(self, server: ModelServer) -> None:
        server.script(Answer({}, status=429, headers={"retry-after": "60"}))
        began = time.monotonic()
        added, searched = await self.fail(server)
        assert time.monotonic() - began < 5
        assert isinstance(added, VendorHttpError)
        assert added.retry_after == 60
        assert len(server.requests) == 2
        assert isinstance(searched, VendorHttpError)

    @pytest.mark.parametrize("status", [500, 502, 503, 504])
    async def test_a_search_is_tried_again_and_an_add_never(self, server: ModelServer, status: int) -> None:
        store = self.store(server.url)
        server.script(Answer("oops", status=status), self.service())
        (added,) = await store.add(**ANN, documents=[note("zebra")])
        assert isinstance(added, VendorHttpError)
        assert len(server.requests) == 1
        server.requests.clear()
        assert isinstance(await store.search(**ANN, query=SearchQuery(query="zebra")), SearchResult)
        assert len(server.requests) == 2
        await store.close()

    async def test_a_service_that_is_down_all_the_time_is_given_up(self, server: ModelServer) -> None:
        server.script(Answer("oops", status=503))
        _, searched = await self.fail(server)
        assert isinstance(searched, VendorHttpError)
        assert 2 <= len(server.requests) <= 5

    async def test_silence_ends_in_time(self, server: ModelServer) -> None:
        server.script(Answer(hang=True))
        began = time.monotonic()
        added, searched = await self.fail(server, timeout_seconds=0.3)
        assert time.monotonic() - began < 5
        assert isinstance(added, VendorTimeoutError)
        assert isinstance(searched, VendorTimeoutError)
        assert "0.3 s" in added.message

    async def test_nobody_there_is_told(self, nobody: str) -> None:
        store = self.store(nobody, timeout_seconds=2.0)
        (added,) = await store.add(**ANN, documents=[note("zebra")])
        assert isinstance(added, VendorError)
        assert "can't be reached: ConnectError" in added.message
        await store.close()

    @pytest.mark.parametrize("raw", [b"<html>log in</html>", b"{", b"\xff\xfe", b"[" * 100_000])
    async def test_garbage_is_no_success(self, server: ModelServer, raw: bytes) -> None:
        server.script(Answer(raw=raw))
        added, searched = await self.fail(server)
        assert "not with JSON" in added.message
        assert "not with JSON" in searched.message

    @pytest.mark.parametrize(
        "raw", [b"", b"  ", b"null", b"{}", b"[]", b'{"results": null}', b'{"results": []}']
    )
    async def test_no_body_and_no_rows_are_nothing_found(self, server: ModelServer, raw: bytes) -> None:
        server.script(Answer(raw=raw))
        async with Memory(self.store(server.url)) as memory:
            assert (await memory.search(**ANN, query="zebra")).items == ()
            await memory.add(**ANN, content=CONTENT)

    @pytest.mark.parametrize("body", [{"results": "x"}, {"results": {"a": 1}}, "text", 5])
    async def test_no_list_is_an_error(self, server: ModelServer, body: Any) -> None:
        server.script(Answer(body))
        store = self.store(server.url)
        with pytest.raises(VendorHttpError, match="no list"):
            await store.search(**ANN, query=SearchQuery(query="zebra"))
        await store.close()

    async def test_rows_of_any_shape_are_read_as_far_as_they_go(self, server: ModelServer) -> None:
        odd: list[Any] = [
            None,
            5,
            "row",
            [],
            {},
            {"id": 5, "memory": 5, "metadata": "x", "score": "high", "similarity": True},
            {"id": " ", "memory": None, "metadata": {"documentId": 5, "title": "", "occurredAt": "soon"}},
            {"id": "m1", "memory": "# Animals\nA zebra.", "metadata": None, "score": 1e400, "updated_at": 5},
            {"id": "m2", "memory": "y" * 10_000, "metadata": {"provenance": "sworn", "validUntil": "9999"}},
        ]
        # 1e400 is Infinity once it is read.
        server.script(Answer({"results": odd}))
        async with Memory(self.store(server.url)) as memory:
            items = (await memory.search(**ANN, query="zebra", limit=50)).items
        assert len(items) == 5
        by_id = {item.document_id: item for item in items}
        assert (by_id["m1"].title, by_id["m1"].snippet, by_id["m1"].score) == ("Animals", "A zebra.", 0.5)
        assert (len(by_id["m2"].title), len(by_id["m2"].snippet)) == (80, 241)
        assert [item.title for item in items if item.document_id not in by_id.keys() & {"m1", "m2"}] == [
            "untitled"
        ] * 3

    async def test_redirects_are_not_followed(self, server: ModelServer) -> None:
        with ModelServer() as elsewhere:
            elsewhere.script(self.service())
            server.script(Answer({}, status=307, headers={"location": elsewhere.url}))
            added, _ = await self.fail(server)
            assert elsewhere.requests == []
        assert "redirects are not followed" in added.message

    async def test_an_endless_answer_is_read_so_far(self, server: ModelServer) -> None:
        server.script(Answer(raw=b" " * (17 * 1024 * 1024)))
        store = self.store(server.url)
        assert (await store.search(**ANN, query=SearchQuery(query="zebra"))).items == ()
        await store.close()

    async def test_a_batch_is_sent_side_by_side_and_answers_in_order(self, server: ModelServer) -> None:
        script = self.service()

        def slow(request: Request) -> Answer:
            if "number3 " in str(request.body):
                return Answer({"detail": "no"}, status=400)
            return script(request)  # type: ignore[no-any-return]

        server.script(slow)
        store = self.store(server.url)
        answers = await store.add(**ANN, documents=[note(f"number{n} zebra") for n in range(20)])
        assert [index for index, answer in enumerate(answers) if isinstance(answer, MemoryError)] == [3]
        assert len({answer.document_id for answer in answers if isinstance(answer, AddResult)}) == 19
        assert server.most_in_flight <= 8
        await store.close()

    async def test_a_call_that_is_given_up_ends(self, server: ModelServer) -> None:
        server.script(Answer(hang=True))
        store = self.store(server.url)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(store.search(**ANN, query=SearchQuery(query="zebra")), 0.2)
        await store.close()

    @pytest.mark.parametrize(
        "fields",
        [
            {"query": " ", "kinds": ["page"]},
            {"entity_ids": ["e"]},
            {"attributes": {"team": "blue"}},
            {"as_of": "2026-01-01"},
            {"generation": "g"},
        ],
    )
    async def test_what_it_can_not_be_asked_is_refused_before_any_call(
        self, server: ModelServer, fields: dict[str, Any]
    ) -> None:
        async with Memory(self.store(server.url)) as memory:
            with pytest.raises(NotSupportedError):
                await memory.search(**ANN, **{"query": "zebra", **fields})
        assert server.requests == []

    async def test_a_closed_store_says_so(self, server: ModelServer) -> None:
        store = self.store(server.url)
        await store.close()
        await store.close()
        with pytest.raises(UnavailableError):
            await store.search(**ANN, query=SearchQuery(query="zebra"))

    async def test_what_can_not_be_sent_is_refused(self, server: ModelServer) -> None:
        store = self.store(server.url)
        (added,) = await store.add(**ANN, documents=[note("\ud800")])
        assert isinstance(added, InvalidInputError)
        assert server.requests == []

    async def test_a_transport_may_be_given(self) -> None:
        seen: list[httpx2.Request] = []

        def handle(request: httpx2.Request) -> httpx2.Response:
            seen.append(request)
            return httpx2.Response(200, json={})

        store = self.store("https://vendor.test", transport=httpx2.MockTransport(handle))
        await store.add(**ANN, documents=[note("zebra")])
        assert [request.url.host for request in seen] == ["vendor.test"]
        await store.close()

    async def fail(self, server: ModelServer, **options: Any) -> tuple[MemoryError, MemoryError]:
        """What an add and a search raise."""
        store = self.store(server.url, **options)
        (added,) = await store.add(**ANN, documents=[note(SECRET)])
        assert isinstance(added, MemoryError)
        with pytest.raises(MemoryError) as searched:
            await store.search(**ANN, query=SearchQuery(query=SECRET))
        await store.close()
        return added, searched.value
