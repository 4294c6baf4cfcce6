"""Every limit of the product, in one place. Units are in the names or beside them."""

# Documents (characters are Unicode code points).
TITLE_CHARS = 500
KIND_CHARS = 200
ID_CHARS = 256
"""Tenant, principal, adapter, external reference, thread, generator and entity ids."""
EXTERNAL_REF_CHARS = 1_024
REFERENCE_BYTES = 2_600
"""Tenant, adapter and external reference together, in UTF-8: what one key of an index holds, with room."""
AUTHOR_CHARS = 256
CHUNK_CHARS = 100_000
"""One incoming chunk. ``add`` splits a longer text into several; an adapted document may not exceed it."""
CHUNKS_PER_DOCUMENT = 2_000
TEXT_CHARS = CHUNK_CHARS * CHUNKS_PER_DOCUMENT
ATTRIBUTES = 64
ATTRIBUTE_KEY_CHARS = 256
ATTRIBUTE_VALUE_CHARS = 10_000
SAFE_INTEGER = 2**53 - 1
"""Canonical JSON holds integers exactly only up to here."""
ACCESS_TAGS = 64
TAG_CHARS = 256
TAGS_PER_DOCUMENT = 256
"""The caller's and the system's, in all: shares add up. ``ACCESS_TAGS`` is what one request names."""
SHARED_PRINCIPALS = 64
VERSION_REFS = 256
"""``derived_from``, ``supports`` and ``contradicts``, each."""
ENTITY_HINTS = 256
EDGES = 256

# Exports.
LINE_BYTES = 1024 * 1024 * 1024
"""One line of an export: a raw capture of the longest text, escaped twice."""
CHUNKS_PER_VERSION = CHUNKS_PER_DOCUMENT * 100
"""Stored chunks: more than an incoming one of any text is cut into."""
VERSION_TEXT_CHARS = TEXT_CHARS * 5 // 4
"""Chunks repeat some of the one before."""
VERSION_EDGES = 3 * VERSION_REFS

# Files.
FILE_BYTES = 256 * 1024 * 1024
"""The largest file that becomes one document, and the longest line or item of a file of many."""
FILE_PAGES = 10_000
FILE_TEXT_CHARS = 20_000_000
FILE_UNPACKED_BYTES = 64 * 1024 * 1024
"""What the parts of a DOCX that are read may unpack to; pictures are not read."""
FILE_MEMORY_BYTES = 2 * 1024 * 1024 * 1024
FILE_SECONDS = 20.0
"""How long one file may take to be read: less than a client waits for its answer."""

# Requests.
BODY_BYTES = 10 * 1024 * 1024
BATCH_ITEMS = 1_000
IDEMPOTENCY_KEY_CHARS = 255
IDEMPOTENCY_SECONDS = 24 * 60 * 60
"""How long an answer is kept for a retry."""
QUERY_CHARS = 8_192
SEARCH_LIMIT_DEFAULT, SEARCH_LIMIT_MAX = 8, 50
SEARCH_DEPTH_MAX = 100
"""Hits that all pages of one search show together."""
CONTEXT_TOKENS_MIN, CONTEXT_TOKENS_DEFAULT, CONTEXT_TOKENS_MAX = 100, 2_000, 32_000
CONTEXT_LIMIT_DEFAULT, CONTEXT_PER_DOCUMENT_DEFAULT = 20, 3
"""Hits that a context is made of, and how many of them may be of one document."""
ENGINE_LIMIT_MAX = 100
LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX = 20, 100
HISTORY_LIMIT_DEFAULT, HISTORY_LIMIT_MAX = 20, 100
CHUNK_PAGE_DEFAULT, CHUNK_PAGE_MAX = 100, 500
"""Chunks of a version's text in one answer."""
FEED_LIMIT_DEFAULT, FEED_LIMIT_MAX = 50, 100
FEED_TEXT_BYTES = 1024 * 1024
"""Text that one page of the feed carries, in UTF-8."""
LOOKUP_LIMIT_DEFAULT, LOOKUP_LIMIT_MAX = 20, 100
LOOKUP_REFS = 100
"""References that one look-up names."""
LOOKUP_TEXT_BYTES = 1024 * 1024
"""Text that one page of a look-up carries, in UTF-8 and as it was sent, unless the first alone is longer."""
AUDIT_LIMIT_DEFAULT, AUDIT_LIMIT_MAX = 50, 500
DERIVED_LISTED = 1_000
"""Documents derived from a forgotten one that an answer lists."""
FILTER_VALUES = 256
"""Entries of ``kinds``, ``entity_ids``, ``sources``."""
MAX_PER_DOCUMENT = 50

# Webhooks.
SUBSCRIPTIONS = 100
"""Of one tenant."""
URL_CHARS = 2_048
REPLAYED = 1_000
"""Dead letters that one request names."""
DEAD_LIMIT_DEFAULT, DEAD_LIMIT_MAX = 50, 100

# Replays.
COMPARED_QUERIES = 10_000
"""Questions of one comparison."""
CHUNK_TOKENS_MIN, CHUNK_TOKENS_MAX = 10, 8_000
"""``maxTokens`` of a transform config. In any script, and as long again by its overlap, such a chunk has a ``tsvector``
(of 1 MB at most)."""
API_KEY_CHARS = 4_096
SCOPE_DOCUMENTS = 1_000
"""Documents that a run's scope names."""
PROBLEMS_LISTED = 100
"""Failures, and captures that were passed over, that a run's answer lists, each."""
RUNS_LIMIT_DEFAULT, RUNS_LIMIT_MAX = 50, 500
"""Configs or runs of one answer, newest first."""
SAMPLED_LIMIT_DEFAULT, SAMPLED_LIMIT_MAX = 100, 1_000
"""Questions of one answer."""

# Search.
SNIPPET_CHARS = 240
LIVE_SOURCE_SECONDS = 0.8

# Models.
EMBED_DIMS_MIN, EMBED_DIMS_MAX = 64, 4_000
ERROR_BODY_CHARS = 500
