"""Text that means something to somebody else: tags, SQL, search operators, JSON."""

import json
import time
from typing import Any

import pytest

from corbits_memory.core.limits import BODY_BYTES
from tests.security.world import CANARY, World

NOTE: dict[str, Any] = {"title": "a", "text": "b"}
SOON = 10.0
"""Seconds within which the worst body is refused, on a machine that others use too."""

# --- tags --------------------------------------------------------------------------------------------

REFUSED_TAGS = [
    "*",
    "memory*",
    "memory.*",
    "memory.owner:*",
    "memory.space:*",
    "memory",
    "eng",
    "",
    "  ",
    "memory.owner:ann",
    " memory.owner:ann",
    "memory.owner:ann\n",
    "memory.tenant:acme",
    "memory.tenant:evil-corp",
    "memory.doc:kdoc_0000000000000000000000",
    "memory.space:e\x00ng",
    "memory.space:e\nng",
    "memory.space:eng\x1b[2J",
    "memory.space:\x7f",
    "memory.space:\x9f",
    "memory.space:\ud800",
    "memory.space:" + "x" * 256,
    5,
    None,
    ["memory.space:eng"],
    {"tag": "memory.space:eng"},
]


@pytest.mark.parametrize("tag", REFUSED_TAGS, ids=ascii)
def test_tags_that_only_the_memory_gives_or_that_grants_could_match_are_refused(
    world: World, tag: Any
) -> None:
    before = world.state("evil-corp")
    bodies: list[dict[str, Any]] = [{"access_tags": [tag]}, {"share": {"tags": [tag]}}]
    for body in bodies:
        answer = post(world, "eve", "/add", NOTE | body)
        assert answer.status_code == 400, answer.text
        (problem,) = answer.json()["error"]["details"]
        assert problem["field"].endswith("tags[0]")
        if len(str(tag)) > 10:
            assert str(tag) not in answer.text, "a refused tag is not echoed"
    assert world.state("evil-corp") == before


def test_a_reserved_tag_is_copied_only_from_a_source_that_carries_it(world: World) -> None:
    own = world.ask("eve", "POST", "/add", json=NOTE | {"external_ref": "source"}).json()
    for tag in ("memory.owner:ann", "memory.tenant:evil-corp", "memory.doc:kdoc_0000000000000000000000"):
        body = NOTE | {"derived_from": [own["versionId"]], "access_tags": [tag]}
        answer = world.ask("eve", "POST", "/add", json=body)
        assert answer.status_code == 400, answer.text
        body = NOTE | {"derived_from": [own["versionId"]], "share": {"tags": [tag]}}
        assert world.ask("eve", "POST", "/add", json=body).status_code == 400


@pytest.mark.parametrize(
    "tag",
    [
        "Memory.Owner:ann",
        "memory.owner\u200b:ann",
        "memory．owner:ann",
        "\u202ememory.owner:ann",
        "memory.owners:ann",
        "memory.space:eng%",
        "memory.space:_ng",
        "memory.space:eng'; DROP TABLE memory.document;--",
        "memory.space:{a,b}",
        'memory.space:"quoted"',
        "memory.space:back\\slash",
        "memory.space:NULL",
    ],
    ids=ascii,
)
def test_a_tag_that_looks_like_another_is_a_tag_of_its_own(world: World, tag: str) -> None:
    """Compared byte by byte: it opens nothing that the tag it resembles opens."""
    tagged: dict[str, Any] = {"access_tags": [tag]}
    added = world.ask("eve", "POST", "/add", json=NOTE | tagged)
    assert added.status_code == 200, added.text
    shared = world.ask("ann", "POST", f"/documents/{world.document}/share", json={"tags": [tag]})
    assert shared.status_code == 200, shared.text
    assert tag in shared.json()["share"]["tags"]
    for who in ("bob", "eve"):
        found = world.ask(who, "POST", "/search", json={"query": CANARY})
        assert CANARY not in found.text
    gone = world.ask("ann", "POST", f"/documents/{world.document}/unshare", json={"tags": [tag]})
    assert tag not in gone.json()["share"]["tags"]


