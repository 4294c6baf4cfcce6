"""The memory as an MCP server: tools, documents as resources, prompts. Needs the extra ``mcp``."""

from corbits_memory.tools.mcp.server import memory_mcp_server
from corbits_memory.tools.mcp.stdio import serve_stdio

__all__ = ["memory_mcp_server", "serve_stdio"]
