"""The other ways to cut: sections of Markdown and windows of turns. Whatever comes in, no text is lost."""

import gc
import time
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corbits_memory.core.chunking import CHARS_PER_TOKEN, ChunkCaps
from corbits_memory.core.markdown import section_spans
from corbits_memory.core.strategies import BUILT_IN, Part
from corbits_memory.core.turns import turn_pieces

CAPS = st.builds(
    lambda most, least, overlap: ChunkCaps(most, min(least, most), min(overlap, most - 1)),
    st.integers(1, 40),
    st.integers(0, 10),
    st.integers(0, 10),
)
LINES = st.lists(
    st.sampled_from(
        ["# A", "## B", "```", "~~~~", "```py", "text", "", "#no heading", "a b c. d", "x" * 90, "    # code"]
    )
    | st.text(max_size=30)
)
MARKDOWN = st.builds("\n".join, LINES) | st.text()
TURNS = st.lists(st.tuples(st.text(max_size=200), st.sampled_from([None, "user", "assistant"])), max_size=12)


def sections(text: str, caps: ChunkCaps | None = None) -> list[str]:
    return [text[start:end] for start, end in section_spans(text, caps or ChunkCaps(100, 2, 0))]


def said(turns: list[Part], caps: ChunkCaps) -> list[tuple[str, str | None]]:
    return [(piece.text, piece.role) for piece in turn_pieces(turns, caps)]


# --- sections ----------------------------------------------------------------------------------------


def test_a_section_begins_with_its_heading() -> None:
    text = "intro text\n\n# One\n\nfirst text\n\n## Two\nsecond text\n\nmore of it\n# Three\nthird text\n"
    assert sections(text) == [
        "intro text\n\n",
        "# One\n\nfirst text\n\n",
        "## Two\nsecond text\n\nmore of it\n",
        "# Three\nthird text\n",
    ]


def test_a_heading_is_never_the_last_line() -> None:
    text = "# Title\n## Chapter\n### Part\n" + "word " * 30 + "\n## Next\n" + "word " * 30
    assert [piece.split("\n")[0] for piece in sections(text, ChunkCaps(60, 1, 0))] == ["# Title", "## Next"]


def test_what_is_too_small_to_stand_alone_joins_the_next() -> None:
    text = "# A\nab\n# B\ncd\n# C\n" + "word " * 20
    assert sections(text, ChunkCaps(100, 5, 0)) == ["# A\nab\n# B\ncd\n# C\n" + "word " * 20]
    assert len(sections(text, ChunkCaps(100, 0, 0))) == 3


def test_a_remnant_joins_the_one_before() -> None:
    assert sections("# A\n" + "word " * 20 + "\n# B\nx", ChunkCaps(100, 5, 0)) == [
        "# A\n" + "word " * 20 + "\n# B\nx"
    ]


@pytest.mark.parametrize("fence", ["```", "~~~", "`````"])
def test_code_is_no_heading_and_stays_whole(fence: str) -> None:
    code = f"{fence}sh\n# a comment, no heading\n\nrun it\n\n# another\n{fence}\n"
    text = "# A\n" + "word " * 60 + "\n\n" + code + "\n# B\n" + "text " * 10
    pieces = sections(text, ChunkCaps(80, 2, 0))
    assert [piece for piece in pieces if code in piece]
    assert not [piece for piece in pieces if piece.startswith("# a comment")]


def test_a_fence_closes_with_its_own_kind_and_length() -> None:
    text = "````\n```\n# not yet\n~~~~\n````\n# A heading\n" + "word " * 10
    assert sections(text, ChunkCaps(100, 1, 0))[0] == "````\n```\n# not yet\n~~~~\n````\n"


def test_a_fence_that_never_closes_reaches_to_the_end() -> None:
    text = "text before\n\n```\n# code\n# code\n"
    assert sections(text, ChunkCaps(100, 0, 0)) == [text]


def test_a_long_section_is_cut_at_paragraphs() -> None:
    text = "# A\n" + "\n\n".join("word " * 30 for _ in range(6))
    pieces = sections(text, ChunkCaps(80, 5, 0))
    assert len(pieces) == 3
    assert all(piece.rstrip().endswith("word") for piece in pieces)


