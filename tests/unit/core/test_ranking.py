import math
import random
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from corbits_memory.core.enums import TemporalClass
from corbits_memory.core.ranking import (
    DEFAULT_CONSTANTS,
    PART_NAMES,
    Candidate,
    Neighbours,
    QueryContext,
    Scored,
    calibrate_rerank,
    cosine_floor,
    sample_statistics,
    score_candidates,
)

NOW = datetime(2026, 12, 1, tzinfo=UTC)
QUERY = QueryContext(now=NOW, idf_total=10.0, cosine_lo=0.7)
FULL = 16.0
"""BM25 that covers a query of idf 10 in full."""


def turn(chunk_id: str, bm25: float = 0.0, cosine: float | None = None, **changes: Any) -> Candidate:
    row = Candidate(
        chunk_id=chunk_id,
        document_id=f"doc-{chunk_id}",
        thread="t1",
        bm25=bm25,
        cosine=cosine,
        occurred_at=NOW,
        temporal_class=TemporalClass.STATE,
    )
    return row._replace(**changes)


def note(chunk_id: str, bm25: float = 0.0, cosine: float | None = None, **changes: Any) -> Candidate:
    return turn(chunk_id, bm25, cosine, **{"thread": None, **changes})


def scored(
    *rows: Candidate, query: QueryContext = QUERY, neighbours: Neighbours | None = None
) -> dict[str, Scored]:
    found = score_candidates(rows, query, neighbours=neighbours)
    return {item.candidate.chunk_id: item for item in found}


def part(name: str, *rows: Candidate, of: str, **more: Any) -> float:
    parts: Mapping[str, float] = scored(*rows, **more)[of].parts
    return parts[name]


# --- x ------------------------------------------------------------------------------------------------


def test_x_is_the_convex_sum_of_both_channels() -> None:
    found = scored(note("a", FULL / 2, 0.8), note("b", 0.0, 0.9))
    assert found["a"].lexical == pytest.approx(0.5)
    assert found["a"].dense == pytest.approx(0.5)
    assert found["a"].x == pytest.approx(0.48 * 0.5 + 0.52 * 0.5)
    assert found["b"].x == pytest.approx(0.48)


def test_both_channels_are_clamped() -> None:
    found = scored(note("a", 10 * FULL, 0.95), note("b", 0.0, 0.1))
    assert found["a"].x == pytest.approx(1.0)
    assert (found["b"].dense, found["b"].x) == (0.0, 0.0)


def test_without_vectors_the_words_decide_alone() -> None:
    found = scored(note("a", FULL / 4), note("b", FULL / 2))
    assert (found["a"].x, found["b"].x) == pytest.approx((0.25, 0.5))
    assert found["a"].dense is None


def test_a_row_without_a_vector_is_judged_by_its_words_alone() -> None:
    found = scored(note("a", FULL / 2), note("b", FULL / 2, 0.9))
    assert found["a"].x == pytest.approx(0.5)
    assert found["b"].x == pytest.approx(0.48 + 0.26)


def test_a_query_without_words_is_judged_by_meaning_alone() -> None:
    found = scored(note("a", 0.0, 0.8), note("b", 0.0, 0.9), query=replace(QUERY, idf_total=0.0))
    assert (found["a"].x, found["b"].x) == pytest.approx((0.5, 1.0))


def test_equal_cosines_at_the_floor_do_not_divide_by_zero() -> None:
    found = scored(note("a", 0.0, 0.7), note("b", 0.0, 0.7))
    assert found["a"].x == 0.0


def test_the_models_default_stands_in_for_a_missing_floor() -> None:
    query = replace(QUERY, cosine_lo=None, default_lo=0.8)
    assert scored(note("a", 0.0, 0.85), note("b", 0.0, 0.9), query=query)["a"].dense == pytest.approx(0.5)


# --- context ------------------------------------------------------------------------------------------


def test_neighbours_lend_their_relevance_by_distance() -> None:
    rows = [turn(f"c{n}", FULL) for n in range(9)]
    beside = {"c4": tuple((n - 4, f"c{n}") for n in range(9) if n != 4)}
    around = part("neighbours", *rows, of="c4", neighbours=beside)
    assert around == pytest.approx(2 * (0.1 + 0.1 + 0.05))


def test_only_true_neighbours_count() -> None:
    rows = [turn("a"), turn("other-thread", FULL, thread="t2"), note("no-thread", FULL), note("n")]
    beside = {
        "a": ((1, "other-thread"), (-1, "no-thread"), (1, "absent"), (0, "a")),
        "n": ((1, "no-thread"),),
    }
    assert part("neighbours", *rows, of="a", neighbours=beside) == 0.0
    assert part("neighbours", *rows, of="n", neighbours=beside) == 0.0


