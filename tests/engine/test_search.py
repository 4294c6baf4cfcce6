"""The default profile on a real database: what is found, what stays unseen, what the answer says of itself."""

import asyncio
import dataclasses
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from corbits_memory.core.enums import EvidenceLevel
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.errors import InvalidInputError
from corbits_memory.ports import EntityHint
from tests.engine.support import NOON, OpenStore, add, find, first, note, refs, turn
from tests.models.conftest import ModelServer

Owner = psycopg.AsyncConnection[Any]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("The quarterly revenue rose by nine percent.", "revenue"),
        ("The quarterly revenue rose by nine percent.", "What happened to revenues in that quarter?"),
        ("Ticket CL-5868 blocks the release.", "CL-5868"),
        ("Call parse_header() before foo_bar.", "foo_bar"),
        ("Write to a.b@example.com today.", "a.b@example.com"),
        ("The database runs version 18.6.3 now.", "18.6.3"),
        ("会议在星期三举行，预算已经批准。", "预算"),
        ("彼はコンピュータを買いました。", "コンピュータ"),
        ("저는 학교에서 공부합니다.", "학교는"),
        ("我们用 Kubernetes 部署服务。", "Kubernetes 部署"),
        ("สวัสดีครับ วันนี้อากาศดีมาก", "อากาศ"),
        ("To be, or not to be.", "to be or not to be"),
        ("Who are you?", "who are you"),
        ("Her naïve café idea", "naïve café"),
        ("C++ and C# are languages", "C#"),
        ("Straße und Größe", "größe"),
        ("مرحبا بالعالم الجميل", "العالم الجميل"),
    ],
)
async def test_words_of_any_script_are_found(store: PostgresDocumentStore, text: str, query: str) -> None:
    await add(store, note(text, external_ref="hit"), note("Something else entirely.", external_ref="miss"))
    found = await find(store, query)
    assert first(found).external_ref == "hit"


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("We moved the Kubernetes cluster.", "kuberntes"),
        ("Ask Siobhan about the invoice.", "Siobahn"),
        ("黑猫坐在屋顶上。", "猫"),
    ],
)
async def test_what_was_spelt_otherwise_is_found(store: PostgresDocumentStore, text: str, query: str) -> None:
    await add(store, note(text, external_ref="hit"), note("Something else entirely.", external_ref="miss"))
    found = await find(store, query)
    assert refs(found) == ["hit"]
    assert found.evidence is not EvidenceLevel.STRONG


async def test_titles_and_authors_are_found(store: PostgresDocumentStore) -> None:
    await add(
        store,
        note("Body.", title="Migration handbook", external_ref="t"),
        note("Other body.", title="X", author="Ingrid", external_ref="a"),
    )
    assert refs(await find(store, "handbook")) == ["t"]
    assert refs(await find(store, "Ingrid")) == ["a"]


async def test_not_every_word_has_to_match(store: PostgresDocumentStore) -> None:
    await add(store, note("Maria mentioned enterprise pricing will rise in May.", external_ref="n1"))
    assert refs(await find(store, "What did Maria say about the pricing of the enterprise plan?")) == ["n1"]


async def test_rare_words_count_more(store: PostgresDocumentStore) -> None:
    await add(
        store, *(note(f"The meeting about plan {i} was long.", external_ref=f"m{i}") for i in range(30))
    )
    await add(store, note("A zeppelin meeting.", external_ref="z"))
    assert refs(await find(store, "meeting zeppelin"))[0] == "z"


async def test_quotes_and_minus_are_honoured(store: PostgresDocumentStore) -> None:
    await add(
        store,
        note("The red fox jumps.", external_ref="a"),
        note("The fox is red.", external_ref="b"),
        note("A red fox sleeps.", external_ref="c"),
    )
    assert sorted(refs(await find(store, '"red fox"'))) == ["a", "c"]
    assert sorted(refs(await find(store, "fox -sleeps"))) == ["a", "b"]
    assert refs(await find(store, '"red fox" -jumps')) == ["c"]


