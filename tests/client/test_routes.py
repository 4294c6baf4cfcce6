"""Every route over the reference host on Postgres, from both clients."""

import asyncio
import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest

from corbits_memory import MemoryClient, SyncMemoryClient, errors
from corbits_memory.client import Call, routes
from corbits_memory.core.enums import AddStatus, Capability, EvidenceLevel, FeedOp
from corbits_memory.core.limits import BODY_BYTES
from corbits_memory.http.operations import OPERATIONS
from corbits_memory.ports import Caller
from corbits_memory.wire.requests import AddFileRequest, AddRequest
from corbits_memory.wire.responses import AddResponse, ErrorResponse
from tests.client.conftest import OpenClient, Send
from tests.extract.files import pdf
from tests.server.support import Host

CALLS: dict[str, Callable[[], Call[Any]]] = {
    "memory_add": lambda: routes.add(title="t", text="x"),
    "memory_add_batch": lambda: routes.add_batch([]),
    "memory_add_file": lambda: routes.add_file(b"x", filename="a.txt"),
    "memory_search": lambda: routes.search("q"),
    "memory_context": lambda: routes.context("q"),
    "memory_list": routes.list_documents,
    "memory_capabilities": routes.capabilities,
    "memory_share": lambda: routes.share("{document_id}"),
    "memory_unshare": lambda: routes.unshare("{document_id}"),
    "memory_forget": lambda: routes.forget("{document_id}"),
    "memory_purge": lambda: routes.purge("{document_id}"),
    "memory_retention_class": lambda: routes.set_retention_class("{version_id}", "durable"),
    "memory_audit": routes.audit,
    "memory_document": lambda: routes.document("{document_id}"),
    "memory_lookup": lambda: routes.lookup("a"),
    "memory_history": lambda: routes.history("{document_id}"),
    "memory_version": lambda: routes.version("{version_id}"),
    "memory_feed": routes.feed_page,
    "memory_subscribe": lambda: routes.subscribe("https://h"),
    "memory_subscriptions": routes.subscriptions,
    "memory_unsubscribe": lambda: routes.unsubscribe("{subscription_id}"),
    "memory_dead_letters": lambda: routes.dead_letters("{subscription_id}"),
    "memory_replay": lambda: routes.replay("{subscription_id}"),
    "memory_transform_create": lambda: routes.create_transform("n", {}),
    "memory_transforms": routes.transforms,
    "memory_transform": lambda: routes.transform("{config_id}"),
    "memory_transform_diff": lambda: routes.diff_transforms("{config_id}", "{other_id}"),
    "memory_transform_delete": lambda: routes.delete_transform("{config_id}"),
    "memory_transform_run": lambda: routes.run_transform("{config_id}"),
    "memory_transform_runs": routes.transform_runs,
    "memory_queries": routes.sampled_queries,
    "memory_transform_run_status": lambda: routes.transform_run("{run_id}"),
    "memory_transform_pause": lambda: routes.pause_transform_run("{run_id}"),
    "memory_transform_resume": lambda: routes.resume_transform_run("{run_id}"),
    "memory_transform_cancel": lambda: routes.cancel_transform_run("{run_id}"),
    "memory_transform_retry": lambda: routes.retry_transform_run("{run_id}"),
    "memory_promote": lambda: routes.promote("{generation}"),
    "memory_demote": lambda: routes.demote("{generation}"),
}
STREAMED = {"memory_feed_stream"}
"""`follow`, which test_follow.py is about."""


def test_the_client_has_every_route() -> None:
    assert {operation.id for operation in OPERATIONS} == CALLS.keys() | STREAMED
    for operation in OPERATIONS:
        if operation.id in STREAMED:
            continue
        call = CALLS[operation.id]()
        path = call.path.replace("%7B", "{").replace("%7D", "}")
        assert (call.method, path, call.answer) == (operation.method, operation.path, operation.response)


def test_both_clients_have_every_verb() -> None:
    verbs = {name for name in vars(MemoryClient) if not name.startswith("_")} - {"send", "aclose"}
    assert verbs == {name for name in vars(SyncMemoryClient) if not name.startswith("_")} - {"send", "close"}
    assert len(verbs) == len(CALLS) + len(STREAMED)
    for name in verbs:
        for client in (MemoryClient, SyncMemoryClient):
            assert getattr(client, name).__doc__


