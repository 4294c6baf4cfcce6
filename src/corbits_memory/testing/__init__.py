"""Fakes for hosts' own tests: a document store and a live source, both in memory and without models."""

from corbits_memory.testing.source import FakeSource
from corbits_memory.testing.store import FakeDocumentStore

__all__ = ["FakeDocumentStore", "FakeSource"]
