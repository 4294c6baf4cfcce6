"""The published behaviour of a LangGraph store, of both colours, over a real server; against LangGraph's own store
where that says what is right."""

import asyncio
import math
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from corbits_memory.adapters.langgraph import CorbitsMemoryStore
from corbits_memory.adapters.langgraph import store as stores
from corbits_memory.adapters.langgraph.names import prefix_of, reference_of
from corbits_memory.client import SyncMemoryClient, routes
from corbits_memory.errors import ConfigError, ForbiddenError, InvalidInputError, NotSupportedError
from tests.adapters.langgraph.conftest import OpenStore

USERS = ("users", "ann")
VALUE = {"text": "Ann likes tea.", "n": 1, "nested": {"a": [1, None, "é\x00\ud800"]}, "empty": {}}


async def keys(store: BaseStore, prefix: tuple[str, ...], **asked: Any) -> list[str]:
    return [item.key for item in await store.asearch(prefix, **asked)]


async def test_what_was_put_is_got(store: CorbitsMemoryStore) -> None:
    assert await store.aget(USERS, "k") is None
    before = datetime.now(UTC)
    await store.aput(USERS, "k", VALUE)
    item = await store.aget(USERS, "k")
    assert item is not None
    assert (item.namespace, item.key, item.value) == (USERS, "k", VALUE)
    assert abs(item.created_at - before) < timedelta(seconds=30)
    assert item.updated_at >= item.created_at - timedelta(milliseconds=1)
    await store.aput(USERS, "k", {"text": "Coffee."})
    changed = await store.aget(USERS, "k")
    assert changed is not None
    assert (changed.value, changed.created_at) == ({"text": "Coffee."}, item.created_at)
    assert changed.updated_at > item.updated_at


async def test_what_was_deleted_is_gone_and_can_come_again(store: CorbitsMemoryStore) -> None:
    await store.aput(USERS, "k", {"text": "secret"})
    await store.adelete(USERS, "k")
    assert await store.aget(USERS, "k") is None
    assert await keys(store, (), query="secret") == []
    assert await store.alist_namespaces() == []
    await store.adelete(USERS, "k")
    await store.aput(USERS, "k", {"text": "again"})
    item = await store.aget(USERS, "k")
    assert item is not None
    assert item.value == {"text": "again"}


async def test_a_long_value_comes_back_whole(store: CorbitsMemoryStore) -> None:
    value = {"lines": [f"Line {number} of a long story." for number in range(5_000)]}
    await store.aput(USERS, "long", value)
    item = await store.aget(USERS, "long")
    assert item is not None
    assert item.value == value


async def test_more_than_one_request_takes_is_written_in_several(store: CorbitsMemoryStore) -> None:
    ops = [PutOp(("large",), f"{n}", {"text": f"{n} " + "x" * 3_000_000}) for n in range(4)]
    await store.abatch(ops)
    found = await store.abatch([GetOp(("large",), f"{n}") for n in range(4)])
    assert [item.value["text"][:1] for item in found] == ["0", "1", "2", "3"]  # type: ignore[union-attr]


async def test_names_that_begin_alike_are_not_alike(store: CorbitsMemoryStore) -> None:
    for namespace in (
        ("tenant", "acme"),
        ("tenant", "acme-corp"),
        ("tenant", "acme/x"),
        ("tenant", "acme", "x"),
    ):
        await store.aput(namespace, "k", {"of": "/".join(namespace), "note": "plain words"})
    found = await store.asearch(("tenant", "acme"))
    assert {item.namespace for item in found} == {("tenant", "acme"), ("tenant", "acme", "x")}
    asked = await store.asearch(("tenant", "acme"), query="plain words")
    assert {item.namespace for item in asked} == {("tenant", "acme"), ("tenant", "acme", "x")}
    assert await store.alist_namespaces(prefix=("tenant", "acme")) == [
        ("tenant", "acme"),
        ("tenant", "acme", "x"),
    ]
    await store.adelete(("tenant", "acme"), "k")
    assert len(await store.asearch(("tenant",))) == 3


