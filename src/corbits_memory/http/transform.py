"""The routes of replays, for administrators."""

from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import TypeAdapter

from corbits_memory.admin import MemoryAdmin
from corbits_memory.core import limits
from corbits_memory.core.enums import Capability
from corbits_memory.http.calls import Call, Operation
from corbits_memory.http.query import number, once
from corbits_memory.ports import TransformRun
from corbits_memory.validation import Problems
from corbits_memory.wire import fields, responses, transform

_CONFIG, _RUN, _GENERATION = (
    "/transforms/{config_id}",
    "/transform-runs/{run_id}",
    "/generations/{generation}",
)
_LIMIT = {
    "name": "limit",
    "in": "query",
    "description": f"Default {limits.RUNS_LIMIT_DEFAULT}; newest first.",
    "schema": {"type": "integer", "minimum": 1, "maximum": limits.RUNS_LIMIT_MAX},
}


async def create(call: Call) -> responses.Response:
    # Absent is told by the validation.
    name: Any = call.body.get("name")
    params: Any = call.body.get("params")
    created = await _admin(call).create_transform_config(
        tenant_id=call.caller.tenant_id, actor=call.caller.principal_id, name=name, params=params
    )
    return transform.config_response(created)


async def list_configs(call: Call) -> responses.Response:
    problems = Problems()
    name = once(call, problems, "name")
    limit = _limit(call, problems)
    configs = await _admin(call).list_transform_configs(**_who(call), name=name, limit=limit)
    return transform.configs_response(configs)


async def config(call: Call) -> responses.Response:
    return transform.config_response(await _admin(call).transform_config(**_who(call), **_path(call)))


async def diff(call: Call) -> responses.Response:
    named = _path(call)
    changes = await _admin(call).diff_transform_configs(
        **_who(call), before=named["config_id"], after=named["other_id"]
    )
    return transform.diff_response(changes)


async def delete(call: Call) -> responses.Response:
    await _admin(call).delete_transform_config(**_who(call), **_path(call))
    return transform.DeletedConfigResponse(id=_path(call)["config_id"], deleted=True)


async def run(call: Call) -> responses.Response:
    scope: Any = {name: call.body.get(name) for name in transform.RunTransformRequest.model_fields}
    return transform.run_response(await _admin(call).run_transform(**_who(call), **_path(call), **scope))


async def list_runs(call: Call) -> responses.Response:
    limit = _limit(call, Problems())
    return transform.runs_response(await _admin(call).transform_runs(**_who(call), limit=limit))


async def sampled(call: Call) -> responses.Response:
    problems = Problems()
    limit = number(call, problems, "limit", low=1, high=limits.SAMPLED_LIMIT_MAX)
    problems.raise_if_any()
    return transform.sampled_response(await _admin(call).sampled_queries(**_who(call), limit=limit))


async def promote(call: Call) -> responses.Response:
    partial: Any = call.body.get("partial")
    promoted = await _admin(call).promote_generation(**_who(call), **_path(call), allow_partial=partial)
    return transform.run_response(promoted)


def _on_run(verb: str) -> Callable[[Call], Awaitable[responses.Response]]:
    async def handle(call: Call) -> responses.Response:
        ask: Callable[..., Awaitable[TransformRun]] = getattr(_admin(call), verb)
        return transform.run_response(await ask(**_who(call), **_path(call)))

    return handle


def _admin(call: Call) -> MemoryAdmin:
    return MemoryAdmin(call.memory)


def _who(call: Call) -> dict[str, str]:
    return {"tenant_id": call.caller.tenant_id, "actor": call.caller.principal_id}


def _path(call: Call) -> dict[str, str]:
    return {name: value for name, value in call.request.path_params.items() if name != "tenant_id"}


def _limit(call: Call, problems: Problems) -> int | None:
    limit = number(call, problems, "limit", low=1, high=limits.RUNS_LIMIT_MAX)
    problems.raise_if_any()
    return limit


