"""What a service repeats of our texts is kept out of messages, wherever in them it begins."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corbits_memory.models.redaction import PRIVATE_CHARS, RUN_CHARS, SHORT_CHARS, redact

TEXT = 'The "patient" said: na\u00efve\nand more, and was sent home on Friday.'


@pytest.mark.parametrize("start", [0, 1, 20, 40])
@pytest.mark.parametrize("escape", [str, json.dumps, lambda text: json.dumps(text, ensure_ascii=False)])
def test_a_run_from_anywhere_is_left_out(start: int, escape: object) -> None:
    assert callable(escape)
    told = redact(f"bad input: {escape(TEXT[start:])} (400)", [TEXT])
    assert "[text]" in told
    assert not any(word in told for word in ("patient", "na\u00efve", "Friday", "home"))
    assert told.startswith("bad input")
    assert told.endswith("(400)")


def test_what_only_looks_alike_stays() -> None:
    assert redact("the model is not loaded", ["the moon is full"]) == "the model is not loaded"
    run = TEXT[5 : 5 + RUN_CHARS]
    assert redact(run, [TEXT]) == "[text]"
    assert redact(run[:-1], [TEXT]) == run[:-1]


def test_a_short_text_is_left_out_as_a_whole() -> None:
    assert redact("no such user: jane.doe!", ["jane.doe"]) == "no such user: [text]!"
    assert len("jane.doe") == SHORT_CHARS
    assert redact("the input is too long", ["input"]) == "the input is too long"


def test_of_too_much_nothing_is_told() -> None:
    assert redact("x", ["a" * PRIVATE_CHARS]) == "x"
    assert redact("x", ["a" * (PRIVATE_CHARS + 1)]) == ""


@given(st.text(max_size=60), st.lists(st.text(min_size=SHORT_CHARS, max_size=40), max_size=3))
def test_no_run_of_a_private_text_is_left(text: str, private: list[str]) -> None:
    told = redact(text, private)
    for piece in told.split("[text]"):
        for own in private:
            runs = (own[start : start + RUN_CHARS] for start in range(max(0, len(own) - RUN_CHARS + 1)))
            assert not any(run in piece for run in runs)
