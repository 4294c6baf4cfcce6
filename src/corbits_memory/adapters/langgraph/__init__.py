"""LangGraph's ``BaseStore`` over a memory server. Needs ``corbits-memory[langgraph]``."""

from corbits_memory.adapters.langgraph.store import CorbitsMemoryStore

__all__ = ["CorbitsMemoryStore"]
