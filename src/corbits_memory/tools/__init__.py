"""The memory as tools of an agent, whatever framework runs it.

>>> tools = MemoryTools(MemoryClient(url, tenant="default", token="cmt_…"))
>>> result = await tools.call("memory_search", '{"query": "when may I deploy?", "limit": "3"}')
>>> result.text
'{"items":[…],"evidence":"strong"}'

Exporters to OpenAI, Anthropic, LangChain and Pydantic AI are in the modules of those names, the MCP server in
:mod:`corbits_memory.tools.mcp`; each imports its framework when it is asked for.
"""

from corbits_memory.tools.definitions import TOOLS, Tool
from corbits_memory.tools.environment import create_memory_tools
from corbits_memory.tools.results import ToolResult
from corbits_memory.tools.toolset import MemoryTools, Toolset

__all__ = ["TOOLS", "MemoryTools", "Tool", "ToolResult", "Toolset", "create_memory_tools"]
