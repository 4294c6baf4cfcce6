"""Properties of the pure core that hold for any input."""

import string
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from corbits_memory.core import hashing, ids
from corbits_memory.core.chunking import CHARS_PER_TOKEN, ChunkCaps, chunk_text
from corbits_memory.core.diversity import MmrItem, jaccard, mmr
from corbits_memory.core.enums import TemporalClass
from corbits_memory.core.fusion import reciprocal_rank_fusion
from corbits_memory.core.planning import plan_chunks, split_long_part
from corbits_memory.core.ranking import Candidate, QueryContext, score_candidates
from corbits_memory.core.restatements import Said, Signature
from corbits_memory.core.snippets import compat_snippet, snippet
from corbits_memory.core.temporal import temporal_multiplier, temporal_prior
from corbits_memory.core.text import ends_with_question, normalise, parse_query, word_count, words

NOW = datetime(2026, 12, 1, tzinfo=UTC)

texts = st.one_of(
    st.text(max_size=400),
    st.lists(
        st.sampled_from(
            ["word", " ", ". ", "\n", "\n\n", "猫が好き", "학교에서", "x" * 30, "CL-5868", "é", "?"]
        ),
        max_size=120,
    ).map("".join),
)


@st.composite
def chunk_caps(draw: st.DrawFn) -> ChunkCaps:
    most = draw(st.integers(1, 12))
    return ChunkCaps(most, draw(st.integers(0, most)), draw(st.integers(0, most - 1)))


# --- ids and hashes -----------------------------------------------------------------------------------

uuids = st.integers(0, 2**128 - 1).map(lambda number: uuid.UUID(int=number))


@given(uuids)
def test_an_id_comes_back(value: uuid.UUID) -> None:
    assert ids.decode_id(ids.CHUNK, ids.encode_id(ids.CHUNK, value)) == value


@given(uuids, uuids)
def test_text_order_of_ids_is_integer_order(left: uuid.UUID, right: uuid.UUID) -> None:
    as_text = ids.encode_id(ids.CHUNK, left) < ids.encode_id(ids.CHUNK, right)
    assert as_text == (left.int < right.int)


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**53) + 1, 2**53 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
)


@given(st.dictionaries(st.text(max_size=5), scalars, max_size=6))
def test_canonical_json_does_not_depend_on_key_order(value: dict[str, Any]) -> None:
    turned = dict(reversed(list(value.items())))
    assert hashing.canonical_json(value) == hashing.canonical_json(turned)


@given(st.lists(st.text(max_size=4), max_size=4), st.lists(st.text(max_size=4), max_size=4))
def test_other_parts_have_another_key(left: list[str], right: list[str]) -> None:
    def key(parts: list[str]) -> str:
        return hashing.noop_key(
            hashing.ContentFields(title="T", kind="note", parts=[(text, None) for text in parts])
        )

    assert (key(left) == key(right)) == (left == right)


# --- chunks -------------------------------------------------------------------------------------------


@given(texts, chunk_caps())
def test_chunks_cover_the_text_in_order(text: str, caps: ChunkCaps) -> None:
    chunks = chunk_text(text, caps)
    assert [chunk.ordinal for chunk in chunks] == list(range(len(chunks)))
    reached = 0
    for chunk in chunks:
        assert chunk.text == text[chunk.start : chunk.end]
        assert chunk.start <= reached < chunk.end
        reached = chunk.end
    assert reached == len(text)


@given(texts, chunk_caps())
def test_chunks_keep_the_caps(text: str, caps: ChunkCaps) -> None:
    most, least, overlap = (
        CHARS_PER_TOKEN * cap for cap in (caps.max_tokens, caps.min_tokens, caps.overlap_tokens)
    )
    chunks = chunk_text(text, caps)
    reached = 0
    for chunk in chunks:
        repeated = reached - chunk.start
        assert repeated <= overlap
        remnant = least if chunk is chunks[-1] else 0
        assert chunk.end - reached <= most + max(0, remnant - 1)
        reached = chunk.end


@given(st.lists(st.tuples(texts, st.none() | st.text(max_size=3)), max_size=4), chunk_caps())
def test_planned_ordinals_run_on(parts: list[tuple[str, str | None]], caps: ChunkCaps) -> None:
    planned = plan_chunks(parts, caps)
    assert [chunk.ordinal for chunk in planned] == list(range(len(planned)))
    assert len(planned) == sum(len(chunk_text(text, caps)) for text, _ in parts)


@given(texts, st.integers(1, 50))
def test_parts_of_a_long_text_add_up(text: str, limit: int) -> None:
    parts = split_long_part(text, limit)
    assert "".join(parts) == text
    assert all(0 < len(part) <= limit for part in parts)


# --- text ---------------------------------------------------------------------------------------------


@given(texts)
def test_normalised_text_is_words_and_single_spaces(text: str) -> None:
    found = normalise(text)
    assert found == " ".join(found.split())
    assert not set(found) & set(string.punctuation)


