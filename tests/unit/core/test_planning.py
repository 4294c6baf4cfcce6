import pytest

from corbits_memory.core import limits
from corbits_memory.core.chunking import ChunkCaps
from corbits_memory.core.enums import CreatedByKind, LineageClass, Provenance, TemporalClass
from corbits_memory.core.planning import (
    InvalidTextError,
    PlannedChunk,
    plan_chunks,
    resolve_attribution,
    split_long_part,
    validate_text,
)


def test_ordinals_run_on_and_roles_are_inherited() -> None:
    chunks = plan_chunks([("x" * 6000, "user"), ("", "user"), ("hello", "assistant"), ("bye", None)])
    assert [(chunk.ordinal, len(chunk.text), chunk.role) for chunk in chunks] == [
        (0, 2800, "user"),
        (1, 2800, "user"),
        (2, 400, "user"),
        (3, 5, "assistant"),
        (4, 3, None),
    ]


def test_parts_are_chunked_with_the_given_caps() -> None:
    chunks = plan_chunks([("ab cd ef", None)], ChunkCaps(1, 0, 0))
    assert chunks == (
        PlannedChunk(0, "ab ", None, 1),
        PlannedChunk(1, "cd ", None, 1),
        PlannedChunk(2, "ef", None, 1),
    )


def test_a_document_may_have_no_chunks() -> None:
    assert plan_chunks([]) == ()


def test_a_text_at_the_limit_is_one_part() -> None:
    assert split_long_part("x" * limits.CHUNK_CHARS) == ["x" * limits.CHUNK_CHARS]
    assert [len(part) for part in split_long_part("x" * (limits.CHUNK_CHARS + 1))] == [limits.CHUNK_CHARS, 1]
    assert split_long_part("") == []


@pytest.mark.parametrize("separator", ["\n\n", "\n", ". ", "。", " "])
def test_a_long_text_is_cut_after_a_natural_separator(separator: str) -> None:
    text = separator.join(["word"] * 20)
    parts = split_long_part(text, 30)
    assert "".join(parts) == text
    assert all(len(part) <= 30 for part in parts)
    assert all(part.endswith(separator) for part in parts[:-1])


def test_a_blank_line_goes_before_a_later_space() -> None:
    assert split_long_part("aaaa aaa\n\nbb bb bb", 14)[0] == "aaaa aaa\n\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [("a\x00b", "NUL at character 1"), ("ab\ud800", "surrogate at character 2"), ("\udfff", "surrogate")],
)
def test_unstorable_characters_are_named(text: str, problem: str) -> None:
    with pytest.raises(InvalidTextError, match=f"title: .*{problem}"):
        validate_text(text, "title")


def test_any_other_text_passes() -> None:
    text = "\x01 \ud7ff \ue000 \U0001f600 \u200b"
    assert validate_text(text, "text") is text


def test_without_generator_a_human_states_an_event() -> None:
    found = resolve_attribution()
    assert (found.created_by_kind, found.provenance) == (CreatedByKind.HUMAN, Provenance.STATED)
    assert (found.lineage_class, found.temporal_class) == (LineageClass.NATIVE, TemporalClass.EVENT)


def test_a_generator_makes_an_agents_inferred_derived_state() -> None:
    found = resolve_attribution(generator_agent_id="distiller")
    assert (found.created_by_kind, found.provenance) == (CreatedByKind.AGENT, Provenance.INFERRED)
    assert (found.lineage_class, found.temporal_class) == (LineageClass.DERIVED, TemporalClass.STATE)


def test_a_blank_generator_is_none() -> None:
    assert resolve_attribution(generator_agent_id="  ") == resolve_attribution()


def test_what_the_caller_gave_stays() -> None:
    found = resolve_attribution(
        generator_agent_id="g",
        created_by_kind=CreatedByKind.SYSTEM,
        provenance=Provenance.UNKNOWN,
        lineage_class=LineageClass.IMPORTED,
        temporal_class=TemporalClass.LESSON,
    )
    assert found.created_by_kind is CreatedByKind.SYSTEM
    assert found.provenance is Provenance.UNKNOWN
    assert found.lineage_class is LineageClass.IMPORTED
    assert found.temporal_class is TemporalClass.LESSON


def test_an_inferred_text_of_a_human_is_a_state() -> None:
    found = resolve_attribution(provenance=Provenance.INFERRED)
    assert (found.created_by_kind, found.temporal_class) == (CreatedByKind.HUMAN, TemporalClass.STATE)
