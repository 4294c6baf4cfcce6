import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from corbits_memory import config
from corbits_memory.config import (
    EmbedConfig,
    EngineConfig,
    PushConfig,
    RerankConfig,
    check_rerank_config,
    default_max_doc_chars,
    load_memory_config,
    local_embed_config,
    override_embed,
    override_rerank,
)
from corbits_memory.core.chunking import ChunkCaps
from corbits_memory.core.enums import SearchProfile
from corbits_memory.core.limits import CHUNK_TOKENS_MAX, CHUNK_TOKENS_MIN
from corbits_memory.core.strategies import Cutting
from corbits_memory.errors import ConfigError, RerankConfigError

DATABASE = "postgresql://me:pa55word@db/memory"
PAIR = {"EMBED_BASE_URL": "http://embed:8080", "EMBED_MODEL": "m"}


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the local model is installed must not decide what these tests say."""
    monkeypatch.setattr(config, "local_model_installed", lambda: True)


def load(**environ: str) -> EngineConfig:
    return load_memory_config({"DATABASE_URL": DATABASE, **environ}).memory


def problems(environ: Mapping[str, str]) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        load_memory_config(environ)
    assert isinstance(raised.value.details, list)
    found = [str(detail["problem"]) for detail in raised.value.details]
    assert all(problem in raised.value.message for problem in found)
    return found


def test_the_defaults() -> None:
    assert load(EMBED_PROVIDER="none") == EngineConfig(database_url=DATABASE)
    engine = load()
    assert engine.embed == local_embed_config()
    assert engine.rerank == RerankConfig()
    assert (engine.db_pool_max, engine.fts_language, engine.add_embed_seconds) == (8, "english", 2.0)
    assert (engine.profile, engine.vector_type) == (SearchProfile.DEFAULT, "halfvec")


def test_every_variable_arrives() -> None:
    assert load(
        DATABASE_READ_URL="postgresql://replica/memory",
        DATABASE_READ_LAG_MS="2500",
        DB_POOL_MAX="3",
        FTS_LANGUAGE="german",
        EMBED_API_STYLE="tei",
        EMBED_API_KEY="ek",
        EMBED_TIMEOUT_MS="250",
        EMBED_BATCH_SIZE="7",
        RERANK_BASE_URL="https://rerank",
        RERANK_MODEL="bge-reranker-base",
        RERANK_API_STYLE="cohere",
        RERANK_API_KEY="rk",
        RERANK_MAX_DOC_CHARS="900",
        RERANK_TIMEOUT_MS="1500",
        SEARCH_PROFILE="compat",
        VECTOR_TYPE="vector",
        ADD_EMBED_TIMEOUT_MS="500",
        CHUNK_STRATEGY="markdown.sections",
        CHUNK_MAX_TOKENS="300",
        CHUNK_MIN_TOKENS="0",
        CHUNK_OVERLAP_TOKENS="20",
        QUERY_LOG_PERCENT="25",
        **PAIR,
    ) == EngineConfig(
        database_url=DATABASE,
        database_read_url="postgresql://replica/memory",
        database_read_lag_seconds=2.5,
        db_pool_max=3,
        fts_language="german",
        embed=EmbedConfig(
            base_url="http://embed:8080",
            model="m",
            api_style="tei",
            api_key="ek",
            timeout_ms=250,
            batch_size=7,
        ),
        rerank=RerankConfig(
            base_url="https://rerank",
            model="bge-reranker-base",
            api_style="cohere",
            api_key="rk",
            max_doc_chars=900,
            timeout_ms=1_500,
        ),
        profile=SearchProfile.COMPAT,
        vector_type="vector",
        add_embed_seconds=0.5,
        query_log_percent=25,
        cutting=Cutting("markdown.sections", ChunkCaps(300, 0, 20)),
    )


def test_limits_that_a_client_derives_are_not_defaulted_here() -> None:
    engine = load(**PAIR)
    assert engine.embed is not None
    assert engine.embed.timeout_ms is None
    assert (engine.rerank.timeout_ms, engine.rerank.max_doc_chars, engine.rerank.model) == (None, None, None)


def test_the_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", DATABASE)
    assert load_memory_config().memory.database_url == DATABASE


@pytest.mark.parametrize("blank", ["", " ", "\t\n"])
def test_blank_is_unset(blank: str) -> None:
    names = [name for name in variables() if name != "DATABASE_URL"]
    assert load(**dict.fromkeys(names, blank)) == load()
    assert problems({"DATABASE_URL": blank})[0].startswith("DATABASE_URL is required")


def test_a_host_may_supply_the_database() -> None:
    assert load_memory_config({}, database_url="postgresql:///embedded").memory.database_url.endswith(
        "embedded"
    )
    given = load_memory_config({"DATABASE_URL": DATABASE}, database_url="postgresql:///embedded")
    assert given.memory.database_url == DATABASE


@pytest.mark.parametrize("url", ["mysql://h/d", "http://h", "postgres+asyncpg://h/d"])
@pytest.mark.parametrize("name", ["DATABASE_URL", "DATABASE_READ_URL"])
def test_another_kind_of_database_is_refused(name: str, url: str) -> None:
    assert [p.split()[0] for p in problems({"DATABASE_URL": DATABASE, name: url})] == [name]


@pytest.mark.parametrize("url", ["postgres://h/d", "postgresql://h/d", "host=/run/pg dbname=memory"])
def test_every_form_of_postgres_address_is_taken(url: str) -> None:
    assert load(DATABASE_URL=url).database_url == url


@pytest.mark.parametrize(
    "name",
    [
        "DB_POOL_MAX",
        "EMBED_TIMEOUT_MS",
        "EMBED_BATCH_SIZE",
        "RERANK_MAX_DOC_CHARS",
        "RERANK_TIMEOUT_MS",
        "ADD_EMBED_TIMEOUT_MS",
    ],
)
@pytest.mark.parametrize(
    "value", ["0", "-1", "+1", "1.5", "1e3", "8x", "x", " 8", "8 ", "0x10", "1_000", "٣", "9" * 10]
)
def test_an_integer_is_the_whole_string(name: str, value: str) -> None:
    [problem] = problems({"DATABASE_URL": DATABASE, name: value})
    assert problem.startswith(f"{name} must be a positive integer")


@pytest.mark.parametrize(("value", "number"), [("1", 1), ("999999999", 999_999_999)])
def test_integers_at_their_limits(value: str, number: int) -> None:
    assert load(DB_POOL_MAX=value).db_pool_max == number


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("max", CHUNK_TOKENS_MIN, CHUNK_TOKENS_MAX), ("min", 0, 700), ("overlap", 0, 699)],
)
def test_chunk_sizes_at_their_limits(name: str, low: int, high: int) -> None:
    variable = f"CHUNK_{name.upper()}_TOKENS"
    for value in (low, high):
        caps = load(**{variable: str(value)}).cutting.caps
        assert getattr(caps, f"{name}_tokens") == value
    for wrong in (str(low - 1), str(high + 1), "1.5", " 60", "x"):
        assert problems({"DATABASE_URL": DATABASE, variable: wrong})


@pytest.mark.parametrize("value", ["-1", "101", "50%", "0.5"])
def test_a_share_of_questions_is_a_percentage(value: str) -> None:
    assert [load(QUERY_LOG_PERCENT=str(edge)).query_log_percent for edge in (0, 100)] == [0, 100]
    [problem] = problems({"DATABASE_URL": DATABASE, "QUERY_LOG_PERCENT": value})
    assert problem.startswith("QUERY_LOG_PERCENT must be an integer from 0 to 100")


def test_a_chunk_size_that_was_not_given_contradicts_none_that_was() -> None:
    assert load(CHUNK_MAX_TOKENS="30").cutting.caps == ChunkCaps(30, 30, 29)
    [problem] = problems({"DATABASE_URL": DATABASE, "CHUNK_MAX_TOKENS": "30", "CHUNK_MIN_TOKENS": "31"})
    assert problem.startswith("CHUNK_MAX_TOKENS must be at least CHUNK_MIN_TOKENS")


@pytest.mark.parametrize("name", list(PAIR))
def test_half_an_embedding_server_is_an_error_with_both_ways_out(name: str) -> None:
    [problem] = problems({"DATABASE_URL": DATABASE, name: PAIR[name]})
    assert "EMBED_BASE_URL" in problem
    assert "EMBED_MODEL" in problem
    assert "set both" in problem
    assert "or neither" in problem


@pytest.mark.parametrize(
    ("provider", "pair", "local", "url"),
    [
        (None, True, True, "http://embed:8080"),
        (None, False, True, "local:"),
        (None, False, False, None),
        ("http", True, True, "http://embed:8080"),
        ("local", True, True, "local:"),
        ("local", False, True, "local:"),
        ("none", True, True, None),
        ("none", False, True, None),
    ],
)
def test_who_embeds(
    monkeypatch: pytest.MonkeyPatch, provider: str | None, pair: bool, local: bool, url: str | None
) -> None:
    monkeypatch.setattr(config, "local_model_installed", lambda: local)
    embed = load(**(PAIR if pair else {}), **({"EMBED_PROVIDER": provider} if provider else {})).embed
    assert (embed.base_url if embed else None) == url


def test_a_provider_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "local_model_installed", lambda: False)
    assert "EMBED_BASE_URL" in problems({"DATABASE_URL": DATABASE, "EMBED_PROVIDER": "http"})[0]
    assert "corbits-memory[local]" in problems({"DATABASE_URL": DATABASE, "EMBED_PROVIDER": "local"})[0]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("EMBED_API_STYLE", "openai, tei, ollama"),
        ("RERANK_API_STYLE", "tei, cohere, voyage"),
        ("EMBED_PROVIDER", "local, http, none"),
        ("SEARCH_PROFILE", "default, compat"),
        ("VECTOR_TYPE", "halfvec, vector"),
    ],
)
@pytest.mark.parametrize("value", ["other", "OpenAI", "local:"])
def test_an_unknown_word_is_refused_with_the_known_ones(name: str, words: str, value: str) -> None:
    [problem] = problems({"DATABASE_URL": DATABASE, name: value})
    assert problem.startswith(f"{name} must be one of {words};")


@pytest.mark.parametrize("language", ["english", "simple", "my_own", "a" * 63])
def test_a_language_of_the_right_form_is_taken(language: str) -> None:
    assert load(FTS_LANGUAGE=language).fts_language == language


@pytest.mark.parametrize("language", ["English", "pg.english", "latin1", "a" * 64, "a b", "a;", "english "])
def test_a_language_of_another_form_is_refused_with_the_pattern(language: str) -> None:
    [problem] = problems({"DATABASE_URL": DATABASE, "FTS_LANGUAGE": language})
    assert problem.startswith("FTS_LANGUAGE must match [a-z_]{1,63}")


@pytest.mark.parametrize("name", ["EMBED_BASE_URL", "RERANK_BASE_URL"])
@pytest.mark.parametrize("url", ["embed:8080", "embed", "ftp://h", "http://", "http://h:x", "http://[bad"])
def test_an_endpoint_that_can_not_be_called_is_refused(name: str, url: str) -> None:
    [problem] = problems({"DATABASE_URL": DATABASE, **PAIR, name: url})
    assert problem.startswith(f"{name} is not a URL")


def test_every_problem_is_reported_at_once() -> None:
    found = problems(
        {
            "DB_POOL_MAX": "many",
            "FTS_LANGUAGE": "Klingon",
            "EMBED_BASE_URL": "embed",
            "EMBED_API_STYLE": "grpc",
            "RERANK_TIMEOUT_MS": "-1",
            "RERANK_MAX_DOC_CHARS": "99999",
            "SEARCH_PROFILE": "best",
        }
    )
    assert {problem.split()[0] for problem in found} == {
        "DATABASE_URL",
        "DB_POOL_MAX",
        "FTS_LANGUAGE",
        "EMBED_BASE_URL",
        "EMBED_API_STYLE",
        "RERANK_TIMEOUT_MS",
        "RERANK_MAX_DOC_CHARS",
        "SEARCH_PROFILE",
    }
    assert len(found) == 9
    assert sum(problem.startswith("EMBED_BASE_URL") for problem in found) == 2


def test_no_value_is_repeated_in_an_error_or_a_repr() -> None:
    secret = "s3cret-value"
    names = [name for name in variables() if not name.endswith("API_KEY")]
    bad = dict.fromkeys(names, f"x://{secret}:{secret}@{secret}")
    assert secret not in "".join(problems(bad))
    engine = load(
        DATABASE_URL=f"postgresql://me:{secret}@db/m",
        DATABASE_READ_URL=f"postgresql://me:{secret}@db/m",
        EMBED_API_KEY=secret,
        RERANK_API_KEY=secret,
        **PAIR,
    )
    assert secret not in repr(engine)


@pytest.mark.parametrize(
    ("model", "chars", "fits"),
    [
        ("bge-reranker-base", 1_536, True),
        ("bge-reranker-base", 1_537, False),
        ("bge-reranker-large", 1_537, False),
        ("bge-reranker-v2-m3", 24_576, True),
        ("bge-reranker-v2-m3", 24_577, False),
        (None, 24_576, True),
        (None, 24_577, False),
        ("unknown", 1_536, True),
        ("unknown", 1_537, False),
        ("BAAI/bge-reranker-v2-m3", 24_576, True),
        ("unknown", None, True),
    ],
)
def test_a_reranker_is_never_given_more_than_it_reads(
    model: str | None, chars: int | None, fits: bool
) -> None:
    rerank = RerankConfig(base_url="http://h", model=model, max_doc_chars=chars)
    if fits:
        check_rerank_config(rerank)
    else:
        with pytest.raises(RerankConfigError, match="RERANK_MAX_DOC_CHARS"):
            check_rerank_config(rerank)


def test_only_tei_has_a_budget_and_loading_checks_it() -> None:
    check_rerank_config(RerankConfig(api_style="cohere", max_doc_chars=10**6))
    with pytest.raises(RerankConfigError):
        load(RERANK_BASE_URL="http://h", RERANK_MODEL="unknown", RERANK_MAX_DOC_CHARS="1537")


@pytest.mark.parametrize(
    ("model", "chars"),
    [
        ("bge-reranker-base", 1_500),
        ("bge-reranker-large", 1_500),
        ("bge-reranker-v2-m3", 24_540),
        (None, 24_540),
        ("unknown", 1_500),
    ],
)
def test_the_budget_that_a_model_implies(model: str | None, chars: int) -> None:
    assert default_max_doc_chars(model) == chars


ENGINE = EmbedConfig(base_url="http://e", model="m", api_style="tei", api_key="k", timeout_ms=5, batch_size=9)


def test_an_override_keeps_what_it_does_not_name() -> None:
    assert override_embed(ENGINE) == ENGINE
    moved = override_embed(ENGINE, model="n", api_style="ollama", api_key="other")
    assert moved == EmbedConfig(
        base_url="http://e", model="n", api_style="ollama", api_key="other", timeout_ms=5, batch_size=9
    )


@pytest.mark.parametrize(("url", "key"), [("http://e", "k"), ("http://e/", "k"), ("http://e2", None)])
def test_a_key_goes_only_to_its_own_endpoint(url: str, key: str | None) -> None:
    embed = override_embed(ENGINE, base_url=url)
    assert embed is not None
    assert (embed.api_key, embed.api_style) == (key, "tei")
    rerank = override_rerank(RerankConfig(base_url="http://e", api_key="k"), base_url=url)
    assert rerank.api_key == key


def test_overrides_without_an_endpoint() -> None:
    assert override_embed(None) is None
    assert override_embed(None, model="m") is None
    assert override_embed(None, base_url="http://n", model="m") == EmbedConfig(base_url="http://n", model="m")
    from_local = override_embed(local_embed_config(), base_url="http://n", model="m")
    assert from_local is not None
    assert from_local.api_style == "openai"
    assert override_rerank(RerankConfig(base_url="http://e")) == RerankConfig()


class Recording(Mapping[str, str]):
    """An empty environment that notes what is looked up."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.names.add(name)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def variables() -> list[str]:
    environ = Recording()
    load_memory_config(environ, database_url=DATABASE)
    return sorted(environ.names)