@pytest.mark.parametrize("peer", ["*", "%", "bob'--", "ann:bob", "memory.owner:bob", "b*b"])
def test_sharing_with_a_strange_name_shares_with_nobody_else(world: World, peer: str) -> None:
    path = f"/documents/{world.document}/share"
    assert world.ask("ann", "POST", path, json={"principals": [peer]}).status_code in {200, 400}
    for who in ("bob", "eve"):
        assert CANARY not in world.ask(who, "POST", "/search", json={"query": CANARY}).text
    world.ask("ann", "POST", f"/documents/{world.document}/unshare", json={"principals": [peer]})


# --- SQL and search operators ------------------------------------------------------------------------

METACHARACTERS = [
    "'",
    "''",
    '"',
    '"unbalanced',
    "\\",
    "\\'; --",
    "'; DROP TABLE memory.document; --",
    "' OR '1'='1",
    "' UNION SELECT text FROM memory.chunk --",
    "$$; SELECT 1; $$",
    "$1 %s %(tenant)s {table} %L %I %%",
    "acme' OR r.tenant_id = 'acme",
    "/* */ -- ;",
    "a & b | !c <-> d:*",
    "!!!((((",
    ":*AB",
    "<1> <->",
    "-",
    "- -",
    '-"',
    '""',
    '-""',
    "%",
    "_",
    "*",
    "NULL",
    "{}",
    "{1,2}/268435456",
    "[1,2,3]",
    "\u202e\u0000x".replace("\u0000", ""),
    "a\tb\nc\r\n",
    "\ufeff",
    "🔑" * 50,
    "a" * 8_000,
    "a " * 4_000,
    '"a" ' * 2_000,
    "-a " * 2_500,
    "é" * 4_000,
    "\u0301" * 4_000,
]


@pytest.mark.parametrize("text", METACHARACTERS, ids=lambda text: ascii(text)[:24])
def test_metacharacters_are_text_wherever_they_stand(world: World, text: str) -> None:
    before = world.state()
    bodies: list[dict[str, Any]] = [
        {"query": text},
        {"query": text, "profile": "compat"},
        {"query": f"lighthouse {text}", "explain": True},
        {"query": "lighthouse", "kinds": [text], "entity_ids": [text], "sources": ["local", text]},
        {"query": "lighthouse", "attributes": {"k": text, text: "v"}},
        {"query": "lighthouse", "generation": text},
        {"query": "lighthouse", "occurred_after": text, "profile": text},
    ]
    for body in bodies:
        began = time.monotonic()
        answer = world.ask("eve", "POST", "/search", json=body)
        assert answer.status_code in {200, 400}, (body.keys(), answer.text)
        assert CANARY not in answer.text
        assert time.monotonic() - began < SOON
    names = dict.fromkeys(("kind", "thread", "author", "external_ref", "adapter", "generator_agent_id"), text)
    for fields in (names, {"language": text}):
        answer = world.ask("eve", "POST", "/add", json=NOTE | fields)
        assert answer.status_code in {200, 400}, answer.text
    assert world.ask("eve", "GET", "/list", params={"kinds": text}).status_code in {200, 400}
    assert world.state() == before


@pytest.mark.parametrize("text", METACHARACTERS[:30], ids=lambda text: ascii(text)[:24])
def test_what_is_kept_is_what_was_sent(world: World, text: str) -> None:
    title = f"t {text} t"
    added = world.ask("eve", "POST", "/add", json={"title": title, "text": text or ".", "kind": "verbatim"})
    if added.status_code == 400:
        assert not text.strip()
        return
    listed = world.ask("eve", "GET", "/list", params={"kinds": "verbatim", "limit": 100})
    assert title in [event["title"] for event in listed.json()["events"]]


# --- JSON --------------------------------------------------------------------------------------------


def nested(before: str, after: str, depth: int) -> bytes:
    return (before * depth + after * depth).encode()


