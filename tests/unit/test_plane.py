"""The verbs and the life of the plane, over a fake store."""

from dataclasses import replace
from typing import Any

import pytest

from corbits_memory.core.enums import AddStatus, EvidenceLevel
from corbits_memory.errors import (
    ConfigError,
    DatabaseError,
    ExternalRefInUseError,
    ExtractorError,
    InvalidInputError,
    MemoryError,
    UnavailableError,
)
from corbits_memory.plane import Memory
from corbits_memory.ports import AddResult, ExtractedText, Share, ShareReceipt, StoreCapabilities
from corbits_memory.testing import FakeDocumentStore
from corbits_memory.validation import AddInput, Content, File

ANN: dict[str, Any] = {"tenant_id": "acme", "principal_id": "ann"}
BOB: dict[str, Any] = {"tenant_id": "acme", "principal_id": "bob"}
NOTE = Content(title="Deploys", text="Fridays are frozen.")


# --- add ---------------------------------------------------------------------------------------------


async def test_what_is_added_is_found_and_listed() -> None:
    async with Memory(FakeDocumentStore()) as memory:
        added = await memory.add(**ANN, content=NOTE)
        found = await memory.search(**ANN, query="frozen")
        listed = await memory.list(**ANN)
    assert added.status is AddStatus.CREATED
    assert [item.document_id for item in found.items] == [added.document_id]
    assert found.evidence is EvidenceLevel.WEAK
    assert [event.version_id for event in listed] == [added.version_id]


async def test_others_see_nothing_of_it() -> None:
    async with Memory(FakeDocumentStore()) as memory:
        await memory.add(**ANN, content=NOTE)
        for stranger in (BOB, {"tenant_id": "acme-corp", "principal_id": "ann"}):
            assert (await memory.search(**stranger, query="frozen")).items == ()
            assert await memory.list(**stranger) == []


async def test_the_same_name_again_is_a_new_version_or_nothing() -> None:
    async with Memory(FakeDocumentStore()) as memory:
        first = await memory.add(**ANN, content=NOTE, external_ref="wiki:1")
        same = await memory.add(**ANN, content=NOTE, external_ref="wiki:1")
        changed = await memory.add(**ANN, content=replace(NOTE, text="open"), external_ref="wiki:1")
        with pytest.raises(ExternalRefInUseError):
            await memory.add(**BOB, content=NOTE, external_ref="wiki:1")
    assert (same.status, same.version_id) == (AddStatus.UNCHANGED, first.version_id)
    assert (changed.status, changed.version, changed.document_id) == (
        AddStatus.UPDATED,
        2,
        first.document_id,
    )


async def test_bad_input_never_reaches_the_store() -> None:
    store = FakeDocumentStore()
    async with Memory(store) as memory:
        with pytest.raises(InvalidInputError):
            await memory.add(**ANN, content=Content(title=" ", text="x"))
        with pytest.raises(InvalidInputError):
            await memory.add(tenant_id=" ", principal_id="ann", content=NOTE)
        with pytest.raises(InvalidInputError):
            await memory.search(**ANN, query=" ")
        assert store.documents == []
        assert store.queries == []


async def test_sharing_with_people_says_that_no_grant_was_written() -> None:
    async with Memory(FakeDocumentStore()) as memory:
        plain = await memory.add(**ANN, content=NOTE)
        shared = await memory.add(**ANN, content=NOTE, share=Share(principals=("bob", "ann", " ")))
        widened = await memory.add(**ANN, content=NOTE, share=Share(tenant=True))
    assert plain.share is None
    assert shared.share == ShareReceipt(
        tags=("memory.owner:ann",),
        principals=("bob",),
        grants_materialized=False,
        reason="no writable grant store is mounted",
    )
    assert widened.share == ShareReceipt(tags=("memory.owner:ann", "memory.tenant:acme"))


async def test_a_receipt_of_the_store_stays() -> None:
    given = ShareReceipt(tags=("a:b",), principals=("bob",), grants_materialized=True)

    class Store(FakeDocumentStore):
        async def add(self, **call: Any) -> list[AddResult | MemoryError]:
            (result,) = await super().add(**call)
            assert isinstance(result, AddResult)
            return [replace(result, share=given)]

    async with Memory(Store()) as memory:
        assert (await memory.add(**ANN, content=NOTE, share=Share(principals=("bob",)))).share == given


async def test_a_batch_answers_each_item_in_order() -> None:
    wrong: Any = "text"
    async with Memory(FakeDocumentStore()) as memory:
        results = await memory.add_batch(
            **ANN,
            items=[
                AddInput(content=NOTE),
                AddInput(content=replace(NOTE, title="")),
                AddInput(),
                wrong,
                AddInput(content=replace(NOTE, title="Last")),
            ],
        )
        titles = [event.title for event in await memory.list(**ANN)]
    assert [isinstance(result, InvalidInputError) for result in results] == [False, True, True, True, False]
    assert titles == ["Last", "Deploys"]


