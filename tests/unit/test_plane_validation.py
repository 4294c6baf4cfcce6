"""Every rule of every input, at its limit, below and above."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from corbits_memory.core import limits
from corbits_memory.core.enums import Provenance, RetentionClass, SearchProfile
from corbits_memory.errors import InvalidInputError
from corbits_memory.ports import NewDocument, SearchQuery, Share, TimelineQuery
from corbits_memory.validation import (
    AddInput,
    Content,
    File,
    SearchInput,
    check_batch,
    check_caller,
    check_file,
    new_document,
    search_query,
    timeline_query,
)

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def document(**fields: Any) -> NewDocument:
    tenant_id = fields.pop("tenant_id", "acme")
    content = Content(title=fields.pop("title", "A"), text=fields.pop("text", "b"))
    return new_document(AddInput(content=content, **fields), tenant_id=tenant_id, principal_id="u1")


def query(**fields: Any) -> SearchQuery:
    return search_query(SearchInput(**{"query": "deploy", **fields}), now=NOW)


def problems(caught: pytest.ExceptionInfo[InvalidInputError]) -> list[tuple[str, str]]:
    details = caught.value.details
    assert isinstance(details, list)
    return [(found["field"], found["problem"]) for found in details]


def refused_fields(**fields: Any) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        document(**fields)
    return [field for field, _ in problems(caught)]


# --- documents: text ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "limit"),
    [
        ("title", limits.TITLE_CHARS),
        ("kind", limits.KIND_CHARS),
        ("adapter", limits.ID_CHARS),
        ("external_ref", limits.EXTERNAL_REF_CHARS),
        ("thread", limits.ID_CHARS),
        ("author", limits.AUTHOR_CHARS),
        ("generator_agent_id", limits.ID_CHARS),
    ],
)
def test_texts_have_a_greatest_length_in_code_points(field: str, limit: int) -> None:
    wide = "é" if field == "external_ref" else "😀"  # its bytes have a limit of their own
    assert getattr(document(**{field: wide * limit}), field) == wide * limit
    assert getattr(document(**{field: "x" * (limit - 1)}), field) == "x" * (limit - 1)
    assert refused_fields(**{field: "x" * (limit + 1)}) == [field]


@pytest.mark.parametrize(("tenant", "adapter"), [("acme", "http"), ("室" * 256, "é" * 256)])
def test_tenant_adapter_and_reference_fit_one_key_in_bytes(tenant: str, adapter: str) -> None:
    left = limits.REFERENCE_BYTES - len((tenant + adapter).encode())
    at = "山" * (left // 3) + "x" * (left % 3)
    for reference in (at, at[1:]):
        kept = document(tenant_id=tenant, adapter=adapter, external_ref=reference)
        assert kept.external_ref == reference
    with pytest.raises(InvalidInputError, match="2,600 bytes") as caught:
        document(tenant_id=tenant, adapter=adapter, external_ref=at + "x")
    assert [field for field, _ in problems(caught)] == ["external_ref"]


def test_a_reference_of_han_characters_alone_can_be_too_long() -> None:
    assert refused_fields(external_ref="山" * limits.EXTERNAL_REF_CHARS) == ["external_ref"]


def test_the_name_that_a_document_without_one_gets_counts_too() -> None:
    tenant = "😀" * limits.ID_CHARS
    left = limits.REFERENCE_BYTES - 2 * len(tenant.encode()) - len("memory::") - 36
    wide = "é" * (left // 2) + "x" * (left % 2)
    assert document(tenant_id=tenant, adapter=wide).adapter == wide
    assert document(tenant_id=tenant, adapter=wide[1:]).adapter == wide[1:]
    assert refused_fields(tenant_id=tenant, adapter="éé" + wide[1:]) == ["adapter"]


@pytest.mark.parametrize("field", ["title", "text", "kind", "adapter", "external_ref", "thread", "author"])
@pytest.mark.parametrize("value", ["", "  ", 7, True, b"x", ["x"], "a\0b", "a\ud800"])
def test_texts_that_cannot_be_kept_are_refused(field: str, value: object) -> None:
    assert refused_fields(**{field: value}) == [field]


@pytest.mark.parametrize(
    "field", ["kind", "adapter", "external_ref", "thread", "author", "generator_agent_id"]
)
def test_names_have_no_control_characters(field: str) -> None:
    assert refused_fields(**{field: "a\nb"}) == [field]


@pytest.mark.parametrize("field", ["title", "text"])
def test_title_and_text_are_required(field: str) -> None:
    with pytest.raises(InvalidInputError, match=f"^{field} is required$"):
        document(**{field: None})


def test_title_and_text_are_kept_as_they_came() -> None:
    kept = document(title="  A\n", text=" b\n\n ")
    assert (kept.title, kept.text) == ("  A\n", " b\n\n ")


def test_a_text_of_one_chunk_is_one_part() -> None:
    assert len(document(text="x" * limits.CHUNK_CHARS).parts) == 1


def test_a_longer_text_becomes_parts_that_add_up() -> None:
    text = "word " * (limits.CHUNK_CHARS // 2)
    parts = document(text=text).parts
    assert len(parts) > 1
    assert all(len(part.text) <= limits.CHUNK_CHARS for part in parts)
    assert "".join(part.text for part in parts) == text


def test_a_text_above_the_greatest_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TEXT_CHARS", 1_000)
    assert document(text="x" * 1_000).text == "x" * 1_000
    assert refused_fields(text="x" * 1_001) == ["text"]


def test_a_blank_generator_is_none() -> None:
    assert document(generator_agent_id="  ").generator_agent_id is None
    assert document(generator_agent_id=" bot ").generator_agent_id == "bot"


@pytest.mark.parametrize("language", ["english", "en", "en-GB", "zh_Hans_CN"])
def test_a_language_is_a_name_or_a_tag(language: str) -> None:
    assert document(language=language).language == language


@pytest.mark.parametrize("language", ["", "e", "en;drop", "en GB", 5, "x" * 33])
def test_what_is_no_language_is_refused(language: object) -> None:
    assert refused_fields(language=language) == ["language"]


# --- documents: vocabularies, times, attributes ------------------------------------------------------


@pytest.mark.parametrize("field", ["provenance", "lineage_class", "temporal_class", "retention_class"])
@pytest.mark.parametrize("value", ["nonsense", "", 1, [], "STATED"])
def test_vocabularies_are_closed(field: str, value: object) -> None:
    assert refused_fields(**{field: value}) == [field]


def test_vocabularies_become_members() -> None:
    kept = document(provenance="unknown", retention_class="ephemeral")
    assert (kept.provenance, kept.retention_class) == (Provenance.UNKNOWN, RetentionClass.EPHEMERAL)
    assert document().retention_class is RetentionClass.STANDARD


@pytest.mark.parametrize(
    ("generator", "asked", "kept"),
    [
        (None, "stated", Provenance.STATED),
        (None, None, None),
        ("bot", "stated", Provenance.INFERRED),
        ("bot", "inferred", Provenance.INFERRED),
        ("bot", "unknown", Provenance.UNKNOWN),
        ("bot", None, None),
    ],
)
def test_a_body_may_lower_trust_but_not_raise_it(
    generator: str | None, asked: str | None, kept: Provenance | None
) -> None:
    assert document(generator_agent_id=generator, provenance=asked).provenance is kept


@pytest.mark.parametrize("field", ["valid_from", "valid_until", "occurred_at"])
@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("2026-03-01", datetime(2026, 3, 1, tzinfo=UTC)),
        ("2026-03-01T09:30", datetime(2026, 3, 1, 9, 30, tzinfo=UTC)),
        ("2026-03-01 09:30:05Z", datetime(2026, 3, 1, 9, 30, 5, tzinfo=UTC)),
        ("2026-03-01t09:30:05.25z", datetime(2026, 3, 1, 9, 30, 5, 250_000, tzinfo=UTC)),
        ("2026-03-01T09:30:00+02:00", datetime(2026, 3, 1, 7, 30, tzinfo=UTC)),
        (datetime(2026, 3, 1), datetime(2026, 3, 1, tzinfo=UTC)),
        (
            datetime(2026, 3, 1, tzinfo=timezone(timedelta(hours=-1))),
            datetime(2026, 3, 1, 1, tzinfo=UTC),
        ),
        ("0001-01-01", datetime(1, 1, 1, tzinfo=UTC)),
        ("9999-12-31T23:59:59Z", datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
    ],
)
def test_times_become_utc(field: str, value: object, kept: datetime) -> None:
    assert getattr(document(**{field: value}), field) == kept


@pytest.mark.parametrize(
    "value",
    [
        "",
        "tomorrow",
        "2026-02-30",
        "2026-W01",
        "20260301",
        "2026-03-01T25:00",
        "٢٠٢٦-03-01",
        "0000-01-01",
        "10000-01-01",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
        1_700_000_000,
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
    ],
)
def test_what_is_no_time_is_refused(value: object) -> None:
    assert refused_fields(valid_until=value) == ["valid_until"]


def test_attributes_are_flat_scalars() -> None:
    kept = {"a": "", "b": 1, "c": 1.5, "d": None, "e": False, "f": limits.SAFE_INTEGER}
    assert document(attributes=kept).attributes == kept


@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        limits.SAFE_INTEGER + 1,
        -limits.SAFE_INTEGER - 1,
        1e16,
        -1e300,
        float("nan"),
        float("inf"),
        "a\0",
        "\udfff",
        "x" * (limits.ATTRIBUTE_VALUE_CHARS + 1),
        b"x",
    ],
)
def test_other_attribute_values_are_refused(value: object) -> None:
    assert refused_fields(attributes={"secret-key": value}) == ["attributes value 0"]


@pytest.mark.parametrize("key", ["", " ", "x" * (limits.ATTRIBUTE_KEY_CHARS + 1), "a\0", 1])
def test_attribute_keys_are_texts(key: object) -> None:
    assert refused_fields(attributes={key: 1}) == ["attributes key 0"]


def test_attributes_are_counted_and_measured() -> None:
    most = {f"k{index}": index for index in range(limits.ATTRIBUTES)}
    assert len(document(attributes=most).attributes) == limits.ATTRIBUTES
    assert refused_fields(attributes={**most, "one": "more"}) == ["attributes"]
    longest = {"k" * limits.ATTRIBUTE_KEY_CHARS: "v" * limits.ATTRIBUTE_VALUE_CHARS}
    assert document(attributes=longest).attributes == longest
    assert refused_fields(attributes=[("a", 1)]) == ["attributes"]


# --- documents: lists, tags, sharing -----------------------------------------------------------------


@pytest.mark.parametrize("field", ["derived_from", "supports", "contradicts"])
def test_version_references_are_lists_of_names(field: str) -> None:
    most = [f"kver_{index}" for index in range(limits.VERSION_REFS)]
    assert getattr(document(**{field: [*most[1:], most[1]]}), field) == tuple(most[1:])
    assert getattr(document(**{field: most}), field) == tuple(most)
    assert refused_fields(**{field: [*most, "one"]}) == [field]
    assert refused_fields(**{field: "kver_1"}) == [field]
    assert refused_fields(**{field: ["a", None, ""]}) == [f"{field}[1]", f"{field}[2]"]


def test_no_word_about_access_leaves_tags_unchanged() -> None:
    assert document().access_tags is None
    assert document(share=Share(principals=("bob",))).access_tags is None


def test_the_callers_tags_are_kept_apart_from_those_of_sharing() -> None:
    assert document(access_tags=[]).access_tags == ()
    kept = document(access_tags=[" a:b ", "a:b"], share=Share(tenant=True, tags=("c:d",)))
    assert (kept.access_tags, kept.share) == (("a:b",), Share(tenant=True, tags=("c:d",)))


def test_tags_are_counted_and_judged_one_by_one() -> None:
    most = [f"space:{index}" for index in range(limits.ACCESS_TAGS)]
    assert document(access_tags=most).access_tags == tuple(most)
    assert refused_fields(access_tags=[*most, "one:more"]) == ["access_tags"]
    assert refused_fields(access_tags=["ok:x", "memory.tenant:t1", 3]) == ["access_tags[1]", "access_tags[2]"]
    assert refused_fields(share={"tags": [" "]}) == ["share.tags[0]"]


def test_share_is_an_object_whose_other_keys_are_ignored() -> None:
    kept = document(share={"tenant": True, "principals": ["u1", " ", " bob"], "tenantId": "x"})
    assert kept.share == Share(tenant=True, principals=("bob",))
    assert refused_fields(share="bob") == ["share"]
    assert refused_fields(share={"tenant": "yes", "principals": "bob"}) == [
        "share.tenant",
        "share.principals",
    ]


def test_shared_principals_are_counted() -> None:
    most = [f"p{index}" for index in range(limits.SHARED_PRINCIPALS)]
    shared = document(share={"principals": most}).share
    assert shared is not None
    assert shared.principals == tuple(most)
    assert refused_fields(share={"principals": [*most, "one"]}) == ["share.principals"]


# --- documents: as a whole ---------------------------------------------------------------------------


def test_all_problems_come_together_and_repeat_no_input() -> None:
    with pytest.raises(InvalidInputError) as caught:
        document(title="", kind="secret" * 99, valid_from="secret", attributes={"secret": [1]})
    assert [field for field, _ in problems(caught)] == ["title", "kind", "attributes value 0", "valid_from"]
    assert "secret" not in str(caught.value.details) + caught.value.message


def test_a_single_problem_is_the_message() -> None:
    with pytest.raises(InvalidInputError, match=r"^title must be at most 500 characters$"):
        document(title="x" * 501)


def test_a_thousand_problems_are_not_all_listed() -> None:
    with pytest.raises(InvalidInputError) as caught:
        document(derived_from=[None] * 200)
    assert len(problems(caught)) == 100
    assert caught.value.message.startswith("200 problems")


def test_exactly_one_of_content_and_file_is_given() -> None:
    content, file = Content(title="a", text="b"), File(data=b"x")
    for given in (AddInput(), AddInput(content=content, file=file)):
        with pytest.raises(InvalidInputError, match=r"^provide exactly one of content or file$"):
            check_file(given)
    assert check_file(AddInput(content=content)) is None
    assert check_file(AddInput(file=file)) == file


@pytest.mark.parametrize("broken", [{"data": b""}, {"data": "x"}, {"title": 5}, {"filename": "a\0"}])
def test_a_broken_file_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=r"^file\."):
        check_file(AddInput(file=replace(File(data=b"x"), **broken)))
    wrong: Any = "x"
    with pytest.raises(InvalidInputError, match="must be a File"):
        check_file(AddInput(file=wrong))


def test_content_must_be_a_content() -> None:
    wrong: Any = {"title": "a", "text": "b"}
    with pytest.raises(InvalidInputError, match=r"^content must be a Content$"):
        new_document(AddInput(content=wrong), tenant_id="t", principal_id="p")


def test_a_batch_has_at_most_a_thousand_items() -> None:
    assert len(check_batch([1] * limits.BATCH_ITEMS)) == limits.BATCH_ITEMS
    assert len(check_batch([])) == 0
    for wrong in ([1] * (limits.BATCH_ITEMS + 1), None, "x", {"a": 1}, 5):
        with pytest.raises(InvalidInputError, match=r"^items "):
            check_batch(wrong)


# --- callers, searches, lists ------------------------------------------------------------------------


def test_callers_are_names() -> None:
    check_caller("t" * limits.ID_CHARS, " p ")
    for wrong in (None, "", " ", 5, "x" * (limits.ID_CHARS + 1), "a\0", "a\n", "a\ud800"):
        with pytest.raises(InvalidInputError, match=r"^tenant_id "):
            check_caller(wrong, "p")
        with pytest.raises(InvalidInputError, match=r"^principal_id "):
            check_caller("t", wrong)


@pytest.mark.parametrize("limit", [1, 8, limits.SEARCH_LIMIT_MAX])
def test_a_search_limit_within_bounds_is_kept(limit: int) -> None:
    assert query(limit=limit).limit == limit
    assert query(limit=float(limit)).limit == limit


@pytest.mark.parametrize("limit", [0, -1, 51, 999, 5.5, "5", True, float("nan"), float("inf")])
def test_a_search_limit_out_of_bounds_is_refused(limit: object) -> None:
    with pytest.raises(InvalidInputError, match=r"^limit must be an integer between 1 and 50$"):
        query(limit=limit)


def test_a_query_is_trimmed_and_measured() -> None:
    assert query(query=" deploy \n").query == "deploy"
    assert query(query="x" * limits.QUERY_CHARS).query == "x" * limits.QUERY_CHARS
    for wrong in ("x" * (limits.QUERY_CHARS + 1), None, 5, "a\0", "\ud800"):
        with pytest.raises(InvalidInputError, match=r"^query "):
            query(query=wrong)


def test_a_blank_query_needs_a_filter() -> None:
    nothing: list[dict[str, Any]] = [{}, {"kinds": []}, {"entity_ids": ()}, {"sources": ["local"]}]
    for filters in nothing:
        with pytest.raises(
            InvalidInputError, match=r"^query must be non-empty unless kinds or entityIds is provided$"
        ):
            query(query=" ", **filters)
    assert query(query=" ", kinds=["note"]).query == ""
    assert query(query="", entity_ids=["kent_1"]).entity_ids == ("kent_1",)


@pytest.mark.parametrize("field", ["kinds", "entity_ids", "sources"])
def test_filters_are_lists_of_names(field: str) -> None:
    most = [f"v{index}" for index in range(limits.FILTER_VALUES)]
    assert getattr(query(**{field: most}), field) == tuple(most)
    assert getattr(query(**{field: []}), field) == ()
    for wrong in ([*most, "one"], [1, 2], "note", {"a": 1}, [None], [""]):
        with pytest.raises(InvalidInputError):
            query(**{field: wrong})


def test_other_search_inputs_are_judged() -> None:
    kept = query(profile="compat", generation="g1", explain=True, max_per_document=limits.MAX_PER_DOCUMENT)
    assert kept.profile is SearchProfile.COMPAT
    assert (kept.generation, kept.explain, kept.max_per_document) == ("g1", True, limits.MAX_PER_DOCUMENT)
    with pytest.raises(InvalidInputError) as caught:
        query(
            include_deprecated="yes",
            profile="fast",
            generation="",
            explain=1,
            occurred_after="soon",
            occurred_before=5,
            attributes={"a": [1]},
            max_per_document=limits.MAX_PER_DOCUMENT + 1,
            include_evidence=0,
        )
    assert [field for field, _ in problems(caught)] == [
        "include_deprecated",
        "profile",
        "generation",
        "explain",
        "occurred_after",
        "occurred_before",
        "attributes value 0",
        "max_per_document",
        "include_evidence",
    ]


def test_list_takes_1_to_100() -> None:
    assert timeline_query(now=NOW, limit=1) == TimelineQuery(limit=1)
    assert timeline_query(now=NOW, limit=limits.LIST_LIMIT_MAX, kinds=["note"]) == TimelineQuery(
        limit=limits.LIST_LIMIT_MAX, kinds=("note",)
    )
    assert timeline_query(now=NOW, kinds=[]) == TimelineQuery(limit=limits.LIST_LIMIT_DEFAULT)
    for wrong in (0, 101, True, "5", 2.5):
        with pytest.raises(InvalidInputError, match=r"^limit must be an integer between 1 and 100$"):
            timeline_query(now=NOW, limit=wrong)


def test_the_past_is_asked_up_to_now() -> None:
    skew = timedelta(minutes=1)
    for moment in (NOW, NOW - timedelta(days=400), NOW + skew):
        assert timeline_query(now=NOW, as_of=moment).as_of == moment
        assert query(as_of=moment).as_of == moment
    for wrong in (NOW + skew + timedelta(microseconds=1), "9999-12-31"):
        with pytest.raises(InvalidInputError, match=r"^as_of must not lie in the future$"):
            query(as_of=wrong)
        with pytest.raises(InvalidInputError, match=r"^as_of must not lie in the future$"):
            timeline_query(now=NOW, as_of=wrong)
