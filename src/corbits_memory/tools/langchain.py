"""Tools for LangChain, and so for LangGraph. Needs ``langchain-core``."""

from functools import partial
from typing import TYPE_CHECKING, Any

from corbits_memory.client import SyncMemoryClient
from corbits_memory.errors import ConfigError
from corbits_memory.tools.definitions import ToolDescription
from corbits_memory.tools.toolset import MemoryTools, Toolset

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool


def langchain_tools(tools: Toolset) -> list["BaseTool"]:
    """Tools for ``bind_tools``, ``create_agent`` or a ``ToolNode``; an error becomes a message with status ``error``.

    Over a ``SyncMemoryClient`` they can be invoked without a loop too. Raises ``ConfigError`` without the package.
    """
    try:
        from langchain_core.tools import StructuredTool, ToolException
    except ImportError:
        raise ConfigError(
            "LangChain tools need the package langchain-core: pip install langchain-core"
        ) from None

    blocking = (
        tools if isinstance(tools, MemoryTools) and isinstance(tools.client, SyncMemoryClient) else None
    )

    def text_of(result: Any) -> str:
        if result.is_error:
            raise ToolException(result.text)
        return str(result.text)

    def export(tool: ToolDescription) -> "BaseTool":
        async def call(**arguments: Any) -> str:
            return text_of(await tools.call(tool.name, arguments))

        def call_blocking(tools: MemoryTools, /, **arguments: Any) -> str:
            return text_of(tools.call_blocking(tool.name, arguments))

        return StructuredTool(
            name=tool.name,
            description=tool.description,
            args_schema=tool.input_schema,
            coroutine=call,
            func=partial(call_blocking, blocking) if blocking is not None else None,
            handle_tool_error=True,
        )

    return [export(tool) for tool in tools.tools]
