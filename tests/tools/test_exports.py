"""Tools in the shapes of the frameworks, each tried with the real package and no network beyond this machine."""

import json
import subprocess
import sys
from typing import Any

import anthropic
import openai
import pytest
from anthropic.types import ToolParam, ToolResultBlockParam
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from openai.types.chat import ChatCompletionToolMessageParam, ChatCompletionToolUnionParam
from openai.types.responses import ToolParam as ResponseToolParam
from pydantic import TypeAdapter
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from corbits_memory.client import SyncMemoryClient
from corbits_memory.tools import TOOLS, MemoryTools
from corbits_memory.tools.anthropic import anthropic_block, anthropic_tools
from corbits_memory.tools.langchain import langchain_tools
from corbits_memory.tools.openai import openai_message, openai_output, openai_tools
from corbits_memory.tools.pydantic_ai import pydantic_ai_tools
from tests.models.conftest import Answer, ModelServer

ADD = {"title": "Deploys", "text": "Fridays are frozen."}
BAD = {"query": "q", "limit": "many"}
NAMES = [tool.name for tool in TOOLS]
FRAMEWORKS = (
    "openai",
    "anthropic",
    "langchain_core",
    "langgraph",
    "pydantic_ai",
    "mcp",
    "httpx2",
    "starlette",
)


@pytest.mark.parametrize("module", ["corbits_memory", "corbits_memory.tools", "corbits_memory.client"])
def test_no_framework_is_imported_by_the_rest(module: str) -> None:
    code = f"import sys, json, {module}; print(json.dumps([m for m in {FRAMEWORKS!r} if m in sys.modules]))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(json.loads(out.stdout)) <= (set() if module == "corbits_memory" else {"httpx2"})


@pytest.mark.parametrize("module", ["langchain", "pydantic_ai"])
def test_a_missing_package_is_named(module: str) -> None:
    package = {"langchain": "langchain_core", "pydantic_ai": "pydantic_ai"}[module]
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        f"from corbits_memory.tools.{module} import {module}_tools\n"
        "from corbits_memory.errors import ConfigError\n"
        f"try:\n    {module}_tools(None)\nexcept ConfigError as error:\n    print(error)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install" in out.stdout


# --- OpenAI ------------------------------------------------------------------------------------------


def completion(**message: Any) -> Answer:
    return Answer(
        {
            "id": "c1",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": None, **message},
                }
            ],
        }
    )


async def test_openai_chat(tools: MemoryTools, server: ModelServer) -> None:
    exported = openai_tools(tools)
    TypeAdapter(list[ChatCompletionToolUnionParam]).validate_python(exported)
    asked = {"id": "t1", "type": "function", "function": {"name": "memory_add", "arguments": json.dumps(ADD)}}
    server.script(completion(tool_calls=[asked]), completion(content="Saved."))
    async with openai.AsyncOpenAI(base_url=server.url, api_key="k") as client:
        messages: list[Any] = [{"role": "user", "content": "Remember it."}]
        first = await client.chat.completions.create(model="m", messages=messages, tools=exported)
        call = (first.choices[0].message.tool_calls or [])[0]
        assert call.type == "function"
        result = await tools.call(call.function.name, call.function.arguments)
        answer = openai_message(call.id, result)
        TypeAdapter(ChatCompletionToolMessageParam).validate_python(answer)
        messages += [first.choices[0].message.model_dump(exclude_none=True), answer]
        last = await client.chat.completions.create(model="m", messages=messages, tools=exported)
    assert last.choices[0].message.content == "Saved."
    assert [tool["function"]["name"] for tool in server.requests[0].body["tools"]] == NAMES
    told = server.requests[1].body["messages"][-1]
    assert told["tool_call_id"] == "t1"
    assert json.loads(told["content"])["status"] == "created"


async def test_openai_responses(tools: MemoryTools, server: ModelServer) -> None:
    exported = openai_tools(tools, api="responses")
    TypeAdapter(list[ResponseToolParam]).validate_python(exported)
    asked = {
        "type": "function_call",
        "id": "f1",
        "call_id": "t1",
        "name": "memory_search",
        "arguments": json.dumps(BAD),
        "status": "completed",
    }
    body: dict[str, Any] = {
        "id": "r1",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "output": [asked],
        "tools": exported,
    }
    body |= {"parallel_tool_calls": True, "tool_choice": "auto", "status": "completed"}
    server.script(Answer(body))
    async with openai.AsyncOpenAI(base_url=server.url, api_key="k") as client:
        first = await client.responses.create(model="m", input="?", tools=exported)
        (call,) = first.output
        assert call.type == "function_call"
        answer = openai_output(call.call_id, await tools.call(call.name, call.arguments))
        await client.responses.create(model="m", input=[answer], tools=exported)
    told = server.requests[1].body["input"][0]
    assert told["call_id"] == "t1"
    assert json.loads(told["output"])["error"]["code"] == "invalid_arguments"


