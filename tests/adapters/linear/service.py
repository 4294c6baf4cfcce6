"""A service that speaks Linear's documented API: GraphQL, executed over the part of its schema that is used here."""

from dataclasses import dataclass, field
from typing import Any

from graphql import GraphQLError, build_schema, graphql_sync

from tests.models.conftest import Answer, Request

TOKEN = "lin_oauth_7f3a"
SCHEMA = build_schema(
    """
    scalar DateTime
    input IDComparator { eq: ID }
    input TeamFilter { id: IDComparator }
    input IssueFilter { team: TeamFilter }
    type Team { id: ID! key: String! name: String! }
    type User { id: ID! name: String! }
    type WorkflowState { id: ID! name: String! type: String! }
    type Comment { id: ID! body: String! createdAt: DateTime! url: String! user: User }
    type CommentConnection { nodes: [Comment!]! }
    type Issue {
      id: ID! identifier: String! title: String! description: String url: String! priority: Float!
      updatedAt: DateTime! team: Team! state: WorkflowState! assignee: User comments(first: Int): CommentConnection!
    }
    type IssueSearchPayload { nodes: [Issue!]! totalCount: Float! }
    type IssuePayload { success: Boolean! issue: Issue }
    type CommentPayload { success: Boolean! comment: Comment! }
    input IssueCreateInput { teamId: String! title: String description: String priority: Int }
    input CommentCreateInput { issueId: String! body: String }
    type Query {
      searchIssues(term: String!, first: Int, filter: IssueFilter, includeComments: Boolean): IssueSearchPayload!
      issue(id: String!): Issue!
    }
    type Mutation {
      issueCreate(input: IssueCreateInput!): IssuePayload!
      commentCreate(input: CommentCreateInput!): CommentPayload!
    }
    """
)
NOW = "2026-06-01T12:00:00.000Z"


def issue(number: int, title: str, *, description: str | None = None, team: str = "team-1") -> dict[str, Any]:
    return {
        "id": f"issue-{number}",
        "identifier": f"ENG-{number}",
        "title": title,
        "description": description,
        "url": f"https://linear.app/acme/issue/ENG-{number}",
        "priority": 2.0,
        "updatedAt": NOW,
        "team": {"id": team, "key": "ENG", "name": "Engineering"},
        "state": {"id": "state-1", "name": "Todo", "type": "unstarted"},
        "assignee": {"id": "user-1", "name": "Ann"},
        "comments": [],
    }


@dataclass
class LinearService:
    issues: list[dict[str, Any]] = field(default_factory=list)
    authorization: str = f"Bearer {TOKEN}"

    def __call__(self, request: Request) -> Answer:
        if request.headers.get("authorization") != self.authorization:
            refusal = {"message": "Authentication required", "extensions": {"code": "AUTHENTICATION_ERROR"}}
            return Answer({"errors": [refusal]}, status=401)
        done = graphql_sync(
            SCHEMA, request.body["query"], root_value=self, variable_values=request.body["variables"]
        )
        # What does not fit the schema is refused as a whole.
        misfit = any(error.path is None for error in done.errors or ())
        return Answer(done.formatted, status=400 if misfit else 200)

    def searchIssues(self, _: Any, term: str, first: int = 50, filter: Any = None) -> dict[str, Any]:  # noqa: A002, N802
        team = ((filter or {}).get("team") or {}).get("id", {}).get("eq")
        found = [
            shown(one)
            for one in self.issues
            if term.casefold() in f"{one['title']}\n{one['description']}".casefold()
            and team in (None, one["team"]["id"])
        ]
        return {"nodes": found[:first], "totalCount": len(found)}

    def issue(self, _: Any, id: str) -> dict[str, Any]:  # noqa: A002
        for one in self.issues:
            if id in (one["id"], one["identifier"]):
                return shown(one)
        raise GraphQLError(
            "Entity not found: Issue",
            extensions={"code": "INPUT_ERROR", "userPresentableMessage": "Could not find referenced Issue."},
        )

    def issueCreate(self, _: Any, input: dict[str, Any]) -> dict[str, Any]:  # noqa: A002, N802
        made = issue(len(self.issues) + 1, input["title"], description=input.get("description"))
        made["team"]["id"] = input["teamId"]
        made["priority"] = input.get("priority", 0)
        self.issues.append(made)
        return {"success": True, "issue": shown(made)}

    def commentCreate(self, _: Any, input: dict[str, Any]) -> dict[str, Any]:  # noqa: A002, N802
        of = next(one for one in self.issues if input["issueId"] in (one["id"], one["identifier"]))
        comment = {"id": "comment-1", "body": input["body"], "createdAt": NOW, "url": f"{of['url']}#comment"}
        of["comments"].append({**comment, "user": {"id": "user-1", "name": "Ann"}})
        return {"success": True, "comment": comment}


def shown(one: dict[str, Any]) -> dict[str, Any]:
    comments = one["comments"]
    return {**one, "comments": lambda _, first=50: {"nodes": comments[:first]}}
