"""What tools take, send and answer."""

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import jsonschema_rs
import pytest

from corbits_memory.client import MemoryClient, SyncMemoryClient, policy
from corbits_memory.core import limits
from corbits_memory.core.chunking import token_count
from corbits_memory.errors import ConfigError
from corbits_memory.tools import TOOLS, MemoryTools, create_memory_tools
from corbits_memory.tools.definitions import AddArguments
from corbits_memory.tools.results import DETAIL_CHARS
from tests.http.feeding import FeedingStore
from tests.models.conftest import Answer, ModelServer

NAMES = [tool.name for tool in TOOLS]
SPEC = {
    "memory_add": "title text access_tags kind generator_agent_id provenance lineage_class temporal_class derived_from "
    "valid_from valid_until share",
    "memory_search": "query limit kinds entity_ids sources includeEvidence includeDeprecated",
    "memory_list": "limit",
    "memory_feed": "after limit exclude_generator",
}
ENOUGH: dict[str, dict[str, Any]] = {
    "memory_add": {"title": "t", "text": "x"},
    "memory_search": {"query": "q"},
    "memory_context": {"query": "q"},
    "memory_list": {},
    "memory_feed": {},
    "memory_history": {"document_id": "d"},
    "memory_forget": {"document_id": "d"},
}


@pytest.fixture
async def scripted(server: ModelServer) -> AsyncIterator[MemoryTools]:
    server.script(Answer({}))
    async with MemoryClient(server.url, tenant="acme", token="t", trust_env=False, attempts=1) as client:
        yield MemoryTools(client)


async def sent(tools: MemoryTools, server: ModelServer, name: str, arguments: Any) -> dict[str, Any]:
    """The body, or the query, that a call leads to."""
    server.requests.clear()
    await tools.call(name, arguments)
    assert len(server.requests) == 1, "nothing was sent"
    request = server.requests[0]
    return dict(request.body) if request.body is not None else {"path": request.path.partition("/memory")[2]}


# --- definitions -------------------------------------------------------------------------------------


def test_the_arguments_are_those_of_the_original() -> None:
    schemas = {tool.name: tool.input_schema for tool in TOOLS}
    for name, fields in SPEC.items():
        assert list(schemas[name]["properties"]) == fields.split()
    assert schemas["memory_add"]["required"] == ["title", "text"]
    assert list(schemas["memory_add"]["properties"]["share"]["properties"]) == [
        "tenant",
        "principals",
        "tags",
    ]


@pytest.mark.parametrize("tool", TOOLS, ids=NAMES)
def test_schemas_are_sound_and_small(tool: Any) -> None:
    for schema in (tool.input_schema, tool.output_schema):
        jsonschema_rs.meta.validate(schema)
    text = json.dumps(tool.input_schema)
    assert tool.input_schema["additionalProperties"] is False
    assert all(word not in text for word in ("anyOf", "$ref", "null", '"title": "'))
    assert token_count(text) < 400
    assert token_count(tool.description) < 100


def test_what_is_read_is_told_apart_from_what_is_changed() -> None:
    assert {tool.name for tool in TOOLS if not tool.read_only} == {"memory_add", "memory_forget"}
    assert {tool.name for tool in TOOLS if tool.destructive} == {"memory_forget"}
    assert {tool.name for tool in TOOLS if not tool.idempotent} == {"memory_add"}


def test_some_tools_alone() -> None:
    client = SyncMemoryClient("http://h", tenant="t", token="x")
    chosen = MemoryTools(client, names=["memory_search", "memory_list"])
    assert [tool.name for tool in chosen.tools] == ["memory_search", "memory_list"]
    with pytest.raises(ConfigError, match="memory_delete"):
        MemoryTools(client, names=["memory_delete"])


# --- over real routes --------------------------------------------------------------------------------


