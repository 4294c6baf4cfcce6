"""The closed vocabularies. Database CHECKs, wire models and tools derive from here; a test compares them."""

from enum import StrEnum


class VersionStatus(StrEnum):
    ACTIVE = "active"
    SUPERSEDED = "superseded"
    DEPRECATED = "deprecated"
    ARCHIVED = "archived"
    TOMBSTONED = "tombstoned"


class CreatedByKind(StrEnum):
    HUMAN = "human"
    AGENT = "agent"
    SYSTEM = "system"
    ADAPTER = "adapter"


class LineageClass(StrEnum):
    """Where a version comes from; stored as ``version.source_class``."""

    NATIVE = "native"
    IMPORTED = "imported"
    DERIVED = "derived"


class Provenance(StrEnum):
    STATED = "stated"
    INFERRED = "inferred"
    UNKNOWN = "unknown"


class TemporalClass(StrEnum):
    EVENT = "event"
    DEADLINE = "deadline"
    STATE = "state"
    LESSON = "lesson"


class RetentionClass(StrEnum):
    DURABLE = "durable"
    STANDARD = "standard"
    EPHEMERAL = "ephemeral"
    SOURCE_ONLY = "source_only"


class RankingSource(StrEnum):
    """Feeds authority only; never stored as lineage."""

    NATIVE = "native"
    THREAD = "thread"
    CHANNEL = "channel"
    CALL = "call"
    RECORD = "record"


class EdgeRel(StrEnum):
    MENTIONS = "mentions"
    ABOUT = "about"
    AUTHORED_BY = "authored_by"
    INVOLVES = "involves"
    PART_OF = "part_of"
    DERIVED_FROM = "derived_from"
    SUPPORTS = "supports"
    CONTRADICTS = "contradicts"
    SUPERSEDES = "supersedes"


class EdgeEnd(StrEnum):
    """What an edge may stand on once stored."""

    DOCUMENT = "document"
    VERSION = "version"
    CHUNK = "chunk"
    ENTITY = "entity"


class HintEnd(StrEnum):
    """What an edge hint may name; ``native`` becomes an entity of kind ``principal``."""

    DOCUMENT = "document"
    VERSION = "version"
    CHUNK = "chunk"
    ENTITY = "entity"
    NATIVE = "native"


class ModelStatus(StrEnum):
    ACTIVE = "active"
    READY = "ready"


class RunStatus(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


class EvidenceLevel(StrEnum):
    STRONG = "strong"
    WEAK = "weak"
    NONE = "none"


class MinEvidence(StrEnum):
    """From which evidence on a hit is shown."""

    STRONG = "strong"
    WEAK = "weak"


class Channel(StrEnum):
    LEXICAL = "lexical"
    DENSE = "dense"


class Degraded(StrEnum):
    """What an answer lacked, in the order in which answers list it."""

    EMBED_UNAVAILABLE = "embed_unavailable"
    DENSE_UNAVAILABLE = "dense_unavailable"
    LEXICAL_ONLY = "lexical_only"
    DENSE_PARTIAL = "dense_partial"
    PAST_PARTIAL = "past_partial"
    """More was replaced since the instant asked for than one search looks through."""
    RERANK_UNAVAILABLE = "rerank_unavailable"
    RERANK_QUERY_TOO_LONG = "rerank_query_too_long"
    LIVE_TIMEOUT = "live_timeout"
    LIVE_ERROR = "live_error"
    LIVE_NOT_ASKED = "live_not_asked"
    """Live sources know nothing of the past."""
    MEMORY_UNAVAILABLE = "memory_unavailable"


class AddStatus(StrEnum):
    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


class FeedOp(StrEnum):
    """What an event of the feed says: a version was written, can't be read any more, or all were replaced."""

    UPSERT = "upsert"
    RETRACT = "retract"
    PROMOTE = "promote"


class Capability(StrEnum):
    ADD = "memory:add"
    SEARCH = "memory:search"
    FORGET = "memory:forget"
    PURGE = "memory:purge"
    ADMIN = "memory:admin"


class SearchProfile(StrEnum):
    DEFAULT = "default"
    COMPAT = "compat"


class Effect(StrEnum):
    """What a grant decides. Only ``allow`` authorizes; ``ask`` is a no until somebody was asked."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class GrantOrigin(StrEnum):
    SYSTEM = "system"
    ROLE = "role"
    CREATOR = "creator"
    INVOKER = "invoker"


class ErasureKind(StrEnum):
    FORGET = "forget"
    PURGE = "purge"


class AuditAction(StrEnum):
    """What the audit tells of."""

    ADD = "add"
    SHARE = "share"
    UNSHARE = "unshare"
    FORGET = "forget"
    PURGE = "purge"
    PURGE_ON_DEMAND = "purge_on_demand"
    RETENTION_CLASS = "retention_class"
    DEPRECATE = "deprecate"
    SWEEP = "sweep"
    PROMOTE = "promote"
    DEMOTE = "demote"
    GRANT = "grant"
    REVOKE_GRANT = "revoke_grant"
    PUT_ROLE = "put_role"
    DELETE_ROLE = "delete_role"
    ASSIGN_ROLE = "assign_role"
    UNASSIGN_ROLE = "unassign_role"
    SUBSCRIBE = "subscribe"
    UNSUBSCRIBE = "unsubscribe"
    CREATE_TOKEN = "create_token"  # noqa: S105 - names an act
    REVOKE_TOKEN = "revoke_token"  # noqa: S105 - names an act


class AuditTarget(StrEnum):
    """What kind of thing an audited act was done to."""

    TENANT = "tenant"
    DOCUMENT = "document"
    VERSION = "version"
    GENERATION = "generation"
    GRANT = "grant"
    ROLE = "role"
    TAG = "tag"
    SUBSCRIPTION = "subscription"
    TOKEN = "token"  # noqa: S105 - names a thing


class AuditOutcome(StrEnum):
    DONE = "done"
    UNCHANGED = "unchanged"
    """There was nothing left to do."""
    FORBIDDEN = "forbidden"
    """Refused: the actor may see it, but it is not its own."""
    HELD = "held"
    """Refused: a durable version holds it."""
    FAILED = "failed"


class DeprecatedReason(StrEnum):
    """Why a version was deprecated; a code, since a user's own words would be content."""

    DEPRECATED = "deprecated"
    OUTDATED = "outdated"
    INCORRECT = "incorrect"
    DUPLICATE = "duplicate"
    EPHEMERAL_TTL = "ephemeral_ttl"
    SOURCE_UNSEEN = "source_unseen"
