"""Corbits Memory: a memory plane for AI agents.

>>> from corbits_memory import create_memory, load_memory_config
>>> memory = create_memory(load_memory_config())

What needs a driver or a web framework is imported when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from corbits_memory.admin import MemoryAdmin
from corbits_memory.compose import create_memory
from corbits_memory.config import (
    EmbedConfig,
    EngineConfig,
    MemoryConfig,
    PushConfig,
    RerankConfig,
    load_memory_config,
)
from corbits_memory.errors import MemoryError
from corbits_memory.plane import Memory
from corbits_memory.ports import Caller, Share
from corbits_memory.validation import AddInput, Content, File

if TYPE_CHECKING:
    from corbits_memory.client import MemoryClient, SyncMemoryClient
    from corbits_memory.engine.fts import verify_fts_language
    from corbits_memory.engine.migrate import run_memory_migrations
    from corbits_memory.http import memory_app, register_memory_routes

__all__ = [
    "AddInput",
    "Caller",
    "Content",
    "EmbedConfig",
    "EngineConfig",
    "File",
    "Memory",
    "MemoryAdmin",
    "MemoryClient",
    "MemoryConfig",
    "MemoryError",
    "PushConfig",
    "RerankConfig",
    "Share",
    "SyncMemoryClient",
    "create_memory",
    "load_memory_config",
    "memory_app",
    "register_memory_routes",
    "run_memory_migrations",
    "verify_fts_language",
]

_LATE = {
    "MemoryClient": "corbits_memory.client",
    "SyncMemoryClient": "corbits_memory.client",
    "memory_app": "corbits_memory.http",
    "register_memory_routes": "corbits_memory.http",
    "run_memory_migrations": "corbits_memory.engine.migrate",
    "verify_fts_language": "corbits_memory.engine.fts",
}


def __getattr__(name: str) -> Any:
    module = _LATE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)
