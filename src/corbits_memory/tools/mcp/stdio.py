"""The server on standard input and output, for one caller."""

from mcp.server.stdio import stdio_server

from corbits_memory.tools.mcp.server import memory_mcp_server
from corbits_memory.tools.toolset import MemoryTools


async def serve_stdio(tools: MemoryTools) -> None:
    """Answer until standard input ends. Meanwhile nothing but the protocol reaches standard output."""
    server = memory_mcp_server(lambda _: tools)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())
