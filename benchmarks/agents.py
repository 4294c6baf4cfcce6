"""What agents pay: MCP beside the HTTP route, over both transports, and the size of the tools in tokens."""

import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx2
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from benchmarks.report import Table
from benchmarks.serving import COMMAND, QUESTION, Serving, serve, wait_for_hit
from corbits_memory import MemoryClient
from corbits_memory.core.chunking import token_count
from corbits_memory.core.relevance import percentile
from corbits_memory.tools import TOOLS
from corbits_memory.tools.mcp.schemas import lean_output
from mcp import Client

DOCUMENTS, CALLS, WARM_UP = 500, 300, 20
OVERHEAD_TARGET = 15.0
"""Milliseconds at the median that MCP may add to the route."""
_PATH = "/api/tenants/default/memory"


async def run_agents(*, quick: bool = False) -> str:
    """Markdown of the round trips and of the sizes."""
    with tempfile.TemporaryDirectory(prefix="corbits-memory-bench-") as folder:
        return await _measured(Path(folder), calls=30 if quick else CALLS)


async def _measured(folder: Path, *, calls: int) -> str:
    with serve(folder / "data") as server:
        await _fill(server)
        await asyncio.to_thread(wait_for_hit, server)
        times = await _round_trips(server, calls)
    route = percentile(times["HTTP route"], 0.5)
    table = Table(("memory_search", "median ms", "p95 ms", "over the route, median ms", "target"))
    for name, found in times.items():
        median = percentile(found, 0.5)
        over = median - route
        target = ""
        if name.startswith("MCP"):
            target = f"≤ {OVERHEAD_TARGET:.0f} ms: {'met' if over <= OVERHEAD_TARGET else 'missed'}"
        table.add(name, f"{median:.1f}", f"{percentile(found, 0.95):.1f}", f"{over:+.1f}", target)
    sizes = Table(("tool", "description", "arguments", "answer (MCP only)"))
    totals = [0, 0, 0]
    for tool in TOOLS:
        row = [
            token_count(tool.description),
            token_count(_dumped(tool.input_schema)),
            token_count(_dumped(lean_output(tool.answer))),
        ]
        totals = [total + size for total, size in zip(totals, row, strict=True)]
        sizes.add(f"`{tool.name}`", *row)
    sizes.add("all", *totals)
    return (
        f"{table.markdown()}\n\n{calls} calls one after the other, of each kind in turn, on {DOCUMENTS} documents with "
        f"the local model; the same question each time, so that its vector is cached.\n\n"
        f"Sizes in tokens (four characters each):\n\n{sizes.markdown()}"
    )


async def _fill(server: Serving) -> None:
    server.add()
    async with MemoryClient(server.url, tenant="default", token=server.token, trust_env=False) as client:
        await client.add_batch(
            [
                {"title": f"Note {n}", "text": f"On day {n} the ferry brought {n * 7 % 97} crates of cod."}
                for n in range(DOCUMENTS)
            ]
        )


async def _round_trips(server: Serving, calls: int) -> dict[str, list[float]]:
    """Milliseconds of each call, by what it went through."""
    headers = {"authorization": f"Bearer {server.token}"}
    body = {"query": QUESTION}
    stdio = StdioServerParameters(
        command=str(COMMAND), args=["mcp", "--url", server.url, "--token", server.token]
    )
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False, timeout=30) as http,
        MemoryClient(server.url, tenant="default", token=server.token, trust_env=False) as client,
        httpx2.AsyncClient(headers=headers, trust_env=False, timeout=30) as carrier,
        Client(streamable_http_client(f"{server.url}/mcp", http_client=carrier)) as over_http,
        Client(stdio) as over_stdio,
    ):

        async def route() -> None:
            (await http.post(f"{server.url}{_PATH}/search", json=body)).raise_for_status()

        async def typed() -> None:
            await client.search(QUESTION)

        async def mcp_http() -> None:
            assert not (await over_http.call_tool("memory_search", body)).is_error

        async def mcp_stdio() -> None:
            assert not (await over_stdio.call_tool("memory_search", body)).is_error

        await over_http.list_tools()
        await over_stdio.list_tools()
        return await _timed(
            {
                "HTTP route": route,
                "client": typed,
                "MCP over HTTP": mcp_http,
                "MCP over stdio, to the server": mcp_stdio,
            },
            calls,
        )


async def _timed(work: dict[str, Callable[[], Awaitable[None]]], calls: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in work}
    for number in range(WARM_UP + calls):
        # In turn, so that whatever else the machine does meets all alike.
        for name, call in work.items():
            began = time.perf_counter()
            await call()
            if number >= WARM_UP:
                times[name].append(time.perf_counter() - began)
    return {name: [seconds * 1_000 for seconds in found] for name, found in times.items()}


def _dumped(schema: object) -> str:
    return json.dumps(schema, separators=(",", ":"))