async def test_quotes_and_minus_bind_the_dense_channel_too(
    open_store: OpenStore, word_server: ModelServer
) -> None:
    store = await open_store(embed_url=word_server.url)
    await add(store, note("The red fox jumps.", external_ref="a"), note("The fox is red.", external_ref="b"))
    assert refs(await find(store, '"red fox"')) == ["a"]
    assert refs(await find(store, "fox -jumps")) == ["b"]


@pytest.mark.parametrize(
    "query", ["'", '"', "a & b | !c", "(", ":*", "\\", "foo:A*", "-", '""', "%s {} $1", "ß" * 8192, "? ?"]
)
async def test_no_query_is_syntax(store: PostgresDocumentStore, query: str) -> None:
    await add(store, note("foo a b c", external_ref="n1"))
    await find(store, query)


async def test_filters(store: PostgresDocumentStore) -> None:
    person = (EntityHint(kind="person", identifier="bob"),)
    await add(
        store,
        note(
            "alpha one",
            external_ref="a",
            kind="report",
            attributes={"team": "core", "n": 1},
            occurred_at=NOON,
        ),
        note("alpha two", external_ref="b", occurred_at=NOON + timedelta(days=1), entity_hints=person),
        note(
            "alpha three", external_ref="c", attributes={"team": "web"}, occurred_at=NOON + timedelta(days=2)
        ),
    )
    entity = first(await find(store, "alpha two")).attribution
    assert entity is not None
    assert refs(await find(store, "alpha", kinds=("report",))) == ["a"]
    assert refs(await find(store, "alpha", entity_ids=entity.entity_ids)) == ["b"]
    assert refs(await find(store, "alpha", attributes={"team": "core"})) == ["a"]
    assert refs(await find(store, "alpha", attributes={"team": "core", "n": 2})) == []
    assert sorted(refs(await find(store, "alpha", occurred_after=NOON + timedelta(days=1)))) == ["b", "c"]
    assert refs(await find(store, "alpha", occurred_before=NOON + timedelta(seconds=1))) == ["a"]


async def test_filters_alone_give_the_newest(store: PostgresDocumentStore) -> None:
    await add(
        store,
        *(
            note(f"n{i}", external_ref=f"n{i}", kind="k", occurred_at=NOON + timedelta(days=i))
            for i in range(3)
        ),
    )
    found = await find(store, " ", kinds=("k",))
    assert sorted(refs(found)) == ["n0", "n1", "n2"]
    with pytest.raises(InvalidInputError, match="query must be non-empty"):
        await find(store, " ")


async def test_a_selective_filter_does_not_starve_the_page(
    open_store: OpenStore, word_server: ModelServer
) -> None:
    store = await open_store(embed_url=word_server.url)
    await add(store, *(note(f"alpha beta {i}", external_ref=f"x{i}") for i in range(200)))
    await add(store, *(note(f"alpha gamma {i}", external_ref=f"k{i}", kind="rare") for i in range(8)))
    await store.embedding.drain("acme")
    assert len(refs(await find(store, "alpha beta", kinds=("rare",), limit=8))) == 8


async def test_eight_visible_among_two_hundred_better_invisible_ones(
    open_store: OpenStore, word_server: ModelServer
) -> None:
    store = await open_store(embed_url=word_server.url)
    await add(store, *(note("alpha beta gamma", external_ref=f"x{i}") for i in range(200)), principal="eve")
    await add(store, *(note(f"alpha and more {i}", external_ref=f"n{i}") for i in range(8)))
    await store.embedding.drain("acme")
    found = await find(store, "alpha beta gamma", limit=8)
    assert sorted(refs(found)) == [f"n{i}" for i in range(8)]


async def test_what_is_invisible_changes_no_score(open_store: OpenStore, word_server: ModelServer) -> None:
    """Documents, neighbours in a thread, and evidence: all computed over what the caller sees."""
    store = await open_store(embed_url=word_server.url)
    await add(store, turn(1, "Where do we meet?"), turn(3, "At the harbour, near the crane."))
    await add(store, *(note(f"Filler {i}.", external_ref=f"f{i}") for i in range(5)))
    before = await find(store, "where do we meet at the harbour", explain=True)
    secret = turn(2, "We meet at the harbour, where the crane stands?", external_ref="secret")
    await add(store, secret, principal="eve")
    await add(store, *(note(f"harbour meet {i}", external_ref=f"e{i}") for i in range(50)), principal="eve")
    await store.embedding.drain("acme")
    after = await find(store, "where do we meet at the harbour", explain=True)
    assert [(i.external_ref, i.score, i.explain) for i in after.items] == [
        (i.external_ref, i.score, i.explain) for i in before.items
    ]
    assert (after.evidence, after.degraded) == (before.evidence, before.degraded)


