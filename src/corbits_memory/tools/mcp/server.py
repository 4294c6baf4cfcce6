"""What the server answers, whatever carries it. Each request is answered as the one who sent it."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

import anyio
import mcp_types as types
from mcp.server import Server, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from corbits_memory.client import MemoryClient
from corbits_memory.errors import InvalidInputError, MemoryError, NotFoundError
from corbits_memory.tools.definitions import TOOLS, Tool
from corbits_memory.tools.mcp.documents import TEMPLATE, read_document, recent_documents
from corbits_memory.tools.mcp.prompts import PROMPTS, PromptArgumentError, prompt_messages
from corbits_memory.tools.mcp.schemas import lean_output
from corbits_memory.tools.toolset import MemoryTools

Context = ServerRequestContext[Any, Any]
ToolsOf = Callable[[Context], MemoryTools]
"""The tools of whoever sent this request; asked for each."""

RESOURCE_NOT_FOUND = -32002
PROGRESS_SECONDS = 1.0
"""How often a client that asked for progress is told that a call is still being worked on."""

INSTRUCTIONS = (
    "A long-term memory shared by people and agents. Before you answer, recall what it holds with memory_context or "
    "memory_search. Save decisions, preferences and facts worth keeping with memory_add, one subject each. Say who "
    "stated what; mark what you concluded as inferred. Forget only on request."
)


def memory_mcp_server(tools_of: ToolsOf) -> Server[Any]:
    """The server over the tools that ``tools_of`` gives; their client must be an async one."""

    async def list_tools(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_tool(tool) for tool in tools_of(ctx).tools])

    async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        tools = tools_of(ctx)
        if params.name not in {tool.name for tool in tools.tools}:
            raise MCPError(INVALID_PARAMS, f"there is no tool {params.name}")
        async with _progress(ctx, params.name):
            result = await tools.call(params.name, params.arguments)
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=result.text)],
            structured_content=None if result.is_error else result.data,
            is_error=result.is_error,
        )

    async def list_resources(
        ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        with _mcp_errors():
            return types.ListResourcesResult(resources=await recent_documents(_client(tools_of(ctx))))

    async def list_templates(
        ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=[TEMPLATE])

    async def read_resource(
        ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        with _mcp_errors():
            contents = await read_document(_client(tools_of(ctx)), str(params.uri))
        return types.ReadResourceResult(contents=[contents])

    async def list_prompts(
        ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=list(PROMPTS))

    async def get_prompt(ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        try:
            with _mcp_errors():
                return await prompt_messages(_client(tools_of(ctx)), params.name, params.arguments or {})
        except PromptArgumentError as error:
            raise MCPError(INVALID_PARAMS, str(error)) from None

    return Server(
        "corbits-memory",
        title="Corbits Memory",
        version=version("corbits-memory"),
        instructions=INSTRUCTIONS,
        # Else the SDK lists all tools before each call.
        get_tool_input_schema={tool.name: tool.input_schema for tool in TOOLS}.get,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
    )


def _tool(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=lean_output(tool.answer),
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.read_only,
            destructive_hint=tool.destructive,
            idempotent_hint=tool.idempotent,
            # Of the memory alone, whatever live sources it may ask.
            open_world_hint=False,
        ),
    )


def _client(tools: MemoryTools) -> MemoryClient:
    if not isinstance(tools.client, MemoryClient):
        raise TypeError("an MCP server needs an async client")
    return tools.client


@asynccontextmanager
async def _progress(ctx: Context, name: str) -> AsyncIterator[None]:
    """Tells a client that asked for it that the call is under way, and when it is done."""
    told: Mapping[str, Any] = ctx.meta or {}
    if told.get("progress_token") is None:
        yield
        return
    async with anyio.create_task_group() as group:

        async def keep_telling() -> None:
            done = 0.0
            while True:
                await ctx.session.report_progress(done, 1.0, f"{name} is under way")
                await anyio.sleep(PROGRESS_SECONDS)
                # How far it is nobody knows: each step is half of what is left.
                done += (1.0 - done) / 2

        group.start_soon(keep_telling)
        try:
            yield
        finally:
            group.cancel_scope.cancel()
    await ctx.session.report_progress(1.0, 1.0, f"{name} is done")


class _mcp_errors:  # noqa: N801 - reads as a verb where it is used
    """Errors of the memory in the protocol's terms."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, MemoryError):
            code = (
                RESOURCE_NOT_FOUND
                if isinstance(error, NotFoundError)
                else INVALID_PARAMS
                if isinstance(error, InvalidInputError)
                else INTERNAL_ERROR
            )
            raise MCPError(code, error.message, {"code": error.code}) from error