def test_chunks_of_one_document_are_neighbours_without_a_thread() -> None:
    rows = [note("a", document_id="d", ends_with_question=True), note("b", FULL, document_id="d")]
    beside = {"a": ((1, "b"),), "b": ((-1, "a"),)}
    assert part("neighbours", *rows, of="a", neighbours=beside) == pytest.approx(0.1)
    assert part("answer", *rows, of="b", neighbours=beside) == 0.0


def test_a_thread_gives_its_best_to_all_its_turns() -> None:
    rows = [turn("a", FULL / 2), turn("b"), turn("c", thread="t2"), note("n", FULL / 4)]
    found = scored(*rows)
    assert [found[key].parts["thread"] for key in "abcn"] == pytest.approx([0.5, 0.5, 0.0, 0.25])


def test_two_notes_do_not_share_a_thread() -> None:
    assert part("thread", note("a", FULL), note("b"), of="b") == 0.0


def test_the_named_author_gets_a_bonus() -> None:
    query = replace(QUERY, query_words=frozenset({"what", "does", "maria", "like"}))
    rows = [turn("a", author="Maria"), turn("b", author="Tom"), note("c", author="Maria")]
    found = scored(*rows, query=query)
    assert [found[key].parts["participant"] for key in "abc"] == [0.06, 0.0, 0.0]


@pytest.mark.parametrize(
    ("author", "query_words", "named"),
    [
        ("Maria Lopez", {"lopez"}, True),
        ("Maria Lopez", {"maria"}, True),
        ("Maria de Lopez", {"de"}, False),
        ("M. Lopez", {"m"}, False),
        ("X", {"x"}, True),
        ("张三", {"张三"}, True),
        ("!", {"!"}, False),
        ("Tom", {"tomorrow"}, False),
    ],
)
def test_whom_a_query_names(author: str, query_words: set[str], named: bool) -> None:
    query = replace(QUERY, query_words=frozenset(query_words))
    rows = [turn("a", author=author), turn("b", author="Someone Else")]
    assert bool(part("participant", *rows, of="a", query=query)) is named


def test_a_name_says_nothing_where_all_rows_have_it() -> None:
    query = replace(QUERY, query_words=frozenset({"maria"}))
    rows = [turn("a", author="Maria"), turn("b", author="Maria"), note("c", author="Tom")]
    assert part("participant", *rows, of="a", query=query) == 0.0


def test_an_answer_follows_its_question() -> None:
    rows = [turn("q", FULL, ends_with_question=True), turn("a"), turn("later")]
    beside = {"a": ((-1, "q"), (1, "later")), "later": ((-2, "q"), (-1, "a")), "q": ((1, "a"),)}
    found = scored(*rows, neighbours=beside)
    assert [found[key].parts["answer"] for key in ("q", "a", "later")] == pytest.approx([0, 0.2, 0])
    assert [found[key].parts["question"] for key in ("q", "a", "later")] == pytest.approx([-0.1, 0, 0])


def test_a_note_may_end_with_a_question() -> None:
    assert part("question", note("a", ends_with_question=True), of="a") == 0.0


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, 0.0), (1, 0.03 * math.log(2)), (53, 0.03 * math.log(54)), (54, 0.12), (5000, 0.12)],
)
def test_very_short_texts_say_little(count: int, expected: float) -> None:
    assert part("length", note("a", words=count), of="a") == pytest.approx(expected)


# --- priors -------------------------------------------------------------------------------------------


def test_a_neutral_row_has_neutral_priors() -> None:
    parts = scored(note("a", FULL, authority=0.5))["a"].parts
    assert (parts["authority"], parts["corroboration"], parts["temporal"]) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ({"authority": 0.8}, {"authority": 0.3}),
        ({"supports": 2}, {}),
        ({}, {"contradicts": 1}),
        (
            {"temporal_class": TemporalClass.EVENT},
            {"temporal_class": TemporalClass.EVENT, "occurred_at": NOW - timedelta(days=60)},
        ),
        (
            {"temporal_class": TemporalClass.DEADLINE, "valid_until": NOW + timedelta(days=1)},
            {"temporal_class": TemporalClass.DEADLINE, "valid_until": NOW - timedelta(days=3)},
        ),
    ],
)
def test_priors_decide_between_rows_that_are_alike(better: dict[str, Any], worse: dict[str, Any]) -> None:
    rows = [note("a", FULL / 2, **worse), note("b", FULL / 2, **better)]
    assert [item.candidate.chunk_id for item in score_candidates(rows, QUERY)] == ["b", "a"]


def test_priors_do_not_carry_an_irrelevant_row_over_a_relevant_one() -> None:
    rows = [
        note("relevant", FULL / 2, authority=0.18, contradicts=4),
        note("loved", FULL / 8, authority=1.0, supports=4),
    ]
    assert score_candidates(rows, QUERY)[0].candidate.chunk_id == "relevant"


