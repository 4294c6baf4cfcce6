"""The guard before every route: 401, then 403, then 413, then 400, then the handler."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from corbits_memory.errors import InvalidInputError, UnauthorizedError
from corbits_memory.http.body import NOT_JSON, is_json, json_object, read_body
from corbits_memory.http.calls import Call, Operation
from corbits_memory.http.errors import REQUEST_ID, error_answer, request_id_of
from corbits_memory.http.form import form_object
from corbits_memory.http.identity import Identity, check_capability, check_tenant, resolve_caller
from corbits_memory.plane import Memory
from corbits_memory.ports import Caller
from corbits_memory.wire import responses

_log = logging.getLogger("corbits_memory.http")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The ASGI app behind one path. Whatever happens, it answers in our shape and raises nothing."""

    memory: Memory
    identity: Identity
    operations: Mapping[str, Operation]
    """By method."""
    strict_tenant_path: bool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except ClientDisconnect:
            _log.debug("request %s: the client went away", request_id_of(request))
            return
        except Exception as error:  # noqa: BLE001 - the last door: what is unforeseen is logged and told as 500
            response = error_answer(request, error)
        if request.method == "HEAD":
            response = _without_body(response)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if request.method == "OPTIONS":
            return Response(
                status_code=204, headers={"allow": self._allow, REQUEST_ID: request_id_of(request)}
            )
        operation = self.operations.get("GET" if request.method == "HEAD" else request.method)
        if operation is None:
            raise HTTPException(405, headers={"allow": self._allow})
        caller = await self._guard(request, operation)
        body = await _body(request, operation)

        async def guard() -> None:
            # Somebody else by now, by the same credential, is nobody who was let in.
            if await self._guard(request, operation) != caller:
                raise UnauthorizedError

        call = Call(memory=self.memory, caller=caller, request=request, body=body, guard=guard)
        answer = await _handled(call, operation)
        response = answer if isinstance(answer, Response) else JSONResponse(answer.to_json())
        response.headers.update({REQUEST_ID: request_id_of(request), "cache-control": "no-store"})
        return response

    async def _guard(self, request: Request, operation: Operation) -> Caller:
        caller = await resolve_caller(request, self.identity)
        await check_capability(self.memory, caller, operation.capability)
        if self.strict_tenant_path:
            check_tenant(request, caller)
        return caller

    @property
    def _allow(self) -> str:
        methods = {*self.operations, "OPTIONS"}
        if "GET" in methods:
            methods.add("HEAD")
        return ", ".join(sorted(methods))


async def _body(request: Request, operation: Operation) -> Mapping[str, Any]:
    if operation.request is None:
        return {}
    # First and whole, within its limit: nothing is parsed of what is too large.
    body = await read_body(request)
    return await form_object(request, body) if operation.is_form else json_object(request, body)


async def _handled(call: Call, operation: Operation) -> responses.Response | Response:
    try:
        return await operation.handle(call)
    except InvalidInputError as error:
        if operation.request is None or operation.is_form or is_json(call.request):
            raise
        # Everything looks missing, since nothing was read: say why.
        raise InvalidInputError(error.message, details=[*_listed(error), NOT_JSON]) from error


def _listed(error: InvalidInputError) -> Sequence[Mapping[str, Any]]:
    return error.details if isinstance(error.details, Sequence) else ()


def _without_body(response: Response) -> Response:
    """The same head, its content-length included."""
    bare = Response(status_code=response.status_code)
    bare.raw_headers = response.raw_headers
    return bare
