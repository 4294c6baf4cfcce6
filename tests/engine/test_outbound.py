"""Where requests to the addresses of users may go, and how little they may cost."""

import asyncio
import ipaddress
import shutil
import socket
import ssl
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from corbits_memory.config import PushConfig
from corbits_memory.core.limits import URL_CHARS
from corbits_memory.engine.outbound import NOT_ALLOWED, DeliveryError, Outbound, is_public
from corbits_memory.errors import InvalidInputError
from tests.engine.receiver import Receiver, Reply

HERE = PushConfig(allow_http=True, allowed_hosts=("127.0.0.1",), timeout_seconds=1.0)


def resolving(monkeypatch: pytest.MonkeyPatch, *answers: str | list[str]) -> list[str]:
    """Have the resolver give these answers in turn, the last one for ever; the names that were asked for."""
    asked: list[str] = []

    async def getaddrinfo(self: Any, host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        answer = answers[min(len(asked), len(answers)) - 1]
        found = [answer] if isinstance(answer, str) else answer
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)
    return asked


# --- addresses ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    ["93.184.215.14", "1.1.1.1", "8.8.8.8", "172.15.255.255", "172.32.0.0", "100.63.255.255", "100.128.0.0",
     "192.167.255.255", "198.17.255.255", "223.255.255.255", "11.0.0.0", "2606:4700::1111", "2a00:1450::1",
     "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"],
)  # fmt: skip
def test_public_addresses(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address",
    ["0.0.0.0", "0.1.2.3", "10.0.0.0", "10.255.255.255", "100.64.0.0", "100.127.255.255", "127.0.0.1", "127.1.2.3",
     "169.254.0.1", "169.254.169.254", "172.16.0.0", "172.31.255.255", "192.0.0.8", "192.0.2.1", "192.88.99.1",
     "192.168.0.1", "198.18.0.0", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255",
     "240.0.0.1", "255.255.255.255", "::", "::1", "100::1", "2001:db8::1", "2001::1", "fc00::1", "fd00:ec2::254",
     "fe80::1", "fec0::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:10.0.0.1", "::127.0.0.1",
     "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::1", "2002:a00:1::1"],
)  # fmt: skip
def test_addresses_that_are_none_of_the_public_internet(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


# --- the form of a URL -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://example.com/", "https"),
        ("ftp://example.com/", "https"),
        ("file:///etc/passwd", "https"),
        ("javascript:alert(1)", "https"),
        ("//example.com/", "https"),
        ("example.com", "https"),
        ("https:///path", "host"),
        ("https://", "host"),
        ("https://user@example.com/", "user"),
        ("https://user:pw@example.com/", "user"),
        ("https://example.com/#x", "fragment"),
        ("https://example.com:0/", "port from"),
        ("https://example.com:65536/", "port from"),
        ("https://exa mple.com/", "spaces"),
        ("https://example.com/\r\nx: y", "spaces"),
        ("https://example.com\\@127.0.0.1/", "backslashes"),
        ("https://[::1/", "not a URL"),
        ("https://example.com/" + "x" * URL_CHARS, "at most"),
    ],
)
def test_urls_of_another_form_are_refused(url: str, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        Outbound(PushConfig()).target(url)


def test_plain_http_is_for_an_operator_to_allow() -> None:
    assert Outbound(PushConfig(allow_http=True)).target("http://example.com/").port == 80
    assert Outbound(PushConfig()).target("https://example.com/").port == 443


# --- what a host resolves to -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.1", "2130706433", "0x7f.0.0.1", "0177.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "localhost",
     "0.0.0.0", "169.254.169.254", "[fe80::1]"],
)  # fmt: skip
async def test_ways_to_write_this_machine_and_its_network(host: str) -> None:
    with pytest.raises(InvalidInputError, match="url"):
        await Outbound(PushConfig()).check(f"https://{host}/")


async def test_each_of_the_addresses_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, ["8.8.8.8", "10.0.0.1"])
    with pytest.raises(InvalidInputError, match="may not reach") as refused:
        await Outbound(PushConfig()).check("https://hooks.example/")
    assert "10.0.0.1" not in str(refused.value)


async def test_a_name_that_resolves_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInputError, match="can't be resolved"):
        await Outbound(PushConfig()).check("https://nothing.invalid/")


@pytest.mark.parametrize(
    ("allowed", "fits"),
    [
        (("hooks.internal",), True),
        (("HOOKS.internal",), True),
        (("internal",), False),
        (("other.internal",), False),
        (("10.1.0.0/16",), True),
        (("10.1.2.3",), True),
        (("10.2.0.0/16",), False),
        ((), False),
    ],
)
async def test_an_operator_may_allow_hosts_and_networks(
    monkeypatch: pytest.MonkeyPatch, allowed: tuple[str, ...], fits: bool
) -> None:
    resolving(monkeypatch, "10.1.2.3")
    outbound = Outbound(PushConfig(allowed_hosts=allowed))
    if fits:
        assert (await outbound.check("https://hooks.internal./x")).host == "hooks.internal"
    else:
        with pytest.raises(InvalidInputError):
            await outbound.check("https://hooks.internal/x")


