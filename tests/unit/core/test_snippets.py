import time

import pytest

from corbits_memory.core.snippets import compat_snippet, snippet

FILLER = "lorem ipsum dolor sit amet " * 30


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  short \n", "short"),
        ("x" * 240, "x" * 240),
        ("x" * 241, "x" * 240 + "…"),
        ("x" * 300, "x" * 240 + "…"),
        (" " + "x" * 240 + " ", "x" * 240),
    ],
)
def test_compat_snippet_is_the_head(text: str, expected: str) -> None:
    assert compat_snippet(text) == expected


def test_a_short_text_is_its_own_snippet() -> None:
    assert snippet(" Two lines\n\nof text ", ["lines"]) == "Two lines\n\nof text"


def test_the_window_lies_where_the_terms_meet() -> None:
    text = f"pricing {FILLER} Maria talked about enterprise pricing in May. {FILLER}"
    found = snippet(text, ["maria", "enterprise", "pricing"])
    assert "Maria talked about enterprise pricing in May." in found
    assert found.startswith("…")
    assert found.endswith("…")
    assert len(found) <= 242


def test_cuts_fall_between_words() -> None:
    text = f"{FILLER}needle {FILLER}"
    words = snippet(text, ["needle"]).strip("…").split()
    assert set(words) <= {"lorem", "ipsum", "dolor", "sit", "amet", "needle"}


def test_another_ending_of_a_word_is_found() -> None:
    assert "prices" in snippet(f"{FILLER}the prices rise {FILLER}", ["price"])
    assert "Häuser" in snippet(f"{FILLER}die Häuser {FILLER}", ["häusern"])


def test_a_telling_word_outweighs_common_ones() -> None:
    text = f"what did she do and what did he {FILLER}{FILLER} the enterprise plan {FILLER}"
    assert "enterprise" in snippet(text, ["did", "he", "enterprise"], 60)
    assert "enterprise" in snippet(text, {"what": 0.1, "did": 0.1, "he": 0.1, "enterprise": 4.0}, 60)


def test_two_forms_of_a_word_are_one_term() -> None:
    text = f"price prices pricey {FILLER}{FILLER} price of tea {FILLER}"
    assert "tea" in snippet(text, {"price": 1.0, "tea": 1.0}, 60)


def test_a_short_word_does_not_match_inside_another() -> None:
    found = snippet(f"{FILLER} cat {FILLER}".replace("ipsum", "concatenate"), ["cat"])
    assert " cat " in found


def test_without_a_match_it_is_the_head() -> None:
    found = snippet(FILLER, ["absent"])
    assert found.startswith("lorem ipsum")
    assert found.endswith("…")
    assert snippet(FILLER, []) == found


def test_bigrams_of_chinese_lead_to_the_place() -> None:
    text = "天气很好。" * 100 + "我喜欢喝绿茶。" + "天气很好。" * 100
    assert "绿茶" in snippet(text, ["绿茶"])


def test_a_match_at_either_end_fills_the_window() -> None:
    assert snippet(f"needle {FILLER}", ["needle"]).startswith("needle")
    assert snippet(f"{FILLER}needle", ["needle"]).endswith("needle")


def test_one_endless_word_is_cut_hard() -> None:
    found = snippet("x" * 1000, ["y"])
    assert found == "x" * 240 + "…"


def test_a_match_longer_than_the_window() -> None:
    assert len(snippet("needle" * 10 + " " + FILLER, ["needle" * 10], chars=20)) <= 22


@pytest.mark.parametrize("unit", ["a ", "a", "中"])
def test_a_long_text_takes_linear_time(unit: str) -> None:
    start = time.process_time()
    snippet(unit * (1_000_000 // len(unit)), ["a", "b", "中"])
    assert time.process_time() - start < 5
