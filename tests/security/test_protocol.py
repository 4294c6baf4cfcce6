"""Tricks below the routes: paths, headers, framing, slow and oversized requests."""

import json
import socket
import time
from urllib.parse import urlsplit

import pytest

from corbits_memory.core.limits import BODY_BYTES
from corbits_memory.server.listen import HEAD_BYTES
from tests.security.world import CANARY, World

API = "/api/tenants/{}/memory"
QUERY = b'{"query": "quixoticcanary"}'


def head(world: World, who: str, method: str, target: str, *extra: str) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: memory.test", "Connection: close"]
    lines.append(f"Authorization: Bearer {world.secrets[who]}")
    return "\r\n".join([*lines, *extra, "", ""]).encode("latin-1")


def status_of(answer: bytes) -> int:
    """0: the server closed without a word."""
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


# --- paths -------------------------------------------------------------------------------------------

OWN, ANNS = API.format("evil-corp"), API.format("acme")
PATHS = [
    f"{ANNS}/list",
    f"{OWN}/../../acme/memory/list",
    f"{OWN}/%2e%2e/%2e%2e/acme/memory/list",
    f"{OWN}/..%2f..%2facme%2fmemory%2flist",
    f"{OWN}/..%5c..%5cacme/memory/list",
    f"{OWN}/../../../acme/memory/list",
    "/api/tenants/evil-corp/../acme/memory/list",
    "/api/tenants/evil-corp%2f..%2facme/memory/list",
    "/api/tenants/evil-corp/memory/../../acme/memory/list",
    "/api/tenants/acme%00/memory/list",
    "/api/tenants/acme%00evil-corp/memory/list",
    "/api/tenants/%61cme/memory/list",
    "/api/tenants/%2561cme/memory/list",
    "/api/tenants/ACME/memory/list",
    "/api/tenants/acme%20/memory/list",
    "/api/tenants/acme./memory/list",
    "/api/tenants/acme;evil-corp/memory/list",
    "/api/tenants/acme/evil-corp/memory/list",
    "/api/tenants/evil-corp,acme/memory/list",
    "/api/tenants//memory/list",
    "/api/tenants/%20/memory/list",
    "/api/tenants/*/memory/list",
    "/api/tenants/%25/memory/list",
    "//api/tenants/acme/memory/list",
    "/api//tenants/acme/memory/list",
    f"//evil.example{ANNS}/list",
    f"http://memory.test{ANNS}/list",
    f"http://evil.example{ANNS}/list",
    f"{OWN}//list",
    f"{OWN}/list/",
    f"{OWN}/list%00",
    f"{OWN}/list%2f",
    f"{OWN}/%6cist",
    f"{OWN}/LIST",
    f"{OWN}/list.json",
    f"{OWN}/list;x=y",
    f"{OWN}\\list",
    f"{OWN}/list?tenant_id=acme&tenantId=acme&principal_id=ann",
    f"{OWN}/list?limit=100&limit=1",
    f"{OWN}/list?kinds=%00",
    f"{OWN}/list?%ff=%fe&kinds=%ff",
    f"{OWN}/list#/../../acme",
    f"{OWN}/documents/../list",
    f"{OWN}/documents/%2e%2e/share",
    f"{OWN}/documents/%2fetc%2fpasswd/share",
    "/etc/passwd",
    "/../../../../etc/passwd",
    "/.env",
    "/.git/config",
    "*",
    "",
    "/" + "a" * 8_000,
    "/" + "../" * 2_000,
    "/api/tenants/" + "%2e%2e%2f" * 2_000 + "acme/memory/list",
    "/api/tenants/" + "a/" * 4_000 + "memory/list",
]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path[:60] or "nothing")
def test_no_path_leads_to_another_tenant(world: World, path: str) -> None:
    began = time.monotonic()
    for method, body in (("GET", b""), ("POST", QUERY)):
        target = path.replace("list", "search") if body else path
        framing = ["Content-Type: application/json", f"Content-Length: {len(body)}"] if body else []
        answer = world.raw(head(world, "eve", method, target, *framing) + body)
        assert status_of(answer) in {0, 200, 400, 403, 404, 405}, answer[:300]
        assert CANARY.encode() not in answer
        assert world.document.encode() not in answer
        if "acme" in path and "?" not in path and "#" not in path:
            assert status_of(answer) != 200
    assert time.monotonic() - began < 10


def test_a_pathological_path_costs_no_time(world: World) -> None:
    """Tenants' names may hold slashes, so that the router has something to try."""
    path = "/api/tenants/" + "memory/documents/" * 1_500 + "x"
    began = time.monotonic()
    answer = world.raw(head(world, "eve", "GET", path))
    # Some of it may be read as a tenant's name: then it is not hers.
    assert status_of(answer) in {403, 404}
    assert time.monotonic() - began < 2


