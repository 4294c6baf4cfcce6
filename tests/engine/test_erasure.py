"""A secret that went in through every path is nowhere after it was forgotten: a dump of every table, the planner's
statistics, logs, messages of errors, and, after a scrub, the database's files."""

import logging
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from corbits_memory.core.enums import EdgeRel, HintEnd, RetentionClass
from corbits_memory.distiller.cursors import Consumer
from corbits_memory.distiller.postgres import PostgresCursors
from corbits_memory.engine.query_log import DAYS
from corbits_memory.engine.scrub import scrub
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.errors import MemoryError
from corbits_memory.ports import AddResult, EdgeHint, EntityHint, NewDocument, TextPart
from tests.engine.conftest import word_vector
from tests.engine.support import NOON, OpenStore, P, T, add, find, note, turn
from tests.engine.test_retention import forget, purge, replay, rows, set_class
from tests.models.conftest import Answer, ModelServer, Request
from tests.support.postgres import run_dir

Owner = psycopg.AsyncConnection[Any]

SECRET = "zyqorvexin"
"""A word that nothing else holds; in lower case, as lexemes are."""


def secret_turn(text: str, **fields: Any) -> NewDocument:
    """A document that holds the secret in every field that takes free text."""
    defaults: dict[str, Any] = {
        "title": f"About {SECRET}",
        "parts": (TextPart(text=text, role=f"{SECRET}-speaker"), TextPart(text=f"And {SECRET} again.")),
        "external_ref": f"file:///home/{SECRET}.md",
        "attributes": {f"{SECRET}-key": f"{SECRET}-value"},
        "generator_agent_id": f"{SECRET}-agent",
        "thread": f"{SECRET}-thread",
        "author": f"{SECRET}-author",
        "occurred_at": NOON,
        "valid_until": NOON + timedelta(days=900),
        "entity_hints": (
            EntityHint(kind="person", identifier=f"{SECRET}@example.com", label=f"{SECRET} the person"),
            EntityHint(kind="person", identifier="shared@example.com", label=f"{SECRET} calls them so"),
        ),
        "edges": (
            EdgeHint(rel=EdgeRel.ABOUT, type=HintEnd.NATIVE, ref=f"{SECRET}-principal"),
            EdgeHint(rel=EdgeRel.PART_OF, type=HintEnd.DOCUMENT, ref=f"{SECRET}-elsewhere"),
        ),
    }
    return NewDocument(**{**defaults, **fields})


async def dump(owner: Owner) -> dict[str, str]:
    """Every row of every table of this database as text, the statistics of the planner among them."""
    tables = await rows(
        owner,
        "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE c.relkind IN ('r', 'm', 'p') AND (n.nspname !~ '^pg_|^information_schema$' "
        "OR c.relname IN ('pg_statistic', 'pg_statistic_ext_data', 'pg_description'))",
    )
    found = {}
    for schema, table in tables:
        statement = sql.SQL("SELECT coalesce(string_agg(t::text, E'\\n'), '') FROM {} AS t").format(
            sql.Identifier(schema, table)
        )
        (row,) = await (await owner.execute(statement)).fetchall()
        found[f"{schema}.{table}"] = row[0]
    return found


def holding(dumped: dict[str, str], *needles: str) -> set[str]:
    return {name for name, text in dumped.items() if any(needle in text.lower() for needle in needles)}


async def vectors(owner: Owner) -> dict[str, list[float]]:
    """Every vector, by chunk."""
    (key,) = (await rows(owner, "SELECT model_key FROM memory.embed_model WHERE status = 'active'"))[0]
    found = await rows(owner, f"SELECT chunk_id, embedding::text FROM memory.embedding_{key}")
    return {chunk: [float(x) for x in text.strip("[]").split(",")] for chunk, text in found}


def embed_telling(request: Request) -> Answer:
    """The words' vectors; the first place says whether the secret was among them."""
    texts = request.body["input"]
    made = [[100.0 * (SECRET in text.lower()), *word_vector(text)[1:]] for text in texts]
    return Answer({"data": [{"index": i, "embedding": vector} for i, vector in enumerate(made)]})


@pytest.fixture
def word_server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        server.script(embed_telling)
        yield server


