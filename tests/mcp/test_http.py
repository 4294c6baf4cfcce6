"""MCP at ``/mcp`` of the reference host, with the official client and real tokens over real Postgres."""

import asyncio
import json
from typing import Any

import anyio
import httpx2
import jsonschema_rs
import pytest
from mcp.shared.auth import ProtectedResourceMetadata
from mcp.shared.exceptions import MCPError
from mcp_types import TextContent, TextResourceContents

from corbits_memory.core.enums import Capability
from corbits_memory.core.limits import BODY_BYTES
from corbits_memory.plane import Memory
from corbits_memory.ports import Caller
from corbits_memory.server.app import host_app
from corbits_memory.server.mcp import METADATA_PATH
from corbits_memory.testing import FakeDocumentStore
from corbits_memory.tools import TOOLS
from corbits_memory.tools.mcp import documents, server
from mcp import Client
from tests.mcp.conftest import connected
from tests.server.support import Host, route

ANN, BOB, EVE = Caller("acme", "ann"), Caller("acme", "bob"), Caller("evil-corp", "ann")


async def call(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    """A result, told in both forms alike."""
    result = await client.call_tool(name, arguments)
    (content,) = result.content
    assert isinstance(content, TextContent)
    told: dict[str, Any] = json.loads(content.text)
    assert not result.is_error, told
    assert result.structured_content == told
    return told


async def test_what_is_offered(host: Host, mode: str) -> None:
    async with connected(host, ANN, mode=mode) as client:
        offered = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert "memory_context" in (client.instructions or "")
        assert list(offered) == [tool.name for tool in TOOLS]
        for tool in TOOLS:
            told = offered[tool.name]
            assert told.input_schema == tool.input_schema
            assert told.annotations is not None
            assert (
                told.annotations.read_only_hint,
                told.annotations.destructive_hint,
                told.annotations.idempotent_hint,
            ) == (tool.read_only, tool.destructive, tool.idempotent)
            assert told.output_schema is not None
            jsonschema_rs.meta.validate(told.output_schema)
            assert "description" not in json.dumps(told.output_schema)
        assert [prompt.name for prompt in (await client.list_prompts()).prompts] == [
            "save_to_memory",
            "recall_from_memory",
        ]
        (template,) = (await client.list_resource_templates()).resource_templates
        assert template.uri_template == "memory://document/{id}"


async def test_every_tool(host: Host, mode: str) -> None:
    who = Caller("acme", f"every-{mode}")
    async with connected(host, who, mode=mode) as client:
        await client.list_tools()  # the client checks results against the schemas that it was told
        added = await call(client, "memory_add", title="Deploys", text=f"Fridays are frozen in {mode}.")
        found = await call(client, "memory_search", query=f"frozen {mode}", limit="3")
        assert found["items"][0]["documentId"] == added["documentId"]
        assert "Fridays are frozen" in (await call(client, "memory_context", query="frozen"))["context"]
        listed = await call(client, "memory_list")
        assert [event["documentId"] for event in listed["events"]] == [added["documentId"]]
        assert (await call(client, "memory_feed"))["entries"][-1]["versionId"] == added["versionId"]
        history = await call(client, "memory_history", document_id=added["documentId"])
        assert history["versions"][0]["versionId"] == added["versionId"]
        assert (await call(client, "memory_forget", document_id=added["documentId"]))["versions"] == 1
        assert (await call(client, "memory_search", query="frozen"))["items"] == []


async def test_mcp_and_http_see_the_same(host: Host) -> None:
    who = Caller("acme", "both")
    headers = await host.token(who)
    async with connected(host, who) as client:
        by_mcp = await call(client, "memory_add", title="By MCP", text="one")
        by_http = await host.client.post(
            route("acme", "add"), json={"title": "By HTTP", "text": "two"}, headers=headers
        )
        listed = (await host.client.get(route("acme", "list"), headers=headers)).json()["events"]
        told = (await call(client, "memory_list"))["events"]
    assert told == listed
    assert {event["documentId"] for event in told} == {by_mcp["documentId"], by_http.json()["documentId"]}


async def test_two_principals_and_two_tenants_at_once(host: Host, mode: str) -> None:
    """Interleaved over the same process: nobody is ever answered as somebody else."""
    callers = [
        Caller(tenant, f"{name}-{mode}") for tenant in ("acme", "evil-corp") for name in ("ann", "bob")
    ]

    async def work(caller: Caller) -> None:
        own = f"{caller.tenant_id} {caller.principal_id}"
        async with connected(host, caller, mode=mode) as client:
            for n in range(5):
                await call(client, "memory_add", title=own, text=f"lighthouse {n} of {own}")
                found = await call(client, "memory_search", query="lighthouse", limit=50)
                assert {item["title"] for item in found["items"]} == {own}
                events = (await call(client, "memory_list"))["events"]
                assert {event["tenantId"] for event in events} == {caller.tenant_id}
                assert len(events) == n + 1

    await asyncio.gather(*map(work, callers))


async def test_no_argument_names_another_tenant(host: Host) -> None:
    async with connected(host, Caller("acme", "victim")) as client:
        secret = await call(client, "memory_add", title="Secret", text="the vault's code")
    hostile = {"tenantId": "acme", "tenant_id": "acme", "principalId": "victim", "principal_id": "victim"}
    for who in (Caller("acme", "thief"), Caller("evil-corp", "victim")):
        async with connected(host, who) as client:
            assert (await call(client, "memory_search", query="vault", **hostile))["items"] == []
            for name in ("memory_history", "memory_forget"):
                refused = await client.call_tool(name, {"document_id": secret["documentId"], **hostile})
                assert refused.is_error
                assert refused.content[0].type == "text"
                assert json.loads(refused.content[0].text)["error"]["code"] == "not_found"
            with pytest.raises(MCPError, match="not found"):
                await client.read_resource(f"memory://document/{secret['documentId']}")


async def test_a_capability_that_the_token_lacks(host: Host) -> None:
    reader = Caller("acme", "reader", frozenset({Capability.SEARCH}))
    async with connected(host, reader) as client:
        refused = await client.call_tool("memory_add", {"title": "a", "text": "b"})
        assert refused.is_error
        assert refused.content[0].type == "text"
        told = json.loads(refused.content[0].text)["error"]
        assert (told["code"], told["status"]) == ("forbidden", 403)
        assert (await call(client, "memory_search", query="a"))["items"] == []


async def test_bad_arguments_are_told_to_the_model(host: Host, mode: str) -> None:
    async with connected(host, ANN, mode=mode) as client:
        result = await client.call_tool("memory_search", {"query": "q", "limit": 99})
        assert result.is_error
        assert result.content[0].type == "text"
        assert json.loads(result.content[0].text)["error"]["code"] == "invalid_arguments"
        with pytest.raises(MCPError, match="memory_delete"):
            await client.call_tool("memory_delete", {})


# --- resources and prompts ---------------------------------------------------------------------------


async def test_documents_are_resources(host: Host, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    who = Caller("acme", f"resources-{mode}")
    text = "A first line.\n" + "many words " * 3_000 + "\nThe last line."
    async with connected(host, who, mode=mode) as client:
        added = await call(client, "memory_add", title="A long note", text=text, kind="page")
        (listed,) = (await client.list_resources()).resources
        assert (listed.name, str(listed.uri)) == ("A long note", f"memory://document/{added['documentId']}")
        (read,) = (await client.read_resource(str(listed.uri))).contents
        assert isinstance(read, TextResourceContents)
        assert read.text.startswith("# A long note\n- kind: page\n")
        assert read.text.rstrip().endswith("The last line.")
        monkeypatch.setattr(documents, "TEXT_CHARS", 100)
        (cut,) = (await client.read_resource(str(listed.uri), cache_mode="bypass")).contents
        assert isinstance(cut, TextResourceContents)
        assert len(cut.text) < 400
        assert cut.text.endswith("(cut here: the document is longer)")


@pytest.mark.parametrize(
    "uri", ["memory://document/kdoc_0", "memory://other/x", "memory://document/", "file:///etc/passwd"]
)
async def test_what_is_no_resource_is_not_found(host: Host, uri: str) -> None:
    async with connected(host, ANN) as client:
        with pytest.raises(MCPError):
            await client.read_resource(uri)


async def test_prompts_save_and_recall(host: Host, mode: str) -> None:
    who = Caller("acme", f"prompts-{mode}")
    async with connected(host, who, mode=mode) as client:

        async def prompt(name: str, **arguments: str) -> str:
            (message,) = (await client.get_prompt(name, arguments)).messages
            assert message.content.type == "text"
            return message.content.text

        assert "memory_add" in await prompt("save_to_memory")
        assert "the release date" in await prompt("save_to_memory", what="the release date")
        assert "holds nothing" in await prompt("recall_from_memory", question="When is the release?")
        await call(client, "memory_add", title="Release", text="The release is on 7 May.")
        recalled = await prompt("recall_from_memory", question="When is the release?")
        assert "[1] Release" in recalled
        assert "7 May" in recalled
        for name, arguments in (
            ("recall_from_memory", {}),
            ("recall_from_memory", {"question": " "}),
            ("x", {}),
        ):
            with pytest.raises(MCPError):
                await client.get_prompt(name, arguments)


# --- progress and cancellation -----------------------------------------------------------------------


async def test_progress_is_told_to_who_asks(host: Host, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "PROGRESS_SECONDS", 0.02)
    seen: list[tuple[float, float | None, str | None]] = []
    done = anyio.Event()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))
        if progress == total:
            done.set()

    slow_down(monkeypatch, 0.2)
    async with connected(host, ANN, mode=mode) as client:
        await client.call_tool("memory_list", {}, progress_callback=note)
        # The last one may come just behind the answer.
        with anyio.move_on_after(5):
            await done.wait()
        await client.call_tool("memory_list", {})
    steps = [progress for progress, _, _ in seen]
    assert steps[0] == 0.0
    assert steps[-1] == 1.0
    assert steps == sorted(set(steps)), "progress only rises"
    assert len(steps) > 3
    assert {total for _, total, _ in seen} == {1.0}


