"""Settings, and which database is meant."""

from pathlib import Path

import pytest

from corbits_memory.errors import ConfigError
from corbits_memory.server.banner import Started, print_banner
from corbits_memory.server.places import Choice, Place, choose_database, describe_url, open_place
from corbits_memory.server.settings import TOKEN_CHARS_MAX, TOKEN_CHARS_MIN, load_host_settings

URL = "postgresql://app:s3cret@db.example:5433/memory"


def test_the_defaults_stay_on_this_machine() -> None:
    settings = load_host_settings()
    assert (settings.host, settings.port, settings.token) == ("127.0.0.1", 8765, None)


def test_options_beat_variables_and_blank_variables_count_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORBITS_MEMORY_PORT", "9000")
    monkeypatch.setenv("CORBITS_MEMORY_HOST", "")
    monkeypatch.setenv("CORBITS_MEMORY_TOKEN", "")
    settings = load_host_settings(host=None, port=9001)
    assert (settings.host, settings.port, settings.token) == ("127.0.0.1", 9001, None)


def test_every_problem_is_told_at_once_and_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORBITS_MEMORY_PORT", "70000")
    monkeypatch.setenv("CORBITS_MEMORY_LOG_FORMAT", "xml-secret")
    monkeypatch.setenv("CORBITS_MEMORY_TOKEN", "with space secret")
    with pytest.raises(ConfigError) as caught:
        load_host_settings()
    for name in ("PORT", "LOG_FORMAT", "TOKEN"):
        assert f"CORBITS_MEMORY_{name}" in caught.value.message
    assert "secret" not in caught.value.message
    assert "70000" not in caught.value.message


@pytest.mark.parametrize(
    ("length", "fits"),
    [
        (TOKEN_CHARS_MIN - 1, False),
        (TOKEN_CHARS_MIN, True),
        (TOKEN_CHARS_MAX, True),
        (TOKEN_CHARS_MAX + 1, False),
    ],
)
def test_a_preset_token_has_a_length(monkeypatch: pytest.MonkeyPatch, length: int, fits: bool) -> None:
    monkeypatch.setenv("CORBITS_MEMORY_TOKEN", "t" * length)
    if fits:
        token = load_host_settings().token
        assert token is not None
        assert token.get_secret_value() == "t" * length
    else:
        with pytest.raises(ConfigError, match="CORBITS_MEMORY_TOKEN"):
            load_host_settings()


@pytest.mark.parametrize(
    ("value", "issuers"),
    [
        ("", ()),
        ("https://login.example", ("https://login.example",)),
        (" https://a.example/x , http://localhost:9000 ,", ("https://a.example/x", "http://localhost:9000")),
        ("login.example", None),
        ("https://user:pw@login.example", None),
        ("https://login.example?x=1", None),
    ],
)
def test_issuers_are_urls(
    monkeypatch: pytest.MonkeyPatch, value: str, issuers: tuple[str, ...] | None
) -> None:
    monkeypatch.setenv("CORBITS_MEMORY_AUTHORIZATION_SERVERS", value)
    if issuers is not None:
        assert load_host_settings().authorization_servers == issuers
        return
    with pytest.raises(ConfigError, match="CORBITS_MEMORY_AUTHORIZATION_SERVERS") as refused:
        load_host_settings()
    assert "login" not in refused.value.message.replace("https://login.example", "")


@pytest.mark.parametrize(
    ("data_dir", "database_url", "environ", "choice"),
    [
        (Path("d"), None, {}, Choice(data_dir=Path("d"))),
        (None, URL, {"DATABASE_URL": "other"}, Choice(database_url=URL)),
        (None, None, {"DATABASE_URL": f" {URL} "}, Choice(database_url=URL)),
        (None, None, {"DATABASE_URL": URL, "CORBITS_MEMORY_DATA_DIR": "d"}, Choice(database_url=URL)),
        (None, None, {"DATABASE_URL": " ", "CORBITS_MEMORY_DATA_DIR": "d"}, Choice(data_dir=Path("d"))),
        (Path("e"), None, {"CORBITS_MEMORY_DATA_DIR": "d"}, Choice(data_dir=Path("e"))),
    ],
)
def test_options_beat_the_environment(
    data_dir: Path | None, database_url: str | None, environ: dict[str, str], choice: Choice
) -> None:
    assert choose_database(data_dir=data_dir, database_url=database_url, environ=environ) == choice


@pytest.mark.parametrize(("url", "environ"), [(URL, {}), (None, {"DATABASE_URL": URL})])
def test_two_databases_are_refused(url: str | None, environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="leave"):
        choose_database(data_dir=Path("d"), database_url=url, environ=environ)


def test_without_anything_it_is_the_users_data_folder() -> None:
    choice = choose_database(data_dir=None, database_url=None, environ={})
    assert choice.data_dir is not None
    assert "corbits-memory" in str(choice.data_dir)


def test_an_external_place_is_described_without_its_password() -> None:
    with open_place(Choice(database_url=URL), {}) as place:
        assert (place.embedded, place.location) == (False, "db.example:5433/memory")


def test_a_broken_url_is_told_without_its_password() -> None:
    with pytest.raises(ConfigError, match="DATABASE_URL") as caught:
        describe_url("postgresql://app:s3cret@[broken/memory")
    assert "s3cret" not in caught.value.message


def banner(capsys: pytest.CaptureFixture[str], **given: object) -> str:
    values: dict[str, object] = {"url": "http://127.0.0.1:1", "model": "none"} | given
    print_banner(Started(**values))  # type: ignore[arg-type]
    return capsys.readouterr().out


def test_the_banner_says_which_database_and_that_it_lasts(capsys: pytest.CaptureFixture[str]) -> None:
    place = Place(url="u", embedded=True, location="/data")
    text = banner(capsys, place=place, token="cmt_first")
    assert "embedded Postgres in /data (kept across restarts)" in text
    assert "cmt_first" in text
    assert "Tenant:    default" in text


def test_the_banner_warns_when_the_data_will_not_last(capsys: pytest.CaptureFixture[str]) -> None:
    place = Place(url="u", embedded=True, location="/data", warnings=("/data is kept in memory",))
    text = banner(capsys, place=place)
    assert "kept across restarts" not in text
    assert "Warning:   /data is kept in memory" in text
    assert "corbits-memory token create" in text


def test_the_banner_never_shows_a_preset_token_or_the_database_url(
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = Place(url=URL, embedded=False, location="db.example:5433/memory")
    text = banner(capsys, place=place, preset=True)
    assert "external Postgres at db.example:5433/memory" in text
    assert "CORBITS_MEMORY_TOKEN" in text
    assert "s3cret" not in text
