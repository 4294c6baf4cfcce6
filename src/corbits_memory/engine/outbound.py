"""Requests to addresses that users name: where they may go, and how little they may cost.

A URL is judged by what its host resolves to, and the connection goes to an address that was judged: a name that
resolves otherwise a moment later changes nothing. Nothing of an answer but its status is kept.
"""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

import httpx2

from corbits_memory.config import PushConfig
from corbits_memory.core.limits import URL_CHARS
from corbits_memory.errors import InvalidInputError, UpstreamError

Address = IPv4Address | IPv6Address

RESOLVE_SECONDS = 5.0
ANSWER_BYTES = 64 * 1024
"""Of an answer's body; one that is longer is not read to its end."""
RETRY_AFTER_SECONDS_MAX = 3_600.0

# Beside what the library knows to be private, whatever its version.
_CLOSED = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "::/128",
        "::1/128",
        "100::/64",
        "2001::/23",
        "2001:db8::/32",
        "3fff::/20",
        "5f00::/16",
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
    )
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")


class DeliveryError(UpstreamError):
    """A delivery failed. ``retry_after``: how many seconds the receiver asked to wait."""

    code = "delivery_failed"

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


NOT_ALLOWED = "its host resolves to an address that webhooks may not reach; an operator may allow the host"


def is_public(address: Address) -> bool:
    """Whether this is an address of the public internet, also once what it wraps is unwrapped."""
    wrapped = _wrapped(address)
    if wrapped is not None:
        return is_public(wrapped)
    if not address.is_global or address.is_multicast or address.is_reserved:
        return False
    return not any(address.version == net.version and address in net for net in _CLOSED)


