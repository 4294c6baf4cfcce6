"""A ready inference: any endpoint that speaks OpenAI's chat completions."""

import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from corbits_memory.core import limits
from corbits_memory.core.enums import TemporalClass
from corbits_memory.distiller.entries import DistillEntry, Outcome, Poison, Skip, Write
from corbits_memory.distiller.errors import DistillAnswerError, DistillUnavailableError
from corbits_memory.distiller.memory import SearchableMemory
from corbits_memory.distiller.prompt import (
    ACTIONS,
    ANSWER_SCHEMA,
    SYSTEM_PROMPT,
    Related,
    entry_message,
    labels,
)
from corbits_memory.errors import ChatError, ChatHttpError, ConfigError, MemoryError
from corbits_memory.models.endpoint import CHAT, Endpoint

logger = logging.getLogger("corbits_memory.distiller")

TIMEOUT_MS = 60_000
MAX_CHARS = 24_000
RELATED = 5
RELATED_QUERY_CHARS = 500

_MISCONFIGURED = frozenset({401, 402, 403, 404, 405, 407})
_AWAY = frozenset({429, 503})
_REFUSED = 400
_FENCED = re.compile(r"\s*```(?:json)?\s*(.*?)\s*```\s*", re.DOTALL | re.IGNORECASE)

