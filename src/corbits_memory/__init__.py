"""The memory plane for AI agents."""
