"""The fakes do as the real ones, but for what they say they don't."""

from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from corbits_memory import create_memory
from corbits_memory.ports import Citation, LiveItem, OpenTarget
from corbits_memory.testing import FakeDocumentStore, FakeSource, FakeTextExtractor, InMemoryGrantStore
from corbits_memory.testing.conformance import (
    AbilitiesConformance,
    DocumentStoreConformance,
    GrantStoreConformance,
    SourceProviderConformance,
    TextExtractorConformance,
    VisibilityConformance,
)
from corbits_memory.validation import Content


class Fake:
    @pytest.fixture
    def factory(self) -> Callable[[], FakeDocumentStore]:
        return FakeDocumentStore


class TestDocuments(Fake, DocumentStoreConformance):
    exceptions: ClassVar = {
        "test_kinds_narrow_the_hits": "the fake searches without filters",
        "test_times_narrow_the_hits": "the fake searches without filters",
        "test_a_filter_is_honoured_or_refused": "the fake searches without filters",
    }


class TestVisibility(Fake, VisibilityConformance):
    pass


class TestAbilities(Fake, AbilitiesConformance):
    pass


class TestGrantStore(GrantStoreConformance):
    @pytest.fixture
    def factory(self) -> Callable[[], InMemoryGrantStore]:
        return InMemoryGrantStore


class TestSource(SourceProviderConformance):
    @pytest.fixture
    def factory(self) -> Callable[[], FakeSource]:
        def item(number: int) -> LiveItem:
            ref = f"CL-{number}"
            return LiveItem(
                adapter="linear",
                external_ref=ref,
                title=f"Deploy {number}",
                snippet="",
                score=1 / number,
                kind="issue",
                citation=Citation(adapter="linear", external_ref=ref, open=OpenTarget(type="issue", id=ref)),
            )

        return lambda: FakeSource(catalogue=[item(number) for number in range(1, 60)])


class TestTextExtractor(TextExtractorConformance):
    @pytest.fixture
    def factory(self) -> Callable[[], FakeTextExtractor]:
        return FakeTextExtractor


async def test_the_fake_answers_as_hosts_tests_know_it() -> None:
    """Ids count from one; a word in the title scores 1, one in the text .5; whitespace and case don't count."""
    async with create_memory(document_store=FakeDocumentStore()) as memory:
        who: dict[str, Any] = {"tenant_id": "acme", "principal_id": "ann"}
        first = await memory.add(
            **who, content=Content(title="Deploys", text="x" * 230 + " Fridays are frozen.")
        )
        second = await memory.add(**who, content=Content(title="Fridays", text="off"))
        assert [first.document_id, second.document_id] == ["fake_doc_1", "fake_doc_2"]
        assert [first.version_id, second.version_id] == ["fake_ver_1", "fake_ver_2"]
        found = await memory.search(**who, query="  FRIDAYS ")
        assert [(item.document_id, item.score) for item in found.items] == [
            ("fake_doc_2", 1.0),
            ("fake_doc_1", 0.5),
        ]
        assert (found.evidence, len(found.items[1].snippet)) == ("weak", 240)
        assert found.items[0].citation.open.url == "fake://fake_doc_2"
        assert (await memory.search(**who, query="nothing")).evidence == "none"
        assert (await memory.search(**who, query=" ", kinds=["note"])).items == ()
        assert (await memory.search(tenant_id="acme", principal_id="bob", query="fridays")).items == ()