def test_code_longer_than_a_chunk_is_cut_between_lines() -> None:
    text = "```\n" + "do_this_thing()\n" * 100 + "```\n"
    assert all(piece.endswith("\n") for piece in sections(text, ChunkCaps(50, 5, 0)))


@given(MARKDOWN, CAPS)
@example("# A\n" * 15 + "~~~~\n~~~~\n# A", ChunkCaps(3, 3, 0))
def test_sections_add_up_to_the_text(text: str, caps: ChunkCaps) -> None:
    spans = section_spans(text, caps)
    if not text:
        assert spans == []
        return
    assert (spans[0][0], spans[-1][1]) == (0, len(text))
    for (start, end), (following, _) in pairwise(spans):
        assert start < following <= end
    room = (caps.max_tokens + caps.overlap_tokens + caps.min_tokens) * CHARS_PER_TOKEN
    assert all(end - start <= room for start, end in spans)


@pytest.mark.parametrize("unit", ["# h\n", "a\n\n", "```\n", "word ", "# h\ntext\n\n```\ncode\n```\n"])
def test_markdown_takes_linear_time(unit: str) -> None:
    def seconds(length: int) -> float:
        text = unit * (length // len(unit))
        taken = []
        # Collecting garbage takes as long as the whole test process is large.
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                start = time.process_time()
                section_spans(text, ChunkCaps())
                taken.append(time.process_time() - start)
        finally:
            gc.enable()
        return min(taken)

    # Quadratic work would take 64 times as long.
    assert seconds(160_000) < 32 * max(seconds(20_000), 0.004)


# --- turns -------------------------------------------------------------------------------------------


def test_turns_share_a_window_while_they_fit() -> None:
    turns: list[Part] = [("hello", "user"), ("hi there", "assistant"), ("bye", "user")]
    assert said(turns, ChunkCaps(100, 0, 0)) == [("user: hello\nassistant: hi there\nuser: bye", None)]
    assert said(turns, ChunkCaps(8, 0, 0)) == [
        ("user: hello\nassistant: hi there", None),
        ("user: bye", "user"),
    ]


def test_a_window_of_one_role_has_that_role() -> None:
    assert said([("a", "user"), ("b", "user")], ChunkCaps()) == [("user: a\nuser: b", "user")]
    assert said([("a", None), ("b", None)], ChunkCaps()) == [("a\nb", None)]


def test_a_window_begins_with_the_last_turns_of_the_one_before() -> None:
    turns: list[Part] = [(f"turn {i}", None) for i in range(6)]
    assert [text for text, _ in said(turns, ChunkCaps(6, 0, 2))] == [
        "turn 0\nturn 1\nturn 2",
        "turn 2\nturn 3\nturn 4",
        "turn 4\nturn 5",
    ]


def test_a_turn_too_long_for_a_window_is_cut() -> None:
    pieces = said([("short", "user"), ("word " * 40, "assistant"), ("end", "user")], ChunkCaps(20, 0, 0))
    assert pieces[0] == ("user: short", "user")
    assert {role for _, role in pieces[1:-1]} == {"assistant"}
    assert "".join(text for text, _ in pieces[1:-1]) == "assistant: " + "word " * 40
    assert pieces[-1] == ("user: end", "user")


@given(TURNS, CAPS)
def test_no_turn_is_lost_and_no_window_too_long(turns: list[Part], caps: ChunkCaps) -> None:
    pieces = turn_pieces(turns, caps)
    room = (caps.max_tokens + caps.overlap_tokens + caps.min_tokens) * CHARS_PER_TOKEN
    assert all(0 < len(piece.text) <= room for piece in pieces)
    most = caps.max_tokens * CHARS_PER_TOKEN
    texts = [piece.text for piece in pieces]
    place = 0
    for text, role in turns:
        whole = text if role is None else f"{role}: {text}"
        if not text or len(whole) > most:
            continue
        found = next((n for n in range(place, len(texts)) if whole in texts[n]), None)
        assert found is not None, whole
        place = found


@given(TURNS, CAPS, st.sampled_from(sorted(BUILT_IN)))
def test_every_strategy_is_pure_and_keeps_every_character(
    turns: list[Part], caps: ChunkCaps, name: str
) -> None:
    chunker = BUILT_IN[name]
    pieces = chunker(turns, caps)
    assert chunker(turns, caps) == pieces
    kept = "".join(piece.text for piece in pieces)
    assert all(set(text) <= set(kept) for text, _ in turns)
