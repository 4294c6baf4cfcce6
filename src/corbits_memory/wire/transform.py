"""Bodies and answers of replays. By contract their names are snake_case; those within ``params`` are camelCase."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from corbits_memory.config import RerankStyle
from corbits_memory.core import limits, tuning
from corbits_memory.core.enums import RunStatus
from corbits_memory.core.instants import iso_instant
from corbits_memory.core.strategies import BUILT_IN
from corbits_memory.ports import ParamChange, SampledQuery, TransformConfig, TransformRun, TransformScope
from corbits_memory.wire import fields
from corbits_memory.wire.requests import Request
from corbits_memory.wire.responses import Response


class _Params(Request):
    """Unlike other bodies, parameters are refused when they are not known."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel)


ModelUrl = Annotated[
    str,
    Field(
        max_length=limits.URL_CHARS,
        pattern=r"^https?://[a-z0-9.-]+(:[1-9][0-9]{0,3})?(/[A-Za-z0-9._/-]*)?$",
        description="Without user, password and query.",
    ),
]
ApiKey = Annotated[
    str,
    Field(min_length=1, max_length=limits.API_KEY_CHARS, pattern=r"^[!-~]+$", description="Never answered."),
]
ChunkTokens = Annotated[int, Field(ge=limits.CHUNK_TOKENS_MIN, le=limits.CHUNK_TOKENS_MAX)]


class ChunkParamsRequest(_Params):
    """Sizes in tokens of four characters; one that contradicts another is refused."""

    strategy: fields.Id = Field(description="One that is installed.", examples=list(BUILT_IN))
    max_tokens: ChunkTokens | None = None
    min_tokens: Annotated[int, Field(ge=0, le=limits.CHUNK_TOKENS_MAX)] | None = None
    overlap_tokens: Annotated[int, Field(ge=0, le=limits.CHUNK_TOKENS_MAX)] | None = None


class EmbedParamsRequest(_Params):
    """A model in the place of the configured one."""

    base_url: ModelUrl | None = None
    model: fields.Id | None = None
    api_style: Literal["openai", "tei", "ollama"] | None = None
    api_key: ApiKey | None = None


class RerankParamsRequest(_Params):
    """A reranker in the place of the configured one; `baseUrl` is required beside any other field."""

    base_url: ModelUrl | None = None
    model: fields.Id | None = None
    api_style: RerankStyle | None = None
    api_key: ApiKey | None = None


class TransformParamsRequest(_Params):
    """How a corpus is derived, embedded and ranked."""

    chunk: ChunkParamsRequest
    embed: EmbedParamsRequest | None = None
    rerank: RerankParamsRequest | None = None
    authority_weight: Annotated[float, Field(ge=0, le=tuning.AUTHORITY_WEIGHT_MAX)] | None = None
    recency_half_life_days: (
        Annotated[float, Field(ge=tuning.HALF_LIFE_DAYS_MIN, le=tuning.HALF_LIFE_DAYS_MAX)] | None
    ) = None
    mmr_lambda: Annotated[float, Field(ge=0, le=1)] | None = None
    overfetch: Annotated[float, Field(ge=tuning.OVERFETCH_MIN, le=tuning.OVERFETCH_MAX)] | None = None


class CreateTransformRequest(Request):
    """A config; of a name that is there already, its next version."""

    name: fields.Id
    params: TransformParamsRequest


class RunTransformRequest(Request):
    """Which raw captures the run reads; without a body all of the tenant's."""

    adapter: fields.Id | None = None
    since: fields.Instant | None = Field(None, description="Inclusive; when a capture came in.")
    until: fields.Instant | None = Field(None, description="Inclusive.")
    kinds: fields.FilterKinds | None = None
    document_ids: Annotated[list[fields.Id], Field(max_length=limits.SCOPE_DOCUMENTS)] | None = None


class PromoteRequest(Request):
    """May be left out."""

    partial: bool | None = Field(
        None, description="Promote also when live documents are not in the generation. Default false."
    )


class TransformAnswer(Response):
    model_config = ConfigDict(alias_generator=None)


class TransformConfigResponse(TransformAnswer):
    id: str
    name: str
    version: int
    params: dict[str, Any]
    secrets: list[str] = Field(description="Paths of the keys that were given, like `embed.apiKey`.")
    created_at: str


class TransformConfigsResponse(TransformAnswer):
    configs: list[TransformConfigResponse]


class DeletedConfigResponse(TransformAnswer):
    id: str
    deleted: bool


class ParamChangeResponse(TransformAnswer):
    path: str
    before: Any
    after: Any


