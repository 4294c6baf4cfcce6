"""What clients send. The names are the JSON names; snake and camel case are mixed by contract.

The models describe and document bodies, and clients may build them. A server doesn't parse with them: it
picks the declared fields (others are ignored) and the plane's one validation judges the values.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from corbits_memory.core import limits
from corbits_memory.core.enums import (
    LineageClass,
    MinEvidence,
    Provenance,
    RetentionClass,
    SearchProfile,
    TemporalClass,
)
from corbits_memory.core.shown import CURSOR_CHARS
from corbits_memory.errors import InvalidInputError
from corbits_memory.validation import AddInput, Content, File, SearchInput
from corbits_memory.wire import fields

IDEMPOTENCY_KEY_HEADER = "Idempotency-Key"


class Request(BaseModel):
    model_config = ConfigDict(extra="ignore", populate_by_name=True, serialize_by_alias=True)


_SOMETHING_TO_SHARE: list[JsonValue] = [
    {"properties": {"tenant": {"const": True}}, "required": ["tenant"]},
    {"properties": {"tags": {"type": "array", "minItems": 1}}, "required": ["tags"]},
    {
        "properties": {
            "principals": {"type": "array", "contains": {"type": "string", "pattern": fields.NOT_BLANK}}
        },
        "required": ["principals"],
    },
]


class ShareSugar(Request):
    """Who else may read the document: the whole tenant, named principals, holders of tags."""

    tenant: bool | None = None
    principals: Annotated[list[fields.BlankableId], Field(max_length=limits.SHARED_PRINCIPALS)] | None = None
    tags: fields.Tags | None = None
    required: bool | None = Field(
        default=None,
        description="Refuse rather than keep it unshared, where no grant can be written. Default false.",
    )


class ShareRequest(ShareSugar):
    """Who else may read the document: at least one of the three, other than yourself."""

    model_config = ConfigDict(json_schema_extra={"anyOf": _SOMETHING_TO_SHARE})


class UnshareRequest(Request):
    """Who shall no longer read the document. What was not shared is let pass."""

    model_config = ConfigDict(json_schema_extra={"anyOf": _SOMETHING_TO_SHARE})

    tenant: bool | None = None
    principals: Annotated[list[fields.BlankableId], Field(max_length=limits.SHARED_PRINCIPALS)] | None = None
    tags: fields.Tags | None = None


class DocumentRequest(Request):
    """What a document is told to be, its title and text apart."""

    kind: fields.Kind | None = Field(default=None, description="Default `note`.")
    access_tags: fields.Tags | None = None
    share: ShareSugar | None = None
    generator_agent_id: fields.BlankableId | None = Field(
        default=None, description="The agent that made this text. Its provenance is then at best `inferred`."
    )
    provenance: Provenance | None = None
    lineage_class: LineageClass | None = None
    temporal_class: TemporalClass | None = None
    retention_class: RetentionClass | None = None
    derived_from: fields.VersionIds | None = Field(
        default=None, description="Versions that this text is made from."
    )
    supports: fields.VersionIds | None = Field(
        default=None, description="Versions that this text speaks for."
    )
    contradicts: fields.VersionIds | None = Field(
        default=None, description="Versions that this text speaks against."
    )
    valid_from: fields.Instant | None = None
    valid_until: fields.Instant | None = None
    occurred_at: fields.Instant | None = Field(default=None, description="When it happened. Default now.")
    external_ref: fields.ExternalRef | None = Field(
        default=None,
        description="Your name for the document; the same name again makes a new version of it. Tenant, adapter "
        f"and this together: at most {limits.REFERENCE_BYTES:,} bytes in UTF-8.",
    )
    adapter: fields.Id | None = Field(
        default=None, description="Where external_ref comes from. Default `http`."
    )
    thread: fields.Id | None = Field(default=None, description="The conversation that it belongs to.")
    author: fields.Author | None = Field(default=None, description="Who says it; text, not a principal.")
    attributes: fields.Attributes | None = None
    language: fields.Language | None = None


class AddRequest(DocumentRequest):
    """One document to remember. Whose it is comes from the credential, never from the body."""

    title: fields.Title
    text: fields.Body


class AddFileRequest(DocumentRequest):
    """One document to remember, as a file: the parts of a form. Lists and objects are JSON, texts as they are."""

    file: fields.Upload
    title: fields.FileTitle | None = Field(
        default=None, description="Default: the file's own title, else its name."
    )


class AddBatchRequest(Request):
    """Many documents, each judged by itself."""

    items: Annotated[list[AddRequest], Field(max_length=limits.BATCH_ITEMS)]


_QUERY_OR_FILTER: list[JsonValue] = [
    {"properties": {"query": {"pattern": fields.NOT_BLANK}}},
    {"properties": {"kinds": {"type": "array", "minItems": 1}}, "required": ["kinds"]},
    {"properties": {"entity_ids": {"type": "array", "minItems": 1}}, "required": ["entity_ids"]},
]


class QuestionRequest(Request):
    """A question, or filters, or both. An empty list filters nothing."""

    model_config = ConfigDict(json_schema_extra={"anyOf": _QUERY_OR_FILTER})

    query: fields.Query = Field(description="May be blank only beside a filter on kinds or entity_ids.")
    limit: Annotated[int, Field(ge=1, le=limits.SEARCH_LIMIT_MAX)] | None = Field(
        default=None, description=f"Default {limits.SEARCH_LIMIT_DEFAULT}."
    )
    kinds: fields.FilterKinds | None = None
    entity_ids: fields.FilterIds | None = None
    sources: fields.FilterIds | None = Field(default=None, description="`local` and ids of live sources.")
    include_evidence: bool | None = Field(default=None, alias="includeEvidence", description="Default true.")
    include_deprecated: bool | None = Field(
        default=None, alias="includeDeprecated", description="Default false."
    )
    profile: SearchProfile | None = None
    explain: bool | None = Field(default=None, description="Adds the parts of each score.")
    generation: fields.Id | None = Field(default=None, description="Needs the capability memory:admin.")
    occurred_after: fields.Instant | None = None
    occurred_before: fields.Instant | None = None
    attributes: fields.Attributes | None = None
    max_per_document: Annotated[int, Field(ge=1, le=limits.MAX_PER_DOCUMENT)] | None = None
    valid_at: fields.Instant | None = Field(
        None, description="Only what is valid at this instant, by its valid_from and valid_until."
    )
    as_of: fields.Instant | None = Field(
        None, description="Answer from what was there at this instant, in the versions of then."
    )
    sample: bool | None = Field(
        None, description="False: it is not kept as a question that was asked, where some are."
    )
    min_evidence: MinEvidence | None = Field(
        None, description="Only hits whose own evidence is at least this. Default: all."
    )


class SearchRequest(QuestionRequest):
    """A question, or filters, or both. An empty list filters nothing."""

    cursor: Annotated[str, Field(min_length=1, max_length=CURSOR_CHARS)] | None = Field(
        None,
        description="`nextCursor` of an answer to the same question: the hits after those. `limit`, `explain` and "
        f"`sample` may change. Up to {limits.SEARCH_DEPTH_MAX} hits in all.",
    )


_ADD_FIELDS = tuple(DocumentRequest.model_fields)
_SEARCH_FIELDS = {name: field.alias or name for name, field in SearchRequest.model_fields.items()}


_RENAMED = {name: key for name, key in _SEARCH_FIELDS.items() if key != name}
_RENAMED_WORD = re.compile(rf"\b(?:{'|'.join(_RENAMED)})\b")


def add_input(body: Mapping[str, Any]) -> AddInput:
    """The plane's input from a JSON object; nothing is checked yet."""
    # Absent and null are the same: the validation says that they are required.
    content = Content(title=body.get("title"), text=body.get("text"))  # type: ignore[arg-type]
    return AddInput(content=content, **{name: body.get(name) for name in _ADD_FIELDS})


