"""From grants to what a store can put into a query."""

from collections.abc import Collection, Sequence

import pytest

from corbits_memory.access.patterns import match_pattern
from corbits_memory.access.visibility import GrantedAccess
from corbits_memory.ports import GrantRule, Visibility
from tests.unit.access.support import P, allow, ask, authorizer, deny

IN_USE = ("memory.owner:ann", "memory.space:eng", "memory.space:ops", "memory.tenant:acme", "memory.doc:1")
ENG, OPS = "memory.space:eng", "memory.space:ops"


class Tags:
    """The tags in use in a tenant, and what was asked of them."""

    def __init__(self) -> None:
        self.asked: list[Sequence[str]] = []

    async def __call__(self, patterns: Sequence[str]) -> Collection[str]:
        self.asked.append(patterns)
        return [tag for tag in IN_USE if any(match_pattern(pattern, tag) for pattern in patterns)]


async def visible(*rules: GrantRule) -> tuple[Visibility, list[Sequence[str]]]:
    tags = Tags()
    access = GrantedAccess(principal_id=P, authorizer=authorizer(*rules))
    return await access.visibility(tags), tags.asked


async def test_without_grants_only_own_documents_are_seen() -> None:
    found, asked = await visible()
    assert found == Visibility(principal_id=P)
    assert asked == []
    assert found.admits(owner=P, tags=(), document_id="9")
    assert not found.admits(owner="ann", tags=(ENG,), document_id="9")
    assert not found.admits(owner=None, tags=(), document_id="9")


async def test_grants_without_a_wildcard_name_their_tags_and_nothing_is_looked_up() -> None:
    found, asked = await visible(allow(ENG), deny(OPS), ask("memory.doc:1"), allow("a:b", "add"))
    assert (found.allowed, found.vetoed, found.everything) == (frozenset({ENG}), frozenset({OPS}), False)
    assert asked == []


async def test_a_wildcard_is_judged_against_the_tags_in_use() -> None:
    found, asked = await visible(allow("memory.space:*"), deny(OPS))
    assert (found.allowed, found.vetoed) == (frozenset({ENG}), frozenset({OPS}))
    assert asked == [["memory.space:*"]]


async def test_a_more_specific_deny_with_a_wildcard_hides_its_tags_but_vetoes_nothing() -> None:
    found, _ = await visible(allow("memory.*"), deny("memory.space:*"))
    assert found.allowed == {"memory.owner:ann", "memory.tenant:acme", "memory.doc:1"}
    assert found.vetoed == frozenset()
    assert found.admits(owner="ann", tags=(ENG, "memory.tenant:acme"), document_id="9")


async def test_a_grant_on_everything_lists_only_what_is_refused() -> None:
    found, asked = await visible(allow("*", "*"))
    assert found == Visibility(principal_id=P, everything=True)
    assert asked == []
    assert found.admits(owner="ann", tags=("a:tag-made-later",), document_id="9")
    assert not found.admits(owner="ann", tags=(), document_id="9")


async def test_beside_a_grant_on_everything_denies_are_looked_up() -> None:
    found, asked = await visible(allow("*", "*"), deny("memory.space:e*"), deny(OPS), ask("memory.doc:1"))
    assert found.everything
    assert found.refused == {ENG, OPS, "memory.doc:1"}
    assert found.vetoed == {OPS}
    assert asked == [["memory.space:e*"]]
    assert not found.admits(owner="ann", tags=(ENG,), document_id="9")
    assert found.admits(owner="ann", tags=(ENG, "memory.owner:ann"), document_id="9")
    assert not found.admits(owner="ann", tags=(OPS, "memory.owner:ann"), document_id="9")


async def test_a_grant_on_everything_under_a_condition_is_judged_tag_by_tag() -> None:
    found, asked = await visible(allow("*", "*", conditions={"unknown": 1}), allow(ENG))
    assert (found.everything, found.allowed) == (False, frozenset({ENG}))
    assert asked == [["*"]]


async def test_a_veto_hides_a_document_whatever_its_other_tags_allow_but_not_from_its_owner() -> None:
    found, _ = await visible(allow(ENG), deny("memory.doc:1"))
    assert found.admits(owner="ann", tags=(ENG,), document_id="9")
    assert not found.admits(owner="ann", tags=(ENG, "memory.doc:1"), document_id="9")
    assert not found.admits(owner="ann", tags=(ENG,), document_id="1")
    assert found.admits(owner=P, tags=(ENG, "memory.doc:1"), document_id="9")


async def test_an_exact_deny_that_something_outweighs_vetoes_nothing() -> None:
    # Its action is a pattern, so that the allow is the more specific one.
    found, _ = await visible(deny(ENG, "s*"), allow(ENG))
    assert (found.allowed, found.vetoed) == (frozenset({ENG}), frozenset())


@pytest.mark.parametrize(
    ("tags", "reached"),
    [((ENG,), True), ((OPS,), False), ((ENG, OPS), True), ((ENG, "memory.doc:1"), False), ((), False)],
)
async def test_an_action_reaches_a_document_by_its_tags(tags: tuple[str, ...], reached: bool) -> None:
    rules = authorizer(allow(ENG, "add"), allow(OPS), deny("memory.doc:1", "add"))
    assert await GrantedAccess(principal_id=P, authorizer=rules).reaches("add", tags) is reached
