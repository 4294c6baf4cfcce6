"""Claims, their names, and the gates: pure."""

import pytest

from corbits_memory.core.enums import LineageClass, VersionStatus
from corbits_memory.distiller import (
    DISTILLER_AGENT_ID,
    DistillEntry,
    build_distilled_claim,
    claim_ref,
    create_resident_distiller,
    resolve_next_cursor,
    should_process_feed_entry,
    worth_distilling,
)
from corbits_memory.errors import InvalidInputError
from corbits_memory.wire.feed import FeedResponse
from tests.distiller.support import write

PAGE = FeedResponse(entries=[], next_cursor=3, has_more=False)


def entry(**fields: object) -> DistillEntry:
    return DistillEntry(seq=1, version_id="v1", **fields)  # type: ignore[arg-type]


def test_a_claim_has_the_tags_of_its_source_and_says_that_it_is_inferred() -> None:
    assert build_distilled_claim(
        title="T",
        text="x",
        source_access_tags=["memory.owner:u1", "b:2"],
        derived_from_version_ids=["v1"],
    ) == {
        "title": "T",
        "text": "x",
        "access_tags": ["memory.owner:u1", "b:2"],
        "generator_agent_id": "resident-distiller",
        "provenance": "inferred",
        "lineage_class": "derived",
        "derived_from": ["v1"],
    }


def test_what_else_a_claim_says_stands_in_it_only_when_given() -> None:
    body = build_distilled_claim(
        title="T",
        text="x",
        source_access_tags=[],
        derived_from_version_ids=["v1"],
        generator_agent_id="mine",
        kind="fact",
        temporal_class="state",
        valid_from="2026-01-01",
        valid_until="2026-02-01",
        supports=["v2"],
        contradicts=["v3"],
        external_ref="r",
    )
    assert {name: body[name] for name in ("kind", "temporal_class", "valid_from", "valid_until")} == {
        "kind": "fact",
        "temporal_class": "state",
        "valid_from": "2026-01-01",
        "valid_until": "2026-02-01",
    }
    assert (body["supports"], body["contradicts"]) == (["v2"], ["v3"])
    assert (body["external_ref"], body["adapter"], body["generator_agent_id"]) == ("r", "distiller", "mine")


@pytest.mark.parametrize("bad", [{"title": " "}, {"text": ""}, {"derived_from_version_ids": []}])
def test_a_claim_of_nothing_is_refused(bad: dict[str, object]) -> None:
    given = {"title": "T", "text": "x", "source_access_tags": [], "derived_from_version_ids": ["v1"], **bad}
    with pytest.raises(InvalidInputError):
        build_distilled_claim(**given)  # type: ignore[arg-type]


def test_a_claims_name_is_that_of_its_sources_and_its_maker() -> None:
    name = claim_ref(["a", "b"], generator_agent_id="g")
    assert name == claim_ref(["b", "a"], generator_agent_id="g")
    others = [
        claim_ref(["ab"], generator_agent_id="g"),
        claim_ref(["a", "b"], generator_agent_id="h"),
        claim_ref(["a", "b"], generator_agent_id="g", claims_of="ann"),
        claim_ref(["a"], generator_agent_id="g", claims_of="b"),
    ]
    assert len({name, *others}) == 5


def test_nobody_distils_its_own() -> None:
    assert should_process_feed_entry(entry())
    assert should_process_feed_entry(entry(generator_agent_id="other"))
    assert not should_process_feed_entry(entry(generator_agent_id=DISTILLER_AGENT_ID))
    assert not should_process_feed_entry(entry(generator_agent_id="mine"), "mine")


@pytest.mark.parametrize(
    ("fields", "worth"),
    [
        ({}, True),
        ({"generator_agent_id": "other"}, True),
        ({"source_class": LineageClass.DERIVED}, True),
        ({"source_class": LineageClass.DERIVED, "generator_agent_id": "other"}, False),
        ({"status": VersionStatus.SUPERSEDED}, False),
        ({"generator_agent_id": DISTILLER_AGENT_ID}, False),
    ],
)
def test_what_was_replaced_and_what_agents_concluded_is_not_worth_it(
    fields: dict[str, object], worth: bool
) -> None:
    assert worth_distilling(entry(**fields)) is worth


def test_the_next_cursor_is_the_pages_whatever_was_in_it() -> None:
    assert resolve_next_cursor(PAGE) == resolve_next_cursor(PAGE, poison=True) == 3


def test_the_workflow_names_the_agent_that_was_configured_and_never_the_default() -> None:
    made = create_resident_distiller(
        None,  # type: ignore[arg-type]
        distill=write,
        cursors=None,  # type: ignore[arg-type]
        tenant_id="acme",
        principal_id="ann",
        agent_id="mine",
        extra_tools=["memory_history"],
    ).workflow
    assert made.id == "resident-memory-distiller"
    assert made.cron == "*/5 * * * *"
    assert made.tools == ("memory_feed", "memory_add", "memory_search", "memory_history")
    assert made.capabilities == ("memory:add", "memory:search")
    assert made.tags == ("role:resident-distiller", "package:corbits-memory")
    assert '"mine"' in made.system_prompt
    assert DISTILLER_AGENT_ID not in made.system_prompt