async def test_the_connection_goes_to_the_address_that_was_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that resolves to somewhere else a moment later changes nothing."""
    with Receiver() as receiver:
        asked = resolving(monkeypatch, "127.0.0.1", "203.0.113.1")
        async with Outbound(HERE).channel(receiver.url_of("rebinding.example")) as channel:
            await channel.post(b"{}", {})
            await channel.post(b"{}", {})
    assert asked == ["rebinding.example"]
    assert [r.headers["host"] for r in receiver.received] == [f"rebinding.example:{receiver.port}"] * 2
    assert receiver.received[0].path == "/hook?key=1"
    assert receiver.connections == 1


async def test_a_name_that_resolves_inside_by_now_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver() as receiver:
        resolving(monkeypatch, "8.8.8.8", "127.0.0.1")
        outbound = Outbound(PushConfig(allow_http=True))
        await outbound.check(receiver.url_of("rebinding.example"))
        with pytest.raises(DeliveryError, match="may not reach"):
            async with outbound.channel(receiver.url_of("rebinding.example")):
                pass
    assert receiver.received == []


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the program openssl to make a certificate")
async def test_a_certificate_must_be_for_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, certificate = _make_certificate(tmp_path)
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(certificate, key)
    trusted = ssl.create_default_context(cafile=str(certificate))
    resolving(monkeypatch, "127.0.0.1")
    with Receiver(tls=served) as receiver:
        async with Outbound(HERE, verify=trusted).channel(receiver.url_of("hooks.example")) as channel:
            await channel.post(b"{}", {})
        for verify, name in ((trusted, "other.example"), (True, "hooks.example")):
            async with Outbound(HERE, verify=verify).channel(receiver.url_of(name)) as channel:
                with pytest.raises(DeliveryError, match="can't be reached"):
                    await channel.post(b"{}", {})
    assert len(receiver.received) == 1


def _make_certificate(folder: Path) -> tuple[Path, Path]:
    """Of hooks.example, signed by itself: the files of its key and of itself."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-days", "2", "-keyout", key, "-out", certificate, "-subj", "/CN=hooks.example",
         "-addext", "subjectAltName=DNS:hooks.example"],
        check=True, capture_output=True,
    )  # fmt: skip
    return key, certificate


# --- answers -----------------------------------------------------------------------------------------


async def post(reply: Reply) -> None:
    with Receiver(lambda _: reply) as receiver:
        async with Outbound(HERE).channel(receiver.url) as channel:
            await channel.post(b"{}", {})


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_what_counts_as_taken(status: int) -> None:
    await post(Reply(status, body=b""))


@pytest.mark.parametrize("status", [300, 302, 304, 307, 308, 400, 401, 404, 410, 429, 500, 503])
async def test_what_does_not(status: int) -> None:
    with pytest.raises(DeliveryError, match=f"answered {status}"):
        await post(Reply(status, {"location": "http://169.254.169.254/"}, b"a secret of the inside"))


async def test_a_redirect_is_not_followed() -> None:
    with Receiver() as inside, Receiver(lambda _: Reply(307, {"location": inside.url})) as receiver:
        async with Outbound(HERE).channel(receiver.url) as channel:
            with pytest.raises(DeliveryError, match="redirects are not followed"):
                await channel.post(b"{}", {})
    assert inside.received == []


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("7", 7.0), ("0", 0.0), ("99999", 3_600.0), ("-1", None), ("soon", None), ("", None), ("٣", None)],
)
async def test_a_receiver_may_ask_for_time(value: str, seconds: float | None) -> None:
    with pytest.raises(DeliveryError) as failed:
        await post(Reply(503, {"retry-after": value.encode().decode("latin-1")}))
    assert failed.value.retry_after == seconds


async def test_an_answer_without_end_costs_little() -> None:
    began = time.monotonic()
    await post(Reply(endless=True))
    assert time.monotonic() - began < 1


async def test_a_receiver_that_is_slow_is_not_waited_for() -> None:
    with pytest.raises(DeliveryError, match="did not answer within 1 s"):
        await post(Reply(seconds=5))


async def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with Outbound(HERE).channel(f"http://127.0.0.1:{port}/") as channel:
        with pytest.raises(DeliveryError) as failed:
            await channel.post(b"{}", {})
    assert "127.0.0.1" not in failed.value.message
    assert NOT_ALLOWED not in failed.value.message