async def test_every_tool_answers_with_the_json_of_its_route(tools: MemoryTools, store: FeedingStore) -> None:
    seen: dict[str, Any] = {}

    async def call(name: str, **arguments: Any) -> Any:
        result = await tools.call(name, arguments)
        assert not result.is_error, result.text
        assert json.loads(result.text) == result.data
        tool = next(tool for tool in TOOLS if tool.name == name)
        jsonschema_rs.validator_for(tool.output_schema).validate(result.data)
        seen[name] = result.data
        return result.data

    added = await call("memory_add", title="Deploys", text="Fridays are frozen.")
    assert added["status"] == "created"
    other = await call("memory_add", title="Frozen", text="Also frozen.")
    found = await call("memory_search", query="Fridays are frozen", limit=1)
    assert found["items"][0]["documentId"] == added["documentId"]
    assert "nextCursor" not in found, "of use to no model, and long"
    assert (await call("memory_forget", document_id=other["documentId"]))["versions"] == 1
    assert "Fridays are frozen." in (await call("memory_context", query="frozen"))["context"]
    assert (await call("memory_list"))["events"][0]["documentId"] == added["documentId"]
    assert (await call("memory_feed"))["entries"][0]["versionId"] == added["versionId"]
    assert (await call("memory_history", document_id=added["documentId"]))["versions"][0]["version"] == 1
    assert (await call("memory_forget", document_id=added["documentId"]))["versions"] == 1
    assert set(seen) == set(NAMES)
    assert (await tools.call("memory_search", {"query": "frozen"})).data["items"] == []


# --- sloppiness --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "wanted"),
    [
        ("memory_search", {"query": "q", "limit": "5"}, {"query": "q", "limit": 5}),
        ("memory_search", {"query": "q", "limit": 5.0}, {"query": "q", "limit": 5}),
        ("memory_search", {"query": "q", "limit": None, "kinds": None}, {"query": "q"}),
        ("memory_search", {"query": "q", "limit": ""}, {"query": "q"}),
        ("memory_search", {"query": "q", "kinds": "note"}, {"query": "q", "kinds": ["note"]}),
        ("memory_search", {"query": "q", "kinds": '["a", "b"]'}, {"query": "q", "kinds": ["a", "b"]}),
        ("memory_search", {"query": "q", "kinds": ["a", None, " "]}, {"query": "q", "kinds": ["a"]}),
        ("memory_search", {"query": "q", "kinds": []}, {"query": "q", "kinds": []}),
        (
            "memory_search",
            {"query": "q", "includeDeprecated": "true"},
            {"query": "q", "includeDeprecated": True},
        ),
        (
            "memory_search",
            {"query": "q", "includeEvidence": "False"},
            {"query": "q", "includeEvidence": False},
        ),
        ("memory_search", '{"query": "q"}', {"query": "q"}),
        ("memory_search", {"query": "", "kinds": "note"}, {"query": "", "kinds": ["note"]}),
        ("memory_list", None, {"path": "/list"}),
        ("memory_list", "", {"path": "/list"}),
        ("memory_list", "null", {"path": "/list"}),
        ("memory_list", {"limit": "7"}, {"path": "/list?limit=7"}),
        ("memory_feed", {"after": "3", "exclude_generator": " "}, {"path": "/feed?after=3"}),
        (
            "memory_add",
            {"title": "t", "text": "x", "kind": "", "provenance": None},
            {"title": "t", "text": "x"},
        ),
        (
            "memory_add",
            {"title": "t", "text": "x", "share": '{"principals": "bob", "tenant": "false"}'},
            {"title": "t", "text": "x", "share": {"principals": ["bob"], "tenant": False}},
        ),
        (
            "memory_add",
            {"title": "t", "text": "x", "access_tags": "memory.space:eng"},
            {"title": "t", "text": "x", "access_tags": ["memory.space:eng"]},
        ),
        ("memory_forget", {"document_id": "d", "cascade": "true"}, {"cascade": True}),
    ],
)
async def test_what_can_mean_one_thing_only_is_made_that(
    scripted: MemoryTools, server: ModelServer, name: str, arguments: Any, wanted: dict[str, Any]
) -> None:
    assert await sent(scripted, server, name, arguments) == wanted


