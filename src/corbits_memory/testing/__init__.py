"""Fakes for hosts' own tests: in memory, without models, a database or a network.

:mod:`corbits_memory.testing.conformance` holds the tests that a port of one's own has to pass.
"""

from corbits_memory.access.memory_store import InMemoryGrantStore
from corbits_memory.testing.extractor import FakeTextExtractor
from corbits_memory.testing.source import FakeSource
from corbits_memory.testing.store import FakeDocumentStore

__all__ = ["FakeDocumentStore", "FakeSource", "FakeTextExtractor", "InMemoryGrantStore"]
