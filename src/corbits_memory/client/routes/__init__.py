"""Every route as a function from its arguments to a :class:`Call`. docs/http.md says what the fields mean.

Values are not judged here: the server does that, and tells of every problem at once. Times are datetimes or ISO 8601.
"""

from corbits_memory.client.routes.feed import (
    dead_letters,
    feed_filters,
    feed_page,
    replay,
    subscribe,
    subscriptions,
    unsubscribe,
)
from corbits_memory.client.routes.lifecycle import (
    audit,
    forget,
    purge,
    set_retention_class,
    share,
    unshare,
)
from corbits_memory.client.routes.memory import (
    add,
    add_batch,
    capabilities,
    context,
    document,
    history,
    list_documents,
    search,
    version,
)

__all__ = [
    "add",
    "add_batch",
    "audit",
    "capabilities",
    "context",
    "dead_letters",
    "document",
    "feed_filters",
    "feed_page",
    "forget",
    "history",
    "list_documents",
    "purge",
    "replay",
    "search",
    "set_retention_class",
    "share",
    "subscribe",
    "subscriptions",
    "unshare",
    "unsubscribe",
    "version",
]
