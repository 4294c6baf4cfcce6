"""Replays: configs, runs, and what became of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from corbits_memory.config import EmbedStyle, RerankStyle
from corbits_memory.core.enums import RunStatus
from corbits_memory.core.strategies import Cutting, cutting


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkParams:
    """How text is cut. Sizes in tokens; ``None`` leaves the strategy's own."""

    strategy: str
    max_tokens: int | None = None
    min_tokens: int | None = None
    overlap_tokens: int | None = None

    @property
    def cutting(self) -> Cutting:
        """Raises ``InvalidChunkCapsError``."""
        return cutting(
            self.strategy,
            max_tokens=self.max_tokens,
            min_tokens=self.min_tokens,
            overlap_tokens=self.overlap_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedParams:
    """A model in place of the configured one; what is None stays as it is configured."""

    base_url: str | None = None
    model: str | None = None
    api_style: EmbedStyle | None = None
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankParams:
    base_url: str | None = None
    model: str | None = None
    api_style: RerankStyle | None = None
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformParams:
    """All that a config can change, checked. ``None`` leaves what is configured."""

    chunk: ChunkParams
    embed: EmbedParams | None = None
    rerank: RerankParams | None = None
    authority_weight: float | None = None
    recency_half_life_days: float | None = None
    mmr_lambda: float | None = None
    overfetch: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformConfig:
    """A version of a config. ``params`` as JSON, without keys; ``secrets`` names those that were given."""

    id: str
    name: str
    version: int
    params: Mapping[str, Any]
    secrets: tuple[str, ...]
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ParamChange:
    """One parameter that differs; a key is never told, only that it is another one."""

    path: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformScope:
    """Which raw captures a run reads. All conditions hold; an empty scope is the whole tenant.

    ``since`` and ``until`` are inclusive, and of the instant at which a capture came in.
    """

    adapter: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    kinds: tuple[str, ...] = ()
    document_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """``done`` and ``total`` are raw captures, ``rate`` those a second; None where nothing can be told yet."""

    done: int
    total: int | None
    rate: float | None
    seconds_left: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceFailure:
    """A slice that was given up: raw captures above ``after_id``, up to ``last_id``."""

    after_id: str
    last_id: str
    captures: int
    attempts: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedCapture:
    """A raw capture whose stored payload can't be read any more."""

    raw_capture_id: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledQuery:
    """A question that was asked, where some are kept."""

    query: str
    asked_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformRun:
    """A run. Its id is the generation that it writes.

    ``raw_count`` raw captures became ``version_count`` versions; ``skipped_count`` could not be read.
    ``failures`` and ``skipped`` list the first 100 of each.
    """

    id: str
    config_id: str
    generation: str
    status: RunStatus
    paused: bool
    scope: TransformScope
    raw_count: int
    version_count: int
    skipped_count: int
    error: str | None
    created_at: datetime
    completed_at: datetime | None
    promoted_at: datetime | None
    archived_live_generation: str | None
    archived_live_model_key: str | None
    live: bool
    progress: RunProgress
    failures: tuple[SliceFailure, ...] = ()
    skipped: tuple[SkippedCapture, ...] = ()
