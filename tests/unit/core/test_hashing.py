from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from corbits_memory.core import hashing
from corbits_memory.core.hashing import ContentFields, noop_key

MANY = {"z": None, "n": 1.5, "big": 1e21, "neg0": -0.0, "t": True, "f": 0.1 + 0.2, "é": "ä"}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {
                "title": "T",
                "kind": "note",
                "external_ref": "r1",
                "attributes": {"b": 1, "a": "x"},
                "chunks": ["hello ", "world"],
            },
            "557eff37fc870e7b751c1f30c044212ea2c2b6a02b53b90119622d9d61c64f21",
        ),
        (
            {"title": "T", "kind": "note", "external_ref": "r1", "attributes": None, "chunks": []},
            "0286aa38d42206cbcc6cb6c1fbc384a99d2128db5535c1f591d64c912a251b64",
        ),
        (
            {
                "title": "Ü ✓",
                "kind": "note",
                "external_ref": "r/1",
                "attributes": MANY,
                "chunks": ["naïve"],
            },
            "36fe5ee42f3de07f17e7aeb45b332b2407d3a260512285c0ae392fea7a2fd367",
        ),
    ],
)
def test_compat_content_hash(fields: dict[str, Any], expected: str) -> None:
    assert hashing.compat_content_hash(**fields) == expected


def test_canonical_json_prints_numbers_as_javascript() -> None:
    assert hashing.canonical_json(MANY) == (
        '{"big":1e+21,"f":0.30000000000000004,"n":1.5,"neg0":0,"t":true,"z":null,"é":"ä"}'
    )


def test_source_hash() -> None:
    document = {
        "kind": "note",
        "title": "T",
        "externalRef": "r1",
        "accessTags": ["memory.owner:alice"],
        "attributes": {"b": 1, "a": "x"},
        "entityHints": [],
        "chunks": [{"ordinal": 0, "text": "hello world"}],
        "actor": {"kind": "human", "principalId": "alice"},
        "contentHash": "",
    }
    found = hashing.source_hash(adapter="http", occurred_at="2026-01-02T03:04:05.678Z", document=document)
    assert found == "b8c5dbaf312bfc5d2da4099fe291619b90d7fede985ea4d513b88eb8f1c11626"


def test_model_key() -> None:
    assert hashing.model_key("http://localhost:11434", "nomic-embed-text") == "e08fc590d47c3d3a"


@pytest.mark.parametrize("number", [2**53 - 1, -(2**53 - 1), 0])
def test_the_largest_exact_integers_pass(number: int) -> None:
    assert hashing.canonical_json(number) == str(number)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": {"b": [1, 2**53]}}, r"\$\.a\.b\[1\]"),
        ({"n": -(2**53)}, r"\$\.n"),
        ({"x": float("nan")}, r"\$\.x"),
        ([float("inf")], r"\$\[0\]"),
        ([float("-inf")], r"\$\[0\]"),
        ({"s": "a\ud800"}, r"\$\.s"),
        ({"\udfff": 1}, r"\$: lone"),
        ({1: 2}, "keys are text"),
        ({"o": object()}, r"\$\.o"),
        ({"b": b"x"}, r"\$\.b"),
    ],
)
def test_what_json_cannot_hold_is_named_by_its_path(value: Any, path: str) -> None:
    with pytest.raises(hashing.CanonicalJsonError, match=path):
        hashing.canonical_json(value)


BASE = ContentFields(
    title="T",
    kind="note",
    external_ref="r1",
    attributes={"a": 1},
    parts=(("hello", None),),
    derived_from=("v1", "v2"),
    entity_hints=(("person", "p1", None), ("person", "p1", "Ann")),
    edges=(("mentions", "entity", "e1"),),
)
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "change",
    [
        {"title": "U"},
        {"kind": "claim"},
        {"external_ref": "r2"},
        {"attributes": {"a": "1"}},
        {"parts": (("hello", "user"),)},
        {"parts": (("hel", None), ("lo", None))},
        {"thread": "t"},
        {"author": "Maria"},
        {"provenance": "inferred"},
        {"lineage_class": "derived"},
        {"temporal_class": "state"},
        {"retention_class": "durable"},
        {"valid_from": NOON},
        {"valid_until": NOON},
        {"derived_from": ("v1",)},
        {"supports": ("v1",)},
        {"contradicts": ("v1",)},
        {"entity_hints": (("person", "p1", None),)},
        {"edges": ()},
        {"generator_agent_id": "g"},
        {"language": "german"},
        {"occurred_at": NOON},
    ],
)
def test_each_field_makes_other_content(change: dict[str, Any]) -> None:
    assert noop_key(replace(BASE, **change)) != noop_key(BASE)


def test_fields_do_not_run_into_each_other() -> None:
    assert noop_key(replace(BASE, title="a b", kind="c")) != noop_key(replace(BASE, title="a", kind="b c"))


def test_order_of_sets_and_keys_and_zone_do_not_matter() -> None:
    east = NOON.astimezone(timezone(timedelta(hours=5)))
    left = replace(BASE, attributes={"a": 1, "b": 2.0}, valid_until=NOON)
    right = replace(
        BASE,
        attributes={"b": 2, "a": 1.0},
        valid_until=east,
        derived_from=("v2", "v1", "v2"),
        entity_hints=tuple(reversed(BASE.entity_hints)),
    )
    assert noop_key(left) == noop_key(right)


def test_a_naive_instant_is_refused() -> None:
    with pytest.raises(hashing.CanonicalJsonError, match="time zone"):
        noop_key(replace(BASE, valid_until=datetime(2026, 1, 2)))