async def test_two_principals_and_two_tenants_never_mix(open_store: OpenStore) -> None:
    anns, bobs = await open_store("ann"), await open_store("bob")
    elsewhere = await open_store("ann", tenant="elsewhere")
    everyone = {"ann": anns, "bob": bobs, "else": elsewhere}
    for name, one in everyone.items():
        await one.aput(("shared",), "k", {"text": f"said by {name}"})
    for name, one in everyone.items():
        item = await one.aget(("shared",), "k")
        assert item is not None
        assert item.value == {"text": f"said by {name}"}
        assert [found.value for found in await one.asearch((), query="said by")] == [item.value]
        assert [found.value for found in await one.asearch(())] == [item.value]
    await bobs.adelete(("shared",), "k")
    assert await anns.aget(("shared",), "k") is not None
    assert await bobs.alist_namespaces() == []


async def test_a_search_ranks_what_answers_first(store: CorbitsMemoryStore) -> None:
    await store.aput(("docs",), "tea", {"text": "Green tea is brewed at eighty degrees."})
    await store.aput(("docs",), "boat", {"text": "The harbour closes at nine."})
    await store.aput(("docs", "deep"), "cake", {"text": "Carrot cake needs an hour."})
    found = await store.asearch(("docs",), query="harbour closes")
    assert found[0].key == "boat"
    assert found[0].score is not None
    # What does not answer comes behind, without a score.
    assert {item.key: item.score is None for item in found[1:]} == {"tea": True, "cake": True}
    assert len(await store.asearch(("docs",), query="harbour closes", limit=1)) == 1


async def test_what_is_not_indexed_is_not_ranked_and_can_be_got(store: CorbitsMemoryStore) -> None:
    await store.aput(("docs",), "hidden", {"text": "The harbour sleeps."}, index=False)
    await store.aput(("docs",), "other", {"text": "Nothing of it."})
    found = await store.asearch(("docs",), query="harbour")
    assert {item.key: item.score for item in found if item.score is None} == {
        "hidden": None, **{item.key: None for item in found if item.key == "other" and item.score is None},
    }  # fmt: skip
    assert await store.aget(("docs",), "hidden") is not None


async def test_fields_to_index_are_found_first(store: CorbitsMemoryStore) -> None:
    text = "with a lighthouse in passing. " + "A note about many other things. " * 10
    await store.aput(("docs",), "passing", {"name": "misc", "text": text})
    await store.aput(("docs",), "named", {"name": "Lighthouse", "text": "x"}, index=["name", "missing[*].a"])
    assert (await store.asearch(("docs",), query="lighthouse"))[0].key == "named"


FILTERS: list[dict[str, Any]] = [
    {},
    {"color": "red"},
    {"color": {"$eq": "red"}},
    {"color": {"$ne": "red"}},
    {"n": {"$gt": 1}},
    {"n": {"$gte": 1, "$lt": 3}},
    {"n": {"$lte": 1}},
    {"color": "red", "n": 2},
    {"nested": {"a": 1}},
    {"list": [1, 2]},
    {"list": [1]},
    {"missing": None},
    {"flag": True},
    {"color": "no such"},
]
ITEMS: dict[tuple[tuple[str, ...], str], dict[str, Any]] = {
    (("a",), "1"): {"color": "red", "n": 1, "nested": {"a": 1, "b": 2}, "list": [1, 2], "flag": True},
    (("a",), "2"): {"color": "red", "n": 2, "nested": {"a": 0}, "list": [1], "flag": False},
    (("a", "b"), "3"): {"color": "blue", "n": 3, "nested": {"a": 5}, "list": [], "missing": 1, "flag": True},
    (("a", "c"), "4"): {"color": "blue", "n": 1, "nested": {}, "list": [2, 1], "flag": False},
    (("z",), "5"): {"color": "red", "n": 9, "nested": {}, "list": [], "flag": True},
}


async def test_filters_find_what_langgraphs_own_store_finds(store: CorbitsMemoryStore) -> None:
    theirs = InMemoryStore()
    ops = [PutOp(namespace, key, value) for (namespace, key), value in ITEMS.items()]
    await store.abatch(ops)
    theirs.batch(ops)
    for wanted in FILTERS:
        asked: dict[str, Any] = {"filter": wanted, "limit": 50}
        assert sorted(await keys(store, ("a",), **asked)) == sorted(await keys(theirs, ("a",), **asked)), (
            wanted
        )
        assert sorted(await keys(store, ("a",), query="red", **asked)) == sorted(
            await keys(theirs, ("a",), **asked)
        ), wanted


