"""Which tags a caller may write, and which ones a document gets."""

import pytest

from corbits_memory.access.tags import (
    resolve_access_tags,
    shared_peers,
    tag_problem,
)
from corbits_memory.ports import Share


def test_without_sharing_a_document_has_its_owners_tag_only() -> None:
    assert resolve_access_tags("u1", "t1") == ("memory.owner:u1",)


def test_tags_come_in_a_fixed_order_stripped_and_once() -> None:
    share = Share(tenant=True, principals=("alice",), tags=(" memory.space:b ", "memory.space:a", " "))
    assert resolve_access_tags("u1", "t1", [" memory.space:a", "", "memory.owner:u1"], share) == (
        "memory.owner:u1",
        "memory.space:a",
        "memory.tenant:t1",
        "memory.space:b",
    )


def test_peers_owner_tags_are_written_only_on_demand() -> None:
    share = Share(principals=("alice", " bob ", " "))
    assert resolve_access_tags("u1", "t1", share=share) == ("memory.owner:u1",)
    assert resolve_access_tags("u1", "t1", share=share, peer_owner_tags=True) == (
        "memory.owner:u1",
        "memory.owner:alice",
        "memory.owner:bob",
    )


def test_resolving_twice_changes_nothing() -> None:
    share = Share(tenant=True, tags=("memory.space:a",))
    once = resolve_access_tags("u1", "t1", ["project:x"], share)
    assert resolve_access_tags("u1", "t1", once, share) == once


@pytest.mark.parametrize(
    "tag", ["memory.space:eng", "a:b", ":", "memory.owner:u1", " memory.owner:u1 ", "x:" + "y" * 254]
)
def test_a_callers_tag_is_accepted(tag: str) -> None:
    assert tag_problem(tag, principal_id="u1") is None


@pytest.mark.parametrize(
    ("tag", "word"),
    [
        ("", "blank"),
        ("  ", "blank"),
        ("team", "colon"),
        ("a:*", "*"),
        ("a:\x00", "control"),
        ("a:\nb", "control"),
        ("a:\ud800", "control"),
        ("x:" + "y" * 255, "256"),
        ("memory.owner:u2", "reserved"),
        ("memory.owner:u11", "reserved"),
        (" memory.owner:u2", "reserved"),
        ("memory.tenant:t1", "reserved"),
        ("memory.doc:kdoc_1", "reserved"),
    ],
)
def test_a_callers_tag_is_refused_without_being_repeated(tag: str, word: str) -> None:
    problem = tag_problem(tag, principal_id="u1")
    assert problem is not None
    assert word in problem
    assert not tag.strip() or tag not in problem


def test_a_long_principal_keeps_its_owner_tag() -> None:
    principal = "p" * 256
    assert tag_problem(f"memory.owner:{principal}", principal_id=principal) is None


def test_peers_are_without_blanks_repeats_and_the_sharer() -> None:
    assert shared_peers("alice", Share(principals=("alice", "  ", "bob", " bob"))) == ("bob",)