async def telling(owner: Owner) -> int:
    """How many vectors were made of a text with the secret in it."""
    return sum(vector[0] > 1 for vector in (await vectors(owner)).values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Flooded:
    """``claims``: made of the document, directly and by way of another. ``hashes``: tell its texts."""

    document_id: str
    claims: tuple[str, ...]
    hashes: list[str]


async def flood(store: PostgresDocumentStore, owner: Owner) -> Flooded:
    """The secret, by every path."""
    await add(
        store,
        note("Known to others.", entity_hints=(EntityHint(kind="person", identifier="shared@example.com"),)),
    )
    (first,) = await add(store, secret_turn(f"First, {SECRET} was here."))
    hashes = await hashes_of(owner, first)
    (second,) = await add(store, secret_turn(f"Then {SECRET} left.", retention_class=RetentionClass.DURABLE))
    assert second.document_id == first.document_id
    claims = []
    for source in (first, second):
        (claim,) = await add(store, claim_of(source, f"file:///claims/{SECRET}.md"))
        claims.append(claim)
    (beyond,) = await add(store, claim_of(claims[-1], f"file:///claims/of/{SECRET}.md"))
    for added in (second, *claims, beyond):
        hashes += await hashes_of(owner, added)
    hashes += [
        value
        for (value,) in await rows(
            owner, "SELECT source_hash FROM memory.raw_capture WHERE raw_text LIKE %s", f"%{SECRET}%"
        )
    ]
    await replay(owner, "g1")
    await replay(owner, "g-archived", status="archived")
    await owner.execute(
        "UPDATE memory.version SET deprecated_reason = %s WHERE document_id = %s", [SECRET, first.document_id]
    )
    await fail_to_distil(store, first, second, *claims, beyond)
    assert (await find(store, SECRET)).items
    return Flooded(
        document_id=first.document_id, claims=(claims[0].document_id, beyond.document_id), hashes=hashes
    )


def claim_of(source: AddResult, external_ref: str) -> NewDocument:
    """What somebody concluded from a version, and quotes."""
    return secret_turn(
        f"It follows from {source.version_id} that {SECRET} is back.",
        external_ref=external_ref,
        derived_from=(source.version_id,),
    )


async def hashes_of(owner: Owner, added: AddResult) -> list[str]:
    found = await rows(owner, "SELECT content_hash FROM memory.version WHERE id = %s", added.version_id)
    return [value for (value,) in found]


async def fail_to_distil(store: PostgresDocumentStore, *versions: AddResult) -> None:
    """Each fails with a reason that quotes it, some for good."""
    consumer = Consumer(tenant_id=T, principal_id=P, agent_id="distiller")
    lease = await PostgresCursors(store._database).claim(consumer)
    assert lease is not None
    for seq, added in enumerate(versions, 1):
        await lease.fail(
            seq=seq,
            version_id=added.version_id,
            attempts=1,
            reason=f"the model can't make sense of {SECRET}",
            dead=bool(seq % 2),
            wait_seconds=0,
        )
    await lease.release()


async def erase(store: PostgresDocumentStore, owner: Owner, verb: str, flooded: Flooded) -> None:
    """The document, and what was made of it."""
    if verb == "forget":
        forgotten = await forget(store, flooded.document_id, cascade=True)
        assert {claim.document_id for claim in forgotten.derived if claim.forgotten} == set(flooded.claims)
        return
    for (version,) in await rows(
        owner, "SELECT id FROM memory.version WHERE document_id = %s", flooded.document_id
    ):
        await set_class(store, version, RetentionClass.STANDARD)
    purged = await purge(store, flooded.document_id)
    assert {claim.document_id for claim in purged.derived} == set(flooded.claims)
    for claim in flooded.claims:
        await purge(store, claim)


def reveal(store: PostgresDocumentStore, document_id: str) -> list[Awaitable[Any]]:
    """Calls that end in an error about the document."""
    return [
        forget(store, f"{SECRET}-unknown"),
        forget(store, document_id, by="bob"),
        purge(store, document_id, by="bob"),
        store.add(
            tenant_id=T,
            principal_id="bob",
            documents=[
                secret_turn("Bob's.", external_ref=f"erased:{SECRET}"),
                secret_turn(SECRET, language=SECRET),
            ],
        ),
        set_class(store, "kver_unknown", RetentionClass.DURABLE),
    ]


@pytest.mark.parametrize("verb", ["forget", "purge"])
async def test_no_table_statistic_log_or_message_keeps_the_secret(
    open_store: OpenStore,
    word_server: ModelServer,
    owner: Owner,
    verb: str,
    caplog: pytest.LogCaptureFixture,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    caplog.set_level(logging.DEBUG)
    store = await open_store(embed_url=word_server.url)
    flooded = await flood(store, owner)
    assert await telling(owner) > 0
    await store.statistics.refresh(T)
    await owner.execute("ANALYZE")
    before = await dump(owner)
    assert {
        "memory.document",
        "memory.version",
        "memory.chunk",
        "memory.raw_capture",
        "memory.entity",
        "memory.edge",
        "memory.search_row",
        "memory.distill_failure",
    } <= holding(before, SECRET)
    terms = await secret_terms(owner)
    assert await counted(owner, terms) > 0
    taken = store.add(tenant_id=T, principal_id="bob", documents=[secret_turn("Bob's too.")])
    messages = [str(error) async for error in errors([taken])]
    assert len(messages) == 1
    messages += [str(error) async for error in errors(reveal(store, flooded.document_id))]

    await erase(store, owner, verb, flooded)

    messages += [str(error) async for error in errors(reveal(store, flooded.document_id))]
    after = await dump(owner)
    assert holding(after, SECRET, *flooded.hashes) == set()
    await owner.execute("ANALYZE")
    assert holding(await dump(owner), SECRET) == set()
    assert await counted(owner, terms) == 0
    assert await telling(owner) == 0
    assert SECRET not in "\n".join(messages)
    assert SECRET not in caplog.text.lower()
    server_log = run_dir(tmp_path_factory) / "postgres"
    logs = [path for path in server_log.rglob("*.log*") if path.is_file()]
    assert logs
    assert all(SECRET.encode() not in path.read_bytes() for path in logs)


async def secret_terms(owner: Owner) -> list[int]:
    """The hashes of the secret word in each generation."""
    found = await rows(
        owner,
        "SELECT memory.term_hash(%s, g.generation, %s) FROM (SELECT DISTINCT generation FROM memory.version) AS g",
        T,
        SECRET,
    )
    return [term for (term,) in found]


async def counted(owner: Owner, terms: list[int]) -> int:
    """In how many places a term stands."""
    (row,) = await rows(
        owner,
        "SELECT (SELECT count(*) FROM memory.term_stat WHERE term = ANY (%s)) "
        "+ (SELECT count(*) FROM memory.search_row WHERE terms && %s)",
        terms,
        terms,
    )
    return int(row[0])


async def errors(calls: list[Awaitable[Any]]) -> Any:
    """The errors in which calls end, raised or answered."""
    for call in calls:
        try:
            answer = await call
        except MemoryError as error:
            yield error
            continue
        for item in answer if isinstance(answer, list) else ():
            if isinstance(item, MemoryError):
                yield item


async def test_a_label_is_gone_with_the_next_analyse(store: PostgresDocumentStore, owner: Owner) -> None:
    """Kinds and tags are labels: the row's own are emptied, and the planner forgets when it looks again."""
    (added,) = await add(store, *[note("Text.", kind=SECRET)])
    await add(store, note("Other."))
    await owner.execute("ANALYZE")
    await forget(store, added.document_id)
    assert holding(await dump(owner), SECRET) <= {"pg_catalog.pg_statistic"}
    await owner.execute("ANALYZE")
    assert holding(await dump(owner), SECRET) == set()


@pytest.mark.parametrize("verb", ["forget", "purge"])
async def test_a_kept_question_may_quote_it_for_a_week_and_nothing_else_does(
    open_store: OpenStore, owner: Owner, verb: str
) -> None:
    """The one table that an erasure passes over, and only where an operator asks for it."""
    store = await open_store(query_log_percent=100)
    flooded = await flood(store, owner)
    await store.query_log.close()
    await erase(store, owner, verb, flooded)
    await owner.execute("ANALYZE")
    assert holding(await dump(owner), SECRET) == {"memory.query_log"}
    await owner.execute(
        "UPDATE memory.query_log SET asked_at = now() - make_interval(days => %s, secs => 1)", [DAYS]
    )
    assert await store.query_log.sweep() == 1
    assert holding(await dump(owner), SECRET) == set()


# --- other documents that hold some of it ---


async def test_entities_go_with_the_last_document_that_names_them(
    store: PostgresDocumentStore, owner: Owner
) -> None:
    def hint(name: str) -> EntityHint:
        return EntityHint(kind="person", identifier=name, label=f"{name}'s label")

    (first, _) = await add(
        store,
        note("One.", entity_hints=(hint("only"), hint("both"))),
        note("Two.", entity_hints=(hint("both"),)),
    )
    await forget(store, first.document_id)
    assert await rows(owner, "SELECT identifiers ->> 'value', label FROM memory.entity") == [("both", None)]
    assert await rows(owner, "SELECT count(*) FROM memory.edge") == [(1,)]
    await add(store, note("Three.", entity_hints=(hint("both"), hint("only"))))
    assert await rows(owner, "SELECT label FROM memory.entity ORDER BY label") == [
        ("both's label",),
        ("only's label",),
    ]


@pytest.mark.parametrize("verb", [forget, purge])
async def test_the_turn_after_a_forgotten_one_is_embedded_anew(
    open_store: OpenStore, word_server: ModelServer, owner: Owner, verb: Any
) -> None:
    store = await open_store(embed_url=word_server.url)
    added = await add(store, turn(1, f"The word is {SECRET}."), turn(2, "And then?"), turn(3, "Nothing."))
    await store.embedding.drain(T)
    assert await telling(owner) == 2
    await verb(store, added[0].document_id)
    assert (len(await vectors(owner)), await telling(owner)) == (1, 0)
    assert await store.pending_vectors(tenant_id=T, principal_id=P) == 1
    word_server.requests.clear()
    await store.embedding.drain(T)
    assert all(SECRET not in text for request in word_server.requests for text in request.body["input"])
    assert len(await vectors(owner)) == 2


async def test_a_turn_that_had_moved_to_another_thread_leaves_the_old_one_too(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    store = await open_store(embed_url=word_server.url)
    (moved, _) = await add(store, turn(1, f"The word is {SECRET}."), turn(2, "And then?"))
    await store.embedding.drain(T)
    await add(store, replace(turn(1, "It was moved."), thread="t2"))
    await forget(store, moved.document_id)
    assert await telling(owner) == 0


async def test_a_vector_that_was_being_made_meanwhile_is_not_kept(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    """The model was given a turn and the one before it; when it answers, that one is forgotten."""
    store = await open_store(embed_url=word_server.url)
    (first,) = await add(store, turn(1, f"The word is {SECRET}."))
    (second,) = await add(store, turn(2, "And then?"))
    await owner.execute("UPDATE memory.embed_queue SET not_before = now()")
    ((chunk,),) = await rows(owner, "SELECT id FROM memory.chunk WHERE version_id = %s", second.version_id)
    model: Any = store._embedder

    class Slow:
        """The model, whose answer comes after the turn before was forgotten."""

        def __getattr__(self, name: str) -> Any:
            return getattr(model, name)

        async def embed(self, texts: list[str], **fields: Any) -> list[list[float]]:
            answer: list[list[float]] = await model.embed(texts, **fields)
            assert any(SECRET in text for text in texts)
            await forget(store, first.document_id)
            return answer

    store.embedding._embedder = Slow()  # type: ignore[assignment]
    await store.embedding.embed(T, [chunk])
    assert await telling(owner) == 0
    assert await store.pending_vectors(tenant_id=T, principal_id=P) == 1
    store.embedding._embedder = model
    await store.embedding.drain(T)
    assert len(await vectors(owner)) == 1


async def test_a_models_complaint_about_a_batch_keeps_no_text(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    def complain(request: Request) -> Answer:
        return Answer({"error": f"can't read {request.body['input']}"}, status=503)

    store = await open_store(embed_url=word_server.url)
    word_server.script(complain)
    first, _ = await add(store, note(f"The word is {SECRET}, as agreed."), note("Another."))
    await owner.execute("UPDATE memory.embed_queue SET not_before = now()")
    await store.embedding.drain(T)
    assert (await rows(owner, "SELECT count(*) FROM memory.embed_queue WHERE error IS NOT NULL"))[0][0] > 0
    await forget(store, first.document_id)
    assert holding(await dump(owner), SECRET) == set()


# --- statistics of terms ---


async def test_terms_that_stood_elsewhere_are_counted_less(
    store: PostgresDocumentStore, owner: Owner
) -> None:
    added = await add(store, note("alpha beta"), note("alpha gamma"))
    await store.statistics.refresh(T)
    await forget(store, added[1].document_id)

    async def df(word: str) -> list[tuple[Any, ...]]:
        return await rows(
            owner, "SELECT df FROM memory.term_stat WHERE term = memory.term_hash(%s, 'g0', %s)", T, word
        )

    assert (await df("alpha"), await df("beta"), await df("gamma")) == ([(1,)], [(1,)], [])


async def test_text_that_was_counted_and_superseded_has_all_counted_anew(
    store: PostgresDocumentStore, owner: Owner
) -> None:
    (added,) = await add(store, note("alpha", external_ref="n1"))
    await store.statistics.refresh(T)
    await add(store, note("beta", external_ref="n1"))
    await forget(store, added.document_id)
    assert await rows(owner, "SELECT stats_at FROM memory.tenant_state") == [(None,)]
    await store.statistics.refresh_stale()
    assert await rows(owner, "SELECT count(*) FROM memory.term_stat") == [(0,)]


# --- what a replay will ask ---


@pytest.mark.parametrize("verb", ["forget", "purge"])
async def test_the_ledger_knows_every_raw_capture(
    store: PostgresDocumentStore, owner: Owner, verb: str
) -> None:
    (added,) = await add(store, note("One.", external_ref="n1"))
    await add(store, note("Two.", external_ref="n1"))
    captures = sorted(await rows(owner, "SELECT id FROM memory.raw_capture"))
    await (forget if verb == "forget" else purge)(store, added.document_id)
    assert sorted(await rows(owner, "SELECT raw_capture_id FROM memory.erasure")) == captures
    assert await rows(owner, "SELECT DISTINCT kind, document_id, by_principal_id FROM memory.erasure") == [
        (verb, added.document_id, P)
    ]


async def test_a_promoted_generation_retracts_what_is_forgotten(
    store: PostgresDocumentStore, owner: Owner
) -> None:
    (added,) = await add(store, note("The vault opens at nine."))
    await replay(owner, "g1")
    await owner.execute("UPDATE memory.tenant_state SET live_generation = 'g1'")
    assert len((await find(store, "vault")).items) == 1
    assert (await forget(store, added.document_id)).versions == 2
    for generation in ("g0", "g1"):
        await owner.execute("UPDATE memory.tenant_state SET live_generation = %s", [generation])
        assert (await find(store, "vault", include_deprecated=True)).items == ()
    assert await rows(owner, "SELECT count(*) FROM memory.feed_event WHERE op = 'retract'") == [(2,)]
    (again,) = await store.add(tenant_id=T, principal_id=P, documents=[note("Anew.")])
    assert isinstance(again, AddResult)


# --- files ---


@pytest.mark.parametrize("verb", ["forget", "purge"])
async def test_after_a_scrub_no_file_holds_the_secret(
    open_store: OpenStore,
    word_server: ModelServer,
    owner: Owner,
    verb: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    cluster = run_dir(tmp_path_factory) / "postgres"
    store = await open_store(embed_url=word_server.url)
    flooded = await flood(store, owner)
    await owner.execute("ANALYZE")
    await owner.execute("CHECKPOINT")
    assert await files_with(owner, cluster, SECRET)
    await erase(store, owner, verb, flooded)
    await owner.execute("CHECKPOINT")
    assert await files_with(owner, cluster, SECRET), "the dead rows are still there"
    done = await scrub(owner)
    assert done.left == ()
    assert done.tables > 30
    assert await files_with(owner, cluster, SECRET) == []
    assert (await find(store, "known")).items
    (after,) = await add(store, note("Still writable."))
    assert after.version == 1


async def files_with(owner: Owner, cluster: Path, needle: str) -> list[str]:
    """This database's files that hold some bytes."""
    ((oid,),) = await rows(owner, "SELECT oid::text FROM pg_database WHERE datname = current_database()")
    return _files_with(cluster, oid, needle)


def _files_with(cluster: Path, oid: str, needle: str) -> list[str]:
    (folder,) = cluster.glob(f"**/base/{oid}")
    return sorted(
        path.name for path in folder.iterdir() if path.is_file() and needle.encode() in path.read_bytes()
    )