async def test_another_tenants_words_are_not_there(store: PostgresDocumentStore) -> None:
    await add(store, note("A zeppelin.", external_ref="n1"), tenant="acme-corp")
    found = await find(store, "zeppelin")
    assert (found.items, found.evidence) == ((), EvidenceLevel.NONE)


async def test_deprecated_text_shows_on_request_only(store: PostgresDocumentStore, owner: Owner) -> None:
    await add(store, note("alpha", external_ref="old"), note("alpha", external_ref="new"))
    await owner.execute(
        "UPDATE memory.version v SET status = 'deprecated' FROM memory.document d "
        "WHERE d.id = v.document_id AND d.external_ref = 'old'"
    )
    await owner.execute(
        "UPDATE memory.search_row r SET status = 'deprecated' FROM memory.document d "
        "WHERE d.id = r.document_id AND d.external_ref = 'old'"
    )
    assert refs(await find(store, "alpha")) == ["new"]
    both = await find(store, "alpha", include_deprecated=True, max_per_document=5)
    statuses = {item.external_ref: item.attribution.status for item in both.items if item.attribution}
    assert statuses.get("old", "deprecated") == "deprecated"
    assert "new" in statuses or "old" in statuses


async def test_a_reply_is_found_by_its_question(store: PostgresDocumentStore) -> None:
    await add(
        store,
        turn(1, "Where did you go on holiday?", author="Ann"),
        turn(2, "To Lisbon, it was lovely.", author="Bob"),
        turn(1, "Nothing happened.", author="Ann", thread="t2"),
        turn(2, "Sure.", author="Bob", thread="t2"),
    )
    found = await find(store, "Where did Bob go on holiday?", explain=True)
    assert refs(found)[:2] == ["t1:1", "t1:2"]
    reply = found.items[1].explain
    assert reply is not None
    assert reply["parts"]["answer"] > 0


async def test_notes_and_turns_compare(store: PostgresDocumentStore) -> None:
    await add(
        store,
        turn(1, "We talked about gardens."),
        note("A zeppelin flew over the gardens.", external_ref="n"),
    )
    assert refs(await find(store, "zeppelin gardens"))[0] == "n"


async def test_one_chunk_a_document_unless_more_are_asked_for(store: PostgresDocumentStore) -> None:
    text = "\n\n".join(f"Paragraph {i} speaks of zeppelins. " + "filler " * 390 for i in range(5))
    await add(store, note(text, external_ref="long"), note("zeppelins too", external_ref="short"))
    assert sorted(refs(await find(store, "zeppelins"))) == ["long", "short"]
    assert refs(await find(store, "zeppelins", max_per_document=3)).count("long") == 3


async def test_restatements_collapse(store: PostgresDocumentStore) -> None:
    await add(store, *(note("The pool closes at nine today.", external_ref=f"n{i}") for i in range(5)))
    await add(store, note("The pool closes at ten today.", external_ref="ten"))
    found = refs(await find(store, "pool closes"))
    assert len(found) == 2
    assert "ten" in found


async def test_an_answer_about_something_else_is_not_strong(store: PostgresDocumentStore) -> None:
    await add(store, *(note(f"The garden needs water on day {i}.", external_ref=f"g{i}") for i in range(20)))
    assert (await find(store, "garden water")).evidence is EvidenceLevel.STRONG
    found = await find(store, "quarterly revenue forecast of the airline on a sunny day")
    assert found.evidence in (EvidenceLevel.NONE, EvidenceLevel.WEAK)
    assert (await find(store, "zyzzyva")).items == ()