async def test_a_cancelled_call_is_given_up(host: Host, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = slow_down(monkeypatch, 30)
    async with connected(host, ANN, mode=mode) as client:
        with anyio.move_on_after(0.5) as scope:
            await client.call_tool("memory_list", {})
        assert scope.cancelled_caught
        if mode != "legacy":
            with anyio.fail_after(5):
                await gone.wait()
        monkeypatch.undo()
        assert (await client.call_tool("memory_list", {})).is_error is False


def slow_down(monkeypatch: pytest.MonkeyPatch, seconds: float) -> anyio.Event:
    """Listing takes its time; the event is set when it is cancelled."""
    listing, cancelled = Memory.list, anyio.Event()

    async def slow(self: Memory, **given: Any) -> Any:
        try:
            await anyio.sleep(seconds)
        except BaseException:
            cancelled.set()
            raise
        return await listing(self, **given)

    monkeypatch.setattr(Memory, "list", slow)
    return cancelled


# --- the door ----------------------------------------------------------------------------------------

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
JSON = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


@pytest.mark.parametrize("token", [None, "cmt_wrong"])
async def test_without_a_valid_token_it_says_how_to_get_in(host: Host, token: str | None) -> None:
    headers = JSON | ({} if token is None else {"authorization": f"Bearer {token}"})
    answer = await host.client.post("/mcp", json=PING, headers=headers)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == ("principal_required" if token is None else "unauthorized")
    told = answer.headers["www-authenticate"]
    assert told == f'Bearer resource_metadata="{host.url}{METADATA_PATH}"'
    metadata = await host.client.get(told.split('"')[1])
    assert metadata.json() == {
        "resource": f"{host.url}/mcp",
        "resource_name": "Corbits Memory",
        "resource_documentation": f"{host.url}/docs",
        "bearer_methods_supported": ["header"],
        "scopes_supported": [str(capability) for capability in Capability],
    }
    assert (await host.client.get("/.well-known/oauth-protected-resource")).json() == metadata.json()


async def test_a_revoked_token_ends_at_the_next_call(host: Host) -> None:
    made = await host.tokens.create(tenant_id="acme", principal_id="ann", capabilities=frozenset(Capability))
    headers = {"authorization": f"Bearer {made.secret}"}
    async with connected(host, None, headers=headers) as client:
        await call(client, "memory_list")
        await host.tokens.revoke(made.token.id)
        with pytest.raises((MCPError, httpx2.HTTPError)):
            await client.call_tool("memory_list", {})


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
async def test_there_is_nothing_but_post(host: Host, method: str) -> None:
    answer = await host.client.request(method, "/mcp", headers=await host.token(ANN))
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert answer.json()["error"]["code"] == "method_not_allowed"


@pytest.mark.parametrize("body", [b"", b"not json", b"[]", b'{"jsonrpc": "2.0"}', b"\xff"])
async def test_garbage_is_refused(host: Host, body: bytes) -> None:
    answer = await host.client.post("/mcp", content=body, headers=JSON | await host.token(ANN))
    assert 400 <= answer.status_code < 500
    assert answer.headers["x-request-id"]


@pytest.mark.parametrize(("size", "fits"), [(BODY_BYTES, True), (BODY_BYTES + 1, False)])
async def test_a_request_has_the_limit_of_every_body(host: Host, size: int, fits: bool) -> None:
    frame = json.dumps({**PING, "params": {"_meta": {"x": ""}}})
    body = frame.replace('""', '"' + "x" * (size - len(frame)) + '"')
    assert len(body) == size
    answer = await host.client.post("/mcp", content=body, headers=JSON | await host.token(ANN))
    assert (answer.status_code == 413) is not fits


async def test_a_host_that_does_not_run_it_says_so(host: Host) -> None:
    app = host_app(Memory(FakeDocumentStore()), identity=lambda _: ANN, database=None)  # type: ignore[arg-type]
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://h") as client:
        answer = await client.post("/mcp", json=PING, headers=JSON)
    assert answer.status_code == 503


async def test_issuers_of_a_gateway_in_front_are_named_as_clients_read_it() -> None:
    app = host_app(
        Memory(FakeDocumentStore()),
        identity=lambda _: None,
        database=None,  # type: ignore[arg-type]
        public_url="https://memory.example",
        authorization_servers=["https://login.example", "https://other.example/tenant"],
    )
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://h") as client:
        answer = await client.get(METADATA_PATH)
    told = ProtectedResourceMetadata.model_validate_json(answer.content)
    assert str(told.resource) == "https://memory.example/mcp"
    assert list(map(str, told.authorization_servers)) == [
        "https://login.example",
        "https://other.example/tenant",
    ]


async def test_behind_a_proxy_it_is_known_by_its_public_name() -> None:
    app = host_app(
        Memory(FakeDocumentStore()),
        identity=lambda _: None,
        database=None,  # type: ignore[arg-type]
        public_url="https://memory.example/",
    )
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=app), base_url="http://10.0.0.7"
    ) as client:
        refused = await client.post("/mcp", json=PING, headers=JSON)
        metadata = (await client.get(METADATA_PATH)).json()
    assert f"https://memory.example{METADATA_PATH}" in refused.headers["www-authenticate"]
    assert metadata["resource"] == "https://memory.example/mcp"
