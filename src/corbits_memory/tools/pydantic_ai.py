"""Tools for Pydantic AI. Needs ``pydantic-ai-slim``."""

from typing import TYPE_CHECKING, Any

from corbits_memory.errors import ConfigError
from corbits_memory.tools.definitions import ToolDescription
from corbits_memory.tools.toolset import Toolset

if TYPE_CHECKING:
    from pydantic_ai import Tool as PydanticTool


def pydantic_ai_tools(tools: Toolset) -> list["PydanticTool[Any]"]:
    """What goes into ``Agent(tools=…)``. An error is the tool's answer, so that no run ends by it.

    Raises ``ConfigError`` without the package.
    """
    try:
        from pydantic_ai import Tool as PydanticTool
    except ImportError:
        raise ConfigError(
            "Pydantic AI tools need the package pydantic-ai-slim: pip install pydantic-ai-slim"
        ) from None

    def export(tool: ToolDescription) -> "PydanticTool[Any]":
        async def call(**arguments: Any) -> str:
            return (await tools.call(tool.name, arguments)).text

        return PydanticTool.from_schema(
            call, name=tool.name, description=tool.description, json_schema=tool.input_schema
        )

    return [export(tool) for tool in tools.tools]