async def test_the_same_search_twice_is_the_same(open_store: OpenStore, word_server: ModelServer) -> None:
    store = await open_store(embed_url=word_server.url)
    await add(
        store, *(note("alpha beta", title=f"T{i}", external_ref=f"n{i}", occurred_at=NOON) for i in range(40))
    )
    await store.embedding.drain("acme")
    runs = [[(i.chunk_id, i.score) for i in (await find(store, "alpha", limit=20)).items] for _ in range(3)]
    assert runs[0] == runs[1] == runs[2]


async def test_languages_live_side_by_side(store: PostgresDocumentStore) -> None:
    await add(
        store,
        note("Die Häuser wurden verkauft.", external_ref="de", language="german"),
        note("The houses were sold.", external_ref="en"),
        note("Exact Häuser words.", external_ref="s", language="simple"),
    )
    assert refs(await find(store, "Haus"))[0] == "de"
    assert refs(await find(store, "house"))[0] == "en"


async def test_explain_names_each_part(open_store: OpenStore, word_server: ModelServer) -> None:
    store = await open_store(embed_url=word_server.url)
    await add(store, note("The pool closes at nine.", external_ref="n1"))
    item = first(await find(store, "pool", explain=True))
    assert item.explain is not None
    assert item.explain["profile"] == "default"
    assert set(item.explain["foundBy"]) == {"lexical", "dense"}
    assert {"x", "thread", "length", "authority"} <= set(item.explain["parts"])
    assert first(await find(store, "pool")).explain is None


async def test_an_unknown_generation_is_empty(store: PostgresDocumentStore) -> None:
    await add(store, note("alpha"))
    assert refs(await find(store, "alpha", generation="g_unknown")) == []


async def test_a_tenant_without_documents_gets_an_empty_answer(store: PostgresDocumentStore) -> None:
    found = await find(store, "alpha", tenant="nobody")
    assert (found.items, found.evidence) == ((), EvidenceLevel.NONE)


async def test_the_attribution_says_who_and_when(store: PostgresDocumentStore) -> None:
    await add(store, dataclasses.replace(turn(1, "We sail at dawn.", author="Bob"), valid_until=NOON))
    shown = first(await find(store, "sail dawn")).attribution
    assert shown is not None
    assert (shown.owner, shown.author, shown.thread, shown.version, shown.status) == (
        "ann",
        "Bob",
        "t1",
        1,
        "active",
    )
    assert shown.occurred_at == NOON + timedelta(minutes=1)
    assert shown.valid_until == NOON


async def test_a_connection_that_the_server_closed_is_replaced(
    store: PostgresDocumentStore, owner: Owner
) -> None:
    await add(store, note("a needle", external_ref="hit"))
    assert refs(await find(store, "needle")) == ["hit"]
    await owner.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        "WHERE application_name = 'corbits-memory' AND datname = current_database()"
    )
    assert refs(await find(store, "needle")) == ["hit"]


@pytest.mark.parametrize("name", ["o'brien", "100%", "%s", "%(query)s", "a\\'b", "x; COMMIT", '"', "租户"])
async def test_names_and_queries_may_hold_any_sign(store: PostgresDocumentStore, name: str) -> None:
    """They are quoted into the statement that begins the transaction."""
    await add(store, note(f"a needle of {name}", external_ref="hit"), tenant=name, principal=name)
    await add(store, note("a needle of another", external_ref="other"), tenant="other", principal=name)
    assert refs(await find(store, f"needle {name}", tenant=name, principal=name)) == ["hit"]
    assert refs(await find(store, f"needle {name}", tenant=name, principal="somebody")) == []


@pytest.mark.parametrize("query", ["needle", "nothing that anybody wrote", ""])
async def test_a_search_leaves_no_transaction_open(
    store: PostgresDocumentStore, owner: Owner, query: str
) -> None:
    await add(store, note("a needle", kind="memo"))
    await find(store, query, kinds=("memo",))
    # Who listens for news of the feed may be sending some at this moment, and is done at once.
    async with asyncio.timeout(5):
        while "idle in transaction" in await states(owner):  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.05)


async def states(owner: Owner) -> list[str]:
    rows = await owner.execute(
        "SELECT state FROM pg_stat_activity WHERE application_name = 'corbits-memory' AND datname = current_database()"
    )
    return [state async for (state,) in rows]
