import time

import pytest

from corbits_memory.core.chunking import ChunkCaps, InvalidChunkCapsError, chunk_text, token_count

SMALL = ChunkCaps(10, 2, 3)


def spans(text: str, caps: ChunkCaps | None = None) -> list[tuple[int, int]]:
    return [(chunk.start, chunk.end) for chunk in chunk_text(text, caps or ChunkCaps())]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("x" * 2800, [(0, 2800)]),
        ("x" * 2801, [(0, 2801)]),
        ("x" * 6000, [(0, 2800), (2800, 5600), (5600, 6000)]),
        ("word " * 1000, [(0, 2800), (2560, 5000)]),
        (" Lorem ipsum dolor. " * 300, [(0, 2800), (2560, 5360), (5120, 6000)]),
        (("p" * 1000 + "\n\n") * 5, [(0, 2004), (2004, 4008), (4008, 5010)]),
        (("p" * 100 + "\n\n") * 60, [(0, 2754), (2550, 5304), (5100, 6120)]),
        ("a" * 2800 + "\n\n" + "b" * 100, [(0, 2902)]),
    ],
)
def test_spans_of_the_default_caps(text: str, expected: list[tuple[int, int]]) -> None:
    assert spans(text) == expected


def test_spans_of_small_caps() -> None:
    expected = [(0, 36), (36, 72), (72, 108), (108, 144), (144, 180)]
    assert spans("alpha beta gamma. " * 10, SMALL) == expected


def test_the_merged_remnant_counts_in_full() -> None:
    (chunk,) = chunk_text("x" * 2801)
    assert (chunk.ordinal, chunk.token_count, len(chunk.text)) == (0, 701, 2801)


def test_a_last_chunk_of_exactly_the_minimum_stays() -> None:
    assert spans("x" * (2800 + 159)) == [(0, 2959)]
    assert spans("x" * (2800 + 160)) == [(0, 2800), (2800, 2960)]


def test_a_group_whose_last_leaf_exceeds_the_overlap_passes_nothing_on() -> None:
    text = "\n\n".join(["p" * 238] * 14)  # leaves of 240 characters: exactly the overlap
    assert spans(text)[1][0] == 2640 - 240
    text = "\n\n".join(["p" * 239] * 14)
    assert spans(text)[1][0] == 241 * 11


@pytest.mark.parametrize(("length", "tokens"), [(0, 1), (1, 1), (4, 1), (5, 2), (2800, 700)])
def test_a_token_is_four_characters(length: int, tokens: int) -> None:
    assert token_count("x" * length) == tokens


@pytest.mark.parametrize("caps", [(0, 0, 0), (10, 11, 0), (10, -1, 0), (10, 2, 10), (10, 2, -1)])
def test_contradicting_caps_are_refused(caps: tuple[int, int, int]) -> None:
    with pytest.raises(InvalidChunkCapsError, match="must be"):
        ChunkCaps(*caps)


def test_smallest_and_widest_caps_pass() -> None:
    assert spans("abcdefgh", ChunkCaps(1, 0, 0)) == [(0, 4), (4, 8)]
    assert spans("ab" * 40, ChunkCaps(10, 10, 9)) == [(0, 40), (40, 80)]


@pytest.mark.parametrize(
    "unit", ["a", "ab. ", "\n", "word and more\n\n"], ids=["word", "sentences", "lines", "paragraphs"]
)
def test_two_million_characters_take_linear_time(unit: str) -> None:
    def seconds(length: int) -> float:
        text = unit * (length // len(unit))
        start = time.process_time()
        assert chunk_text(text)[-1].end == len(text)
        return time.process_time() - start

    small, large = seconds(250_000), seconds(2_000_000)
    assert large < 30 * small + 0.5  # eight times the text; a square would be 64 times