FindRelated = Callable[[DistillEntry], Awaitable[Sequence[Related]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatConfig:
    """Where the model is. ``timeout_ms`` bounds one entry, tries included; ``max_chars`` of its text are sent."""

    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)
    timeout_ms: int = TIMEOUT_MS
    max_chars: int = MAX_CHARS


def load_chat_config(environ: Mapping[str, str]) -> ChatConfig:
    """From ``DISTILL_BASE_URL``, ``DISTILL_MODEL``, and if set ``DISTILL_API_KEY``, ``DISTILL_TIMEOUT_MS`` and
    ``DISTILL_MAX_CHARS``. Raises ``ConfigError`` naming each variable that is missing or wrong."""
    given = {name: environ.get(f"DISTILL_{name}", "").strip() for name in ("BASE_URL", "MODEL", "API_KEY")}
    problems = [f"DISTILL_{name} is not set" for name in ("BASE_URL", "MODEL") if not given[name]]
    numbers = {}
    for name, default in (("TIMEOUT_MS", TIMEOUT_MS), ("MAX_CHARS", MAX_CHARS)):
        text = environ.get(f"DISTILL_{name}", "").strip()
        if text and not (text.isascii() and text.isdigit() and int(text[:12]) > 0):
            problems.append(f"DISTILL_{name} must be a whole number above 0")
            continue
        numbers[name.lower()] = int(text) if text else default
    if problems:
        raise ConfigError(
            f"The distiller needs a chat model: {'; '.join(problems)}.",
            details=[{"field": problem.split(" ")[0], "problem": problem} for problem in problems],
        )
    return ChatConfig(
        base_url=given["BASE_URL"], model=given["MODEL"], api_key=given["API_KEY"] or None, **numbers
    )


class ChatDistiller:
    """Asks a chat model for the claim in a document; an instance is a ``distill``. Close it after use.

    Answers that are no claim raise ``DistillAnswerError``; an endpoint that is away, refuses the key or fails whatever
    it is asked raises ``DistillUnavailableError``; one that fails on this document alone a ``ChatError``.
    """

    def __init__(self, config: ChatConfig, *, related: FindRelated | None = None) -> None:
        self._config = config
        self._related = related
        self._with_schema = True
        self._endpoint = Endpoint(
            family=CHAT,
            base_url=config.base_url,
            path="/v1/chat/completions",
            api_key=config.api_key,
            timeout_ms=config.timeout_ms,
        )

    async def __call__(self, entry: DistillEntry) -> Outcome:
        related = await self._related(entry) if self._related is not None else ()
        message = entry_message(entry, related, max_chars=self._config.max_chars)
        try:
            answer = await self._ask(message, private=(entry.text, entry.title))
        except ChatError as error:
            if not _is_the_endpoint(error) and await self._works():
                raise
            raise _unavailable(error) from error
        return read_answer(_content(answer), related)

    async def aclose(self) -> None:
        await self._endpoint.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _ask(self, message: str, *, private: Sequence[str] = ()) -> Any:
        body: dict[str, Any] = {
            "model": self._config.model,
            "messages": [
                {"role": "system", "content": SYSTEM_PROMPT},
                {"role": "user", "content": message},
            ],
        }
        if self._with_schema:
            schema = {"name": "distilled_claim", "strict": True, "schema": ANSWER_SCHEMA}
            try:
                return await self._endpoint.post(
                    {**body, "response_format": {"type": "json_schema", "json_schema": schema}},
                    _as_it_is,
                    private=private,
                )
            except ChatHttpError as error:
                if error.http_status != _REFUSED:
                    raise
            # Not every server knows schemas. The prompt says the form too.
        answer = await self._endpoint.post(body, _as_it_is, private=private)
        self._with_schema = False
        return answer

    async def _works(self) -> bool:
        """Whether it was the document's fault: the endpoint answers about another one."""
        try:
            await self._ask(json.dumps({"title": "Hello", "text": "Hello."}))
        except ChatError:
            return False
        return True


def related_by_search(memory: SearchableMemory, *, limit: int = RELATED) -> FindRelated:
    """What the memory knows about an entry's subject, so that a claim can speak for or against it."""

    async def find(entry: DistillEntry) -> Sequence[Related]:
        query = f"{entry.title} {entry.text[:RELATED_QUERY_CHARS]}".replace('"', " ").strip()
        if not query:
            return ()
        try:
            # It holds what the document says, and nobody asked it.
            found = await memory.search(query, limit=limit + 1, sample=False)
        except MemoryError as error:
            # A claim that speaks for nothing is better than none.
            logger.warning("related claims were not looked up: %s", error.code)
            return ()
        hits = [
            Related(version_id=item.attribution.version_id, title=item.title, text=item.snippet)
            for item in found.items
            if item.attribution is not None and item.document_id != entry.document_id
        ]
        return hits[:limit]

    return find


def read_answer(content: str, related: Sequence[Related] = ()) -> Outcome:
    """The outcome that a model's text stands for. Raises ``DistillAnswerError``, which does not quote it."""
    given = _object(content)
    action = str(given.get("action") or "").strip().lower()
    if action not in ACTIONS:
        raise DistillAnswerError("the model's answer names no action (write, skip or poison)")
    if action == "skip":
        return Skip()
    if action == "poison":
        return Poison(reason=_line(given.get("reason")))
    title, text = _line(given.get("title")), given.get("text")
    if not isinstance(text, str) or not text.strip():
        raise DistillAnswerError("the model's claim has no text")
    # A model that forgot the title said it in the text.
    title = title or " ".join(text.split())
    known = dict(zip(labels(related), (one.version_id for one in related), strict=True))
    contradicts = _named(given.get("contradicts"), known)
    supports = tuple(one for one in _named(given.get("supports"), known) if one not in contradicts)
    return Write(
        title=title[: limits.TITLE_CHARS],
        text=text.strip(),
        kind=(_line(given.get("kind")) or "")[: limits.KIND_CHARS].lower() or None,
        temporal_class=_temporal(given.get("temporal_class")),
        supports=supports,
        contradicts=contradicts,
    )


def _content(answer: Any) -> str:
    """The text of the first choice of a completion."""
    try:
        choice = answer["choices"][0]
        message = choice["message"]
        content, refusal = message.get("content"), message.get("refusal")
        reason = choice.get("finish_reason")
    except (KeyError, IndexError, TypeError, AttributeError):
        raise DistillAnswerError("the chat endpoint's answer holds no message") from None
    if isinstance(content, list):
        # Some servers answer in parts.
        content = "".join(part.get("text") or "" for part in content if isinstance(part, dict))
    if refusal and not content:
        raise DistillAnswerError("the model refused to answer")
    if not isinstance(content, str) or not content.strip():
        raise DistillAnswerError("the chat endpoint's answer holds no text")
    if reason == "length":
        raise DistillAnswerError("the model's answer was cut off by its limit of tokens")
    return content


def _object(content: str) -> Mapping[str, Any]:
    fenced = _FENCED.fullmatch(content)
    try:
        given = json.loads(fenced[1] if fenced else content)
    except (ValueError, RecursionError):
        raise DistillAnswerError("the model's answer is not JSON") from None
    if not isinstance(given, dict):
        raise DistillAnswerError("the model's answer is no JSON object")
    return given


def _line(value: Any) -> str | None:
    return " ".join(value.split()) or None if isinstance(value, str) else None


def _named(value: Any, known: Mapping[str, str]) -> tuple[str, ...]:
    """Labels as the versions that they stand for; those that the model made up are left out."""
    asked = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return tuple(dict.fromkeys(known[one] for one in asked if isinstance(one, str) and one in known))


def _temporal(value: Any) -> TemporalClass | None:
    word = value.strip().lower() if isinstance(value, str) else ""
    return TemporalClass(word) if word in set(TemporalClass) else None


def _as_it_is(answer: Any) -> Any:
    """Judged later: an error about it here would quote it."""
    return answer


def _is_the_endpoint(error: ChatError) -> bool:
    """Whether the document can't be to blame."""
    if not isinstance(error, ChatHttpError):
        return False
    return error.http_status is None or error.http_status in _MISCONFIGURED | _AWAY


def _unavailable(error: ChatError) -> DistillUnavailableError:
    unavailable = DistillUnavailableError(error.message)
    unavailable.retry_after = error.retry_after
    return unavailable
