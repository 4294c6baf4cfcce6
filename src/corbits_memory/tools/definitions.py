"""What each tool is called, takes, says of itself, and asks of the server."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pydantic import Field

from corbits_memory.client import Call, routes
from corbits_memory.core import limits
from corbits_memory.core.enums import LineageClass, Provenance, TemporalClass
from corbits_memory.tools.coercion import Arguments, Flag, Number, Required, Texts, lean_schema
from corbits_memory.wire import context as contexts
from corbits_memory.wire import documents, feed, lifecycle, responses


class ShareArguments(Arguments):
    tenant: Flag | None = Field(default=None, description="Everybody in the tenant.")
    principals: Texts | None = Field(default=None, description="These people or agents.")
    tags: Texts | None = None


class AddArguments(Arguments):
    title: Required
    text: Required
    access_tags: Texts | None = Field(default=None, description="Like memory.space:team.")
    kind: str | None = Field(default=None, description="Default note.")
    generator_agent_id: str | None = Field(default=None, description="Your own id, for what you concluded.")
    provenance: Provenance | None = None
    lineage_class: LineageClass | None = None
    temporal_class: TemporalClass | None = None
    derived_from: Texts | None = Field(default=None, description="Version ids that it follows from.")
    valid_from: str | None = Field(default=None, description="ISO 8601.")
    valid_until: str | None = None
    share: ShareArguments | None = Field(default=None, description="Who else may read it; else you alone.")


class SearchArguments(Arguments):
    query: str = Field(description='A question or keywords. "quotes" must occur, -minus must not.')
    limit: Number | None = Field(default=None, ge=1, le=limits.SEARCH_LIMIT_MAX)
    kinds: Texts | None = None
    entity_ids: Texts | None = None
    sources: Texts | None = None
    include_evidence: Flag | None = Field(default=None, alias="includeEvidence")
    include_deprecated: Flag | None = Field(default=None, alias="includeDeprecated")


class ListArguments(Arguments):
    limit: Number | None = Field(default=None, ge=1, le=limits.LIST_LIMIT_MAX)


class FeedArguments(Arguments):
    after: Number | None = Field(
        default=None, ge=0, le=limits.SAFE_INTEGER, description="nextCursor of the page before."
    )
    limit: Number | None = Field(default=None, ge=1, le=limits.FEED_LIMIT_MAX)
    exclude_generator: str | None = Field(default=None, description="Your own agent id.")


class ContextArguments(Arguments):
    query: str = Field(description="What you need to know.")
    max_tokens: Number | None = Field(
        default=None, ge=limits.CONTEXT_TOKENS_MIN, le=limits.CONTEXT_TOKENS_MAX
    )
    kinds: Texts | None = None
    sources: Texts | None = None
    occurred_after: str | None = Field(default=None, description="ISO 8601.")
    occurred_before: str | None = None


class HistoryArguments(Arguments):
    document_id: Required
    limit: Number | None = Field(default=None, ge=1, le=limits.HISTORY_LIMIT_MAX)
    before: Number | None = Field(
        default=None, ge=0, le=2**31 - 1, description="nextBefore of the page before."
    )


class ForgetArguments(Arguments):
    document_id: Required
    cascade: Flag | None = Field(default=None, description="Also your documents that were derived from it.")


@dataclass(frozen=True, kw_only=True)
class ToolDescription:
    """One tool, in no framework's terms: what a model is told of it."""

    name: str
    title: str
    description: str
    """Written for a model."""
    arguments: type[Arguments]
    read_only: bool = True
    destructive: bool = False
    idempotent: bool = True

    @cached_property
    def input_schema(self) -> dict[str, Any]:
        """JSON schema of the arguments."""
        return lean_schema(self.arguments)


@dataclass(frozen=True, kw_only=True)
class Tool(ToolDescription):
    """One tool over the memory."""

    request: Callable[..., Call[Any]]
    """From the arguments, by name, to what is sent."""
    answer: type[responses.Response]

    @cached_property
    def output_schema(self) -> dict[str, Any]:
        """JSON schema of a result that is no error."""
        return self.answer.model_json_schema(mode="serialization")

    def call(self, arguments: Arguments) -> Call[Any]:
        # The answer that models are told of: of a search without its cursor, which is of no use to them.
        return replace(self.request(**arguments.given()), answer=self.answer)


TOOLS: tuple[Tool, ...] = (
    Tool(
        request=routes.add,
        arguments=AddArguments,
        answer=responses.AddResponse,
        name="memory_add",
        title="Save to memory",
        description=(
            "Save one fact, note or decision for later. One subject a call, in words that make sense on their own. "
            "What somebody said: provenance stated. What you concluded: generator_agent_id with your id, provenance "
            "inferred, derived_from with the version ids it rests on, access_tags copied from them."
        ),
        read_only=False,
        idempotent=False,
    ),
    Tool(
        request=routes.search,
        arguments=SearchArguments,
        answer=responses.FoundResponse,
        name="memory_search",
        title="Search memory",
        description=(
            "Find saved documents, best first. Attribute what is stated to its author; inferred is an agent's own "
            "conclusion. evidence weak or none: the hits hardly answer, not that nothing is known; reword, or raise "
            "limit. No items: nothing matches."
        ),
    ),
    Tool(
        request=routes.context,
        arguments=ContextArguments,
        answer=contexts.ContextResponse,
        name="memory_context",
        title="Recall as context",
        description=(
            "What memory holds on a question, as one text of at most max_tokens with passages cited as [1]. Cite the "
            "markers you use. omitted lists hits that had no room."
        ),
    ),
    Tool(
        request=routes.list_documents,
        arguments=ListArguments,
        answer=responses.ListResponse,
        name="memory_list",
        title="List recent documents",
        description="The newest saved documents that you may see.",
    ),
    Tool(
        request=routes.feed_page,
        arguments=FeedArguments,
        answer=feed.FeedResponse,
        name="memory_feed",
        title="Read what is new",
        description=(
            "What was saved after a cursor, in order. Keep nextCursor for the next call. Exclude yourself with "
            "exclude_generator; copy an entry's accessTags to what you derive from it."
        ),
    ),
    Tool(
        request=routes.history,
        arguments=HistoryArguments,
        answer=documents.HistoryResponse,
        name="memory_history",
        title="History of a document",
        description="The versions of a document, newest first, and what each changed.",
    ),
    Tool(
        request=routes.forget,
        arguments=ForgetArguments,
        answer=lifecycle.ForgetResponse,
        name="memory_forget",
        title="Forget a document",
        description=(
            "Erase a document of yours for good, all its versions. Only when the user asks for it: there is no "
            "way back."
        ),
        read_only=False,
        destructive=True,
    ),
)
