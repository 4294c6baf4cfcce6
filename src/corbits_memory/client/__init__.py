"""A typed client of a memory server, async and sync.

>>> async with MemoryClient("http://127.0.0.1:8765", tenant="default", token="cmt_…") as memory:
...     await memory.add(title="Deploys", text="Fridays are frozen.")
...     found = await memory.search("when may I deploy?")

Answers are the models of :mod:`corbits_memory.wire`, errors those of :mod:`corbits_memory.errors` and
:mod:`corbits_memory.client.errors`.
"""

from corbits_memory.client.calls import Call
from corbits_memory.client.client import MemoryClient
from corbits_memory.client.errors import (
    AnswerTimeoutError,
    AnswerTooLargeError,
    InvalidAnswerError,
    RedirectedError,
    ServerError,
    UnreachableError,
)
from corbits_memory.client.sync import SyncMemoryClient

__all__ = [
    "AnswerTimeoutError",
    "AnswerTooLargeError",
    "Call",
    "InvalidAnswerError",
    "MemoryClient",
    "RedirectedError",
    "ServerError",
    "SyncMemoryClient",
    "UnreachableError",
]
