"""Supermemory as a store: against a service that speaks its API, as its own client does too."""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

from corbits_memory import create_memory
from corbits_memory.adapters.supermemory import SupermemoryDocumentStore, container_tag_of
from corbits_memory.testing.conformance import (
    AbilitiesConformance,
    DocumentStoreConformance,
    VisibilityConformance,
)
from corbits_memory.validation import Content
from tests.adapters.failures import ANN, VendorFailures
from tests.adapters.service import KEY
from tests.adapters.supermemory.service import TAG, SupermemoryService
from tests.models.conftest import Answer, ModelServer, Request

EXCEPTIONS = {
    "test_the_same_name_and_content_again_is_nothing_new": "each add is a document of its own",
    "test_the_same_name_with_other_content_takes_its_place": "each add is a document of its own",
    "test_somebody_elses_name_is_refused_and_spoils_no_other": "each add is a document of its own",
    "test_racing_adds_of_one_name_are_one": "each add is a document of its own",
}


class Supermemory:
    """Over a service that takes a while to work in what it was given."""

    patience = 10.0

    @pytest.fixture
    def factory(self) -> Iterator[Callable[[], SupermemoryDocumentStore]]:
        with ModelServer() as server:
            server.script(SupermemoryService(delay=0.15))
            yield lambda: SupermemoryDocumentStore(api_key=KEY, base_url=server.url)


class TestDocuments(Supermemory, DocumentStoreConformance):
    exceptions: ClassVar = EXCEPTIONS


class TestVisibility(Supermemory, VisibilityConformance):
    pass


class TestAbilities(Supermemory, AbilitiesConformance):
    pass


class TestFailures(VendorFailures):
    store_of = SupermemoryDocumentStore
    service = SupermemoryService
    told = "Supermemory add failed HTTP {status}: "
    body_chars = 200


def test_a_tag_is_one_principal_of_one_tenant() -> None:
    assert container_tag_of("acme", "alice") == "t4_acme_u5_alice"
    assert container_tag_of("a_u1_b", "c") != container_tag_of("a", "b_u1_c")


@pytest.mark.parametrize("principal", ["ann@acme.test", "日本", "a b", "x" * 100, "a/../b", "\ud800"])
def test_names_that_supermemory_does_not_take_become_a_hash(principal: str) -> None:
    tag = container_tag_of("acme", principal)
    assert TAG.fullmatch(tag)
    assert tag.startswith("h_")
    assert tag != container_tag_of("acme", principal + "2")


@pytest.mark.parametrize(("length", "hashed"), [(99, False), (100, False), (101, True)])
def test_a_tag_has_at_most_a_hundred_characters(length: int, hashed: bool) -> None:
    principal = "x" * (length - len("t1_a_u00_"))
    assert container_tag_of("a", principal).startswith("h_") is hashed


async def test_what_is_sent(server: ModelServer) -> None:
    server.script(SupermemoryService())
    store = SupermemoryDocumentStore(api_key=KEY, base_url=server.url)
    async with create_memory(document_store=store) as memory:
        added = await memory.add(
            **ANN, content=Content(title="Deploys", text="Fridays are frozen."), external_ref="wiki:1"
        )
        (item,) = (await memory.search(**ANN, query="frozen", limit=3)).items
    add, search = server.requests
    assert (add.path, add.headers["authorization"]) == ("/v3/documents", f"Bearer {KEY}")
    assert add.body == {
        "content": "# Deploys\n\nFridays are frozen.\n\n---\n"
        f"documentId: {added.document_id}\nexternalRef: wiki:1\naccessTags: memory.owner:ann",
        "containerTag": "t4_acme_u3_ann",
        "metadata": {
            "documentId": added.document_id,
            "title": "Deploys",
            "accessTags": "memory.owner:ann",
            "externalRef": "wiki:1",
        },
    }
    assert (search.path, search.body) == (
        "/v4/search",
        {"q": "frozen", "containerTag": "t4_acme_u3_ann", "searchMode": "hybrid", "limit": 6},
    )
    assert item.citation.open.url == f"supermemory://{added.document_id}"
    assert (item.adapter, item.external_ref, item.snippet) == ("supermemory", "wiki:1", "Fridays are frozen.")


async def test_a_passage_and_a_memory_of_one_document_are_one_hit(server: ModelServer) -> None:
    server.script(SupermemoryService())
    store = SupermemoryDocumentStore(api_key=KEY, base_url=server.url)
    async with create_memory(document_store=store) as memory:
        for number in range(5):
            await memory.add(**ANN, content=Content(title=f"Animal {number}", text="A zebra grazes."))
        one = await memory.search(**ANN, query="zebra", limit=5)
        two = await memory.search(**ANN, query="zebra", limit=10, max_per_document=2)
    assert len({item.document_id for item in one.items}) == len(one.items) == 5
    assert len(two.items) == 10
    assert [item.snippet for item in two.items[5:]] == ["It is about animals."] * 5


async def test_a_memory_without_our_metadata_is_shown_by_its_own_id(server: ModelServer) -> None:
    row: dict[str, Any] = {
        "id": "mem_1",
        "memory": "Ann likes tea.",
        "similarity": 0.8,
        "updatedAt": "2026-05-07T12:00:00Z",
    }
    server.script(Answer({"results": [row]}))
    store = SupermemoryDocumentStore(api_key=KEY, base_url=server.url)
    async with create_memory(document_store=store) as memory:
        (item,) = (await memory.search(**ANN, query="tea")).items
    assert (item.document_id, item.title, item.snippet) == ("mem_1", "Ann likes tea.", "Ann likes tea.")
    assert (item.score, item.updated_at and item.updated_at.year) == (0.8, 2026)


def test_supermemorys_own_client_speaks_with_the_service_and_sees_what_we_see(server: ModelServer) -> None:
    """So the service is none that only we understand."""
    supermemory = pytest.importorskip("supermemory", reason="supermemory is not installed")
    service = SupermemoryService()
    sent: list[Request] = []

    def heard(request: Request) -> Answer:
        sent.append(request)
        return service(request)

    server.script(heard)
    with supermemory.Supermemory(api_key=KEY, base_url=server.url) as client:
        added = client.add(content="A zebra grazes.", container_tag="t4_acme_u3_ann", metadata={"title": "x"})
        found = client.search.memories(
            q="zebra", container_tag="t4_acme_u3_ann", search_mode="hybrid", limit=6
        )
    assert added.status == "queued"
    assert [row.chunk for row in found.results if getattr(row, "chunk", None)] == ["A zebra grazes."]
    add, search = sent
    assert add.path == "/v3/documents"
    assert set(add.body) == {"content", "containerTag", "metadata"}
    assert (search.path, search.body) == (
        "/v4/search",
        {"q": "zebra", "containerTag": "t4_acme_u3_ann", "searchMode": "hybrid", "limit": 6},
    )


@pytest.mark.parametrize("named", ["memory", "chunk", "content"])
async def test_every_name_of_a_text_is_read(server: ModelServer, named: str) -> None:
    server.script(Answer({"results": [{"id": "1", named: "Fridays are frozen.", "similarity": 0.5}]}))
    store = SupermemoryDocumentStore(api_key=KEY, base_url=server.url)
    async with create_memory(document_store=store) as memory:
        found = await memory.search(**ANN, query="frozen")
    assert [item.snippet for item in found.items] == ["Fridays are frozen."]
