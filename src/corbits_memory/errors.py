"""What can go wrong, by who must act.

::

    MemoryError                      500  ours
    ├── GrantStoreError              500  the host mends its grant store
    ├── InvalidInputError            400  the caller mends the input
    │   ├── InvalidAdaptedDocumentError
    │   ├── InvalidCursorError
    │   ├── InvalidFileError
    │   │   ├── UnsupportedFileError
    │   │   ├── UnreadableFileError
    │   │   ├── EncryptedFileError
    │   │   └── FileWithoutTextError
    │   └── TextExtractorRequiredError
    ├── UnauthorizedError            401  the caller authenticates
    │   └── PrincipalRequiredError
    ├── ForbiddenError               403  somebody grants it
    │   └── TenantMismatchError
    ├── NotFoundError                404  unknown, or invisible to the caller
    │   ├── TransformConfigNotFoundError
    │   └── TransformRunNotFoundError
    ├── ConflictError                409  refused by the state of the memory
    │   ├── ExternalRefInUseError
    │   ├── IdempotencyKeyReusedError
    │   ├── DurableDocumentError
    │   ├── TransformConfigInUseError
    │   ├── TransformRunError
    │   └── TransformPromoteError
    ├── TooLargeError                413  the caller sends less
    │   └── FileTooLargeError
    │       └── FileTooSlowError
    ├── TooManyRequestsError         429  the caller waits
    ├── NotSupportedError            501  this store can't do it
    │   ├── IdempotencyNotSupportedError
    │   └── ExtractNotInstalledError
    ├── UpstreamError                502  a model or the database failed
    │   ├── DatabaseError
    │   ├── EmbedError
    │   │   ├── EmbedTimeoutError
    │   │   ├── EmbedHttpError
    │   │   └── DimsOutOfBoundsError
    │   ├── RerankError
    │   │   ├── RerankTimeoutError
    │   │   ├── RerankHttpError
    │   │   └── RerankQueryTooLongError
    │   └── ChatError
    │       ├── ChatTimeoutError
    │       └── ChatHttpError
    ├── UnavailableError             503  not ready, or closed
    └── ConfigError                  500  the operator mends the configuration
        ├── RerankConfigError
        ├── MigrationError
        ├── FtsLanguageError
        └── EmbeddedPostgresError

A message says what is wrong and what to do about it, and never holds a secret or a document's text.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

Details = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""More about an error, for machines: facts by name, or ``{"field", "problem"}`` a problem found."""


class MemoryError(Exception):  # noqa: A001 - a contract of the plane
    """The memory failed in a way nobody foresaw; the log has the details."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal"
    http_status: int | None = None
    """Of the answer that told of it, where one did; so are the next two."""
    request_id: str | None = None
    retry_after: float | None = None
    """Seconds."""

    def __init__(self, message: str | None = None, *, details: Details | None = None) -> None:
        self.message = message or " ".join((self.__doc__ or "").split())
        self.details = details or None
        super().__init__(self.message)


class InvalidInputError(MemoryError):
    """The input is not valid; the details name the fields."""

    status = 400
    code = "invalid_input"


class InvalidAdaptedDocumentError(InvalidInputError):
    """The adapted document is not valid: title and kind must not be blank."""

    code = "invalid_document"


class InvalidCursorError(InvalidInputError):
    """The cursor lies beyond the newest entry: it is another tenant's, or the database was restored. Begin again."""

    code = "invalid_cursor"


class InvalidFileError(InvalidInputError):
    """The file can't become a document."""

    code = "invalid_file"


class UnsupportedFileError(InvalidFileError):
    """This kind of file can't be read; PDF, DOCX, HTML, Markdown and plain text can."""

    code = "unsupported_file"


class UnreadableFileError(InvalidFileError):
    """The file is broken, or not what its type or name says."""

    code = "unreadable_file"


class EncryptedFileError(InvalidFileError):
    """The file is encrypted; take its password away first."""

    code = "encrypted_file"


class FileWithoutTextError(InvalidFileError):
    """There is no text in the file; pictures of text need OCR first."""

    code = "file_without_text"


class TextExtractorRequiredError(InvalidInputError):
    """file requires a text_extractor on the memory plane"""

    code = "text_extractor_required"


class UnauthorizedError(MemoryError):
    """The caller is not known; send a valid credential."""

    status = 401
    code = "unauthorized"


class PrincipalRequiredError(UnauthorizedError):
    """This needs a credential, and the request has none."""

    code = "principal_required"


class ForbiddenError(MemoryError):
    """You do not have permission to perform this action."""

    status = 403
    code = "forbidden"


class TenantMismatchError(ForbiddenError):
    """The path names another tenant than the caller's."""

    code = "tenant_mismatch"


class NotFoundError(MemoryError):
    """There is no such thing here, or you may not see it."""

    status = 404
    code = "not_found"


class TransformConfigNotFoundError(NotFoundError):
    """There is no such transform config in this tenant."""

    code = "transform_config_not_found"


class TransformRunNotFoundError(NotFoundError):
    """There is no such transform run in this tenant."""

    code = "transform_run_not_found"