@given(texts, texts)
def test_words_do_not_depend_on_what_stands_beside(left: str, right: str) -> None:
    assert words(f"{left}\n{right}") == words(left) + words(right)


@given(st.text(max_size=200))
def test_reading_a_query_never_fails(text: str) -> None:
    parsed = parse_query(text)
    assert parsed.text == " ".join(parsed.text.split())
    assert isinstance(ends_with_question(text), bool)
    assert word_count(text) >= 0


@given(st.text(alphabet="abc \n.", max_size=600), st.lists(st.text(alphabet="abc", max_size=5), max_size=4))
def test_a_snippet_is_part_of_the_text(text: str, terms: list[str]) -> None:
    for found in (snippet(text, terms, 60), compat_snippet(text)):
        assert found.strip("…") in text
    assert len(snippet(text, terms, 60)) <= 62


# --- fusion and diversity -----------------------------------------------------------------------------

channels = st.lists(st.lists(st.integers(0, 20), unique=True, max_size=15), max_size=3)


@given(channels)
def test_fusion_keeps_every_key_once_and_falls(lists: list[list[int]]) -> None:
    fused = reciprocal_rank_fusion(lists)
    assert {item.key for item in fused} == {key for keys in lists for key in keys}
    assert len({item.key for item in fused}) == len(fused)
    scores = [item.score for item in fused]
    assert scores == sorted(scores, reverse=True)
    assert all(score <= len(lists) / 61 + 1e-12 for score in scores)


@given(st.lists(st.integers(0, 20), unique=True, max_size=15))
def test_fusing_a_list_with_itself_keeps_its_order(keys: list[int]) -> None:
    assert [item.key for item in reciprocal_rank_fusion([keys, keys])] == keys


@given(st.lists(st.tuples(st.floats(0, 1), st.lists(st.floats(-1, 1), min_size=2, max_size=2)), max_size=8))
def test_mmr_loses_nothing(rows: list[tuple[float, list[float]]]) -> None:
    items = [MmrItem(key=f"k{n}", score=score, vector=vector) for n, (score, vector) in enumerate(rows)]
    picked = mmr(items, k=len(items), lam=0.5)
    assert sorted(item.key for item in picked) == sorted(item.key for item in items)
    by_score = mmr(items, k=len(items), lam=1.0)
    assert [item.score for item in by_score] == sorted((item.score for item in items), reverse=True)


@given(
    st.lists(st.tuples(st.integers(0, 6), st.frozensets(st.sampled_from("abcd"))), max_size=10, unique_by=id),
    st.integers(0, 12),
    st.sampled_from((0.0, 0.1, 0.5, 0.9, 1.0)),
    st.integers(0, 3),
)
def test_mmr_picks_what_comparing_all_with_all_would(
    rows: list[tuple[int, frozenset[str]]], k: int, lam: float, earlier: int
) -> None:
    items = [MmrItem(key=f"k{n}", score=score / 3, tokens=tokens) for n, (score, tokens) in enumerate(rows)]
    before, left = items[:earlier], items[earlier:]
    scale = max((item.score for item in left), default=0.0) or 1.0
    picks, expected = list(before), list[MmrItem]()
    while left and len(expected) < k:
        worth = {
            item.key: lam * item.score / scale
            - (1.0 - lam) * max((jaccard(item.tokens, pick.tokens) for pick in picks), default=0.0)
            for item in left
        }
        best = min(left, key=lambda item: (-worth[item.key], -item.score, item.key))
        left.remove(best)
        picks.append(best)
        expected.append(best)
    assert mmr(items[earlier:], k=k, lam=lam, before=before) == expected


statements = st.lists(st.sampled_from(["tea", "milk", "5", "6", "!", "?"]), max_size=12).map(" ".join)


@given(st.lists(texts | statements, max_size=8), st.sampled_from((0.1, 0.5, 0.9, 1.0)))
def test_a_restatement_is_what_says_the_same_as_one_before(several: list[str], threshold: float) -> None:
    said, before = Said(threshold), list[Signature]()
    for text in several:
        signature = Signature.of(text)
        assert said.has(signature) == any(signature.says_the_same(other, threshold) for other in before)
        said.add(signature)
        before.append(signature)


# --- time ---------------------------------------------------------------------------------------------

days = st.floats(-400, 400).map(lambda number: timedelta(days=number))


@given(st.sampled_from(TemporalClass), days, st.none() | days)
def test_time_stays_in_its_envelope(kind: TemporalClass, age: timedelta, left: timedelta | None) -> None:
    for prior in (temporal_multiplier, temporal_prior):
        found = prior(kind, now=NOW, occurred_at=NOW - age, valid_until=None if left is None else NOW + left)
        assert 0.7 <= found <= 1.3