IDENTITY = {
    "tenantId": "evil",
    "tenant_id": "evil",
    "principalId": "eve",
    "principal_id": "eve",
    "authToken": "x",
    "memoryTenantId": "evil",
    "idempotency_key": "x",
    "generation": "g",
}


@pytest.mark.parametrize("name", NAMES)
async def test_no_argument_names_another_caller(
    scripted: MemoryTools, server: ModelServer, name: str
) -> None:
    plain = await sent(scripted, server, name, ENOUGH[name])
    path, headers = server.requests[0].path, server.requests[0].headers
    extra = {"share": {**IDENTITY, "tags": ["a:b"]}} if name == "memory_add" else {}
    hostile = await sent(scripted, server, name, {**ENOUGH[name], **IDENTITY, **extra})
    wanted = plain | ({"share": {"tags": ["a:b"]}} if extra else {})
    assert hostile == wanted
    assert server.requests[0].path == path
    assert server.requests[0].headers["authorization"] == headers["authorization"]
    assert "evil" not in json.dumps(server.requests[0].body)


@pytest.mark.parametrize(
    ("name", "arguments", "field"),
    [
        ("memory_search", {}, "query"),
        ("memory_search", {"query": 5}, "query"),
        ("memory_search", {"query": "q", "limit": 0}, "limit"),
        ("memory_search", {"query": "q", "limit": limits.SEARCH_LIMIT_MAX + 1}, "limit"),
        ("memory_search", {"query": "q", "limit": "many"}, "limit"),
        ("memory_search", {"query": "q", "limit": 1.5}, "limit"),
        ("memory_search", {"query": "q", "limit": True}, "limit"),
        ("memory_search", {"query": "q", "limit": "0x10"}, "limit"),
        ("memory_search", {"query": "q", "kinds": {"a": 1}}, "kinds"),
        ("memory_search", {"query": "q", "kinds": [1]}, "kinds"),
        ("memory_search", {"query": "q", "includeDeprecated": "perhaps"}, "includeDeprecated"),
        ("memory_list", {"limit": limits.LIST_LIMIT_MAX + 1}, "limit"),
        ("memory_feed", {"after": -1}, "after"),
        ("memory_feed", {"after": "-1"}, "after"),
        ("memory_add", {"title": "", "text": "x"}, "title"),
        ("memory_add", {"title": "t", "text": "  "}, "text"),
        ("memory_add", {"title": "t", "text": "x", "provenance": "guessed"}, "provenance"),
        ("memory_add", {"title": "t", "text": "x", "share": "everyone"}, "share"),
        ("memory_add", {"title": "t", "text": "x", "share": {"tenant": "maybe"}}, "share.tenant"),
        ("memory_history", {"document_id": " "}, "document_id"),
        ("memory_forget", {}, "document_id"),
        ("memory_context", {"query": "q", "max_tokens": limits.CONTEXT_TOKENS_MIN - 1}, "max_tokens"),
        ("memory_context", {"query": "q", "max_tokens": limits.CONTEXT_TOKENS_MAX + 1}, "max_tokens"),
        ("memory_search", "{not json", None),
        ("memory_search", "[1]", None),
        ("memory_search", 5, None),
        ("memory_delete", {}, None),
    ],
)
async def test_everything_else_is_an_error_before_any_call(
    scripted: MemoryTools, server: ModelServer, name: str, arguments: Any, field: str | None
) -> None:
    result = await scripted.call(name, arguments)
    assert result.is_error
    assert server.requests == []
    told = json.loads(result.text)["error"]
    if field is None:
        assert told["code"] in {"invalid_arguments", "unknown_tool"}
    else:
        assert told["code"] == "invalid_arguments"
        assert told["details"][0]["field"].startswith(field)
        assert field in told["message"]


async def test_an_error_repeats_nothing_that_was_sent(scripted: MemoryTools) -> None:
    result = await scripted.call(
        "memory_add", {"title": "secret words", "text": 5, "provenance": "secret words"}
    )
    assert "secret words" not in result.text


