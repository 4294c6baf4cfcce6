"""Settings of the reference host, from the environment.

Variables have the prefix ``CORBITS_MEMORY_``; a blank one counts as unset. What the engine reads
(``DATABASE_URL``, ``EMBED_…``) is not here: :func:`corbits_memory.load_memory_config` knows it.
"""

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, StringConstraints, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from corbits_memory.errors import ConfigError

PREFIX = "CORBITS_MEMORY_"
FAILURES_PER_MINUTE = 10
TOKEN_CHARS_MIN, TOKEN_CHARS_MAX = 8, 512

_ISSUER = re.compile(r"https?://[^/?#\s@]+(?:/[^?#\s]*)?")

Host = Annotated[str, StringConstraints(min_length=1, max_length=255, strip_whitespace=True)]


class HostSettings(BaseSettings):
    """What ``serve`` can be told beside what the engine reads."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, extra="ignore", frozen=True, hide_input_in_errors=True
    )

    host: Host = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8765
    """0 takes any free one."""
    data_dir: Path | None = None
    token: SecretStr | None = None
    """Presets the first token: tenant ``default``, principal ``owner``, all capabilities."""
    log_format: Literal["console", "json"] = "console"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    max_connections: Annotated[int, Field(ge=1, le=100_000)] = 512
    """Open connections above this are answered with 503."""
    failures_per_minute: Annotated[int, Field(ge=1, le=1_000_000)] = FAILURES_PER_MINUTE
    """Wrong credentials of one client address; beyond, guesses are answered with 429."""
    requests_per_minute: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Of one principal in one tenant, a batch counting as one; unset: no limit. Each process counts for itself."""
    public_url: (
        Annotated[str, StringConstraints(pattern=r"^https?://[^/?#\s]+/?$", max_length=255)] | None
    ) = None
    """The origin by which clients know this host, like https://memory.example; unset: what each request names."""
    authorization_servers: Annotated[tuple[str, ...], NoDecode] = ()
    """Issuers of OAuth tokens for /mcp, separated by commas: where a gateway in front exchanges theirs for ours."""
    trusted_proxies: Annotated[tuple[str, ...], NoDecode] = ()
    """Addresses or networks, separated by commas, whose X-Forwarded-For says who the client is. Nobody else's does."""

    @field_validator("trusted_proxies", mode="before")
    @classmethod
    def _proxies_are_networks(cls, given: object) -> tuple[str, ...]:
        names = given.split(",") if isinstance(given, str) else given
        if not isinstance(names, list | tuple):
            raise ValueError("must be addresses or networks separated by commas")
        try:
            networks = [ipaddress.ip_network(str(name).strip()) for name in names]
        except ValueError:
            raise ValueError("must be addresses or networks, like 10.0.0.7 or 10.0.0.0/24") from None
        if any(network.prefixlen == 0 for network in networks):
            raise ValueError("must not be everybody: then each client could name any address as its own")
        return tuple(map(str, networks))

    @field_validator("authorization_servers", mode="before")
    @classmethod
    def _issuers_are_urls(cls, given: object) -> tuple[str, ...]:
        names = given.split(",") if isinstance(given, str) else given
        if not isinstance(names, list | tuple):
            raise ValueError("must be URLs separated by commas")
        issuers = tuple(name for name in (str(one).strip() for one in names) if name)
        if not all(_ISSUER.fullmatch(issuer) for issuer in issuers):
            raise ValueError(
                "must be URLs of issuers, like https://login.example, without query and fragment"
            )
        return issuers

    @field_validator("token")
    @classmethod
    def _token_fits_a_header(cls, token: SecretStr | None) -> SecretStr | None:
        if token is None:
            return None
        text = token.get_secret_value()
        if not TOKEN_CHARS_MIN <= len(text) <= TOKEN_CHARS_MAX:
            raise ValueError(f"must have {TOKEN_CHARS_MIN} to {TOKEN_CHARS_MAX} characters")
        if not all("!" <= character <= "~" for character in text):
            raise ValueError("must be printable ASCII without spaces, since it travels in a header")
        return token


def load_host_settings(**given: Any) -> HostSettings:
    """Settings from the environment; what is ``given`` and not None wins.

    Raises one ``ConfigError`` that lists every problem and repeats no value.
    """
    try:
        return HostSettings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        problems = [_problem(found["loc"], found["msg"]) for found in error.errors(include_input=False)]
    lines = "\n".join(f"- {problem['field']}: {problem['problem']}" for problem in problems)
    raise ConfigError(f"The server's settings have problems:\n{lines}", details=problems)


def _problem(location: tuple[int | str, ...], message: str) -> dict[str, str]:
    name = str(location[0]) if location else ""
    variable = name if name.upper().startswith(PREFIX) else PREFIX + name
    return {"field": variable.upper(), "problem": message.removeprefix("Value error, ")}