# --- Anthropic ---------------------------------------------------------------------------------------


async def test_anthropic(tools: MemoryTools, server: ModelServer) -> None:
    exported = anthropic_tools(tools)
    TypeAdapter(list[ToolParam]).validate_python(exported)
    asked = {"type": "tool_use", "id": "u1", "name": "memory_add", "input": ADD}
    message: dict[str, Any] = {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [asked],
    }
    message |= {"stop_reason": "tool_use", "usage": {"input_tokens": 1, "output_tokens": 1}}
    server.script(Answer(message))
    async with anthropic.AsyncAnthropic(base_url=server.url, api_key="k") as client:
        first = await client.messages.create(
            model="m",
            max_tokens=10,
            messages=[{"role": "user", "content": "?"}],
            tools=exported,
        )
        use = first.content[0]
        assert use.type == "tool_use"
        block = anthropic_block(use.id, await tools.call(use.name, use.input))
        TypeAdapter(ToolResultBlockParam).validate_python(block)
        failed = anthropic_block(use.id, await tools.call("memory_search", BAD))
    assert [tool["name"] for tool in server.requests[0].body["tools"]] == NAMES
    assert (block["is_error"], failed["is_error"]) == (False, True)
    assert json.loads(block["content"])["documentId"]


# --- LangChain and LangGraph -------------------------------------------------------------------------


async def test_langchain(tools: MemoryTools) -> None:
    exported = {tool.name: tool for tool in langchain_tools(tools)}
    assert list(exported) == NAMES
    added = json.loads(await exported["memory_add"].ainvoke(ADD))
    found = json.loads(await exported["memory_search"].ainvoke({"query": "frozen", "limit": "3"}))
    assert found["items"][0]["documentId"] == added["documentId"]
    assert exported["memory_search"].tool_call_schema["properties"].keys() >= {"query", "includeEvidence"}  # type: ignore[index]
    asked = {"name": "memory_search", "args": BAD, "id": "t1", "type": "tool_call"}
    failed = await exported["memory_search"].ainvoke(asked)
    assert isinstance(failed, ToolMessage)
    assert failed.status == "error"
    assert json.loads(str(failed.content))["error"]["code"] == "invalid_arguments"


async def test_langgraph(tools: MemoryTools) -> None:
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode(langchain_tools(tools)))
    graph.add_edge(START, "tools")
    graph.add_edge("tools", END)
    calls = [
        {"name": "memory_add", "args": ADD, "id": "t1", "type": "tool_call"},
        {"name": "memory_search", "args": BAD, "id": "t2", "type": "tool_call"},
    ]
    state = await graph.compile().ainvoke({"messages": [AIMessage(content="", tool_calls=calls)]})
    *_, added, failed = state["messages"]
    assert json.loads(added.content)["status"] == "created"
    assert (added.status, failed.status) == ("success", "error")


def test_langchain_without_a_loop(server: ModelServer) -> None:
    server.script(Answer({"events": [], "nextCursor": None}))
    with SyncMemoryClient(server.url, tenant="t", token="x", trust_env=False) as client:
        (listing,) = langchain_tools(MemoryTools(client, names=["memory_list"]))
        assert json.loads(listing.invoke({"limit": "3"})) == {"events": [], "nextCursor": None}


# --- Pydantic AI -------------------------------------------------------------------------------------


async def test_pydantic_ai(tools: MemoryTools) -> None:
    seen: list[AgentInfo] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append(info)
        steps = [("memory_add", ADD), ("memory_search", BAD)]
        if len(seen) <= len(steps):
            name, arguments = steps[len(seen) - 1]
            return ModelResponse(parts=[ToolCallPart(tool_name=name, args=arguments)])
        return ModelResponse(parts=[TextPart("Saved.")])

    agent = Agent(FunctionModel(model), tools=pydantic_ai_tools(tools))
    run = await agent.run("Remember it.")
    assert run.output == "Saved."
    offered = {tool.name: tool.parameters_json_schema for tool in seen[0].function_tools}
    assert offered == {tool.name: tool.input_schema for tool in TOOLS}
    returned = [
        json.loads(str(part.content))
        for message in run.all_messages()
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]
    assert returned[0]["status"] == "created"
    assert returned[1]["error"]["code"] == "invalid_arguments"
