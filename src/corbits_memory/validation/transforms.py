"""Checks of what transforms take. Stored params pass here again when they are read."""

from collections.abc import Collection, Mapping
from typing import Any, TypeVar, get_args
from urllib.parse import urlsplit

from corbits_memory.config import EmbedStyle, RerankStyle, is_http_url
from corbits_memory.core import limits, tuning
from corbits_memory.core.chunking import STRATEGY, InvalidChunkCapsError
from corbits_memory.ports.transform import (
    ChunkParams,
    EmbedParams,
    RerankParams,
    TransformParams,
    TransformScope,
)
from corbits_memory.validation.problems import Problems

EMBED_API_KEY, RERANK_API_KEY = "embed.apiKey", "rerank.apiKey"

_STYLES: tuple[EmbedStyle, ...] = ("openai", "tei", "ollama")
_NUMBERS = {
    "authorityWeight": (0.0, tuning.AUTHORITY_WEIGHT_MAX),
    "recencyHalfLifeDays": (tuning.HALF_LIFE_DAYS_MIN, tuning.HALF_LIFE_DAYS_MAX),
    "mmrLambda": (0.0, 1.0),
    "overfetch": (tuning.OVERFETCH_MIN, tuning.OVERFETCH_MAX),
}
_Style = TypeVar("_Style", bound=str)


def transform_name(value: object) -> str:
    """The name of a config; raises :class:`InvalidInputError`."""
    problems = Problems()
    name = problems.required_identifier("name", value)
    problems.raise_if_any()
    return name


def transform_params(value: object, *, strategies: Collection[str] | None = None) -> TransformParams:
    """All parameters of a config; raises :class:`InvalidInputError` with every problem at once.

    Names are camelCase; snake_case is understood, too. What is not known is refused: a misspelt parameter
    that silently changes nothing is worse than an error. ``strategies`` None: whatever is installed here now.
    """
    problems = Problems()
    if not isinstance(value, Mapping):
        problems.add("params", "is required" if value is None else "must be an object")
        problems.raise_if_any()
    given = _Fields(problems, "", value)
    params = TransformParams(
        chunk=_chunk(problems, given.take("chunk"), strategies),
        embed=_embed(problems, given.take("embed")),
        rerank=_rerank(problems, given.take("rerank")),
        authority_weight=_number(problems, given, "authorityWeight"),
        recency_half_life_days=_number(problems, given, "recencyHalfLifeDays"),
        mmr_lambda=_number(problems, given, "mmrLambda"),
        overfetch=_number(problems, given, "overfetch"),
    )
    given.refuse_others()
    problems.raise_if_any()
    return params


def stored_transform_params(stored: Mapping[str, Any]) -> TransformParams:
    """Those of a stored config, whatever is installed here now, and whatever sizes were allowed when it was stored:
    chunks larger than today's limit shrink to it, and what goes with them in proportion.

    Raises :class:`InvalidInputError` when somebody else has written there.
    """
    chunk = stored.get("chunk")
    if isinstance(chunk, Mapping):
        largest = chunk.get("maxTokens")
        if type(largest) is int and largest > limits.CHUNK_TOKENS_MAX:
            shrunk = {
                name: size * limits.CHUNK_TOKENS_MAX // largest if type(size) is int else size
                for name, size in chunk.items()
            }
            stored = {**stored, "chunk": shrunk}
    return transform_params(stored)


def params_json(params: TransformParams) -> dict[str, Any]:
    """The parameters as they are stored and told: without keys, and without what was not given."""
    chunk, embed, rerank = params.chunk, params.embed, params.rerank
    told = {
        "chunk": {
            "strategy": chunk.strategy,
            "maxTokens": chunk.max_tokens,
            "minTokens": chunk.min_tokens,
            "overlapTokens": chunk.overlap_tokens,
        },
        "embed": embed and {"baseUrl": embed.base_url, "model": embed.model, "apiStyle": embed.api_style},
        "rerank": rerank
        and {"baseUrl": rerank.base_url, "model": rerank.model, "apiStyle": rerank.api_style},
        "authorityWeight": params.authority_weight,
        "recencyHalfLifeDays": params.recency_half_life_days,
        "mmrLambda": params.mmr_lambda,
        "overfetch": params.overfetch,
    }
    return {
        name: {key: item for key, item in value.items() if item is not None}
        if isinstance(value, dict)
        else value
        for name, value in told.items()
        if value is not None
    }


def params_secrets(params: TransformParams) -> dict[str, str]:
    """The keys among the parameters, by the path at which they were given."""
    found = {
        EMBED_API_KEY: params.embed.api_key if params.embed else None,
        RERANK_API_KEY: params.rerank.api_key if params.rerank else None,
    }
    return {path: key for path, key in found.items() if key is not None}