def test_the_example_file_names_every_variable_and_changes_none() -> None:
    lines = (Path(__file__).parents[2] / ".env.example").read_text(encoding="utf-8").splitlines()
    named = {match[1] for line in lines if (match := re.match(r"#? ?([A-Z][A-Z0-9_]+)=", line))}
    assert set(variables()) <= named
    assert all(line.startswith("#") or not line.strip() for line in lines)


# --- webhooks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, PushConfig()),
        ({"WEBHOOK_ALLOW_HTTP": "true"}, PushConfig(allow_http=True)),
        ({"WEBHOOK_ALLOW_HTTP": "false", "WEBHOOK_ALLOWED_HOSTS": " "}, PushConfig()),
        (
            {"WEBHOOK_ALLOWED_HOSTS": "hooks.internal, 10.1.0.0/16,::1,fd00::/8,"},
            PushConfig(allowed_hosts=("hooks.internal", "10.1.0.0/16", "::1", "fd00::/8")),
        ),
    ],
)
def test_webhooks(environ: dict[str, str], expected: PushConfig) -> None:
    assert load_memory_config(environ, database_url=DATABASE).memory.push == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WEBHOOK_ALLOW_HTTP", "yes"),
        ("WEBHOOK_ALLOWED_HOSTS", "https://hooks.internal"),
        ("WEBHOOK_ALLOWED_HOSTS", "hooks.internal:8080"),
        ("WEBHOOK_ALLOWED_HOSTS", "*.internal"),
        ("WEBHOOK_ALLOWED_HOSTS", "a b"),
    ],
)
def test_webhook_settings_that_mean_nothing_are_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        load_memory_config({name: value}, database_url=DATABASE)
