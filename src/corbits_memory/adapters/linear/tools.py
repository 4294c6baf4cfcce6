"""Linear's issues as tools of an agent: found, read, created, commented on."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from corbits_memory.adapters.linear.api import LinearApi, LinearError, nodes_of
from corbits_memory.adapters.linear.source import SEARCH
from corbits_memory.core.limits import SEARCH_LIMIT_DEFAULT, SEARCH_LIMIT_MAX
from corbits_memory.errors import InvalidInputError, MemoryError
from corbits_memory.tools import results
from corbits_memory.tools.coercion import Arguments, Number, Required
from corbits_memory.tools.definitions import ToolDescription
from corbits_memory.tools.results import RESULT_CHARS, ToolResult
from corbits_memory.tools.toolset import arguments_of, chosen_tools, unknown_tool

ISSUE = """
query Issue($id: String!) {
  issue(id: $id) {
    id identifier title description url priority updatedAt
    state { name type }
    team { id key name }
    assignee { name }
    comments(first: 20) { nodes { body createdAt user { name } } }
  }
}
"""
CREATE = """
mutation CreateIssue($input: IssueCreateInput!) {
  issueCreate(input: $input) { success issue { id identifier url } }
}
"""
COMMENT = """
mutation CreateComment($input: CommentCreateInput!) {
  commentCreate(input: $input) { success comment { id url } }
}
"""


class SearchArguments(Arguments):
    query: Required
    limit: Number | None = Field(default=None, ge=1, le=SEARCH_LIMIT_MAX)


class IssueArguments(Arguments):
    id: Required = Field(description="Like ENG-12.")


class CreateArguments(Arguments):
    title: Required
    description: str | None = Field(default=None, description="Markdown.")
    team_id: str | None = Field(default=None, description="The id of a team, not its key.")
    priority: Number | None = Field(default=None, ge=0, le=4, description="1 urgent to 4 low; 0 none.")


class CommentArguments(Arguments):
    issue_id: Required = Field(description="Like ENG-12.")
    body: Required = Field(description="Markdown.")


Run = Callable[["LinearTools", Any], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class LinearTool(ToolDescription):
    run: Run


class LinearTools:
    """Some or all of the tools, for the exporters of :mod:`corbits_memory.tools`. A call never raises."""

    def __init__(
        self, api: LinearApi, *, team_id: str | None = None, names: Iterable[str] | None = None
    ) -> None:
        """``team_id``: where issues are created and searched when no other is asked for. ``names``: only these.

        Raises ``ConfigError`` for a name that is none. The API stays its maker's to close.
        """
        self.api = api
        self.team_id = team_id
        self._tools = chosen_tools(TOOLS, names)

    @property
    def tools(self) -> tuple[LinearTool, ...]:
        return tuple(self._tools.values())

    async def call(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> ToolResult:
        """The result of a call. ``arguments`` may be the JSON that a model wrote."""
        tool = self._tools.get(name)
        if tool is None:
            return unknown_tool(self._tools)
        given = arguments_of(tool, arguments)
        if isinstance(given, ToolResult):
            return given
        try:
            return results.result(await tool.run(self, given), most=RESULT_CHARS)
        except MemoryError as error:
            return results.error(
                error.code, error.message, status=error.http_status, retry_after=error.retry_after
            )
        except Exception as error:  # noqa: BLE001 - the last door: a tool never raises
            return results.failure(error)


async def _search(tools: LinearTools, given: SearchArguments) -> dict[str, Any]:
    variables: dict[str, Any] = {"term": given.query, "first": given.limit or SEARCH_LIMIT_DEFAULT}
    if tools.team_id is not None:
        variables["filter"] = {"team": {"id": {"eq": tools.team_id}}}
    found = await tools.api.run("searchIssues", SEARCH, variables, private=(given.query,))
    return {"issues": nodes_of(found)}


async def _issue(tools: LinearTools, given: IssueArguments) -> dict[str, Any]:
    return {"issue": await tools.api.run("issue", ISSUE, {"id": given.id})}


async def _create(tools: LinearTools, given: CreateArguments) -> dict[str, Any]:
    team_id = given.team_id or tools.team_id
    if team_id is None:
        raise InvalidInputError("team_id is required: the team of an issue that linear_issue shows has one")
    fields = {
        "teamId": team_id,
        "title": given.title,
        "description": given.description,
        "priority": given.priority,
    }
    told = {name: value for name, value in fields.items() if value is not None}
    return await _written(tools, "issueCreate", CREATE, told, private=(given.title, given.description or ""))


async def _comment(tools: LinearTools, given: CommentArguments) -> dict[str, Any]:
    told = {"issueId": given.issue_id, "body": given.body}
    return await _written(tools, "commentCreate", COMMENT, told, private=(given.body,))


async def _written(
    tools: LinearTools, operation: str, document: str, fields: dict[str, Any], *, private: tuple[str, ...]
) -> dict[str, Any]:
    """Sent once: after an error in the middle nobody knows whether it was carried out."""
    done = await tools.api.run(operation, document, {"input": fields}, repeatable=False, private=private)
    if not isinstance(done, Mapping) or done.get("success") is not True:
        raise LinearError(f"Linear did not carry out {operation}")
    return {name: value for name, value in done.items() if name != "success"}


TOOLS: tuple[LinearTool, ...] = (
    LinearTool(
        run=_search,
        arguments=SearchArguments,
        name="linear_search_issues",
        title="Search Linear",
        description="Find issues in Linear by words, best first. No issues: nothing matches.",
    ),
    LinearTool(
        run=_issue,
        arguments=IssueArguments,
        name="linear_issue",
        title="Read an issue",
        description="One Linear issue with its state, assignee and first comments.",
    ),
    LinearTool(
        run=_create,
        arguments=CreateArguments,
        name="linear_create_issue",
        title="Create an issue",
        description="Create an issue in Linear. Search first: it may be there already.",
        read_only=False,
        idempotent=False,
    ),
    LinearTool(
        run=_comment,
        arguments=CommentArguments,
        name="linear_comment",
        title="Comment on an issue",
        description="Add a comment to a Linear issue.",
        read_only=False,
        idempotent=False,
    ),
)
