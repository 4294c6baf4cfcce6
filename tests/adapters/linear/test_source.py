"""Linear's issues beside the memory, over a service that executes its GraphQL."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from corbits_memory.adapters.linear import LinearError, LinearSource
from corbits_memory.adapters.vendor import VendorError, VendorHttpError, VendorTimeoutError
from corbits_memory.errors import ConfigError, MemoryError
from corbits_memory.plane import Memory
from corbits_memory.ports import LiveItem
from corbits_memory.testing import FakeDocumentStore
from corbits_memory.testing.conformance import SourceProviderConformance
from corbits_memory.validation import Content
from tests.adapters.failures import ANN
from tests.adapters.linear.service import NOW, TOKEN, LinearService, issue
from tests.models.conftest import Answer, ModelServer

ISSUES = [
    issue(1, "Deploy on Fridays", description="We " + "never deploy on Fridays. " * 30),
    issue(2, "Deploy faster"),
    issue(3, "Deploy docs", team="team-2"),
]


def linear(server: ModelServer, **options: Any) -> LinearSource:
    return LinearSource(**{"access_token": TOKEN, "base_url": f"{server.url}/graphql", **options})


async def asked(source: LinearSource, query: str = "deploy", limit: int = 8) -> list[LiveItem]:
    async with source:
        return list(await source.search_live(query=query, tenant_id="acme", principal_id="ann", limit=limit))


class TestSource(SourceProviderConformance):
    @pytest.fixture
    def factory(self) -> Iterator[Callable[[], LinearSource]]:
        with ModelServer() as server:
            server.script(LinearService([issue(n, f"Deploy {n}") for n in range(1, 60)]))
            yield lambda: linear(server)


async def test_issues_are_hits(server: ModelServer) -> None:
    server.script(LinearService(ISSUES))
    items = await asked(linear(server))
    assert [item.external_ref for item in items] == ["ENG-1", "ENG-2", "ENG-3"]
    assert [item.score for item in items] == [1.0, pytest.approx(2 / 3), pytest.approx(1 / 3)]
    first = items[0]
    assert (first.adapter, first.kind, first.title) == ("linear", "issue", "Deploy on Fridays")
    assert (len(first.snippet), first.snippet[-3:]) == (240, "...")
    assert items[1].snippet == "Deploy faster"
    assert (first.citation.open.type, first.citation.open.id, first.citation.open.url) == (
        "issue",
        "issue-1",
        "https://linear.app/acme/issue/ENG-1",
    )
    assert first.updated_at is not None
    assert first.updated_at.isoformat(timespec="milliseconds") == NOW.replace("Z", "+00:00")
    (request,) = server.requests
    assert (request.path, request.headers["authorization"]) == ("/graphql", f"Bearer {TOKEN}")
    assert request.body["variables"] == {"term": "deploy", "first": 8}


@pytest.mark.parametrize(("chars", "shown"), [(239, 239), (240, 240), (241, 240)])
async def test_a_description_is_cut_at_240_characters(server: ModelServer, chars: int, shown: int) -> None:
    server.script(LinearService([issue(1, "Deploy", description="x" * chars)]))
    (item,) = await asked(linear(server))
    assert (len(item.snippet), item.snippet.endswith("...")) == (shown, chars > 240)
    assert item.score == 1.0


async def test_one_team_alone(server: ModelServer) -> None:
    server.script(LinearService(ISSUES))
    assert [item.external_ref for item in await asked(linear(server, team_id="team-2"))] == ["ENG-3"]
    unasked = Answer({"data": {"searchIssues": {"nodes": ISSUES}}})
    server.script(unasked)
    assert [item.external_ref for item in await asked(linear(server, team_id="team-2"))] == ["ENG-3"]


async def test_a_personal_key_is_sent_as_it_is(server: ModelServer) -> None:
    server.script(LinearService(ISSUES, authorization="lin_api_1"))
    assert len(await asked(linear(server, access_token="lin_api_1"))) == 3


async def test_without_words_nobody_is_asked(server: ModelServer) -> None:
    assert await asked(linear(server), query=" ") == []
    assert server.requests == []


@pytest.mark.parametrize("token", ["", " ", "a b"])
def test_a_token_that_can_not_be_sent_is_refused(token: str) -> None:
    with pytest.raises(ConfigError, match="Linear needs its key"):
        LinearSource(access_token=token)


# --- failures ----------------------------------------------------------------------------------------


async def raised(server: ModelServer, *answers: Answer, **options: Any) -> MemoryError:
    server.script(*answers)
    with pytest.raises(MemoryError) as found:
        await asked(linear(server, **options), query="the secret plan for deploys")
    assert "secret plan" not in found.value.message
    assert TOKEN not in found.value.message
    return found.value


async def test_errors_beside_data_are_errors(server: ModelServer) -> None:
    error = {"message": f"Bad {TOKEN}", "extensions": {"code": "INPUT_ERROR"}}
    body = {
        "data": {"searchIssues": {"nodes": ISSUES}},
        "errors": [{**error, "message": "the secret plan for"}],
    }
    found = await raised(server, Answer(body))
    assert isinstance(found, LinearError)
    assert found.message == "Linear refused searchIssues (INPUT_ERROR): [text]"


async def test_a_rate_limit_is_told(server: ModelServer) -> None:
    body = {"errors": [{"message": "Rate limit exceeded", "extensions": {"code": "RATELIMITED"}}]}
    found = await raised(server, Answer(body, status=400))
    assert isinstance(found, VendorHttpError)
    assert found.http_status == 400
    assert "RATELIMITED" in found.message


async def test_a_wrong_token_is_told(server: ModelServer) -> None:
    found = await raised(server, LinearService(authorization="Bearer other"))  # type: ignore[arg-type]
    assert isinstance(found, VendorHttpError)
    assert "the key is not accepted" in found.message


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_trouble_is_tried_again_and_told(server: ModelServer, status: int) -> None:
    found = await raised(server, Answer("oops", status=status))
    assert isinstance(found, VendorHttpError)
    assert (found.http_status, len(server.requests)) == (status, 4)


async def test_silence_ends_in_time(server: ModelServer) -> None:
    assert isinstance(await raised(server, Answer(hang=True), timeout_seconds=0.2), VendorTimeoutError)


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        "text",
        {},
        {"data": None},
        {"data": []},
        {"data": {"searchIssues": None}},
        {"data": {"searchIssues": {"nodes": "x"}}},
        {"errors": "x"},
        {"errors": [None]},
    ],
)
async def test_what_is_no_result_is_an_error(server: ModelServer, body: Any) -> None:
    assert isinstance(await raised(server, Answer(body)), VendorError)


async def test_issues_of_any_shape_are_read_as_far_as_they_go(server: ModelServer) -> None:
    nodes = [
        None,
        5,
        {},
        {"id": "", "title": "x"},
        {"id": "issue-9", "title": None, "updatedAt": "soon", "url": 5},
    ]
    server.script(Answer({"data": {"searchIssues": {"nodes": nodes}}}))
    (item,) = await asked(linear(server))
    assert (item.external_ref, item.title, item.snippet, item.updated_at) == ("issue-9",) * 3 + (None,)
    assert item.citation.open.url is None


@pytest.mark.parametrize(
    ("answer", "flag"),
    [(Answer(hang=True), "live_timeout"), (Answer({"errors": [{"message": "no"}]}), "live_error")],
)
async def test_a_search_goes_on_without_linear(server: ModelServer, answer: Answer, flag: str) -> None:
    server.script(answer)
    source = linear(server)
    async with source, Memory(FakeDocumentStore(), sources=[source]) as memory:
        await memory.add(**ANN, content=Content(title="Deploys", text="Fridays are frozen."))
        began = time.monotonic()
        found = await memory.search(**ANN, query="deploys")
        assert time.monotonic() - began < 5
    assert (len(found.items), found.degraded) == (1, (flag,))


async def test_a_search_finds_both(server: ModelServer) -> None:
    server.script(LinearService(ISSUES))
    source = linear(server)
    async with source, Memory(FakeDocumentStore(), sources=[source]) as memory:
        await memory.add(**ANN, content=Content(title="Deploy", text="Fridays are frozen."))
        found = await memory.search(**ANN, query="deploy", limit=3)
    assert [item.adapter for item in found.items] == ["fake", "linear", "linear"]
    assert found.degraded == ()