def test_every_prior_stays_in_its_envelope() -> None:
    constants = replace(DEFAULT_CONSTANTS, authority_weight=1, corroboration_weight=1, temporal_weight=1)
    extremes = [
        note("a", FULL, authority=1.0, supports=9, temporal_class=TemporalClass.EVENT),
        note(
            "b", FULL, authority=0.0, contradicts=9, valid_until=NOW, occurred_at=NOW - timedelta(days=9999)
        ),
    ]
    for item in score_candidates(extremes, QUERY, constants):
        for name in ("authority", "corroboration", "temporal"):
            assert 0.7 <= item.parts[name] <= 1.3


# --- the whole ----------------------------------------------------------------------------------------


def test_the_parts_explain_the_score() -> None:
    query = replace(QUERY, query_words=frozenset({"maria"}))
    rows = [
        turn("q", FULL / 2, 0.8, author="Tom", ends_with_question=True, words=7),
        turn("a", FULL / 4, 0.9, author="Maria", words=20, supports=1, authority=0.42),
    ]
    for item in score_candidates(rows, query, neighbours={"a": ((-1, "q"),), "q": ((1, "a"),)}):
        values = list(item.parts.values())
        assert tuple(item.parts) == PART_NAMES
        assert item.score == pytest.approx(sum(values[:7]) * math.prod(values[7:]))


def test_a_score_is_never_negative() -> None:
    assert scored(turn("a", ends_with_question=True))["a"].score == 0.0


def test_ties_go_by_chunk_id() -> None:
    rows = [note("b", FULL), note("a", FULL), note("c", FULL)]
    assert [item.candidate.chunk_id for item in score_candidates(rows, QUERY)] == ["a", "b", "c"]


def test_no_candidates_no_scores() -> None:
    assert score_candidates([], QUERY) == []


def test_notes_and_turns_compare() -> None:
    """A note that covers the query as well as the best turn of a thread is not drowned by the thread."""
    rows = [turn("t-best", FULL / 2), *[turn(f"t{n}") for n in range(5)], note("n", FULL / 2)]
    assert {item.candidate.chunk_id for item in score_candidates(rows, QUERY)[:2]} == {"t-best", "n"}


def test_a_rerankers_score_is_mixed_with_x() -> None:
    rows = [note("a", FULL / 2), note("b", FULL / 4), note("c", FULL / 4)]
    found = score_candidates(rows, QUERY, rerank={"a": 0.1, "b": 0.9, "absent": 1.0})
    xs = {item.candidate.chunk_id: item.x for item in found}
    assert xs == pytest.approx({"a": 0.3, "b": 0.575, "c": 0.25})


def test_calibrated_rerank_scores() -> None:
    assert calibrate_rerank({"a": 0.0, "b": 1.0}) == {"a": 0.0, "b": 1.0}
    logits = calibrate_rerank({"a": 0.0, "b": 2.0, "c": -2.0, "d": math.nan, "e": math.inf})
    assert logits == pytest.approx({"a": 0.5, "b": 1 / (1 + math.exp(-2)), "c": 1 / (1 + math.exp(2))})
    assert calibrate_rerank({"a": -1e9}) == {"a": 0.0}
    assert calibrate_rerank({}) == {}


# --- the sample ---------------------------------------------------------------------------------------


def test_the_floor_of_a_full_sample() -> None:
    sample = [0.7, 0.8] * 32
    assert cosine_floor(sample, 0.0) == pytest.approx(0.75 - 3 * 0.05)
    assert cosine_floor(sample * 2, 0.0) == pytest.approx(0.6)


@pytest.mark.parametrize(("pairs", "expected"), [(0, 0.5), (16, 0.55), (31, 0.6 * 62 / 64 + 0.5 * 2 / 64)])
def test_a_small_sample_is_blended_with_the_models_default(pairs: int, expected: float) -> None:
    assert cosine_floor([0.7, 0.8] * pairs, 0.5) == pytest.approx(expected)


def test_statistics_of_a_sample() -> None:
    assert sample_statistics([]) == (0.0, 0.0)
    assert sample_statistics([0.5]) == (0.5, 0.0)
    assert sample_statistics([0.7, 0.8]) == pytest.approx((0.75, 0.05))


# --- speed --------------------------------------------------------------------------------------------


def test_four_hundred_candidates_take_milliseconds() -> None:
    draw = random.Random(7)
    rows, beside = [], {}
    for n in range(400):
        rows.append(
            turn(
                f"c{n}",
                FULL * draw.random(),
                0.7 + 0.2 * draw.random(),
                thread=f"t{n // 40}",
                author=draw.choice(["Maria", "Tom"]),
                ends_with_question=draw.random() < 0.3,
                temporal_class=TemporalClass.EVENT,
            )
        )
        beside[f"c{n}"] = tuple((step, f"c{n + step}") for step in (-3, -2, -1, 1, 2, 3))
    best = math.inf
    for _ in range(10):
        start = time.process_time()
        score_candidates(rows, replace(QUERY, query_words=frozenset({"maria"})), neighbours=beside)
        best = min(best, time.process_time() - start)
    assert best < 0.02  # 2 ms on a quiet machine
