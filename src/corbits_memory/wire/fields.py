"""The field types that requests are made of, with the limits that the schema tells."""

from typing import Annotated, Any

from pydantic import Field

from corbits_memory.core import limits
from corbits_memory.validation import LANGUAGE

# Prose may hold any character but NUL, names no control character at all. These are regular expressions of
# JSON Schema, for the OpenAPI document.
_PROSE = r"[^\x00]"
_PROSE_NOT_BLANK = r"[^\s\x00\x1c-\x1f\x85]"
NOT_BLANK = r"[^\s\x1c-\x1f\x85]"
"""What the plane takes for text; some control characters count as blanks there, and in no regular expression."""
_NAME = r"[^\x00-\x1f\x7f-\x9f]"
_NAME_NOT_BLANK = r"[^\s\x00-\x1f\x7f-\x9f]"
_TAG = r"[^*\x00-\x1f\x7f-\x9f]"


def _prose(max_chars: int) -> Any:
    return Field(min_length=1, max_length=max_chars, pattern=rf"^{_PROSE}*{_PROSE_NOT_BLANK}{_PROSE}*$")


def _name(max_chars: int) -> Any:
    return Field(min_length=1, max_length=max_chars, pattern=rf"^{_NAME}*{_NAME_NOT_BLANK}{_NAME}*$")


Title = Annotated[str, _prose(limits.TITLE_CHARS)]
FileTitle = Annotated[str, Field(max_length=limits.TITLE_CHARS, pattern=rf"^{_PROSE}*$")]
Upload = Annotated[bytes, Field(min_length=1, json_schema_extra={"format": "binary"})]
Body = Annotated[str, _prose(limits.TEXT_CHARS)]
Query = Annotated[str, Field(max_length=limits.QUERY_CHARS, pattern=rf"^{_PROSE}*$")]
Kind = Annotated[str, _name(limits.KIND_CHARS)]
Id = Annotated[str, _name(limits.ID_CHARS)]
BlankableId = Annotated[str, Field(max_length=limits.ID_CHARS, pattern=rf"^{_NAME}*$")]
Author = Annotated[str, _name(limits.AUTHOR_CHARS)]
ExternalRef = Annotated[str, _name(limits.EXTERNAL_REF_CHARS)]
Language = Annotated[str, Field(pattern=LANGUAGE, max_length=68)]
Tag = Annotated[
    str,
    Field(
        min_length=1,
        max_length=limits.TAG_CHARS,
        pattern=rf"^{_TAG}*:{_TAG}*$",
        description="Like `memory.space:team`. The prefixes `memory.owner:`, `memory.tenant:` and "
        "`memory.doc:` are reserved; use `share`.",
    ),
]
Instant = Annotated[
    str,
    Field(
        description="ISO 8601 date or date-time; without a zone it is UTC.",
        json_schema_extra={"format": "date-time"},
    ),
]
AttributeText = Annotated[str, Field(max_length=limits.ATTRIBUTE_VALUE_CHARS, pattern=rf"^{_PROSE}*$")]
AttributeNumber = Annotated[float, Field(ge=-limits.SAFE_INTEGER, le=limits.SAFE_INTEGER)]
Attributes = Annotated[
    dict[
        Annotated[str, Field(max_length=limits.ATTRIBUTE_KEY_CHARS)],
        AttributeText | AttributeNumber | bool | None,
    ],
    Field(
        max_length=limits.ATTRIBUTES,
        description="A flat object. Keys are not blank; numbers lie within ±(2^53 − 1).",
        json_schema_extra={
            "propertyNames": {
                "maxLength": limits.ATTRIBUTE_KEY_CHARS,
                "pattern": rf"^{_PROSE}*{_PROSE_NOT_BLANK}{_PROSE}*$",
            }
        },
    ),
]
VersionIds = Annotated[list[Id], Field(max_length=limits.VERSION_REFS)]
FilterIds = Annotated[list[Id], Field(max_length=limits.FILTER_VALUES)]
FilterKinds = Annotated[list[Kind], Field(max_length=limits.FILTER_VALUES)]
Tags = Annotated[list[Tag], Field(max_length=limits.ACCESS_TAGS)]