@given(days)
def test_a_deadline_has_no_cliff_in_default(left: timedelta) -> None:
    def prior(until: datetime) -> float:
        return temporal_prior(TemporalClass.DEADLINE, now=NOW, occurred_at=NOW, valid_until=until)

    step = timedelta(minutes=1)
    assert prior(NOW + left) == pytest.approx(prior(NOW + left + step), abs=0.001)


# --- ranking ------------------------------------------------------------------------------------------


@st.composite
def candidate_rows(draw: st.DrawFn) -> list[Candidate]:
    count = draw(st.integers(1, 12))
    return [
        Candidate(
            chunk_id=f"c{n:02}",
            document_id=f"d{draw(st.integers(0, 8))}",
            thread=draw(st.sampled_from([None, "t1", "t2"])),
            author=draw(st.sampled_from([None, "Maria", "Tom"])),
            ends_with_question=draw(st.booleans()),
            words=draw(st.integers(0, 100)),
            bm25=draw(st.floats(0, 40)),
            cosine=draw(st.none() | st.floats(0.6, 0.9)),
            authority=draw(st.floats(0, 1)),
            supports=draw(st.integers(0, 5)),
            contradicts=draw(st.integers(0, 5)),
            temporal_class=draw(st.sampled_from(TemporalClass)),
            occurred_at=NOW - draw(days),
        )
        for n in range(count)
    ]


QUERY = QueryContext(now=NOW, idf_total=10, query_words=frozenset({"maria"}), cosine_lo=0.6)


def all_pairs(rows: list[Candidate]) -> dict[str, tuple[tuple[int, str], ...]]:
    places = {row.chunk_id: place for place, row in enumerate(rows)}
    return {
        row.chunk_id: tuple(
            (places[other.chunk_id] - places[row.chunk_id], other.chunk_id)
            for other in rows
            if 0 < abs(places[other.chunk_id] - places[row.chunk_id]) <= 3
        )
        for row in rows
    }


@given(candidate_rows(), st.randoms(use_true_random=False))
def test_the_order_of_candidates_never_matters(rows: list[Candidate], shuffle: Any) -> None:
    beside = all_pairs(rows)
    shuffled = list(rows)
    shuffle.shuffle(shuffled)
    assert score_candidates(shuffled, QUERY, neighbours=beside) == score_candidates(
        rows, QUERY, neighbours=beside
    )


@settings(max_examples=200)
@given(candidate_rows(), st.floats(0, 40), st.floats(0.5, 0.6))
def test_an_unrelated_row_of_another_thread_lowers_no_score(
    rows: list[Candidate], bm25: float, cosine: float
) -> None:
    stranger = Candidate(
        chunk_id="stranger",
        document_id="stranger",
        thread="elsewhere",
        author="Eve",
        bm25=bm25,
        cosine=cosine,
        occurred_at=NOW,
    )
    beside = all_pairs(rows)
    before = {
        item.candidate.chunk_id: item.score for item in score_candidates(rows, QUERY, neighbours=beside)
    }
    after = {
        item.candidate.chunk_id: item.score
        for item in score_candidates([*rows, stranger], QUERY, neighbours=beside)
    }
    assert all(after[chunk_id] >= score for chunk_id, score in before.items())


@given(candidate_rows())
def test_scores_fall_and_own_relevance_is_a_share(rows: list[Candidate]) -> None:
    found = score_candidates(rows, QUERY, neighbours=all_pairs(rows))
    assert [item.score for item in found] == sorted((item.score for item in found), reverse=True)
    assert all(0 <= item.x <= 1 and item.score >= 0 for item in found)


@given(candidate_rows(), st.integers(0, 11), st.floats(0.1, 10))
def test_more_of_the_query_in_a_row_never_lowers_it(rows: list[Candidate], at: int, more: float) -> None:
    row = rows[at % len(rows)]
    richer = [other._replace(bm25=other.bm25 + more) if other is row else other for other in rows]
    beside = all_pairs(rows)

    def score(several: list[Candidate]) -> float:
        found = score_candidates(several, QUERY, neighbours=beside)
        return next(item.score for item in found if item.candidate.chunk_id == row.chunk_id)

    assert score(richer) >= score(rows)


simple_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(simple_json)
def test_canonical_json_is_what_the_library_of_the_standard_writes(value: Any) -> None:
    assert hashing.canonical_json(value) == rfc8785.dumps(value).decode()


@given(st.integers(0, 2**128 - 1))
def test_ids_are_the_base_62_digits_of_their_number(number: int) -> None:
    digits, rest = "", number
    for _ in range(ids.DIGITS):
        rest, digit = divmod(rest, 62)
        digits = ids.ALPHABET[digit] + digits
    assert ids.encode_id(ids.CHUNK, uuid.UUID(int=number)) == f"kchk_{digits}"


@given(st.text(st.characters(max_codepoint=127), max_size=80))
def test_words_of_ascii_are_counted_as_those_of_any_text(text: str) -> None:
    assert word_count(text) == word_count(f"{text} é") - 1