@pytest.mark.parametrize("wanted", [{"n": {"$in": [1]}}, {"nested": {"a": {"$regex": "x"}}}])
async def test_an_unknown_operator_is_refused(store: CorbitsMemoryStore, wanted: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="unknown operator"):
        await store.asearch(("a",), filter=wanted)


async def test_what_is_no_number_is_neither_more_nor_less(store: CorbitsMemoryStore) -> None:
    await store.aput(("a",), "k", {"n": "many"})
    assert await keys(store, ("a",), filter={"n": {"$gt": 1}}) == []


async def test_a_filter_does_not_starve_the_page(store: CorbitsMemoryStore) -> None:
    await store.abatch([PutOp(("many",), f"{n:03}", {"n": n, "text": "harbour news"}) for n in range(130)])
    wanted = {"n": {"$gte": 120}}
    assert len(await keys(store, ("many",), query="harbour news", filter=wanted, limit=10)) == 10
    assert await keys(store, ("many",), filter=wanted, limit=3, offset=8) == ["128", "129"]


async def test_pages_of_a_search(store: CorbitsMemoryStore) -> None:
    await store.abatch([PutOp(("p",), f"{n:03}", {"n": n}) for n in range(25)])
    pages = [await keys(store, ("p",), limit=10, offset=offset) for offset in (0, 10, 20, 30)]
    assert [len(page) for page in pages] == [10, 10, 5, 0]
    assert sorted(key for page in pages for key in page) == [f"{n:03}" for n in range(25)]
    assert await keys(store, ("p",), limit=0) == []
    assert len(await keys(store, ("p",))) == 10
    ranked = [await keys(store, ("p",), query="n", limit=10, offset=offset) for offset in (0, 10, 20)]
    assert sorted(key for page in ranked for key in page) == [f"{n:03}" for n in range(25)]


LISTINGS: list[dict[str, Any]] = [
    {},
    {"prefix": ("a",)},
    {"prefix": ("a", "*")},
    {"prefix": ("*", "b")},
    {"suffix": ("x",)},
    {"suffix": ("*", "x")},
    {"prefix": ("a",), "suffix": ("x",)},
    {"max_depth": 1},
    {"max_depth": 2, "prefix": ("a",)},
    {"limit": 2},
    {"limit": 2, "offset": 3},
    {"offset": 100},
    {"prefix": ("no", "such")},
]


async def test_namespaces_are_listed_as_langgraphs_own_store_lists_them(store: CorbitsMemoryStore) -> None:
    theirs = InMemoryStore()
    spaces = [
        ("a",), ("a", "b"), ("a", "b", "x"), ("a", "c", "x"), ("a-b",), ("b", "b"), ("b", "x"), ("é", "9", "x"),
    ]  # fmt: skip
    ops = [PutOp(space, f"{n}", {"n": n}) for space in spaces for n in range(3)]
    await store.abatch(ops)
    theirs.batch(ops)
    for asked in LISTINGS:
        assert await store.alist_namespaces(**asked) == theirs.list_namespaces(**asked), asked


