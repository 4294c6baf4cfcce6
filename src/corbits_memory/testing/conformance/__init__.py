"""The tests that a port of one's own has to pass. Needs pytest, and no plugin.

From a shell::

    python -m corbits_memory.testing.conformance --store my_package.store:make_store

or in one's own tests, which also may name exceptions::

    class TestMyStore(DocumentStoreConformance):
        patience = 2.0

        @pytest.fixture
        def factory(self):
            return make_store

docs/stores.md tells of both.
"""

import pytest

_SUITES = ("abilities", "documents", "extractors", "grants", "running", "sources", "visibility", "world")
pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in _SUITES))

from corbits_memory.testing.conformance.abilities import AbilitiesConformance  # noqa: E402 - rewritten first
from corbits_memory.testing.conformance.documents import DocumentStoreConformance  # noqa: E402
from corbits_memory.testing.conformance.extractors import SampleFile, TextExtractorConformance  # noqa: E402
from corbits_memory.testing.conformance.grants import GrantStoreConformance  # noqa: E402
from corbits_memory.testing.conformance.sources import SourceProviderConformance  # noqa: E402
from corbits_memory.testing.conformance.visibility import VisibilityConformance  # noqa: E402

__all__ = [
    "AbilitiesConformance",
    "DocumentStoreConformance",
    "GrantStoreConformance",
    "SampleFile",
    "SourceProviderConformance",
    "TextExtractorConformance",
    "VisibilityConformance",
]