class TransformDiffResponse(TransformAnswer):
    changes: list[ParamChangeResponse] = Field(description="Of a key only that it is another one.")


class ProgressResponse(TransformAnswer):
    done: int = Field(description="Raw captures.")
    total: int | None = Field(description="Null while the run is being cut into slices.")
    rate: float | None = Field(description="Raw captures a second, of the last minute.")
    seconds_left: float | None


class SliceFailureResponse(TransformAnswer):
    after_id: str
    last_id: str
    captures: int
    attempts: int
    error: str


class SkippedCaptureResponse(TransformAnswer):
    raw_capture_id: str
    problem: str


class ScopeResponse(TransformAnswer):
    adapter: str | None = None
    since: str | None = None
    until: str | None = None
    kinds: list[str] | None = None
    document_ids: list[str] | None = None


class TransformRunResponse(TransformAnswer):
    id: str
    config_id: str
    generation: str
    status: RunStatus
    paused: bool
    live: bool
    scope: ScopeResponse
    raw_count: int = Field(description="Raw captures that were derived anew.")
    version_count: int
    skipped_count: int = Field(description="Raw captures whose stored payload could not be read.")
    error: str | None
    created_at: str
    completed_at: str | None
    promoted_at: str | None
    archived_live_generation: str | None
    archived_live_model_key: str | None
    progress: ProgressResponse
    failures: list[SliceFailureResponse] = Field(description="The first 100 slices that failed.")
    skipped: list[SkippedCaptureResponse] = Field(description="The first 100.")


class TransformRunsResponse(TransformAnswer):
    runs: list[TransformRunResponse]


class SampledQueryResponse(TransformAnswer):
    query: str
    asked_at: str


class SampledQueriesResponse(TransformAnswer):
    queries: list[SampledQueryResponse]


def sampled_response(queries: Sequence[SampledQuery]) -> SampledQueriesResponse:
    return SampledQueriesResponse(
        queries=[SampledQueryResponse(query=one.query, asked_at=iso_instant(one.asked_at)) for one in queries]
    )


def config_response(config: TransformConfig) -> TransformConfigResponse:
    return TransformConfigResponse(
        id=config.id,
        name=config.name,
        version=config.version,
        params=dict(config.params),
        secrets=list(config.secrets),
        created_at=iso_instant(config.created_at),
    )


def configs_response(configs: Sequence[TransformConfig]) -> TransformConfigsResponse:
    return TransformConfigsResponse(configs=[config_response(config) for config in configs])


def diff_response(changes: Sequence[ParamChange]) -> TransformDiffResponse:
    return TransformDiffResponse(
        changes=[
            ParamChangeResponse(path=change.path, before=change.before, after=change.after)
            for change in changes
        ]
    )


def run_response(run: TransformRun) -> TransformRunResponse:
    progress = run.progress
    return TransformRunResponse(
        id=run.id,
        config_id=run.config_id,
        generation=run.generation,
        status=run.status,
        paused=run.paused,
        live=run.live,
        scope=_scope(run.scope),
        raw_count=run.raw_count,
        version_count=run.version_count,
        skipped_count=run.skipped_count,
        error=run.error,
        created_at=iso_instant(run.created_at),
        completed_at=None if run.completed_at is None else iso_instant(run.completed_at),
        promoted_at=None if run.promoted_at is None else iso_instant(run.promoted_at),
        archived_live_generation=run.archived_live_generation,
        archived_live_model_key=run.archived_live_model_key,
        progress=ProgressResponse(
            done=progress.done,
            total=progress.total,
            rate=progress.rate,
            seconds_left=progress.seconds_left,
        ),
        failures=[
            SliceFailureResponse(
                after_id=one.after_id,
                last_id=one.last_id,
                captures=one.captures,
                attempts=one.attempts,
                error=one.error,
            )
            for one in run.failures
        ],
        skipped=[
            SkippedCaptureResponse(raw_capture_id=one.raw_capture_id, problem=one.problem)
            for one in run.skipped
        ],
    )


def runs_response(runs: Sequence[TransformRun]) -> TransformRunsResponse:
    return TransformRunsResponse(runs=[run_response(run) for run in runs])


def _scope(scope: TransformScope) -> ScopeResponse:
    told: dict[str, Any] = {
        "adapter": scope.adapter,
        "since": None if scope.since is None else iso_instant(scope.since),
        "until": None if scope.until is None else iso_instant(scope.until),
        "kinds": list(scope.kinds),
        "document_ids": list(scope.document_ids),
    }
    return ScopeResponse(**{name: value for name, value in told.items() if value})
