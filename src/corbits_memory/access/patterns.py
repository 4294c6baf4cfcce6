"""Patterns of grants: ``*`` stands for any characters, none included; everything else for itself."""

from collections.abc import Callable

EXACT = 1_000
"""What a pattern without a wildcard is ahead of all that have one."""


def has_wildcard(pattern: str) -> bool:
    return "*" in pattern


def match_pattern(pattern: str, target: str) -> bool:
    """Whether the whole target matches, case and all. ``*`` crosses ``:`` and ``.``."""
    return pattern == target or ("*" in pattern and matcher(pattern)(target))


def matcher(pattern: str) -> Callable[[str], bool]:
    """The pattern, taken apart once for many targets."""
    if "*" not in pattern:
        return lambda target: target == pattern
    first, *middle, last = pattern.split("*")
    if not last and not any(middle):
        return lambda target: target.startswith(first)
    shortest = len(first) + len(last)

    def matches(target: str) -> bool:
        if len(target) < shortest or not target.startswith(first) or not target.endswith(last):
            return False
        place, end = len(first), len(target) - len(last)
        for piece in middle:
            found = target.find(piece, place, end)
            if found < 0:
                return False
            place = found + len(piece)
        return True

    return matches


def specificity(pattern: str) -> int:
    """0 for ``*``; with a wildcard the number of other characters; without one the length and 1,000."""
    if pattern == "*":
        return 0
    if "*" in pattern:
        return len(pattern) - pattern.count("*")
    return len(pattern) + EXACT
