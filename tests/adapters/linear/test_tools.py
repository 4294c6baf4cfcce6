"""Linear's tools: over a service that executes its GraphQL, and in the formats of the frameworks."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from corbits_memory.adapters.linear import LinearApi, LinearTools
from corbits_memory.errors import ConfigError
from corbits_memory.tools.anthropic import anthropic_tools
from corbits_memory.tools.langchain import langchain_tools
from corbits_memory.tools.openai import openai_tools
from corbits_memory.tools.pydantic_ai import pydantic_ai_tools
from tests.adapters.linear.service import TOKEN, LinearService, issue
from tests.models.conftest import Answer, ModelServer

NAMES = ["linear_search_issues", "linear_issue", "linear_create_issue", "linear_comment"]


@pytest.fixture
def service(server: ModelServer) -> LinearService:
    service = LinearService([issue(1, "Deploy on Fridays"), issue(2, "Deploy docs", team="team-2")])
    server.script(service)
    return service


@pytest.fixture
async def api(server: ModelServer) -> AsyncIterator[LinearApi]:
    async with LinearApi(access_token=TOKEN, base_url=f"{server.url}/graphql", timeout_seconds=2.0) as api:
        yield api


async def data(tools: LinearTools, name: str, arguments: Any) -> dict[str, Any]:
    result = await tools.call(name, arguments)
    assert not result.is_error, result.text
    assert json.loads(result.text) == result.data
    return result.data


async def test_issues_are_found_read_created_and_commented_on(api: LinearApi, service: LinearService) -> None:
    tools = LinearTools(api, team_id="team-1")
    found = await data(tools, "linear_search_issues", '{"query": "deploy", "limit": "5"}')
    assert [one["identifier"] for one in found["issues"]] == ["ENG-1"]
    made = await data(tools, "linear_create_issue", {"title": "Thaw Fridays", "priority": 1, "nonsense": 5})
    assert (made["issue"]["identifier"], service.issues[-1]["team"]["id"]) == ("ENG-3", "team-1")
    await data(tools, "linear_comment", {"issue_id": "ENG-3", "body": "Soon."})
    read = await data(tools, "linear_issue", {"id": "ENG-3"})
    assert (read["issue"]["title"], read["issue"]["priority"]) == ("Thaw Fridays", 1.0)
    assert [comment["body"] for comment in read["issue"]["comments"]["nodes"]] == ["Soon."]


async def test_an_issue_needs_a_team(api: LinearApi, service: LinearService) -> None:
    result = await LinearTools(api).call("linear_create_issue", {"title": "x"})
    assert result.data["error"]["code"] == "invalid_input"
    assert len(service.issues) == 2
    given = {"title": "x", "team_id": "team-2"}
    assert (await data(LinearTools(api), "linear_create_issue", given))["issue"]["identifier"] == "ENG-3"


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("linear_issue", {"id": "ENG-99"}, "linear_refused"),
        ("linear_issue", {}, "invalid_arguments"),
        ("linear_issue", "[", "invalid_arguments"),
        ("linear_search_issues", {"query": " "}, "invalid_arguments"),
        ("linear_search_issues", {"query": "x", "limit": 51}, "invalid_arguments"),
        ("linear_create_issue", {"title": "x", "team_id": "t", "priority": 5}, "invalid_arguments"),
        ("linear_nonsense", {}, "unknown_tool"),
    ],
)
async def test_what_is_wrong_is_told_as_one_error(
    api: LinearApi, service: LinearService, name: str, arguments: Any, code: str
) -> None:
    result = await LinearTools(api).call(name, arguments)
    assert (result.is_error, result.data["error"]["code"]) == (True, code)
    assert len(service.issues) == 2


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Answer("no", status=401), "vendor_http"),
        (Answer("slow", status=429, headers={"retry-after": "60"}), "vendor_http"),
        (Answer("oops", status=500), "vendor_http"),
        (Answer(raw=b"<html>"), "vendor_http"),
        (Answer(hang=True), "vendor_timeout"),
        (Answer({"data": {"commentCreate": {"success": False}}}), "linear_refused"),
        (Answer({"data": {"commentCreate": "x"}}), "linear_refused"),
        (
            Answer({"data": {"commentCreate": {"success": True, "comment": "x" * 300_000}}}),
            "result_too_large",
        ),
    ],
)
async def test_a_write_is_sent_once_whatever_comes_of_it(
    api: LinearApi, server: ModelServer, answer: Answer, code: str
) -> None:
    server.script(answer)
    result = await LinearTools(api).call("linear_comment", {"issue_id": "ENG-1", "body": "a secret body"})
    assert result.data["error"]["code"] == code
    assert "secret body" not in result.text
    assert len(server.requests) == 1
    if answer.status == 429:
        assert (result.data["error"]["status"], result.data["error"]["retryAfter"]) == (429, 60)


def test_tools_are_chosen_by_name(api: LinearApi) -> None:
    assert [tool.name for tool in LinearTools(api).tools] == NAMES
    reading = LinearTools(api, names=NAMES[:2])
    assert all(tool.read_only and tool.idempotent for tool in reading.tools)
    with pytest.raises(ConfigError, match="linear_nonsense"):
        LinearTools(api, names=["linear_nonsense"])


async def test_every_exporter_takes_them(api: LinearApi, service: LinearService) -> None:
    tools = LinearTools(api)
    assert [tool["function"]["name"] for tool in openai_tools(tools)] == NAMES
    assert [tool["name"] for tool in anthropic_tools(tools)] == NAMES
    assert [tool.name for tool in pydantic_ai_tools(tools)] == NAMES
    search = langchain_tools(tools)[0]
    found = json.loads(await search.ainvoke({"query": "deploy"}))
    assert [one["identifier"] for one in found["issues"]] == ["ENG-1", "ENG-2"]