@pytest.mark.parametrize(
    ("operation", "route"),
    [("memory_add", routes.add), ("memory_search", routes.search), ("memory_context", routes.context)],
)
def test_a_verb_takes_every_field_of_its_request(operation: str, route: Callable[..., Call[Any]]) -> None:
    request = next(found.request for found in OPERATIONS if found.id == operation)
    assert request is not None
    taken = set(inspect.signature(route).parameters) - {"idempotency_key"}
    assert taken == set(request.model_fields)


def test_a_file_is_added_with_every_field_of_its_request() -> None:
    taken = set(inspect.signature(routes.add_file).parameters)
    assert taken - {"data", "filename", "mime_type", "idempotency_key"} == set(
        AddFileRequest.model_fields
    ) - {"file"}


@pytest.fixture
async def send(host: Host, open_client: OpenClient) -> Send:
    made = await host.tokens.create(tenant_id="acme", principal_id="ann", capabilities=frozenset(Capability))
    return open_client(host.url, token=made.secret)


async def test_a_search_is_read_page_by_page(send: Send, colour: str) -> None:
    kind = f"barge-{colour}"
    for n in range(3):
        await send(routes.add(title=f"Barge {n}", text=f"The barge number{n} floats.", kind=kind))
    found = await send(routes.search("barge", kinds=[kind], limit=2))
    assert found.next_cursor is not None
    rest = await send(routes.search("barge", kinds=[kind], limit=2, cursor=found.next_cursor))
    assert sorted(item.title for item in (*found.items, *rest.items)) == ["Barge 0", "Barge 1", "Barge 2"]
    assert rest.next_cursor is None
    with pytest.raises(errors.InvalidCursorError):
        await send(routes.search("another question", cursor=found.next_cursor))


async def test_what_is_added_is_found_read_and_forgotten(send: Send, colour: str) -> None:
    ref = f"deploys-{colour}"
    added = await send(
        routes.add(
            title="Deploys",
            text=f"Fridays are frozen, says {colour}.",
            external_ref=ref,
            occurred_at=datetime(2026, 5, 7, tzinfo=UTC),
            attributes={"team": "eng", "none": None},
            access_tags=["memory.space:eng"],
            share={"tenant": True},
        )
    )
    assert added.status is AddStatus.CREATED
    assert added.share is not None
    found = await send(routes.search(f"frozen {colour}", include_evidence=True, kinds=["note"], limit=1))
    assert found.items[0].document_id == added.document_id
    assert found.evidence in EvidenceLevel
    strong = await send(routes.search(f"frozen {colour}", min_evidence="strong"))
    assert all(item.attribution and item.attribution.evidence == "strong" for item in strong.items)
    context = await send(routes.context(f"frozen {colour}", max_tokens=100, min_evidence="weak"))
    assert f"Fridays are frozen, says {colour}." in context.context
    assert context.items[0].document_id == added.document_id
    assert context.tokens <= context.max_tokens == 100
    assert added.document_id in {event.document_id for event in (await send(routes.list_documents())).events}
    document = await send(routes.document(added.document_id))
    assert document.external_ref == ref
    assert document.current.attributes == {"team": "eng", "none": None}
    assert document.current.occurred_at == "2026-05-07T00:00:00.000Z"
    history = await send(routes.history(added.document_id, limit=1))
    assert [entry.version_id for entry in history.versions] == [added.version_id]
    version = await send(routes.version(added.version_id))
    assert version.text[0].text == f"Fridays are frozen, says {colour}."
    kept = await send(routes.set_retention_class(added.version_id, "durable"))
    assert kept.retention_class == "durable"
    unshared = await send(routes.unshare(added.document_id, tenant=True))
    assert "memory.tenant:acme" not in unshared.share.tags
    shared = await send(routes.share(added.document_id, tags=["memory.space:ops"]))
    assert "memory.space:ops" in shared.share.tags
    with pytest.raises(errors.DurableDocumentError):
        await send(routes.purge(added.document_id))
    assert (await send(routes.forget(added.document_id))).versions == 1
    assert (await send(routes.purge(added.document_id))).deleted
    events = (await send(routes.audit(target_id=added.document_id))).events
    assert {"forget", "purge"} <= {event.action for event in events}
    assert not (await send(routes.capabilities())).embeddings_configured