def _run_operation(word: str, summary: str) -> Operation:
    return Operation(
        id=f"memory_transform_{word}",
        method="POST",
        path=f"{_RUN}/{word}",
        capability=Capability.ADMIN,
        summary=summary,
        handle=_on_run(f"{word}_transform_run"),
        response=transform.TransformRunResponse,
    )


TRANSFORM_OPERATIONS = (
    Operation(
        id="memory_transform_create",
        method="POST",
        path="/transforms",
        capability=Capability.ADMIN,
        summary="Say how a corpus is to be derived anew",
        handle=create,
        request=transform.CreateTransformRequest,
        response=transform.TransformConfigResponse,
    ),
    Operation(
        id="memory_transforms",
        method="GET",
        path="/transforms",
        capability=Capability.ADMIN,
        summary="Transform configs",
        handle=list_configs,
        response=transform.TransformConfigsResponse,
        query=(
            {
                "name": "name",
                "in": "query",
                "description": "Only versions of this name.",
                "schema": TypeAdapter(fields.Id).json_schema(),
            },
            _LIMIT,
        ),
    ),
    Operation(
        id="memory_transform",
        method="GET",
        path=_CONFIG,
        capability=Capability.ADMIN,
        summary="A transform config",
        handle=config,
        response=transform.TransformConfigResponse,
    ),
    Operation(
        id="memory_transform_diff",
        method="GET",
        path=f"{_CONFIG}/diff/{{other_id}}",
        capability=Capability.ADMIN,
        summary="What differs between two transform configs",
        handle=diff,
        response=transform.TransformDiffResponse,
    ),
    Operation(
        id="memory_transform_delete",
        method="DELETE",
        path=_CONFIG,
        capability=Capability.ADMIN,
        summary="Delete a transform config that no run was made with",
        handle=delete,
        response=transform.DeletedConfigResponse,
    ),
    Operation(
        id="memory_transform_run",
        method="POST",
        path=f"{_CONFIG}/runs",
        capability=Capability.ADMIN,
        summary="Derive the corpus anew, beside the live one",
        handle=run,
        request=transform.RunTransformRequest,
        response=transform.TransformRunResponse,
    ),
    Operation(
        id="memory_transform_runs",
        method="GET",
        path="/transform-runs",
        capability=Capability.ADMIN,
        summary="Runs and how far they are",
        handle=list_runs,
        response=transform.TransformRunsResponse,
        query=(_LIMIT,),
    ),
    Operation(
        id="memory_transform_run_status",
        method="GET",
        path=_RUN,
        capability=Capability.ADMIN,
        summary="A run, how far it is, and what failed of it",
        handle=_on_run("transform_run"),
        response=transform.TransformRunResponse,
    ),
    Operation(
        id="memory_queries",
        method="GET",
        path="/queries",
        capability=Capability.ADMIN,
        summary="Questions that were asked lately, where some are kept",
        handle=sampled,
        response=transform.SampledQueriesResponse,
        query=(
            {
                "name": "limit",
                "in": "query",
                "description": f"Default {limits.SAMPLED_LIMIT_DEFAULT}; newest first.",
                "schema": {"type": "integer", "minimum": 1, "maximum": limits.SAMPLED_LIMIT_MAX},
            },
        ),
    ),
    _run_operation("pause", "Begin no slice of a run until it is resumed"),
    _run_operation("resume", "Go on with a run that was paused"),
    _run_operation("cancel", "End a run where it is"),
    _run_operation("retry", "Go on with a run that failed or was cancelled"),
    Operation(
        id="memory_promote",
        method="POST",
        path=f"{_GENERATION}/promote",
        capability=Capability.ADMIN,
        summary="Make the generation of a run the live one",
        handle=promote,
        request=transform.PromoteRequest,
        response=transform.TransformRunResponse,
    ),
    Operation(
        id="memory_demote",
        method="POST",
        path=f"{_GENERATION}/demote",
        capability=Capability.ADMIN,
        summary="Go back to the generation that was live before",
        handle=_on_run("demote_generation"),
        response=transform.TransformRunResponse,
    ),
)