async def test_an_empty_batch_answers_nothing_and_a_too_long_one_is_refused() -> None:
    async with Memory(FakeDocumentStore()) as memory:
        assert await memory.add_batch(**ANN, items=[]) == []
        assert len(await memory.add_batch(**ANN, items=[AddInput(content=NOTE)] * 1_000)) == 1_000
        with pytest.raises(InvalidInputError, match="at most 1,000"):
            await memory.add_batch(**ANN, items=[AddInput(content=NOTE)] * 1_001)


class Extractor:
    def __init__(self, title: str | None) -> None:
        self.title = title

    async def extract(self, data: bytes, *, mime_type: str | None, filename: str | None) -> ExtractedText:
        if data == b"broken":
            raise InvalidInputError("file is no PDF")
        if data == b"crash":
            raise RuntimeError("the file says: secret")
        return ExtractedText(text=data.decode(), title=self.title)


@pytest.mark.parametrize(
    ("file_title", "extracted", "filename", "expected"),
    [
        ("Mine", "Found", "a.pdf", "Mine"),
        (" ", "Found", "a.pdf", "Found"),
        (None, None, "a.pdf", "a.pdf"),
        (None, " ", None, "untitled"),
        (None, "x" * 600, None, "x" * 500),
    ],
)
async def test_a_file_is_read_by_the_extractor(
    file_title: str | None, extracted: str | None, filename: str | None, expected: str
) -> None:
    async with Memory(FakeDocumentStore(), text_extractor=Extractor(extracted)) as memory:
        await memory.add(**ANN, file=File(data=b"Fridays", title=file_title, filename=filename))
        found = await memory.search(**ANN, query="fridays")
    assert [item.title for item in found.items] == [expected]


async def test_a_file_needs_an_extractor_and_to_be_readable() -> None:
    async with Memory(FakeDocumentStore()) as memory:
        with pytest.raises(InvalidInputError, match="file requires a text_extractor"):
            await memory.add(**ANN, file=File(data=b"x"))
    async with Memory(FakeDocumentStore(), text_extractor=Extractor(None)) as memory:
        with pytest.raises(InvalidInputError, match="no PDF"):
            await memory.add(**ANN, file=File(data=b"broken"))
        with pytest.raises(InvalidInputError, match="text must not be blank"):
            await memory.add(**ANN, file=File(data=b" "))


async def test_an_extractor_that_fails_costs_its_file_alone() -> None:
    async with Memory(FakeDocumentStore(), text_extractor=Extractor(None)) as memory:
        failed, kept = await memory.add_batch(
            **ANN, items=[AddInput(file=File(data=b"crash")), AddInput(file=File(data=b"Fridays"))]
        )
        assert isinstance(failed, ExtractorError)
        assert "secret" not in failed.message
        assert isinstance(kept, AddResult)


# --- life --------------------------------------------------------------------------------------------


async def test_a_memory_is_used_between_open_and_close() -> None:
    store = FakeDocumentStore()
    memory = Memory(store)
    for _ in range(2):
        with pytest.raises(UnavailableError, match="not open yet"):
            await memory.list(**ANN)
    await memory.open()
    await memory.open()
    assert await memory.list(**ANN) == []
    await memory.ready()
    await memory.close()
    await memory.close()
    assert (store.opened, store.closed) == (1, 1)
    for call in (memory.ready(), memory.open(), memory.list(**ANN), memory.search(**ANN, query="x")):
        with pytest.raises(UnavailableError, match="closed"):
            await call


async def test_a_memory_that_never_opened_closes_without_its_store() -> None:
    store = FakeDocumentStore()
    memory = Memory(store)
    await memory.close()
    assert store.closed == 0
    with pytest.raises(UnavailableError, match="closed"):
        await memory.add(**ANN, content=NOTE)


async def test_a_store_that_cannot_open_leaves_the_memory_unopened() -> None:
    class Store(FakeDocumentStore):
        async def open(self) -> None:
            raise ConfigError("mend me")

    memory = Memory(Store())
    with pytest.raises(ConfigError):
        await memory.open()
    with pytest.raises(UnavailableError, match="not open yet"):
        await memory.ready()


async def test_a_store_may_say_that_it_is_not_ready() -> None:
    class Store(FakeDocumentStore):
        async def ready(self) -> None:
            raise DatabaseError

    async with Memory(Store()) as memory:
        with pytest.raises(DatabaseError):
            await memory.ready()


async def test_the_lifespan_opens_and_closes_even_after_a_failure() -> None:
    store = FakeDocumentStore()
    memory = Memory(store)

    async def run_and_fail() -> None:
        async with memory.lifespan(object()):
            await memory.ready()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await run_and_fail()
    assert (store.opened, store.closed) == (1, 1)


def test_capabilities_are_known_before_opening() -> None:
    capabilities = StoreCapabilities(embeddings_configured=False)
    assert Memory(FakeDocumentStore(capabilities=capabilities)).capabilities is capabilities