def transform_scope(
    *,
    adapter: object = None,
    since: object = None,
    until: object = None,
    kinds: object = None,
    document_ids: object = None,
) -> TransformScope:
    """The scope of a run; raises :class:`InvalidInputError` with every problem at once."""
    problems = Problems()
    scope = TransformScope(
        adapter=problems.identifier("adapter", adapter),
        since=problems.instant("since", since),
        until=problems.instant("until", until),
        kinds=problems.identifiers(
            "kinds", kinds, max_items=limits.FILTER_VALUES, max_chars=limits.KIND_CHARS
        ),
        document_ids=problems.identifiers("document_ids", document_ids, max_items=limits.SCOPE_DOCUMENTS),
    )
    if scope.since is not None and scope.until is not None and scope.since > scope.until:
        problems.add("since", "must not be later than until")
    problems.raise_if_any()
    return scope


class _Fields:
    """The members of an object, taken one by one; what is left at the end is unknown."""

    def __init__(self, problems: Problems, path: str, value: object) -> None:
        self._problems = problems
        self._path = path
        self._left: dict[str, object] = {}
        if isinstance(value, Mapping):
            self._left = {_camel(key): item for key, item in value.items() if isinstance(key, str)}
        elif value is not None:
            problems.add(path, "must be an object")

    def take(self, name: str) -> object:
        return self._left.pop(name, None)

    def named(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name

    def refuse_others(self) -> None:
        if self._left:
            # A name is input too, and is not repeated.
            count = len(self._left)
            self._problems.add(
                self._path or "params",
                f"has {count} unknown name{'s' if count > 1 else ''}; see docs/replay.md",
            )


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word[:1].upper() + word[1:] for word in rest)


def _chunk(problems: Problems, value: object, strategies: Collection[str] | None) -> ChunkParams:
    if value is None:
        problems.add("chunk", f'is required, like {{"strategy": "{STRATEGY}"}}')
    given = _Fields(problems, "chunk", value)
    strategy = given.take("strategy")
    if not isinstance(strategy, str) or (strategies is not None and strategy not in strategies):
        if value is not None:
            problems.add("chunk.strategy", f"must be one of: {', '.join(strategies or (STRATEGY,))}")
        strategy = STRATEGY

    def size(name: str, low: int, high: int) -> int | None:
        item = given.take(name)
        return (
            None
            if item is None
            else problems.integer(given.named(name), item, low=low, high=high, default=low)
        )

    params = ChunkParams(
        strategy=strategy,
        max_tokens=size("maxTokens", limits.CHUNK_TOKENS_MIN, limits.CHUNK_TOKENS_MAX),
        min_tokens=size("minTokens", 0, limits.CHUNK_TOKENS_MAX),
        overlap_tokens=size("overlapTokens", 0, limits.CHUNK_TOKENS_MAX),
    )
    given.refuse_others()
    try:
        params.cutting  # noqa: B018 - the sizes may contradict each other
    except InvalidChunkCapsError as error:
        problems.add("chunk", str(error))
    return params


def _embed(problems: Problems, value: object) -> EmbedParams | None:
    if value is None:
        return None
    given = _Fields(problems, "embed", value)
    params = EmbedParams(
        base_url=_url(problems, given),
        model=problems.identifier("embed.model", given.take("model")),
        api_style=_style(problems, given, _STYLES),
        api_key=problems.identifier(EMBED_API_KEY, given.take("apiKey"), max_chars=limits.API_KEY_CHARS),
    )
    given.refuse_others()
    return params


def _rerank(problems: Problems, value: object) -> RerankParams | None:
    if value is None:
        return None
    given = _Fields(problems, "rerank", value)
    params = RerankParams(
        base_url=_url(problems, given),
        model=problems.identifier("rerank.model", given.take("model")),
        api_style=_style(problems, given, get_args(RerankStyle)),
        api_key=problems.identifier(RERANK_API_KEY, given.take("apiKey"), max_chars=limits.API_KEY_CHARS),
    )
    if params.base_url is None and params != RerankParams():
        problems.add("rerank.baseUrl", "is required beside the other fields of rerank")
    given.refuse_others()
    return params


def _url(problems: Problems, given: _Fields) -> str | None:
    field = given.named("baseUrl")
    url = problems.identifier(field, given.take("baseUrl"), max_chars=limits.URL_CHARS)
    if url is None:
        return None
    if not is_http_url(url):
        problems.add(field, "must be a URL that can be called: http:// or https:// and a host")
        return None
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        # It is shown to whoever reads the config.
        problems.add(field, "must not hold a password or a query; give a key as apiKey")
        return None
    return url


def _style(problems: Problems, given: _Fields, known: tuple[_Style, ...]) -> _Style | None:
    value = given.take("apiStyle")
    found = next((style for style in known if style == value), None)
    if value is not None and found is None:
        problems.add(given.named("apiStyle"), f"must be one of: {', '.join(known)}")
    return found


def _number(problems: Problems, given: _Fields, name: str) -> float | None:
    value = given.take(name)
    if value is None:
        return None
    low, high = _NUMBERS[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        problems.add(name, f"must be a number from {low:g} to {high:g}")
        return None
    return float(value)
