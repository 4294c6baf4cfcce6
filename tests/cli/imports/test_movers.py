"""What each export becomes: the ids, times and people that it had there."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from corbits_memory.cli.imports.command import Source
from corbits_memory.cli.imports.items import Found, Item, Refused, Skipped
from corbits_memory.cli.imports.movers import FORMATS, read_export
from corbits_memory.core.limits import ATTRIBUTES, EXTERNAL_REF_CHARS
from corbits_memory.validation import new_document
from corbits_memory.wire.requests import add_input
from tests.cli.imports import exports
from tests.cli.imports.exports import pack, write


def read(path: Path, source: str, **defaults: Any) -> list[Found]:
    return list(read_export(path, FORMATS[source], defaults))


def documents(found: list[Found]) -> list[Mapping[str, Any]]:
    """The bodies, each of which the plane takes."""
    bodies = [each.body for each in found if isinstance(each, Item)]
    for body in bodies:
        new_document(add_input(body), tenant_id="t", principal_id="p")
    return bodies


def refused(found: list[Found]) -> list[str]:
    return [f"{Path(each.origin).name}: {each.problem}" for each in found if isinstance(each, Refused)]


def test_every_source_has_its_format() -> None:
    assert {str(source) for source in Source} == FORMATS.keys()


# --- mem0 ---


@pytest.mark.parametrize(
    "value",
    [
        exports.MEM0,
        exports.MEM0["results"],
        {"count": 2, "next": None, "previous": None, "results": exports.MEM0["results"]},
        {"memories": exports.MEM0["results"]},
    ],
)
def test_memories_of_mem0(tmp_path: Path, value: Any) -> None:
    first, second = documents(read(write(tmp_path / "mem0.json", value), "mem0"))
    assert first == {
        "title": "Ann swims on Fridays.",
        "text": "Ann swims on Fridays.",
        "kind": "memory",
        "adapter": "mem0",
        "external_ref": "mem-1",
        "lineage_class": "imported",
        "author": "ann",
        "thread": "run-7",
        "occurred_at": "2025-07-01T10:00:00.000000-07:00",
        "valid_until": "2026-12-31",
        "generator_agent_id": "mem0",
        "attributes": {
            "user_id": "ann",
            "run_id": "run-7",
            "categories": '["hobbies"]',
            "topic": "sport",
            "tags": '["a", "b"]',
            "score": 0.5,
        },
    }
    assert (second["external_ref"], second["author"]) == ("mem-2", "ben")


def test_a_bad_memory_is_named_and_the_others_come(tmp_path: Path) -> None:
    value = [
        "text",
        {"id": "a"},
        {"memory": "no id"},
        {"id": 7, "memory": "number"},
        {"id": "b", "memory": "last"},
    ]
    found = read(write(tmp_path / "m.json", value), "mem0")
    assert [body["external_ref"] for body in documents(found)] == ["7", "b"]
    assert refused(found) == [
        "m.json[0]: is no memory with a text",
        "m.json[1]: is no memory with a text",
        "m.json[2]: has no id",
    ]


# --- zep ---


def test_threads_of_zep(tmp_path: Path) -> None:
    found = read(write(tmp_path / "t.json", exports.ZEP_THREAD), "zep")
    first, second = documents(found)
    assert first == {
        "title": "When does the ferry leave?",
        "text": "When does the ferry leave?",
        "kind": "message",
        "adapter": "zep",
        "external_ref": "msg-1",
        "lineage_class": "imported",
        "author": "Ann",
        "thread": "thread-1",
        "occurred_at": "2026-01-01T12:00:00Z",
        "attributes": {"user_id": "ann", "role": "user", "name": "Ann", "channel": "web"},
    }
    assert (second["author"], second["generator_agent_id"]) == ("assistant", "assistant")
    assert sum(isinstance(each, Skipped) for each in found) == 1


def test_an_answer_that_does_not_name_its_thread_has_the_name_of_its_file(tmp_path: Path) -> None:
    value = {"messages": exports.ZEP_THREAD["messages"], "row_count": 3}
    first, _ = documents(read(write(tmp_path / "thread-5.json", value), "zep"))
    assert first["thread"] == "thread-5"


@pytest.mark.parametrize(
    "value",
    [{"threads": [exports.ZEP_THREAD]}, {"sessions": [exports.ZEP_THREAD]}, [exports.ZEP_THREAD]],
)
def test_many_threads_of_zep(tmp_path: Path, value: Any) -> None:
    assert len(documents(read(write(tmp_path / "t.json", value), "zep"))) == 2


def test_a_session_of_an_older_release(tmp_path: Path) -> None:
    messages = [{"uuid": "m", "role_type": "assistant", "role": "Harbour master", "content": "At noon."}]
    value = {"session_id": "s", "messages": messages}
    (only,) = documents(read(write(tmp_path / "t.json", value), "zep"))
    assert (only["thread"], only["author"], only["generator_agent_id"]) == (
        "s",
        "Harbour master",
        "Harbour master",
    )


def test_a_graph_of_zep(tmp_path: Path) -> None:
    episode, fact = documents(read(write(tmp_path / "g.json", exports.ZEP_GRAPH), "zep"))
    assert (episode["external_ref"], episode["kind"], episode["text"]) == ("ep-1", "episode", '{"berth": 7}')
    assert episode["attributes"]["source_description"] == "harbour list"
    assert (fact["external_ref"], fact["kind"], fact["text"]) == ("edge-1", "fact", "Ann rents berth seven.")
    assert fact["valid_from"] == "2026-01-01T00:00:00Z"
    assert fact["valid_until"] == "2026-06-01T00:00:00Z"
    assert fact["generator_agent_id"] == "zep"


def test_bad_messages_of_zep_are_named(tmp_path: Path) -> None:
    value = {"thread_id": "t", "messages": [{"content": "no id"}, None, {"uuid": "a", "content": "fine"}]}
    found = read(write(tmp_path / "t.json", [value, {"other": 1}]), "zep")
    assert [body["external_ref"] for body in documents(found)] == ["a"]
    assert refused(found) == [
        "t.json[0] message 0: has no uuid",
        "t.json[0] message 1: has no uuid",
        "t.json[1]: is no thread, episode or fact",
    ]


# --- langgraph ---


def test_items_of_langgraph(tmp_path: Path) -> None:
    first, second = documents(read(write(tmp_path / "i.json", exports.LANGGRAPH), "langgraph"))
    assert first == {
        "title": "Ann prefers the early ferry.",
        "text": "Ann prefers the early ferry.",
        "kind": "memory",
        "adapter": "langgraph",
        "external_ref": "memories.ann/k1",
        "lineage_class": "imported",
        "occurred_at": "2026-01-01T12:00:00+00:00",
        "attributes": {
            "namespace": "memories.ann",
            "key": "k1",
            "updated_at": "2026-01-02T12:00:00+00:00",
            "importance": 3,
        },
    }
    assert second["text"] == '{"berths": [7, 8], "note": "two of them"}'
    assert second["title"] == "k2"


def test_rows_of_langgraph_are_the_same_documents(tmp_path: Path) -> None:
    (row,) = documents(read(write(tmp_path / "rows.json", exports.LANGGRAPH_ROWS), "langgraph"))
    (item, _) = documents(read(write(tmp_path / "i.json", exports.LANGGRAPH), "langgraph"))
    assert row["occurred_at"] == "2026-01-01 12:00:00+00:00"
    assert {**row, "occurred_at": None} == {**item, "occurred_at": None}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"content": "words"}, "words"),
        ({"anything": "words"}, "words"),
        ({"kind": "Memory", "content": {"content": "words"}}, "words"),
        ({"text": "words", "more": {"a": 1}}, '{"more": {"a": 1}, "text": "words"}'),
        ({"a": 1, "b": None}, '{"a": 1, "b": null}'),
        ({"text": " ", "n": 1}, '{"n": 1, "text": " "}'),
    ],
)
def test_a_value_is_a_text_or_kept_whole(tmp_path: Path, value: Any, text: str) -> None:
    item = {"namespace": ["a"], "key": "k", "value": value}
    (only,) = documents(read(write(tmp_path / "i.json", [item]), "langgraph"))
    assert only["text"] == text


def test_names_that_look_alike_stay_apart(tmp_path: Path) -> None:
    names = [
        (["a", "b"], "c"),
        (["a"], "b.c"),
        (["a/b"], "c"),
        (["a"], "b/c"),
        (["a%2Fb"], "c"),
        (["a"], "c" * 2_000),
    ]
    value = [{"namespace": labels, "key": key, "value": {"text": "x"}} for labels, key in names]
    refs = [body["external_ref"] for body in documents(read(write(tmp_path / "i.json", value), "langgraph"))]
    assert len(set(refs)) == len(names)
    assert max(map(len, refs)) <= EXTERNAL_REF_CHARS


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ({"key": "k", "value": {"a": 1}}, "has no namespace"),
        ({"namespace": [], "key": "k", "value": {"a": 1}}, "has no namespace"),
        ({"namespace": ["a", 1], "key": "k", "value": {"a": 1}}, "has no namespace"),
        ({"namespace": ["a"], "value": {"a": 1}}, "has no key"),
        ({"namespace": ["a"], "key": "k", "value": None}, "has no value"),
        ({"namespace": ["a"], "key": "k", "value": {}}, "has no value"),
        ([], "has no namespace"),
    ],
)
def test_a_bad_item_is_named(tmp_path: Path, item: Any, problem: str) -> None:
    found = read(write(tmp_path / "i.json", [item]), "langgraph")
    assert refused(found) == [f"i.json[0]: {problem}"]


# --- chatgpt ---


def test_conversations_of_chatgpt(tmp_path: Path) -> None:
    path = pack(
        tmp_path / "export.zip",
        {"conversations.json": [exports.chatgpt()], "user.json": {"id": "u"}, "message_feedback.json": []},
    )
    found = read(path, "chatgpt")
    question, answer, spoken = documents(found)
    assert question == {
        "title": "Ferry times",
        "text": "When does the ferry leave?",
        "kind": "message",
        "adapter": "chatgpt",
        "external_ref": "conv-1/n1",
        "lineage_class": "imported",
        "author": "user",
        "thread": "conv-1",
        "occurred_at": "2026-01-01T12:00:00.500000+00:00",
    }
    assert (answer["text"], answer["author"], answer["generator_agent_id"]) == (
        "At noon.",
        "assistant",
        "chatgpt",
    )
    assert answer["attributes"] == {"model": "gpt-5"}
    # It has no time of its own: that of the message before.
    assert (spoken["text"], spoken["occurred_at"]) == ("And on Fridays?", answer["occurred_at"])
    assert not refused(found)
    skipped = [each.origin.rpartition(" ")[2] for each in found if isinstance(each, Skipped)]
    assert sorted(skipped) == ["call", "n0", "old", "sys", "think", "tool"]


@pytest.mark.parametrize("last", [None, "gone"])
def test_without_a_last_message_all_are_taken(tmp_path: Path, last: str | None) -> None:
    found = read(write(tmp_path / "conversations.json", [exports.chatgpt(last=last)]), "chatgpt")
    assert [body["text"] for body in documents(found)] == [
        "When does the ferry leave?",
        "Never.",
        "At noon.",
        "And on Fridays?",
    ]


def test_a_circle_of_messages_ends(tmp_path: Path) -> None:
    conversation = exports.chatgpt()
    conversation["mapping"]["n1"]["parent"] = "n4"
    assert len(documents(read(write(tmp_path / "c.json", [conversation]), "chatgpt"))) == 3


@pytest.mark.parametrize("broken", [7, [], "x", {"message": 7}, {"message": {"author": [], "content": 3}}])
def test_broken_nodes_harm_no_others(tmp_path: Path, broken: Any) -> None:
    conversation = exports.chatgpt(last=None)
    conversation["mapping"]["odd"] = broken
    assert len(documents(read(write(tmp_path / "c.json", [conversation]), "chatgpt"))) == 4


def test_bad_conversations_are_named(tmp_path: Path) -> None:
    late = exports.chatgpt("late")
    late["mapping"]["n1"]["message"]["create_time"] = 1e300
    found = read(write(tmp_path / "c.json", [3, {"mapping": {}}, late, exports.chatgpt()]), "chatgpt")
    assert len(documents(found)) == 5
    assert refused(found) == [
        "c.json[0]: is no conversation: it has no mapping",
        "c.json[1]: has no id",
        "c.json[2] message n1: has a time that is none",
    ]


def test_large_exports_come_in_several_files(tmp_path: Path) -> None:
    folder = tmp_path / "unpacked"
    folder.mkdir()
    write(folder / "conversations-000.json", [exports.chatgpt("a")])
    write(folder / "conversations-001.json", [exports.chatgpt("b")])
    write(folder / "shared_conversations.json", [{"id": "x"}])
    threads = {body["thread"] for body in documents(read(folder, "chatgpt"))}
    assert threads == {"a", "b"}


# --- claude ---


def test_conversations_of_claude(tmp_path: Path) -> None:
    path = pack(
        tmp_path / "data.zip", {"conversations.json": [exports.CLAUDE], "users.json": [], "projects.json": []}
    )
    found = read(path, "claude")
    question, attachment, answer = documents(found)
    assert question == {
        "title": "Berths",
        "text": "What does a berth cost?",
        "kind": "message",
        "adapter": "claude",
        "external_ref": "conv-9/m1",
        "lineage_class": "imported",
        "author": "user",
        "thread": "conv-9",
        "occurred_at": "2026-01-01T12:00:01.000000Z",
        "attributes": {"account": "acc-1"},
    }
    assert attachment["external_ref"] == "conv-9/m1/attachment-0"
    assert (attachment["title"], attachment["text"]) == ("prices.txt", "A berth costs seven.")
    assert (answer["text"], answer["author"], answer["generator_agent_id"]) == (
        "Seven.",
        "assistant",
        "claude",
    )
    assert sum(isinstance(each, Skipped) for each in found) == 1


def test_an_older_export_of_claude_has_texts_alone(tmp_path: Path) -> None:
    message = {"uuid": "m", "sender": "human", "text": "words", "created_at": "2024-01-01T00:00:00Z"}
    value = [{"uuid": "c", "name": "", "chat_messages": [message]}]
    (only,) = documents(read(write(tmp_path / "conversations.json", value), "claude"))
    assert (only["title"], only["text"]) == ("words", "words")


def test_bad_messages_of_claude_are_named(tmp_path: Path) -> None:
    messages = [{"sender": "human", "text": "x"}, {"uuid": "m", "sender": "robot", "text": "x"}, 3]
    value = [{"uuid": "c", "chat_messages": messages}, {"uuid": "d"}, {"chat_messages": []}]
    assert refused(read(write(tmp_path / "c.json", value), "claude")) == [
        "c.json[0] message 0: has no uuid",
        "c.json[0] message 1: has no sender that is known",
        "c.json[0] message 2: has no uuid",
        "c.json[1]: is no conversation: it has no chat_messages",
        "c.json[2]: has no uuid",
    ]


# --- all ---


def test_what_an_export_does_not_say_the_options_do(tmp_path: Path) -> None:
    (only,) = documents(
        read(write(tmp_path / "m.json", [{"id": "a", "memory": "x"}]), "mem0", kind="other", author="Ann")
    )
    assert (only["author"], only["kind"]) == ("Ann", "memory")


def test_attributes_fit(tmp_path: Path) -> None:
    metadata = {f"key {n}": n for n in range(ATTRIBUTES + 9)} | {"x" * 300: 1, " ": 1}
    odd = {"huge": 2**60, "long": "x" * 10_001, "nothing": None, "empty": []}
    value = [{"id": "a", "memory": "x", "metadata": metadata}, {"id": "b", "memory": "x", "metadata": odd}]
    first, second = documents(read(write(tmp_path / "m.json", value), "mem0"))
    assert len(first["attributes"]) == ATTRIBUTES
    assert second["attributes"] == {"huge": str(2**60)}
