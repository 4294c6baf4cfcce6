from datetime import UTC, datetime

from corbits_memory.core.passages import passage_text

MAY = datetime(2026, 5, 7, 23, 30, tzinfo=UTC)


def test_a_note_has_its_title_in_front() -> None:
    assert passage_text("Tea", "Maria likes it.") == "Tea\nMaria likes it."


def test_a_title_that_the_text_begins_with_is_not_repeated() -> None:
    assert passage_text("Maria likes", " Maria likes tea.") == " Maria likes tea."


def test_a_blank_title_adds_nothing() -> None:
    assert passage_text("", "text") == "text"


def test_a_turn_with_a_date() -> None:
    assert passage_text("Chat", "I like tea.", "Maria", MAY) == "(2026-05-07) Maria: I like tea."


def test_a_turn_without_a_date_has_the_title_first() -> None:
    assert passage_text("Chat", "I like tea.", "Maria") == "Chat\nMaria: I like tea."


def test_a_date_without_author_changes_nothing() -> None:
    assert passage_text("Tea", "text", None, MAY) == "Tea\ntext"


def test_the_previous_turn_goes_in_front() -> None:
    found = passage_text("Chat", "Tea!", "Maria", MAY, ("Tom", "What do you like?"))
    assert found == "Tom: What do you like?\n(2026-05-07) Maria: Tea!"


def test_a_long_previous_turn_is_cut_from_its_front() -> None:
    found = passage_text("Chat", "Yes", "Maria", MAY, (None, "a" + "b" * 600))
    assert found == "b" * 600 + "\n(2026-05-07) Maria: Yes"


def test_nul_is_left_out() -> None:
    assert passage_text("T\x00", "a\x00b", None, None, ("A\x00", "c\x00")) == "A: c\nT\nab"
