"""Positions in the timeline: what is written is read again, anything else is none."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from corbits_memory.core.positions import TimelinePosition, parse_position

INSTANTS = st.datetimes(timezones=st.just(UTC))
IDS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=256)


@given(INSTANTS, IDS)
def test_a_position_survives_being_text(at: datetime, version_id: str) -> None:
    position = TimelinePosition(at, version_id)
    assert parse_position(str(position)) == position


@given(st.text())
def test_any_text_is_a_position_or_none(text: str) -> None:
    position = parse_position(text)
    assert position is None or parse_position(str(position)) == position
