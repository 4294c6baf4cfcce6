"""Names: no two alike, none that begins like a neighbour's, and none lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corbits_memory.adapters.langgraph.names import (
    LABELS,
    behind_items,
    prefix_of,
    read_reference,
    reference_of,
)
from corbits_memory.core.limits import EXTERNAL_REF_CHARS
from corbits_memory.errors import InvalidInputError
from corbits_memory.validation import Problems

labels = st.text(min_size=1, max_size=12)
namespaces = st.lists(labels, max_size=4).map(tuple)


@given(labels, namespaces, labels)
def test_a_name_is_read_as_it_was_written(principal: str, namespace: tuple[str, ...], key: str) -> None:
    reference = reference_of(principal, namespace, key)
    assert read_reference(reference) == (namespace, key)
    problems = Problems()
    assert problems.identifier("external_ref", reference, max_chars=EXTERNAL_REF_CHARS) == reference
    problems.raise_if_any()
    assert reference == reference.strip()
    reference.encode()


@given(labels, namespaces, labels, namespaces)
def test_a_name_begins_with_the_prefix_of_what_it_lies_in_and_of_nothing_else(
    principal: str, namespace: tuple[str, ...], key: str, other: tuple[str, ...]
) -> None:
    inside = namespace[: len(other)] == other
    assert reference_of(principal, namespace, key).startswith(prefix_of(principal, other)) is inside


@given(labels, namespaces, labels, labels, namespaces)
def test_behind_the_items_of_a_namespace_comes_no_other_of_them(
    principal: str, namespace: tuple[str, ...], key: str, last: str, other: tuple[str, ...]
) -> None:
    behind = behind_items(reference_of(principal, namespace, last))
    assert reference_of(principal, namespace, key) < behind
    if other != namespace:
        reference = reference_of(principal, other, key)
        first = reference_of(principal, namespace, "\x00")
        assert not first < reference < behind or other == namespace


def test_neighbours_names_keep_apart() -> None:
    assert not reference_of("ann", ("acme-corp",), "k").startswith(prefix_of("ann", ("acme",)))
    assert reference_of("ann", ("a/b",), "k") != reference_of("ann", ("a", "b"), "k")
    assert reference_of("ann/x", ("y",), "k") != reference_of("ann", ("x", "y"), "k")
    assert reference_of("ann", ("a",), "b") != reference_of("ann", ("a", ":b"), "c")


@pytest.mark.parametrize(("length", "fits"), [(1_016, True), (1_017, True), (1_018, False)])
def test_a_name_has_a_limit(length: int, fits: bool) -> None:
    # ann/ + n/ + : is seven characters more.
    if fits:
        assert len(reference_of("ann", ("n",), "k" * length)) == length + 7
        return
    with pytest.raises(InvalidInputError, match="too long"):
        reference_of("ann", ("n",), "k" * length)


@pytest.mark.parametrize(("depth", "fits"), [(LABELS - 1, True), (LABELS, True), (LABELS + 1, False)])
def test_a_namespace_has_a_limit(depth: int, fits: bool) -> None:
    if fits:
        assert prefix_of("ann", ("n",) * depth)
        return
    with pytest.raises(InvalidInputError, match="labels"):
        prefix_of("ann", ("n",) * depth)
