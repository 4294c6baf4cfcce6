from collections.abc import Sequence

import pytest

from corbits_memory.core.restatements import Said, Signature


def kept(texts: Sequence[str]) -> list[int]:
    """Indices of the texts that say what none before them said."""
    said, found = Said(), []
    for index, text in enumerate(texts):
        signature = Signature.of(text)
        if not said.has(signature):
            said.add(signature)
            found.append(index)
    return found


def test_restatements_collapse_to_the_first() -> None:
    texts = ["Maria likes green tea.", "maria likes  GREEN tea", "Maria likes black tea."]
    assert kept(texts) == [0, 2]


def test_long_texts_that_differ_in_a_word_collapse() -> None:
    long = " ".join(f"word{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(200))
    assert kept([long, long.replace("wordab", "other", 1)]) == [0]


def test_a_changed_number_is_news() -> None:
    long = " ".join(f"word{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(200))
    assert kept([f"{long} for 5 years", f"{long} for 6 years"]) == [0, 1]


def test_texts_without_words_are_compared_as_they_are() -> None:
    assert kept(["!!", "??", "!!", ""]) == [0, 1, 3]


def test_a_chinese_restatement_collapses() -> None:
    assert kept(["我喜欢喝绿茶。", "我喜欢喝绿茶", "我喜欢喝红茶"]) == [0, 2]


def test_words_of_several_texts_together_are_no_restatement() -> None:
    assert kept(
        ["green tea in the morning", "in the morning with milk", "green tea in the morning with milk"]
    ) == [
        0,
        1,
        2,
    ]


@pytest.mark.parametrize("changed", range(5))
def test_from_nine_of_ten_shingles_on_texts_say_the_same(changed: int) -> None:
    # Words at the end make shingles of their own only: of n + 2 words with c other ones, n - c of n + c are shared.
    text = [f"w{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(40)]
    other = [*text[: 40 - changed], *(f"x{chr(97 + n)}" for n in range(changed))]
    same = (38 - changed) / (38 + changed) >= 0.9
    assert kept([" ".join(text), " ".join(other)]) == ([0] if same else [0, 1])
