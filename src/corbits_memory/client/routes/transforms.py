"""Replay: configs, runs, promotion; for administrators. docs/replay.md says what they mean."""

from collections.abc import Mapping, Sequence
from typing import Any

from corbits_memory.client.calls import Call
from corbits_memory.client.routes.values import Instant, body_of, given_parameters, path_part, plain
from corbits_memory.wire import transform as wire


def create_transform(name: str, params: Mapping[str, Any]) -> Call[wire.TransformConfigResponse]:
    """Say how a corpus is to be derived anew; the next version of this name."""
    return _once("/transforms", wire.TransformConfigResponse, {"name": name, "params": plain(params)})


def transforms(*, name: str | None = None, limit: int | None = None) -> Call[wire.TransformConfigsResponse]:
    """Transform configs, newest first."""
    return Call(
        method="GET",
        path="/transforms",
        answer=wire.TransformConfigsResponse,
        parameters=given_parameters(name=name, limit=limit),
    )


def transform(config_id: str) -> Call[wire.TransformConfigResponse]:
    """A transform config."""
    return Call(method="GET", path=_config(config_id), answer=wire.TransformConfigResponse)


def diff_transforms(before: str, after: str) -> Call[wire.TransformDiffResponse]:
    """What differs between two transform configs."""
    return Call(
        method="GET", path=_config(before, f"/diff/{path_part(after)}"), answer=wire.TransformDiffResponse
    )


def delete_transform(config_id: str) -> Call[wire.DeletedConfigResponse]:
    """Delete a transform config that no run was made with."""
    return Call(method="DELETE", path=_config(config_id), answer=wire.DeletedConfigResponse, repeatable=False)


def run_transform(
    config_id: str,
    *,
    adapter: str | None = None,
    since: Instant | None = None,
    until: Instant | None = None,
    kinds: Sequence[str] | None = None,
    document_ids: Sequence[str] | None = None,
) -> Call[wire.TransformRunResponse]:
    """Begin to derive the corpus anew, or what of it is named, beside the live one."""
    scope = {"adapter": adapter, "since": since, "until": until, "kinds": kinds, "document_ids": document_ids}
    return _once(_config(config_id, "/runs"), wire.TransformRunResponse, body_of(scope))


def transform_runs(*, limit: int | None = None) -> Call[wire.TransformRunsResponse]:
    """Runs and how far they are, newest first."""
    return Call(
        method="GET",
        path="/transform-runs",
        answer=wire.TransformRunsResponse,
        parameters=given_parameters(limit=limit),
    )


def transform_run(run_id: str) -> Call[wire.TransformRunResponse]:
    """A run, how far it is, and what failed of it."""
    return Call(method="GET", path=_run(run_id), answer=wire.TransformRunResponse)


def pause_transform_run(run_id: str) -> Call[wire.TransformRunResponse]:
    """Begin no slice of a run until it is resumed."""
    return _once(_run(run_id, "/pause"), wire.TransformRunResponse)


def resume_transform_run(run_id: str) -> Call[wire.TransformRunResponse]:
    """Go on with a run that was paused."""
    return _once(_run(run_id, "/resume"), wire.TransformRunResponse)


def cancel_transform_run(run_id: str) -> Call[wire.TransformRunResponse]:
    """End a run where it is."""
    return _once(_run(run_id, "/cancel"), wire.TransformRunResponse)


def retry_transform_run(run_id: str) -> Call[wire.TransformRunResponse]:
    """Go on with a run that failed or was cancelled."""
    return _once(_run(run_id, "/retry"), wire.TransformRunResponse)


def sampled_queries(*, limit: int | None = None) -> Call[wire.SampledQueriesResponse]:
    """Questions that were asked lately, newest first, where the server keeps some."""
    return Call(
        method="GET",
        path="/queries",
        answer=wire.SampledQueriesResponse,
        parameters=given_parameters(limit=limit),
    )


def promote(generation: str, *, partial: bool = False) -> Call[wire.TransformRunResponse]:
    """Make the generation of a run the live one; ``partial`` though live documents are not in it."""
    path = f"/generations/{path_part(generation)}/promote"
    return _once(path, wire.TransformRunResponse, {"partial": partial})


def demote(generation: str) -> Call[wire.TransformRunResponse]:
    """Go back to the generation that was live before."""
    return _once(f"/generations/{path_part(generation)}/demote", wire.TransformRunResponse)


def _once(path: str, answer: type[Any], body: Mapping[str, Any] | None = None) -> Call[Any]:
    """A change that is not sent twice by itself: the second would be refused, or begin a second run."""
    return Call(method="POST", path=path, answer=answer, body=body, repeatable=False)


def _config(config_id: str, end: str = "") -> str:
    return f"/transforms/{path_part(config_id)}{end}"


def _run(run_id: str, end: str = "") -> str:
    return f"/transform-runs/{path_part(run_id)}{end}"