def _wrapped(address: Address) -> IPv4Address | None:
    """The IPv4 address that a translator would make of this one."""
    if isinstance(address, IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return None


@dataclass(frozen=True, slots=True)
class Target:
    """A URL whose form is allowed."""

    url: httpx2.URL

    @property
    def host(self) -> str:
        return self.url.raw_host.decode("ascii").lower().rstrip(".")

    @property
    def port(self) -> int:
        return self.url.port or (443 if self.url.scheme == "https" else 80)


class Outbound:
    """Sends to the targets of users, within an operator's rules."""

    def __init__(self, config: PushConfig, *, verify: ssl.SSLContext | bool = True) -> None:
        self._config = config
        self._verify = verify
        self._networks = tuple(
            ipaddress.ip_network(entry, strict=False) for entry in config.allowed_hosts if is_network(entry)
        )
        self._hosts = frozenset(entry.lower() for entry in config.allowed_hosts if not is_network(entry))

    def target(self, url: str) -> Target:
        """The URL, when its form is allowed. Raises ``InvalidInputError``."""
        problem = self._problem(url)
        if problem:
            raise InvalidInputError(f"url {problem}", details=[{"field": "url", "problem": problem}])
        return Target(httpx2.URL(url))

    async def check(self, url: str) -> Target:
        """The URL, when its form and what its host resolves to now are allowed. Raises ``InvalidInputError``."""
        target = self.target(url)
        try:
            await self.addresses(target)
        except DeliveryError as error:
            problem = error.message
            raise InvalidInputError(
                f"url can't be used: {problem}", details=[{"field": "url", "problem": problem}]
            ) from None
        return target

    async def addresses(self, target: Target) -> Sequence[Address]:
        """What the host resolves to, each of it allowed. Raises ``DeliveryError``."""
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                found = await asyncio.get_running_loop().getaddrinfo(
                    target.host.strip("[]"), target.port, type=socket.SOCK_STREAM
                )
        except (OSError, UnicodeError, TimeoutError):
            raise DeliveryError("its host can't be resolved") from None
        # A zone (%eth0) belongs to link-local addresses alone, which are refused.
        addresses = [ipaddress.ip_address(str(info[4][0]).partition("%")[0]) for info in found]
        if not addresses or not all(self._allows(target, address) for address in addresses):
            raise DeliveryError(NOT_ALLOWED)
        return list(dict.fromkeys(addresses))

    @asynccontextmanager
    async def channel(self, url: str) -> AsyncIterator["Channel"]:
        """For a few deliveries to one URL, to the address that is judged now. Raises ``DeliveryError``."""
        try:
            target = self.target(url)
        except InvalidInputError as error:
            # The rules may have changed since it was taken.
            raise DeliveryError(error.message) from None
        addresses = await self.addresses(target)
        async with httpx2.AsyncClient(
            verify=self._verify,
            trust_env=False,
            follow_redirects=False,
            timeout=self._config.timeout_seconds,
            limits=httpx2.Limits(max_connections=1),
        ) as client:
            yield Channel(client, target, addresses[0], seconds=self._config.timeout_seconds)

    def _problem(self, url: str) -> str | None:
        if len(url) > URL_CHARS:
            return f"must be at most {URL_CHARS:,} characters"
        if any(character.isspace() or not character.isprintable() or character == "\\" for character in url):
            return "must not contain spaces, control characters or backslashes"
        try:
            parts = httpx2.URL(url)
            host = parts.raw_host
        except (httpx2.InvalidURL, ValueError):
            return "is not a URL"
        allowed = ("https", "http") if self._config.allow_http else ("https",)
        if parts.scheme not in allowed:
            return f"must begin with {' or '.join(f'{scheme}://' for scheme in allowed)}"
        if not host:
            return "must name a host"
        if parts.userinfo:
            return "must not hold a user or password"
        if "#" in url:
            return "must not hold a fragment"
        if parts.port is not None and not 0 < parts.port <= 65_535:
            return "must name a port from 1 to 65535, or none"
        return None

    def _allows(self, target: Target, address: Address) -> bool:
        if target.host.strip("[]") in self._hosts or is_public(address):
            return True
        return any(address.version == net.version and address in net for net in self._networks)


class Channel:
    """One connection to one address; kept open between deliveries when the receiver lets it."""

    def __init__(
        self, client: httpx2.AsyncClient, target: Target, address: Address, *, seconds: float
    ) -> None:
        self._client = client
        self._seconds = seconds
        # The address in the URL, and the name where it counts: in the Host header, and in the certificate.
        self._url = target.url.copy_with(host=str(address))
        self._host = target.url.netloc.decode("ascii")
        named = not _is_address(target.host.strip("[]"))
        self._extensions = {"sni_hostname": target.host} if named else {}

    async def post(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Returns when the receiver took it (2xx). Raises ``DeliveryError``."""
        try:
            async with (
                asyncio.timeout(self._seconds),
                self._client.stream(
                    "POST",
                    self._url,
                    content=body,
                    headers={"accept-encoding": "identity", **headers, "host": self._host},
                    extensions=self._extensions,
                ) as answer,
            ):
                status, wait = answer.status_code, answer.headers.get("retry-after", "")
                await _read_some(answer)
        except TimeoutError:
            raise DeliveryError(f"the receiver did not answer within {self._seconds:g} s") from None
        except (httpx2.HTTPError, httpx2.StreamError, ssl.SSLError, OSError) as error:
            # The message may hold an address: the type must do.
            raise DeliveryError(f"the receiver can't be reached ({type(error).__name__})") from None
        if 300 <= status < 400:
            raise DeliveryError(f"the receiver answered {status}, and redirects are not followed")
        if not 200 <= status < 300:
            raise DeliveryError(f"the receiver answered {status}", retry_after=_seconds(wait))


async def _read_some(answer: httpx2.Response) -> None:
    """Enough that a short answer leaves the connection usable; raw, so that nothing is unpacked."""
    read = 0
    async for piece in answer.aiter_raw():
        read += len(piece)
        if read > ANSWER_BYTES:
            return


def _seconds(value: str) -> float | None:
    return min(float(value), RETRY_AFTER_SECONDS_MAX) if value.isascii() and value.isdecimal() else None


def is_network(entry: str) -> bool:
    """Whether an entry of the allow-list is an address or a network, and not a name."""
    try:
        ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False
    return True


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
