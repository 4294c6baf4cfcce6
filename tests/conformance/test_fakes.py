"""The fakes do as the real ones, but for what they say they don't."""

from collections.abc import Callable
from typing import ClassVar

import pytest

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