def add_file_input(body: Mapping[str, Any]) -> AddInput:
    """The plane's input from a form, whose ``file`` is a :class:`File`; nothing is checked yet.

    Raises ``InvalidInputError`` when there is no file.
    """
    file = body.get("file")
    if not isinstance(file, File):
        problem = {"field": "file", "problem": "is required, as a part with a file name"}
        raise InvalidInputError(" ".join(problem.values()), details=[problem])
    named = replace(file, title=body.get("title"))
    return AddInput(file=named, **{name: body.get(name) for name in _ADD_FIELDS})


def search_input(body: Mapping[str, Any]) -> SearchInput:
    """The plane's input from a JSON object; nothing is checked yet."""
    values: dict[str, Any] = {name: body.get(key) for name, key in _SEARCH_FIELDS.items()}
    return SearchInput(**values)


def in_json_names(error: InvalidInputError) -> InvalidInputError:
    """The same problems with a search, told with the names that its fields have in JSON."""
    listed = error.details if isinstance(error.details, Sequence) else ()
    details = [{key: _renamed(value) for key, value in found.items()} for found in listed]
    return type(error)(_renamed(error.message), details=details or error.details)


def _renamed(text: Any) -> Any:
    return _RENAMED_WORD.sub(lambda found: _RENAMED[found[0]], text) if isinstance(text, str) else text
