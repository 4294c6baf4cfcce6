"""Linear: its issues as a live source, its webhooks as documents, and tools for agents."""

from corbits_memory.adapters.linear.api import LinearApi, LinearError
from corbits_memory.adapters.linear.source import LinearSource
from corbits_memory.adapters.linear.tools import LinearTools
from corbits_memory.adapters.linear.webhook import IssueChange, issue_change

__all__ = ["IssueChange", "LinearApi", "LinearError", "LinearSource", "LinearTools", "issue_change"]
