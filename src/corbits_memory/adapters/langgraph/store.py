"""LangGraph's long-term memory in this one."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, TypeVar

from anyio import to_thread
from langgraph.store.base import BaseStore, Item, Op, Result, SearchItem, TTLConfig

from corbits_memory.adapters.langgraph.names import Namespace
from corbits_memory.adapters.langgraph.operations import Operations
from corbits_memory.adapters.langgraph.reading import Steps
from corbits_memory.client import MemoryClient, SyncMemoryClient
from corbits_memory.errors import ConfigError, InvalidInputError, MemoryError, NotSupportedError

T = TypeVar("T")

NO_REFRESH = "a ttl counts from the last write; reading can't put it off: leave refresh_ttl out"


class CorbitsMemoryStore(BaseStore):
    """A store for ``graph.compile(store=…)``, over a client of a memory server.

    >>> with SyncMemoryClient("http://127.0.0.1:8765", tenant="default", token="cmt_…") as client:
    ...     graph = builder.compile(store=CorbitsMemoryStore(client))

    Over a ``SyncMemoryClient`` it can be used both ways, over a ``MemoryClient`` by ``await`` alone. Items are the
    documents of whom the token names: no other tenant's and no other principal's are read or written. Deleting is
    forgetting, so the token needs ``add``, ``search`` and ``forget``.

    Raises ``InvalidNamespaceError`` as LangGraph does, and the errors of :mod:`corbits_memory.errors`.
    """

    supports_ttl = True

    def __init__(self, client: MemoryClient | SyncMemoryClient, *, ttl: TTLConfig | None = None) -> None:
        """``ttl``: ``default_ttl`` in minutes. Raises ``ConfigError`` for ``refresh_on_read`` and ``omit_expired`` off:
        a ttl counts from the last write, and what has expired is not told."""
        given = dict(ttl or {})
        if given.get("refresh_on_read"):
            raise ConfigError(NO_REFRESH)
        if given.get("omit_expired") is False or given.get("sweep_interval_minutes") is not None:
            raise ConfigError("expired items are never told, and sweep_ttl() erases them when you call it")
        self._client = client
        self._operations = Operations()
        self.ttl_config = {**(ttl or {}), "refresh_on_read": False, "omit_expired": True}

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Do several operations: all reads, and then the writes."""
        return self._run(self._operations.batch(ops, now=_now()))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """:meth:`batch` in a loop."""
        return await self._arun(self._operations.batch(ops, now=_now()))

    def sweep_ttl(self) -> int:
        """Erase what has expired; how many items. They are not told before that either.

        Each is looked at once more just before; an item written anew in that very moment may go with the old one, so
        sweep when few write.
        """
        return self._run(self._operations.sweep(now=_now()))

    async def asweep_ttl(self) -> int:
        """:meth:`sweep_ttl` in a loop."""
        return await self._arun(self._operations.sweep(now=_now()))

    def get(self, namespace: Namespace, key: str, *, refresh_ttl: bool | None = None) -> Item | None:
        _refuse_refresh(refresh_ttl)
        return super().get(namespace, key)

    async def aget(self, namespace: Namespace, key: str, *, refresh_ttl: bool | None = None) -> Item | None:
        _refuse_refresh(refresh_ttl)
        return await super().aget(namespace, key)

    def search(
        self, namespace_prefix: Namespace, /, *, refresh_ttl: bool | None = None, **asked: Any
    ) -> list[SearchItem]:
        _refuse_refresh(refresh_ttl)
        return super().search(namespace_prefix, **asked)

    async def asearch(
        self, namespace_prefix: Namespace, /, *, refresh_ttl: bool | None = None, **asked: Any
    ) -> list[SearchItem]:
        _refuse_refresh(refresh_ttl)
        return await super().asearch(namespace_prefix, **asked)

    def _run(self, steps: Steps[T]) -> T:
        if not isinstance(self._client, SyncMemoryClient):
            raise NotSupportedError(
                "this store is over a MemoryClient: use the methods to await, or a SyncMemoryClient"
            )
        try:
            call = next(steps)
            while True:
                try:
                    answer = self._client.send(call)
                except MemoryError as error:
                    call = steps.throw(error)
                else:
                    call = steps.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def _arun(self, steps: Steps[T]) -> T:
        if isinstance(self._client, SyncMemoryClient):
            return await to_thread.run_sync(self._run, steps)
        try:
            call = next(steps)
            while True:
                try:
                    answer = await self._client.send(call)
                except MemoryError as error:
                    call = steps.throw(error)
                else:
                    call = steps.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def _refuse_refresh(asked: bool | None) -> None:
    if asked:
        raise InvalidInputError(NO_REFRESH)


def _now() -> datetime:
    return datetime.now(UTC)