class ConflictError(MemoryError):
    """The memory's state does not allow this now."""

    status = 409
    code = "conflict"


class ExternalRefInUseError(ConflictError):
    """This external_ref belongs to somebody else's document; use another reference."""

    code = "external_ref_in_use"


class IdempotencyKeyReusedError(ConflictError):
    """This Idempotency-Key came with another request before; use a new key for each request."""

    code = "idempotency_key_reused"


class DurableDocumentError(ConflictError):
    """The document has durable versions; forget it first, or give them another retention class."""

    code = "durable_document"


class TransformConfigInUseError(ConflictError):
    """Runs were made with this transform config; it has to stay as long as they do."""

    code = "transform_config_in_use"


class TransformRunError(ConflictError):
    """The run's state does not allow this now."""

    code = "transform_run"


class TransformPromoteError(ConflictError):
    """This generation can't be promoted or demoted now."""

    code = "transform_promote"


class TooLargeError(MemoryError):
    """The request is too large; send less at once."""

    status = 413
    code = "too_large"


class FileTooLargeError(TooLargeError):
    """The file, or what it unpacks to, is too large; split it."""

    code = "file_too_large"


class FileTooSlowError(FileTooLargeError):
    """The file takes too long to read; split it, or save it as text."""

    code = "file_too_slow"


class TooManyRequestsError(MemoryError):
    """Too many requests; try again later."""

    status = 429
    code = "rate_limited"


class GrantStoreError(MemoryError):
    """The host's grant store answered something that is no grant; the operator mends the store."""

    code = "grant_store"


class NotSupportedError(MemoryError):
    """This document store does not support the operation."""

    status = 501
    code = "not_supported"


class IdempotencyNotSupportedError(NotSupportedError):
    """This document store keeps no answers for retries; leave the Idempotency-Key out."""

    code = "idempotency_not_supported"


class ExtractNotInstalledError(NotSupportedError):
    """Reading this kind of file needs an extra: pip install 'corbits-memory[extract]'"""

    code = "extract_not_installed"


class UpstreamError(MemoryError):
    """A service that the memory depends on failed; try again later."""

    status = 502
    code = "upstream_failed"


class ExtractorError(UpstreamError):
    """The host's text extractor failed; nothing of this file was stored."""

    code = "extractor_failed"


class AnsweredError(UpstreamError):
    """A service over HTTP answered with an error, or with something that is not its protocol."""

    code = "upstream_http"

    def __init__(
        self, message: str, *, http_status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.http_status = http_status
        self.retry_after = retry_after


class DatabaseError(UpstreamError):
    """The database failed; nothing of this request was kept."""

    code = "database_failed"


class EmbedError(UpstreamError):
    """The embedding model failed."""

    code = "embed_failed"


class EmbedTimeoutError(EmbedError):
    """The embedding model did not answer in time; raise EMBED_TIMEOUT_MS or look at the endpoint."""

    code = "embed_timeout"


class EmbedHttpError(EmbedError, AnsweredError):
    """The embedding endpoint answered with an error or with something that is not its protocol."""

    code = "embed_http"


class DimsOutOfBoundsError(EmbedError):
    """The embedding model's vectors have a number of dimensions that can't be indexed."""

    code = "embed_dims"


class RerankError(UpstreamError):
    """The reranking model failed."""

    code = "rerank_failed"


class RerankTimeoutError(RerankError):
    """The reranking model did not answer in time; raise RERANK_TIMEOUT_MS or look at the endpoint."""

    code = "rerank_timeout"


class RerankHttpError(RerankError, AnsweredError):
    """The reranking endpoint answered with an error or with something that is not its protocol."""

    code = "rerank_http"


class RerankQueryTooLongError(RerankError):
    """The query leaves no room for a document in the reranker's window; ask a shorter question."""

    code = "rerank_query_too_long"


class ChatError(UpstreamError):
    """The chat model failed."""

    code = "chat_failed"


class ChatTimeoutError(ChatError):
    """The chat model did not answer in time; raise DISTILL_TIMEOUT_MS or look at the endpoint."""

    code = "chat_timeout"


class ChatHttpError(ChatError, AnsweredError):
    """The chat endpoint answered with an error or with something that is not its protocol."""

    code = "chat_http"


class UnavailableError(MemoryError):
    """The memory is not ready, or closed."""

    status = 503
    code = "unavailable"


class ChunkerError(UnavailableError):
    """A chunk strategy is not installed here, or its plug-in failed. Nothing was stored."""

    code = "chunker_failed"


class ConfigError(MemoryError):
    """The configuration is not valid; the message names each variable, its problem and the fix."""

    code = "config"


class RerankConfigError(ConfigError):
    """RERANK_MAX_DOC_CHARS exceeds what the reranking model reads."""

    code = "rerank_config"


class MigrationError(ConfigError):
    """The database's migrations do not match this release."""

    code = "migration"


class FtsLanguageError(ConfigError):
    """The full-text language of the index and of the queries differ."""

    code = "fts_language"


class EmbeddedPostgresError(ConfigError):
    """The embedded Postgres can't start."""

    code = "embedded_postgres"
