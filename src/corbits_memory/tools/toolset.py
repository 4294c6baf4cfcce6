"""Tools over a client: a name and arguments in, one JSON text out. Nothing is raised but a cancellation."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import anyio
from anyio import to_thread
from pydantic import ValidationError

from corbits_memory.client import Call, MemoryClient, SyncMemoryClient
from corbits_memory.errors import ConfigError
from corbits_memory.tools import results
from corbits_memory.tools.coercion import Arguments
from corbits_memory.tools.definitions import TOOLS, Tool, ToolDescription
from corbits_memory.tools.results import RESULT_CHARS, ToolResult

T = TypeVar("T", bound=ToolDescription)


class Toolset(Protocol):
    """Tools that can be exported and called, whatever is behind them."""

    @property
    def tools(self) -> Sequence[ToolDescription]: ...

    async def call(self, name: str, arguments: Mapping[str, Any] | str | None = None, /) -> ToolResult: ...


def chosen_tools(tools: Iterable[T], names: Iterable[str] | None) -> dict[str, T]:
    """Tools by name: all, or these. Raises ``ConfigError`` for a name that is none."""
    known = {tool.name: tool for tool in tools}
    chosen = list(known) if names is None else list(dict.fromkeys(names))
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise ConfigError(f"there is no tool {', '.join(unknown)}; the tools are {', '.join(known)}")
    return {name: known[name] for name in chosen}


def unknown_tool(names: Iterable[str]) -> ToolResult:
    return results.error("unknown_tool", f"there is no such tool; the tools are {', '.join(names)}")


def arguments_of(tool: ToolDescription, arguments: Mapping[str, Any] | str | None) -> Arguments | ToolResult:
    """What a model wrote as the tool's arguments, or the error that says what is wrong with it."""
    try:
        given = json.loads(arguments or "{}") if isinstance(arguments, str) else dict(arguments or {})
    except (ValueError, TypeError, RecursionError):
        return results.error("invalid_arguments", "the arguments must be a JSON object")
    try:
        return tool.arguments.model_validate({} if given is None else given)
    except ValidationError as error:
        return results.bad_arguments(error)
    except Exception as error:  # noqa: BLE001 - the last door: a tool never raises
        return results.failure(error)


class MemoryTools:
    """Some or all of the tools. The client says which server, which tenant, and who acts; no argument can."""

    def __init__(
        self,
        client: MemoryClient | SyncMemoryClient,
        *,
        names: Iterable[str] | None = None,
        max_result_chars: int = RESULT_CHARS,
    ) -> None:
        """``names``: only these. A result of more than ``max_result_chars`` becomes an error that says so.

        Raises ``ConfigError`` for a name that is none. The client stays its maker's to close.
        """
        self.client = client
        self._tools = chosen_tools(TOOLS, names)
        self._most = max_result_chars

    @property
    def tools(self) -> tuple[Tool, ...]:
        return tuple(self._tools.values())

    async def call(
        self, name: str, arguments: Mapping[str, Any] | str | None = None, *, stop: anyio.Event | None = None
    ) -> ToolResult:
        """The result of a call. ``arguments`` may be the JSON that a model wrote.

        Setting ``stop`` gives the call up: it answers with the error ``cancelled``. When the task itself is
        cancelled, that is raised as always.
        """
        prepared = self._prepare(name, arguments)
        if isinstance(prepared, ToolResult):
            return prepared
        if stop is None:
            return await self._answer(prepared)
        answer = results.error(
            "cancelled", "the call was given up before it was answered; the server may have carried it out"
        )
        async with anyio.create_task_group() as group:

            async def watch(stop: anyio.Event) -> None:
                await stop.wait()
                group.cancel_scope.cancel()

            group.start_soon(watch, stop)
            answer = await self._answer(prepared)
            group.cancel_scope.cancel()
        return answer

    def call_blocking(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> ToolResult:
        """:meth:`call` without a loop, over a :class:`~corbits_memory.client.SyncMemoryClient`."""
        if not isinstance(self.client, SyncMemoryClient):
            raise ConfigError("blocking calls need a SyncMemoryClient")
        prepared = self._prepare(name, arguments)
        return prepared if isinstance(prepared, ToolResult) else self._answer_blocking(self.client, prepared)

    def _prepare(self, name: str, arguments: Mapping[str, Any] | str | None) -> Call[Any] | ToolResult:
        tool = self._tools.get(name)
        if tool is None:
            return unknown_tool(self._tools)
        given = arguments_of(tool, arguments)
        if isinstance(given, ToolResult):
            return given
        try:
            return tool.call(given)
        except Exception as error:  # noqa: BLE001 - the last door: a tool never raises
            return results.failure(error)

    async def _answer(self, call: Call[Any]) -> ToolResult:
        if isinstance(self.client, SyncMemoryClient):
            return await to_thread.run_sync(self._answer_blocking, self.client, call, abandon_on_cancel=True)
        try:
            answer = await self.client.send(call)
        except Exception as error:  # noqa: BLE001 - the last door: a tool never raises
            return results.failure(error)
        return results.result(answer.to_json(), most=self._most)

    def _answer_blocking(self, client: SyncMemoryClient, call: Call[Any]) -> ToolResult:
        try:
            answer = client.send(call)
        except Exception as error:  # noqa: BLE001 - the last door: a tool never raises
            return results.failure(error)
        return results.result(answer.to_json(), most=self._most)