def test_a_limit_is_met_at_its_ends() -> None:
    for limit in (1, limits.SEARCH_LIMIT_MAX):
        search = next(tool for tool in TOOLS if tool.name == "memory_search")
        assert search.arguments.model_validate({"query": "q", "limit": limit}).given()["limit"] == limit
    assert AddArguments.model_validate({"title": "t", "text": "x"}).given() == {"title": "t", "text": "x"}


# --- what goes wrong ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (401, "unauthorized"),
        (403, "forbidden"),
        (404, "not_found"),
        (409, "conflict"),
        (413, "too_large"),
        (429, "rate_limited"),
        (500, "internal"),
        (502, "database_failed"),
        (503, "unavailable"),
    ],
)
async def test_a_refusal_is_one_json_error(
    scripted: MemoryTools, server: ModelServer, name: str, status: int, code: str
) -> None:
    body = {"error": {"code": code, "message": "m" * 800}}
    server.script(Answer(body, status=status, headers={"retry-after": "7"} if status == 429 else {}))
    result = await scripted.call(name, ENOUGH[name])
    told = json.loads(result.text)["error"]
    assert result.is_error
    assert (told["code"], told["status"]) == (code, status)
    assert told["message"].startswith(f"memory HTTP {status}: mmm")
    assert told["message"].endswith("…")
    assert len(told["message"]) < DETAIL_CHARS + 30 < 600
    assert told.get("retryAfter") == (7.0 if status == 429 else None)
    if status in {401, 403, 404, 413, 429}:
        assert told["hint"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("raw", [b"<html>", b"", b"[]", b"{}", b"\xff"])
async def test_garbage_is_one_json_error(
    scripted: MemoryTools, server: ModelServer, name: str, raw: bytes
) -> None:
    server.script(Answer(raw=raw))
    told = (await scripted.call(name, ENOUGH[name])).data["error"]
    assert told["code"] == "invalid_answer"
    assert told["message"].startswith("memory HTTP 200: invalid JSON response")


@pytest.mark.parametrize("name", NAMES)
async def test_a_server_that_is_down_is_one_json_error(nobody: str, name: str) -> None:
    async with MemoryClient(nobody, tenant="t", token="x", trust_env=False) as client:
        result = await MemoryTools(client).call(name, ENOUGH[name])
    assert (result.is_error, result.data["error"]["code"]) == (True, "unreachable")


@pytest.mark.parametrize("name", NAMES)
async def test_a_silent_server_is_one_json_error(server: ModelServer, name: str) -> None:
    server.script(Answer(hang=True))
    async with MemoryClient(
        server.url, tenant="t", token="x", trust_env=False, timeout=0.1, attempts=1
    ) as client:
        result = await MemoryTools(client).call(name, ENOUGH[name])
    assert result.data["error"]["code"] == "timeout"


@pytest.mark.parametrize("name", NAMES)
async def test_a_redirect_elsewhere_is_one_json_error(
    scripted: MemoryTools, server: ModelServer, name: str
) -> None:
    with ModelServer() as other:
        other.script(Answer({}))
        server.script(Answer(status=307, headers={"location": f"{other.url}/x"}))
        result = await scripted.call(name, ENOUGH[name])
        assert other.requests == []
    assert result.data["error"]["code"] == "redirected"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("colour", ["async", "sync"])
async def test_a_call_that_is_given_up_is_one_json_error(
    server: ModelServer, scripted: MemoryTools, name: str, colour: str
) -> None:
    server.script(Answer(hang=True))
    tools = scripted
    if colour == "sync":
        tools = MemoryTools(
            SyncMemoryClient(server.url, tenant="t", token="x", trust_env=False, timeout=1, attempts=1)
        )
    stop = anyio.Event()
    async with anyio.create_task_group() as group:

        async def give_up() -> None:
            await anyio.sleep(0.1)
            stop.set()

        group.start_soon(give_up)
        with anyio.fail_after(5):
            result = await tools.call(name, ENOUGH[name], stop=stop)
    assert (result.is_error, result.data["error"]["code"]) == (True, "cancelled")


async def test_a_cancelled_task_stays_cancelled(scripted: MemoryTools, server: ModelServer) -> None:
    server.script(Answer(hang=True))
    with anyio.move_on_after(0.1) as scope:
        await scripted.call("memory_list", {}, stop=anyio.Event())
        pytest.fail("the call went on")
    assert scope.cancelled_caught


async def test_a_stop_that_never_comes_changes_nothing(tools: MemoryTools) -> None:
    assert not (await tools.call("memory_list", {}, stop=anyio.Event())).is_error


@pytest.mark.parametrize("name", NAMES)
async def test_a_huge_result_is_one_json_error(
    name: str, server: ModelServer, tools: MemoryTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = await tools.call("memory_add", ENOUGH["memory_add"])
    document = {"document_id": added.data["documentId"]} if "document_id" in ENOUGH[name] else {}
    arguments = {**ENOUGH[name], **document}
    whole = await tools.call(name, arguments)
    assert not whole.is_error
    server.script(Answer(raw=whole.text.encode()))
    async with MemoryClient(server.url, tenant="t", token="x", trust_env=False) as client:
        size = len((await MemoryTools(client).call(name, arguments)).text)
        for most, is_error in ((size + 1, False), (size, False), (size - 1, True)):
            result = await MemoryTools(client, max_result_chars=most).call(name, arguments)
            assert result.is_error is is_error
        assert result.data["error"]["code"] == "result_too_large"
        assert set(result.data) == {"error"}
        monkeypatch.setattr(policy, "ANSWER_BYTES", 5)
        result = await MemoryTools(client).call(name, arguments)
        assert result.data["error"]["code"] == "answer_too_large"


async def test_what_nobody_foresaw_is_an_error_without_its_text(
    scripted: MemoryTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(call: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(scripted.client, "send", fail)
    result = await scripted.call("memory_list", {})
    assert result.data["error"]["code"] == "internal"
    assert "secret" not in result.text


def test_blocking_calls(server: ModelServer) -> None:
    server.script(Answer({"events": [], "nextCursor": None}))
    with SyncMemoryClient(server.url, tenant="t", token="x", trust_env=False) as client:
        tools = MemoryTools(client)
        assert tools.call_blocking("memory_list", {"limit": "3"}).data == {"events": [], "nextCursor": None}
        assert tools.call_blocking("memory_list", {"limit": "x"}).is_error
        server.script(Answer({}, status=403))
        assert tools.call_blocking("memory_list").data["error"]["code"] == "forbidden"


async def test_blocking_calls_need_a_blocking_client(tools: MemoryTools) -> None:
    with pytest.raises(ConfigError, match="SyncMemoryClient"):
        tools.call_blocking("memory_list")


# --- the installation's settings ---------------------------------------------------------------------

ENV = {"memoryBaseUrl": "https://h/", "memoryTenantId": "a/b", "memoryAuthToken": "cmt_x"}


async def test_tools_come_from_three_settings(server: ModelServer) -> None:
    server.script(Answer({"events": [], "nextCursor": None}))
    tools = create_memory_tools({**ENV, "memoryBaseUrl": f"{server.url}///"}, names=["memory_list"])
    assert not (await tools.call("memory_list")).is_error
    assert server.requests[0].path == "/api/tenants/a%2Fb/memory/list"
    assert server.requests[0].headers["authorization"] == "Bearer cmt_x"
    assert isinstance(tools.client, MemoryClient)
    await tools.client.aclose()


@pytest.mark.parametrize("name", list(ENV))
@pytest.mark.parametrize("value", [None, "", "  "])
def test_each_setting_is_required(name: str, value: str | None) -> None:
    env = {key: text for key, text in ENV.items() if key != name} | ({} if value is None else {name: value})
    with pytest.raises(ConfigError, match=f"{name} must be a non-empty string"):
        create_memory_tools(env)


def test_the_base_is_an_origin() -> None:
    with pytest.raises(ConfigError, match="memoryBaseUrl"):
        create_memory_tools({**ENV, "memoryBaseUrl": "https://h/api"})
