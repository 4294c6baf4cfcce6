"""``corbits-memory mcp``: a real process, spoken to by the official client, and read byte by byte."""

import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp_types import TextContent, TextResourceContents

from mcp import Client
from tests.e2e.support import COMMAND, NO_MODEL, Server, corbits_memory, environment, one_json
from tests.tools.test_tools import NAMES


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data") / "memory"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server("--data-dir", tmp_path_factory.mktemp("served") / "memory") as running:
        yield running


@asynccontextmanager
async def connected(*words: object, mode: str = "auto", **extra: str) -> AsyncIterator[Client]:
    parameters = StdioServerParameters(
        command=str(COMMAND), args=["mcp", *map(str, words)], env=environment(**NO_MODEL, **extra)
    )
    with anyio.fail_after(90):
        async with Client(parameters, mode=mode) as client:
            yield client


async def call(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(name, arguments)
    (content,) = result.content
    assert isinstance(content, TextContent)
    told: dict[str, Any] = json.loads(content.text)
    assert result.is_error is ("error" in told)
    assert result.structured_content == (None if result.is_error else told)
    return told


async def test_on_a_data_dir(data_dir: Path, mode: str) -> None:
    async with connected("--data-dir", data_dir, mode=mode) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == NAMES
        added = await call(client, "memory_add", title="Deploys", text=f"Fridays are frozen in {mode}.")
        found = await call(client, "memory_search", query=f"frozen {mode}")
        assert found["items"][0]["documentId"] == added["documentId"]
        (read,) = (await client.read_resource(f"memory://document/{added['documentId']}")).contents
        assert isinstance(read, TextResourceContents)
        assert "Fridays" in read.text
        (message,) = (await client.get_prompt("recall_from_memory", {"question": "frozen"})).messages
        assert isinstance(message.content, TextContent)
        assert "[1] Deploys" in message.content.text
    listed = one_json(corbits_memory("list", "--json", "--data-dir", data_dir, **NO_MODEL).stdout)
    assert added["documentId"] in {event["documentId"] for event in listed["events"]}


async def test_two_principals_and_two_tenants_on_one_data_dir(data_dir: Path) -> None:
    for tenant, principal in (("t1", "ann"), ("t1", "bob"), ("t2", "ann")):
        own = f"{tenant} {principal}"
        async with connected("--data-dir", data_dir, "--tenant", tenant, "--principal", principal) as client:
            await call(client, "memory_add", title=own, text="lighthouse")
            hostile = {"tenant_id": "t1", "principal_id": "ann"}
            found = await call(client, "memory_search", query="lighthouse", **hostile)
            assert [item["title"] for item in found["items"]] == [own]


async def test_on_a_server(server: Server, mode: str) -> None:
    token = server.told["Token"]
    async with connected("--url", server.url, "--token", token, mode=mode) as client:
        await client.list_tools()
        added = await call(client, "memory_add", title="Remote", text=f"Over HTTP in {mode}.")
        assert (await call(client, "memory_history", document_id=added["documentId"]))["versions"]
        assert (await call(client, "memory_forget", document_id=added["documentId"]))["versions"] == 1
    async with connected(CORBITS_MEMORY_URL=server.url, CORBITS_MEMORY_TOKEN=token) as client:
        assert "events" in await call(client, "memory_list", limit="3")


async def test_what_the_server_refuses_is_told_to_the_model(server: Server) -> None:
    async with connected("--url", server.url, "--token", "cmt_wrong") as client:
        told = await call(client, "memory_search", query="a")
        assert (told["error"]["code"], told["error"]["status"]) == ("unauthorized", 401)
        with pytest.raises(MCPError):
            await client.list_resources()
    async with connected("--url", server.url, "--token", server.told["Token"], "--tenant", "other") as client:
        assert (await call(client, "memory_list"))["error"]["code"] == "tenant_mismatch"


async def test_a_server_that_is_down_is_told_to_the_model() -> None:
    async with connected("--url", "http://127.0.0.1:1", "--token", "t") as client:
        assert (await call(client, "memory_list"))["error"]["code"] == "unreachable"


async def test_some_tools_alone(server: Server) -> None:
    words = ("--url", server.url, "--token", server.told["Token"], "--tool", "memory_search")
    async with connected(*words) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["memory_search"]
        with pytest.raises(MCPError):
            await client.call_tool("memory_forget", {"document_id": "x"})


async def test_progress(data_dir: Path, mode: str) -> None:
    seen: list[tuple[float, float | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total))

    async with connected("--data-dir", data_dir, mode=mode) as client:
        await client.call_tool("memory_list", {}, progress_callback=note)
    assert seen[0][0] == 0.0
    assert [progress for progress, _ in seen] == sorted(progress for progress, _ in seen)


async def test_a_cancelled_call_ends_what_it_began(mode: str) -> None:
    """The memory behind it is asked no more: its connection is closed."""
    asked, closed = anyio.Event(), anyio.Event()

    async def never_answer(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            asked.set()
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                await stream.receive()
            closed.set()

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(SocketAttribute.local_port)
        async with anyio.create_task_group() as group:
            group.start_soon(listener.serve, never_answer)
            words = ("--url", f"http://127.0.0.1:{port}", "--token", "t", "--tenant", "t")
            async with connected(*words, mode=mode) as client:
                with anyio.CancelScope() as scope:

                    async def give_up() -> None:
                        await asked.wait()
                        scope.cancel()

                    group.start_soon(give_up)
                    await client.call_tool("memory_list", {})
                assert scope.cancelled_caught
                with anyio.fail_after(10):
                    await closed.wait()
                assert [tool.name for tool in (await client.list_tools()).tools] == NAMES, (
                    "the server lives on"
                )
            group.cancel_scope.cancel()


def frame(number: int, method: str, **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n"


HELLO = frame(
    1,
    "initialize",
    protocolVersion="2025-06-18",
    capabilities={},
    clientInfo={"name": "test", "version": "1"},
)
READY = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}) + "\n"


def test_standard_output_carries_nothing_but_the_protocol(data_dir: Path) -> None:
    """Also where things go wrong, and with a model that takes its time to load."""
    spoken = [
        HELLO,
        READY,
        "this is no JSON\n",
        frame(2, "tools/call", name="memory_add", arguments={"title": "t", "text": "some words"}),
        frame(3, "tools/call", name="memory_search", arguments={"query": "words", "limit": 99}),
        frame(4, "tools/call", name="nothing", arguments={}),
        frame(5, "nothing/at/all"),
        frame(6, "tools/call", name="memory_search", arguments={"query": "words"}),
    ]
    process = subprocess.Popen(
        [COMMAND, "mcp", "--data-dir", data_dir, "--debug"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        process.stdin.write("".join(spoken))
        process.stdin.flush()
        answered: set[int] = set()
        while answered != {1, 2, 3, 4, 5, 6}:
            line = process.stdout.readline()
            message = json.loads(line)
            assert message["jsonrpc"] == "2.0"
            if isinstance(message.get("id"), int):
                answered.add(message["id"])
        # It ends when its client goes away.
        process.stdin.close()
        assert process.wait(60) == 0
        assert process.stdout.read() == ""


def test_what_keeps_it_from_starting_is_on_standard_error(tmp_path: Path) -> None:
    for words, code, told in (
        (("--url", "http://h", "--data-dir", tmp_path), 2, "leave one out"),
        (("--url", "http://h"), 1, "needs a token"),
        (("--url", "ftp://h", "--token", "t"), 1, "http://"),
        (("--url", "http://h", "--token", "t", "--tool", "memory_delete"), 1, "memory_delete"),
    ):
        done = corbits_memory("mcp", *words)
        assert (done.returncode, done.stdout) == (code, "")
        assert told in done.stderr