async def test_a_file_is_added_found_and_not_added_again(send: Send, colour: str) -> None:
    data = pdf(f"The ferry of {colour} leaves at noon.", title="Timetable")
    call = routes.add_file(data, filename="ferry.pdf", external_ref=f"ferry-{colour}", kind="timetable")
    added = await send(call)
    assert added.status is AddStatus.CREATED
    found = await send(routes.search(f"ferry {colour}", kinds=["timetable"]))
    assert (found.items[0].document_id, found.items[0].title) == (added.document_id, "Timetable")
    # The same call again carries its key, another call is compared.
    assert await send(call) == added
    again = await send(
        routes.add_file(data, filename="ferry.pdf", external_ref=f"ferry-{colour}", kind="timetable")
    )
    assert again.status is AddStatus.UNCHANGED
    with pytest.raises(errors.EncryptedFileError):
        await send(routes.add_file(pdf("a", password="x"), filename="a.pdf"))


async def test_a_batch_has_an_answer_or_an_error_for_each(send: Send) -> None:
    answer = await send(routes.add_batch([AddRequest(title="a", text="b"), {"title": "no text"}]))
    assert [type(result) for result in answer.results] == [AddResponse, ErrorResponse]


async def test_the_feed_and_its_webhooks(send: Send) -> None:
    before = (await send(routes.feed_page(limit=100))).next_cursor or 0
    await send(routes.add(title="t", text="some words", generator_agent_id="bot"))
    page = await send(routes.feed_page(after=before, include_text=True, ops=["upsert", "retract"]))
    assert [entry.text for entry in page.entries if entry.op is FeedOp.UPSERT] == ["some words"]
    assert not (await send(routes.feed_page(after=before, exclude_generator="bot"))).entries
    with pytest.raises(errors.InvalidCursorError):
        await send(routes.feed_page(after=10**9))
    with pytest.raises(errors.InvalidInputError, match="url"):
        await send(routes.subscribe("http://127.0.0.1/hook"))
    assert (await send(routes.subscriptions())).subscriptions == []
    for call in (routes.unsubscribe("x"), routes.dead_letters("x", limit=1), routes.replay("x", seqs=[1])):
        with pytest.raises(errors.NotFoundError):
            await send(call)


async def test_refusals_come_in_their_classes(host: Host, send: Send, open_client: OpenClient) -> None:
    with pytest.raises(errors.InvalidInputError) as raised:
        await send(routes.search("", limit=99))
    assert isinstance(raised.value.details, list)
    assert {found["field"] for found in raised.value.details} == {"query", "limit"}
    assert raised.value.request_id
    with pytest.raises(errors.UnauthorizedError):
        await open_client(host.url, token="cmt_wrong")(routes.list_documents())
    made = await host.tokens.create(
        tenant_id="acme", principal_id="bob", capabilities=frozenset({Capability.ADD})
    )
    with pytest.raises(errors.ForbiddenError):
        await open_client(host.url, token=made.secret)(routes.list_documents())
    with pytest.raises(errors.TenantMismatchError):
        await open_client(host.url, token=made.secret, tenant="other")(routes.add(title="t", text="x"))
    with pytest.raises(errors.TooLargeError):
        await send(routes.add(title="t", text="x" * BODY_BYTES))


async def test_retries_after_lost_answers_add_once(host: Host) -> None:
    """A proxy that passes requests on and loses the first answers."""
    headers = await host.token(Caller("acme", "lost"))
    token = headers["authorization"].removeprefix("Bearer ")
    lost = 0

    class Losing(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            nonlocal lost
            answer = await super().handle_async_request(request)
            if request.method == "POST" and lost < 2:
                lost += 1
                await answer.aclose()
                raise httpx2.ReadError("the connection broke")
            return answer

    async with MemoryClient(host.url, tenant="acme", token=token, transport=Losing()) as client:
        await client.capabilities()
        added = await client.add(title="Once", text="The same words.")
        listed = await client.list()
    assert lost == 2
    assert [event.document_id for event in listed.events] == [added.document_id]


async def test_many_calls_at_once_over_one_client(host: Host) -> None:
    headers = await host.token(Caller("acme", "many"))
    token = headers["authorization"].removeprefix("Bearer ")
    async with MemoryClient(host.url, tenant="acme", token=token) as client:
        await asyncio.gather(*(client.add(title=str(n), text=f"number {n}") for n in range(20)))
        assert len((await client.list(limit=100)).events) == 20
    with SyncMemoryClient(host.url, tenant="acme", token=token) as blocking:
        answers = await asyncio.gather(*(asyncio.to_thread(blocking.search, f"number {n}") for n in range(8)))
    assert all(answer.items for answer in answers)
