"""Mem0 as a store: against a service that speaks its API, as its own client does too."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

from corbits_memory import create_memory
from corbits_memory.adapters.mem0 import Mem0DocumentStore, user_id_of
from corbits_memory.errors import ConfigError
from corbits_memory.ports import Share
from corbits_memory.testing import InMemoryGrantStore
from corbits_memory.testing.conformance import (
    AbilitiesConformance,
    DocumentStoreConformance,
    VisibilityConformance,
)
from corbits_memory.validation import Content
from tests.adapters.failures import ANN, VendorFailures
from tests.adapters.mem0.service import Mem0Service
from tests.adapters.service import KEY
from tests.models.conftest import Answer, ModelServer

EXCEPTIONS = {
    "test_the_same_name_and_content_again_is_nothing_new": "Mem0 has no names: each add is a document",
    "test_the_same_name_with_other_content_takes_its_place": "Mem0 has no names: each add is a document",
    "test_somebody_elses_name_is_refused_and_spoils_no_other": "Mem0 has no names: each add is a document",
    "test_racing_adds_of_one_name_are_one": "Mem0 has no names: each add is a document",
}


class Mem0:
    """Over a service that takes a while to work in what it was given."""

    patience = 10.0

    @pytest.fixture
    def factory(self) -> Iterator[Callable[[], Mem0DocumentStore]]:
        with ModelServer() as server:
            server.script(Mem0Service(delay=0.15))
            yield lambda: Mem0DocumentStore(api_key=KEY, base_url=server.url)


class TestDocuments(Mem0, DocumentStoreConformance):
    exceptions: ClassVar = EXCEPTIONS


class TestVisibility(Mem0, VisibilityConformance):
    pass


class TestAbilities(Mem0, AbilitiesConformance):
    pass


class TestFailures(VendorFailures):
    store_of = Mem0DocumentStore
    service = Mem0Service
    told = "Mem0 API /v3/memories/add/ failed: HTTP {status} — "
    body_chars = 500


@pytest.mark.parametrize(
    ("tenant", "principal", "expected"),
    [
        ("acme", "alice", "4:acme:5:alice"),
        ("a::b", "c", "4:a::b:1:c"),
        ("日本", "🦓", "2:日本:1:🦓"),
        ("a", ":b", "1:a:2::b"),
    ],
)
def test_a_user_is_one_principal_of_one_tenant(tenant: str, principal: str, expected: str) -> None:
    assert user_id_of(tenant, principal) == expected


async def test_what_is_sent(server: ModelServer) -> None:
    server.script(Mem0Service())
    async with create_memory(document_store=Mem0DocumentStore(api_key=KEY, base_url=server.url)) as memory:
        added = await memory.add(
            **ANN,
            content=Content(title="Deploys", text="Fridays are frozen."),
            external_ref="wiki:1",
            access_tags=["memory.space:eng"],
            kind="rule",
            author="Ann",
            occurred_at="2026-05-07T12:00:00Z",
        )
        found = await memory.search(**ANN, query="frozen", limit=3, kinds=["rule"])
    tags = "memory.owner:ann,memory.space:eng"
    add, search = server.requests
    assert (add.path, add.headers["authorization"]) == ("/v3/memories/add/", f"Token {KEY}")
    content = (
        "# Deploys\n\nFridays are frozen.\n\n---\n"
        f"documentId: {added.document_id}\nexternalRef: wiki:1\naccessTags: {tags}"
    )
    assert add.body == {
        "messages": [{"role": "user", "content": content}],
        "user_id": "4:acme:3:ann",
        "infer": False,
        "metadata": {
            "documentId": added.document_id,
            "title": "Deploys",
            "accessTags": tags,
            "externalRef": "wiki:1",
            "kind": "rule",
            "author": "Ann",
            "occurredAt": "2026-05-07T12:00:00.000Z",
        },
    }
    # Five times as many, since kinds are looked at here.
    assert (search.path, search.body) == (
        "/v3/memories/search/",
        {"query": "frozen", "filters": {"user_id": "4:acme:3:ann"}, "top_k": 15},
    )
    (item,) = found.items
    assert item.citation.open.url == f"mem0://{added.document_id}"
    assert (item.adapter, item.external_ref, item.snippet) == ("mem0", "wiki:1", "Fridays are frozen.")
    assert item.attribution is not None
    assert (item.attribution.author, item.attribution.owner) == ("Ann", "ann")
    assert item.updated_at is not None
    assert added.version_id == added.document_id


async def test_a_row_of_another_user_is_not_shown(server: ModelServer) -> None:
    class Careless(Mem0Service):
        def _search(self, body: dict[str, Any]) -> Any:
            return super()._search({**body, "filters": {"user_id": "4:acme:3:bob"}})

    service = Careless()
    server.script(service)
    async with create_memory(document_store=Mem0DocumentStore(api_key=KEY, base_url=server.url)) as memory:
        bob = {**ANN, "principal_id": "bob"}
        await memory.add(**bob, content=Content(title="Secret", text="zebra"))
        assert (await memory.search(**ANN, query="zebra")).items == ()
        assert len((await memory.search(**bob, query="zebra")).items) == 1


async def test_grants_beside_it_have_to_be_let_pass(server: ModelServer) -> None:
    server.script(Mem0Service())
    store = Mem0DocumentStore(api_key=KEY, base_url=server.url)
    with pytest.raises(ConfigError, match="does not enforce grants"):
        create_memory(document_store=store, grant_store=InMemoryGrantStore())
    memory = create_memory(
        document_store=store, grant_store=InMemoryGrantStore(), allow_unenforced_access=True
    )
    async with memory:
        added = await memory.add(
            **ANN, content=Content(title="x", text="zebra"), share=Share(principals=("bob",))
        )
        assert added.share is not None
        assert added.share.grants_materialized is False
        bob = {**ANN, "principal_id": "bob"}
        assert (await memory.search(**bob, query="zebra")).items == ()


CLIENT = """
import json, os, sys
from mem0 import MemoryClient
url, key = sys.argv[1:]
client = MemoryClient(api_key=key, host=url)
added = client.add([{"role": "user", "content": "A zebra grazes."}], user_id="4:acme:3:ann", infer=False)
found = client.search("zebra", filters={"user_id": "4:acme:3:ann"}, top_k=3)
print(json.dumps([added, found]))
"""


def test_mem0s_own_client_speaks_with_the_service_and_sees_what_we_see(
    server: ModelServer, tmp_path: Any
) -> None:
    """So the service is none that only we understand."""
    pytest.importorskip("mem0", reason="mem0ai is not installed")
    server.script(Mem0Service())
    environment = {**os.environ, "MEM0_TELEMETRY": "False", "MEM0_DIR": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CLIENT, server.url, KEY],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    added, found = json.loads(done.stdout.splitlines()[-1])
    assert added["status"] == "PENDING"
    assert [row["memory"] for row in found["results"]] == ["A zebra grazes."]
    paths = [request.path for request in server.requests if "/v3/" in request.path]
    assert paths == ["/v3/memories/add/", "/v3/memories/search/"]
    search = server.requests[-1].body
    assert {"query": search["query"], "filters": search["filters"], "top_k": search["top_k"]} == {
        "query": "zebra",
        "filters": {"user_id": "4:acme:3:ann"},
        "top_k": 3,
    }


@pytest.mark.parametrize("listed", ["results", "memories", None])
@pytest.mark.parametrize("named", ["memory", "text"])
async def test_every_shape_of_an_answer_is_read(server: ModelServer, listed: str | None, named: str) -> None:
    rows = [{"id": "1", named: "Fridays are frozen.", "score": 0.5}]
    server.script(Answer(rows if listed is None else {listed: rows}))
    async with create_memory(document_store=Mem0DocumentStore(api_key=KEY, base_url=server.url)) as memory:
        found = await memory.search(**ANN, query="frozen")
    assert [item.snippet for item in found.items] == ["Fridays are frozen."]
    assert server.requests[0].body["top_k"] == 8
