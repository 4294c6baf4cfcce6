"""What pages showed, as text: it comes back as it was, and nothing else is taken for it."""

import base64
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corbits_memory.core.limits import SEARCH_DEPTH_MAX
from corbits_memory.core.shown import CURSOR_CHARS, NOTHING_SHOWN, Shown, read_cursor, write_cursor

QUESTION = '["acme","ann","tea"]'


def many(count: int) -> Shown:
    return Shown().and_these((f"d{n}", f"c{n}", f"text {n}") for n in range(count))


@pytest.mark.parametrize("count", [1, 2, 3, 50, SEARCH_DEPTH_MAX - 1])
def test_a_cursor_says_what_was_shown(count: int) -> None:
    text = write_cursor(many(count), QUESTION)
    assert re.fullmatch(r"[A-Za-z0-9_-]+", text)
    assert read_cursor(text, QUESTION) == many(count)


def test_the_longest_cursor_is_as_long_as_is_said() -> None:
    assert len(write_cursor(many(SEARCH_DEPTH_MAX - 1), QUESTION)) == CURSOR_CHARS
    too_long = write_cursor(many(SEARCH_DEPTH_MAX), QUESTION)
    assert len(too_long) > CURSOR_CHARS
    assert read_cursor(too_long, QUESTION) is None


def test_what_was_shown_is_known_again() -> None:
    shown = Shown().and_these([("d1", "c1", "Green tea."), ("d1", "c2", None), ("d2", None, " ")])
    assert [shown.has(key) for key in ("c1", "c2", "d2", "d1", "c3")] == [True, True, True, False, False]
    assert [shown.of_document(key) for key in ("d1", "d2", "d3")] == [2, 1, 0]
    assert [shown.says(text) for text in ("green  TEA.", "tea", "", " ")] == [True, False, False, False]
    assert len(shown) == 3
    assert shown.and_these([("d3", "c3", "x")]).hits[:3] == shown.hits


def test_nothing_shown_knows_nothing() -> None:
    assert not NOTHING_SHOWN
    told = (NOTHING_SHOWN.has("c"), NOTHING_SHOWN.of_document("d"), NOTHING_SHOWN.says("x"))
    assert told == (False, 0, False)


def test_another_question_is_another_cursor() -> None:
    text = write_cursor(many(3), QUESTION)
    assert read_cursor(text, QUESTION.replace("ann", "bob")) is None


def test_no_part_of_a_cursor_is_one() -> None:
    text = write_cursor(many(3), QUESTION)
    assert [n for n in range(len(text)) if read_cursor(text[:n], QUESTION)] == []
    assert [n for n in range(1, len(text)) if read_cursor(text[n:], QUESTION)] == []


def test_no_changed_cursor_is_one() -> None:
    raw = base64.urlsafe_b64decode(write_cursor(many(3), QUESTION) + "=")
    for place in range(len(raw)):
        changed = raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :]
        assert read_cursor(base64.urlsafe_b64encode(changed).decode().rstrip("="), QUESTION) is None, place


@pytest.mark.parametrize(
    "text",
    ["", "=", "A", "AA==", "é", "\x00", "a b", "AQ", "+/+/", "A" * CURSOR_CHARS, "A" * 10**6, "1790.kv_1"],
)
def test_garbage_is_none(text: str) -> None:
    assert read_cursor(text, QUESTION) is None


@given(st.text())
def test_no_text_is_a_cursor_by_chance(text: str) -> None:
    assert read_cursor(text, QUESTION) is None