async def test_a_namespace_of_many_items_costs_few_requests(
    store: CorbitsMemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.abatch([PutOp((space,), f"{n:04}", {}) for space in ("many", "more") for n in range(450)])
    asked = []
    real = routes.lookup

    def counted(*args: Any, **given: Any) -> Any:
        asked.append(given["after"])
        return real(*args, **given)

    monkeypatch.setattr(routes, "lookup", counted)
    assert await store.alist_namespaces() == [("many",), ("more",)]
    assert len(asked) <= 4


async def test_a_batch_reads_before_it_writes_and_its_last_write_holds(store: CorbitsMemoryStore) -> None:
    await store.aput(("a",), "k", {"n": 0})
    results = await store.abatch(
        [
            PutOp(("a",), "k", {"n": 1}),
            GetOp(("a",), "k"),
            PutOp(("a",), "gone", {"n": 1}),
            PutOp(("a",), "gone", None),
            SearchOp(("a",)),
            ListNamespacesOp((MatchCondition("prefix", ("a",)),)),
            PutOp(("a",), "k", {"n": 2}),
            GetOp(("a",), "nothing"),
        ]
    )
    assert results[1].value == {"n": 0}  # type: ignore[union-attr]
    assert [item.key for item in results[4]] == ["k"]  # type: ignore[union-attr]
    assert results[5] == [("a",)]
    assert [results[place] for place in (0, 2, 3, 6, 7)] == [None] * 5
    item = await store.aget(("a",), "k")
    assert item is not None
    assert item.value == {"n": 2}
    assert await store.aget(("a",), "gone") is None
    assert await store.abatch([]) == []


@pytest.mark.parametrize("label", ["a.b", "", 7, "\x00"])
async def test_a_bad_label_is_refused_by_every_operation_and_nothing_is_written(
    store: CorbitsMemoryStore, label: Any
) -> None:
    bad = ("a", label)
    for op in (
        GetOp(bad, "k"),
        PutOp(bad, "k", {"n": 1}),
        PutOp(bad, "k", None),
        SearchOp(bad),
        ListNamespacesOp((MatchCondition("prefix", bad),)),
    ):
        with pytest.raises(InvalidNamespaceError):
            await store.abatch([PutOp(("a",), "good", {"n": 1}), op])
    with pytest.raises(InvalidNamespaceError):
        await store.aput(bad, "k", {"n": 1})
    with pytest.raises(InvalidNamespaceError):
        await store.aput((), "k", {"n": 1})
    with pytest.raises(InvalidNamespaceError):
        await store.aput(("langgraph",), "k", {"n": 1})
    assert await store.aget(("a",), "good") is None


@pytest.mark.parametrize("value", [{"n": math.nan}, {"n": {1, 2}}, {"d": datetime(2026, 1, 1)}, [1]])
async def test_what_is_no_json_is_refused(store: CorbitsMemoryStore, value: Any) -> None:
    with pytest.raises(InvalidInputError, match="value must be"):
        await store.aput(("a",), "k", value)
    assert await store.aget(("a",), "k") is None


async def test_an_item_without_a_key_is_refused(store: CorbitsMemoryStore) -> None:
    for op in (GetOp(("a",), ""), PutOp(("a",), "", {}), PutOp(("a",), "", None)):
        with pytest.raises(InvalidInputError, match="key"):
            await store.abatch([op])
    await store.aput(("a",), " ", {"blank": True})
    assert (await store.aget(("a",), " ")) is not None


async def test_a_ttl_is_honoured_and_swept(
    store: CorbitsMemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.aput(("a",), "brief", {"text": "brief words"}, ttl=10)
    await store.aput(("b",), "stays", {"text": "stays"})
    assert await store.aget(("a",), "brief") is not None
    assert await store.asweep_ttl() == 0
    later = datetime.now(UTC) + timedelta(minutes=11)
    monkeypatch.setattr(stores, "_now", lambda: later)
    assert await store.aget(("a",), "brief") is None
    assert await keys(store, ()) == ["stays"]
    assert await keys(store, ("a",), query="brief words") == []
    assert await store.alist_namespaces() == [("b",)]
    assert await store.asweep_ttl() == 1
    assert await store.asweep_ttl() == 0
    monkeypatch.undo()
    assert await store.aget(("a",), "brief") is None


async def test_writing_again_sets_the_ttl_anew(
    store: CorbitsMemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.aput(("a",), "k", {"n": 1}, ttl=10)
    await store.aput(("a",), "k", {"n": 1}, ttl=None)
    monkeypatch.setattr(stores, "_now", lambda: datetime.now(UTC) + timedelta(days=1))
    assert await store.aget(("a",), "k") is not None


async def test_a_default_ttl(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await open_store(ttl={"default_ttl": 5})
    await store.aput(("a",), "k", {"n": 1})
    await store.aput(("a",), "stays", {"n": 1}, ttl=None)
    monkeypatch.setattr(stores, "_now", lambda: datetime.now(UTC) + timedelta(minutes=6))
    assert await keys(store, ("a",)) == ["stays"]


async def test_a_ttl_that_reading_puts_off_is_refused_and_not_dropped(open_store: OpenStore) -> None:
    store = await open_store()
    for refused in (
        store.aget(("a",), "k", refresh_ttl=True),
        store.asearch(("a",), refresh_ttl=True),
        store.aput(("a",), "k", {}, ttl=0),
        store.aput(("a",), "k", {}, ttl=math.nan),
    ):
        with pytest.raises(InvalidInputError, match="ttl"):
            await refused
    assert await store.aget(("a",), "k", refresh_ttl=False) is None
    for config in ({"refresh_on_read": True}, {"omit_expired": False}, {"sweep_interval_minutes": 1}):
        with pytest.raises(ConfigError):
            await open_store(ttl=config)


async def test_many_writers_of_one_item_leave_one_of_their_values(store: CorbitsMemoryStore) -> None:
    await asyncio.gather(*(store.aput(("a",), "k", {"n": n}) for n in range(8)))
    item = await store.aget(("a",), "k")
    assert item is not None
    assert item.value["n"] in range(8)
    assert await keys(store, ("a",)) == ["k"]


async def test_a_token_that_may_not_is_told_so(open_store: OpenStore, host: Any) -> None:
    from corbits_memory.client import MemoryClient
    from corbits_memory.core.enums import Capability
    from corbits_memory.ports import Caller

    headers = await host.token(Caller("readers", "ann", frozenset({Capability.SEARCH})))
    token = headers["authorization"].removeprefix("Bearer ")
    async with MemoryClient(host.url, tenant="readers", token=token, trust_env=False) as client:
        store = CorbitsMemoryStore(client)
        assert await store.aget(("a",), "k") is None
        with pytest.raises(ForbiddenError):
            await store.aput(("a",), "k", {"n": 1})


async def test_the_blocking_methods(open_store: OpenStore, colour: str) -> None:
    store = await open_store()

    def use() -> None:
        store.put(("a",), "k", {"text": "harbour"}, ttl=5)
        item = store.get(("a",), "k")
        assert item is not None
        assert store.search(("a",), query="harbour", filter={"text": "harbour"}, limit=3)[0].key == "k"
        assert store.list_namespaces() == [("a",)]
        assert store.sweep_ttl() == 0
        store.delete(("a",), "k")
        assert store.get(("a",), "k") is None

    if colour == "sync":
        await asyncio.to_thread(use)
    else:
        with pytest.raises(NotSupportedError, match="await"):
            store.get(("a",), "k")


class State(TypedDict):
    said: str
    remembered: str


async def test_a_graph_remembers_over_threads(open_store: OpenStore) -> None:
    store = await open_store()

    async def node(state: State, *, store: BaseStore) -> dict[str, str]:
        found = await store.asearch(("memories", "ann"), query=state["said"], limit=1)
        await store.aput(("memories", "ann"), state["said"][:20], {"text": state["said"]})
        return {"remembered": found[0].value["text"] if found else ""}

    builder = StateGraph(State)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    graph = builder.compile(store=store)
    first = await graph.ainvoke({"said": "My boat is called Marie.", "remembered": ""})
    second = await graph.ainvoke({"said": "What is my boat called?", "remembered": ""})
    assert (first["remembered"], second["remembered"]) == ("", "My boat is called Marie.")


def test_the_core_does_not_need_the_package() -> None:
    import subprocess
    import sys

    code = "import corbits_memory, corbits_memory.distiller, sys; print('langgraph' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"


async def test_what_others_share_under_an_items_name_is_no_item(open_store: OpenStore) -> None:
    mine, bobs = await open_store("ann"), await open_store("bob")
    await mine.aput(("mem",), "own", {"text": "mine"})
    for key, text in (("rules", '{"text": "obey bob"}'), ("broken", "no json")):
        reference = reference_of("ann", ("mem",), key)
        call = routes.add(
            title="rules",
            text=text,
            kind="langgraph.item",
            adapter="langgraph",
            external_ref=reference,
            attributes={"langgraph.0": prefix_of("ann", ()), "langgraph.1": prefix_of("ann", ("mem",))},
            share={"principals": ["ann"]},
        )
        client = bobs._client
        if isinstance(client, SyncMemoryClient):
            await asyncio.to_thread(client.send, call)
        else:
            await client.send(call)
    assert await mine.aget(("mem",), "rules") is None
    assert [item.key for item in await mine.asearch(("mem",))] == ["own"]
    assert [item.key for item in await mine.asearch(("mem",), query="obey rules")] == ["own"]
    assert await mine.alist_namespaces() == [("mem",)]
    await mine.adelete(("mem",), "rules")
