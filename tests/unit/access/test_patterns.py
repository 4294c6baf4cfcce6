"""What a pattern matches, and how specific it is."""

import pytest

from corbits_memory.access.patterns import has_wildcard, match_pattern, specificity


@pytest.mark.parametrize(
    ("pattern", "target", "matches"),
    [
        ("*", "", True),
        ("*", "anything:at.all", True),
        ("**", "memory.doc:1", True),
        ("**", "", True),
        ("memory.space:*", "memory.space:eng", True),
        ("memory.space:*", "memory.space:", True),
        ("memory.space:*", "memory.space", False),
        ("memory", "memory", True),
        ("memory", "memory.doc:1", False),
        ("memory*", "memory", True),
        ("memory*", "memory.doc:1", True),
        ("memory*", "amemory", False),
        ("*:read", "agent:read", True),
        ("*:read", "agent:write", False),
        ("a*b*c", "abc", True),
        ("a*b*c", "aXXbYYc", True),
        ("a*b*c", "aXXbYY", False),
        ("a*b*c", "acb", False),
        ("a*bc*c", "abc", False),
        ("a**c", "abc", True),
        ("a*a", "a", False),
        ("ab*ba", "aba", False),
        ("ab*ba", "abba", True),
        ("*a*", "bab", True),
        ("*aa*a*", "aaa", True),
        ("*aa*aa*", "aaa", False),
        ("wallet:wal_*", "wallet:xyz", False),
        ("", "", True),
        ("", "a", False),
        ("Agent:*", "agent:x", False),
        ("agent:X", "agent:x", False),
        ("a?c", "abc", False),
        ("a[b]c", "abc", False),
        ("a.c", "abc", False),
        ("memory.*:eng", "memory.space:deep:eng", True),
        ("a*", "a*", True),
        ("a*", "a*b", True),
    ],
)
def test_the_table_of_matches(pattern: str, target: str, matches: bool) -> None:
    assert match_pattern(pattern, target) is matches


def test_many_stars_are_matched_without_backtracking() -> None:
    assert not match_pattern("*a" * 120 + "b", "a" * 5_000)


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        ("*", 0),
        ("**", 0),
        ("", 1_000),
        ("agent:*", 6),
        ("read", 1_004),
        ("agent:agt_abc", 1_013),
        ("a*b*c", 3),
    ],
)
def test_the_table_of_specificity(pattern: str, value: int) -> None:
    assert specificity(pattern) == value
    assert has_wildcard(pattern) is ("*" in pattern)


@pytest.mark.parametrize(
    ("resource", "action", "value"),
    [
        ("*", "*", 0),
        ("memory", "search", 2_012),
        ("memory.space:*", "search", 1_019),
        ("memory.doc:kdoc_1", "search", 2_023),
        ("memory.space:eng", "*", 1_016),
    ],
)
def test_a_grants_specificity_is_that_of_both_its_patterns(resource: str, action: str, value: int) -> None:
    assert specificity(resource) + specificity(action) == value
