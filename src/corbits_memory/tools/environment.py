"""Tools from an installation's three settings."""

import os
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

import httpx2

from corbits_memory.client import MemoryClient
from corbits_memory.errors import ConfigError
from corbits_memory.tools.toolset import MemoryTools

BASE_URL, TENANT_ID, AUTH_TOKEN = "memoryBaseUrl", "memoryTenantId", "memoryAuthToken"


def create_memory_tools(
    env: Mapping[str, str] | None = None,
    *,
    names: Iterable[str] | None = None,
    transport: httpx2.AsyncBaseTransport | None = None,
) -> MemoryTools:
    """Tools for the server that ``memoryBaseUrl`` (an origin), ``memoryTenantId`` and ``memoryAuthToken`` name.

    ``env`` is by default the process's. Raises ``ConfigError``. The tools own their client: close ``tools.client``.
    """
    values = os.environ if env is None else env
    base_url = _required(values, BASE_URL)
    if urlsplit(base_url).path.strip("/"):
        raise ConfigError(f"{BASE_URL} must be an origin, like https://memory.example, without a path")
    client = MemoryClient(
        base_url.rstrip("/"),
        tenant=_required(values, TENANT_ID),
        token=_required(values, AUTH_TOKEN),
        transport=transport,
    )
    return MemoryTools(client, names=names)


def _required(values: Mapping[str, str], name: str) -> str:
    value = values.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{name} must be a non-empty string")
    return value.strip()
