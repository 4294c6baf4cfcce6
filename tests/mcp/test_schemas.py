"""The output schemas that MCP clients check results against say what the models say, and no more."""

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from corbits_memory.core.chunking import token_count
from corbits_memory.core.enums import FeedOp
from corbits_memory.tools import TOOLS
from corbits_memory.tools.mcp.schemas import lean_output


class Inner(BaseModel):
    title: str
    seen: int | None = None


class Sample(BaseModel):
    text: str | None
    number: int | None
    op: FeedOp
    maybe: FeedOp | None
    names: list[str] | None = None
    inner: Inner | None = None
    any_of: list[Inner | FeedOp]
    facts: dict[str, Any] | None = None


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from(["", "upsert", "x"]),
    st.just(["a"]),
    st.just([1]),
)
INNER = st.fixed_dictionaries({"title": VALUES}, optional={"seen": VALUES})


@given(
    st.fixed_dictionaries(
        {
            "text": VALUES,
            "number": VALUES,
            "op": VALUES,
            "maybe": VALUES,
            "any_of": st.lists(st.one_of(INNER, VALUES), max_size=2),
        },
        optional={"names": VALUES, "inner": st.one_of(VALUES, INNER), "facts": st.one_of(VALUES, INNER)},
    )
)
def test_the_small_schema_admits_what_the_whole_one_does(value: dict[str, Any]) -> None:
    whole = jsonschema_rs.validator_for(Sample.model_json_schema(mode="serialization"))
    assert jsonschema_rs.validator_for(lean_output(Sample)).is_valid(value) is whole.is_valid(value)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_it_is_much_smaller(tool: Any) -> None:
    lean = lean_output(tool.answer)
    jsonschema_rs.meta.validate(lean)
    assert token_count(json.dumps(lean)) < 0.7 * token_count(json.dumps(tool.output_schema))
