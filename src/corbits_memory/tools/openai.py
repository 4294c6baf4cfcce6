"""Tools in the shapes of OpenAI's APIs, which many other servers speak."""

from typing import Any, Literal

from corbits_memory.tools.results import ToolResult
from corbits_memory.tools.toolset import Toolset


def openai_tools(tools: Toolset, *, api: Literal["chat", "responses"] = "chat") -> list[Any]:
    """What goes into ``tools`` of ``chat.completions.create`` or of ``responses.create``."""
    functions = [
        {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
        for tool in tools.tools
    ]
    if api == "chat":
        return [{"type": "function", "function": function} for function in functions]
    return [{"type": "function", "strict": False, **function} for function in functions]


def openai_message(call_id: str, result: ToolResult) -> Any:
    """The message that answers a tool call of a chat completion."""
    return {"role": "tool", "tool_call_id": call_id, "content": result.text}


def openai_output(call_id: str, result: ToolResult) -> Any:
    """The input item that answers a function call of a response."""
    return {"type": "function_call_output", "call_id": call_id, "output": result.text}