# --- headers -----------------------------------------------------------------------------------------

CLAIMS = [
    "X-Forwarded-For: 127.0.0.1",
    "X-Forwarded-User: ann",
    "X-Forwarded-Host: acme",
    "X-Forwarded-Prefix: /api/tenants/acme",
    "X-Forwarded-Proto: https",
    "Forwarded: for=127.0.0.1;host=acme;proto=https",
    "X-Real-IP: 127.0.0.1",
    "X-Remote-User: ann",
    "Remote-User: ann",
    "X-User-Id: ann",
    "X-Tenant-Id: acme",
    "X-Principal-Id: ann",
    "Tenant-Id: acme",
    f"X-Original-URL: {ANNS}/list",
    f"X-Rewrite-URL: {ANNS}/list",
    "X-HTTP-Method-Override: POST",
    "X-Method-Override: DELETE",
    "X-HTTP-Method: PUT",
    "Origin: http://localhost:8765",
    "Referer: http://localhost:8765/docs",
    "Upgrade: websocket",
    "Upgrade: h2c",
    "Expect: 100-continue",
    "Range: bytes=0-10",
    "If-None-Match: *",
    "Accept: text/html",
    "Accept-Encoding: gzip, br",
    "TE: trailers",
    "X-Request-Id: <script>",
]


@pytest.mark.parametrize("header", CLAIMS, ids=lambda header: header.partition(":")[0])
def test_a_header_says_nothing_about_who_asks_or_for_what(world: World, header: str) -> None:
    nobody = f"GET {ANNS}/list HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{header}\r\n\r\n".encode()
    assert status_of(world.raw(nobody)) == 401
    own = world.raw(head(world, "eve", "GET", f"{OWN}/list", header))
    assert status_of(own) == 200
    assert CANARY.encode() not in own
    assert b"access-control-allow" not in own.lower()
    assert b"<script>" not in own
    foreign = world.raw(head(world, "eve", "GET", f"{ANNS}/list", header))
    assert status_of(foreign) == 403


def test_two_credentials_are_none(world: World) -> None:
    ann, eve = (f"Authorization: Bearer {world.secrets[who]}" for who in ("ann", "eve"))
    for first, second in (
        (ann, eve),
        (eve, ann),
        (ann, ann),
        (ann, "authorization: x"),
        ("AUTHORIZATION:", ann),
    ):
        request = f"GET {ANNS}/list HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{first}\r\n{second}\r\n\r\n"
        assert status_of(world.raw(request.encode())) == 401


@pytest.mark.parametrize("host", ["acme", "evil.example", "127.0.0.1:1", "[::1]", "a" * 300, "x y", ""])
def test_the_host_header_changes_nothing(world: World, host: str) -> None:
    for path in (f"{ANNS}/list", "/"):
        request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
        answer = world.raw(request)
        assert status_of(answer) in {307, 400, 401}
        assert b"evil.example" not in answer


def test_headers_beyond_the_limit_are_refused_and_the_server_goes_on(world: World) -> None:
    for extra in (
        ["X-Long: " + "y" * HEAD_BYTES],
        [f"X-{number}: {'y' * 100}" for number in range(1_000)],
        ["Authorization: Bearer " + "y" * HEAD_BYTES],
    ):
        answer = world.raw(head(world, "eve", "GET", f"{OWN}/list", *extra))
        assert status_of(answer) in {0, 400, 431}
        assert b"Traceback" not in answer
    assert status_of(world.raw(head(world, "eve", "GET", f"{OWN}/list"))) == 200


# --- framing -----------------------------------------------------------------------------------------

SMUGGLED = f"GET {ANNS}/list HTTP/1.1\r\nHost: x\r\nX-Smuggled: yes\r\n\r\n"
FRAMINGS = {
    "length and chunks": ["Content-Length: 4", "Transfer-Encoding: chunked"],
    "chunks and length": ["Transfer-Encoding: chunked", "Content-Length: 4"],
    "two lengths": ["Content-Length: 2", "Content-Length: 40"],
    "lengths in one": ["Content-Length: 2, 40"],
    "a negative length": ["Content-Length: -1"],
    "a signed length": ["Content-Length: +2"],
    "a hexadecimal length": ["Content-Length: 0x2"],
    "a length of words": ["Content-Length: two"],
    "an absurd length": ["Content-Length: " + "9" * 30],
    "unknown encoding": ["Transfer-Encoding: xchunked"],
    "two encodings": ["Transfer-Encoding: gzip, chunked"],
    "encodings twice": ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
    "encoding with a blank": ["Transfer-Encoding : chunked"],
    "encoding with a tab": ["Transfer-Encoding:\tchunked\x0b"],
    "a folded header": ["X-Folded: a", " Authorization: Bearer x"],
    "a header without a name": [": x"],
    "a header without a colon": ["nonsense"],
    "NUL in a header": ["X-Nul: a\x00b"],
    "a bare line feed": ["X-Lf: a\nX-Smuggled: yes"],
    "a bare carriage return": ["X-Cr: a\rX-Smuggled: yes"],
}


