"""Tools in the shape of Anthropic's Messages API."""

from typing import Any

from corbits_memory.tools.results import ToolResult
from corbits_memory.tools.toolset import Toolset


def anthropic_tools(tools: Toolset) -> list[Any]:
    """What goes into ``tools`` of ``messages.create``."""
    return [
        {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
        for tool in tools.tools
    ]


def anthropic_block(tool_use_id: str, result: ToolResult) -> Any:
    """The block of a user message that answers a tool use."""
    return {
        "type": "tool_result",
        "tool_use_id": tool_use_id,
        "content": result.text,
        "is_error": result.is_error,
    }