BOMBS = {
    "arrays": nested("[", "]", 1_000_000),
    "arrays that never end": b"[" * 5_000_000,
    "objects": nested('{"a":', "}", 500_000),
    "objects that never end": b'{"a":' * 1_000_000,
    "nested in a field": b'{"title":"a","text":"b","attributes":' + nested('{"a":', "}", 900) + b"}",
    "nested in a list": b'{"title":"a","text":"b","access_tags":' + nested("[", "]", 900) + b"}",
    "a huge integer": b'{"query":"a","limit":' + b"9" * 1_000_000 + b"}",
    "a long integer": b'{"query":"a","limit":' + b"9" * 4_000 + b"}",
    "a huge float": b'{"query":"a","limit":1e999999999}',
    "a huge float in attributes": b'{"title":"a","text":"b","query":"q","attributes":{"a":1e999}}',
    "a huge negative float": b'{"title":"a","text":"b","query":"q","attributes":{"a":-1e999}}',
    "NaN": b'{"title":"a","text":"b","query":"q","attributes":{"a":NaN}}',
    "a repeated key": b'{"title":"a","text":"b","query":"a","query":"b"}',
    "a repeated key, escaped": b'{"title":"a","text":"b","query":"a","qu\\u0065ry":"b"}',
    "many keys": b'{"query":5,' + b",".join(b'"k%d":1' % n for n in range(300_000)) + b"}",
    "many attributes": b'{"title":"a","text":"b","query":"q","attributes":{'
    + b",".join(b'"k%d":1' % n for n in range(100_000))
    + b"}}",
    "half a character": b'{"title":"\\ud800","text":"\\udfff","query":"\\ud800"}',
    "half a character in a name": b'{"title":"a","text":"b","query":"q","kind":"\\ud800","kinds":["\\ud800"]}',
    "half a character in a key": b'{"title":"a","text":"b","query":"q","attributes":{"\\ud800":1}}',
    "NUL": b'{"title":"a\\u0000","text":"b\\u0000","query":"c\\u0000"}',
    "not UTF-8": b'{"title":"\xff","text":"b","query":"\xff"}',
    "overlong UTF-8": b'{"title":"\xc0\xaf","text":"b","query":"\xc0\xaf"}',
    "UTF-16": '{"title":"a","text":"b","query":"c"}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"title":"a","text":"b","query":"c"}',
    "two documents": b'{"title":"a","text":"b","query":"c"}{}',
    "a comment": b'{"title":"a","text":"b","query":"c"}//',
    "an array": b'[{"title":"a","text":"b","query":"c"}]',
    "a string": b'"query"',
    "null": b"null",
    "nothing": b"",
    "true": b"true",
    "gzip": b"\x1f\x8b\x08\x00" + b"\x00" * 100,
    "a form": b"title=a&text=b&query=c",
}
JSON = {"content-type": "application/json"}


@pytest.mark.parametrize("bomb", BOMBS)
@pytest.mark.parametrize("path", ["/add", "/search"])
def test_hostile_json_is_400_soon(world: World, path: str, bomb: str) -> None:
    began = time.monotonic()
    answer = world.ask("eve", "POST", path, content=BOMBS[bomb], headers=JSON)
    assert answer.status_code == 400, answer.text[:200]
    assert set(answer.json()["error"]) <= {"code", "message", "details"}
    assert len(answer.content) < 100_000, "a refusal is short"
    assert time.monotonic() - began < SOON
    assert len(BOMBS[bomb]) <= BODY_BYTES


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "text/plain"}, 400),
        ({"content-type": "application/x-www-form-urlencoded"}, 400),
        ({"content-type": "multipart/form-data; boundary=x"}, 400),
        ({"content-type": "application/json, text/plain"}, 400),
        ({"content-type": "text/plain; application/json"}, 400),
        ({"content-type": "application/json; charset=utf-16"}, 200),
        ({"content-type": "application/json", "content-encoding": "gzip"}, 200),
        ({}, 400),
    ],
    ids=str,
)
def test_only_json_is_read_as_json(world: World, headers: dict[str, str], status: int) -> None:
    """What browsers may send from another site without asking (text, forms) is never read.

    A charset says nothing about JSON, which is UTF-8; nothing is ever unpacked.
    """
    content = json.dumps({"query": "lighthouse"}).encode()
    answer = world.ask("eve", "POST", "/search", content=content, headers=headers)
    assert answer.status_code == status, answer.text


def post(world: World, who: str, path: str, body: Any) -> Any:
    """With half characters too, which the client's own encoder refuses."""
    return world.ask(who, "POST", path, content=json.dumps(body).encode(), headers=JSON)