@pytest.mark.parametrize("framing", FRAMINGS)
def test_a_request_of_two_meanings_is_refused_and_nothing_behind_it_is_answered(
    world: World, framing: str
) -> None:
    """A proxy in front might read it the other way: what it took for a body would be a request to us."""
    lines = [f"POST {OWN}/search HTTP/1.1", "Host: x", f"Authorization: Bearer {world.secrets['eve']}"]
    lines += ["Content-Type: application/json", *FRAMINGS[framing]]
    request = "\r\n".join([*lines, "", ""]) + "0\r\n\r\n" + SMUGGLED
    answer = world.raw(request.encode("latin-1"))
    assert status_of(answer) in {0, 400, 413, 501}, answer
    # What the request behind it would be answered: it has no credential.
    assert b"principal_required" not in answer
    assert CANARY.encode() not in answer


@pytest.mark.parametrize(
    "line",
    [
        "GET",
        "GET /",
        "GET / HTTP/0.9",
        "GET / HTTP/2.0",
        "GET / HTTP/1.1 x",
        "PRI * HTTP/2.0",
        "GET  /healthz HTTP/1.1",
        "\x16\x03\x01\x02\x00",
        "CONNECT evil.example:443 HTTP/1.1",
        "TRACE /healthz HTTP/1.1",
        "DEBUG /healthz HTTP/1.1",
        "get /healthz HTTP/1.1",
    ],
)
def test_what_is_no_request_is_no_trouble(world: World, line: str) -> None:
    answer = world.raw(
        f"{line}\r\nHost: x\r\nConnection: close\r\nX-Canary: {CANARY}\r\n\r\n".encode("latin-1")
    )
    assert status_of(answer) in {0, 200, 307, 400, 404, 405, 505}, answer
    assert CANARY.encode() not in answer, "nothing is echoed"
    assert b"Traceback" not in answer
    assert world.client.get(f"{world.url}/healthz").status_code == 200


# --- sizes and time ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/add", "/add/batch", "/search"])
def test_a_body_above_the_limit_is_413_and_without_a_token_not_even_read(world: World, path: str) -> None:
    body = b'{"query": "' + b"x" * BODY_BYTES + b'"}'
    headers = {"content-type": "application/json"}
    assert world.ask("eve", "POST", path, content=body, headers=headers).status_code == 413
    declared = [f"Content-Length: {10**12}", "Content-Type: application/json"]
    refused = world.raw(head(world, "eve", "POST", OWN + path, *declared) + b"{")
    assert status_of(refused) == 413
    nobody = f"POST {OWN}{path} HTTP/1.1\r\nHost: x\r\nContent-Length: {10**12}\r\n\r\n{{".encode()
    assert status_of(world.raw(nobody)) == 401


def test_many_slow_bodies_keep_nobody_else_waiting(world: World) -> None:
    """What becomes of each of them, tests/server/test_limits.py proves with shorter times."""
    address = urlsplit(world.url)
    where = (str(address.hostname), int(address.port or 0))
    slow = [socket.create_connection(where) for _ in range(40)]
    try:
        for conn in slow:
            conn.sendall(
                head(
                    world,
                    "eve",
                    "POST",
                    f"{OWN}/search",
                    "Content-Length: 1000",
                    "Content-Type: application/json",
                )
                + b"{"
            )
        began = time.monotonic()
        for _ in range(5):
            assert world.ask("ann", "GET", "/list").status_code == 200
        assert time.monotonic() - began < 5
    finally:
        for conn in slow:
            conn.close()


def test_more_connections_than_there_are_places_are_told_so(world: World) -> None:
    address = urlsplit(world.url)
    where = (str(address.hostname), int(address.port or 0))
    idle = [socket.create_connection(where) for _ in range(120)]
    try:
        answer = world.raw(head(world, "ann", "GET", f"{ANNS}/list"))
        assert status_of(answer) in {200, 503}
    finally:
        for conn in idle:
            conn.close()
    for _ in range(50):
        if status_of(world.raw(head(world, "ann", "GET", f"{ANNS}/list"))) == 200:
            return
        time.sleep(0.1)
    pytest.fail("the server did not recover")


def test_the_largest_answer_is_bounded(world: World) -> None:
    items = [{"title": "a" * 500, "text": "lighthouse " * 100} for _ in range(200)]
    added = world.ask("eve", "POST", "/add/batch", json={"items": items})
    assert added.status_code == 200
    found = world.ask("eve", "POST", "/search", json={"query": "lighthouse", "limit": 50, "explain": True})
    assert len(found.content) < 500_000
    assert json.loads(found.content)["items"]
