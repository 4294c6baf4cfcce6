"""The mountable routes: guard, parse, validate, handle."""

from corbits_memory.http.app import memory_app
from corbits_memory.http.identity import Identity
from corbits_memory.http.openapi import memory_openapi
from corbits_memory.http.routes import DEFAULT_PREFIX, memory_routes, register_memory_routes

__all__ = [
    "DEFAULT_PREFIX",
    "Identity",
    "memory_app",
    "memory_openapi",
    "memory_routes",
    "register_memory_routes",
]
