"""What is embedded for a chunk."""

from datetime import datetime

PREVIOUS_CHARS = 600


def passage_text(
    title: str,
    text: str,
    author: str | None = None,
    occurred_at: datetime | None = None,
    previous: tuple[str | None, str] | None = None,
) -> str:
    """The text whose vector stands for a chunk; NUL is left out, since models end a text there.

    A turn (it has an author) reads ``(2026-05-07) Maria: text``; without a date the title stands in front
    instead. Anything else reads ``title``, newline, ``text``; a title that the text begins with is not
    repeated. ``previous`` is the (author, text) of the turn before, the last 600 characters of it: it goes in
    front, so that an answer is found by its question. Give it only within one thread, and only when both
    turns have the same owner and access tags.
    """
    body = _turn(author, text, occurred_at) if author else text
    if not (author and occurred_at) and title and not text.lstrip().startswith(title.strip()):
        body = f"{title.strip()}\n{body}"
    if previous is not None:
        body = f"{_previous(*previous)}\n{body}"
    return body.replace("\x00", "")


def _turn(author: str, text: str, occurred_at: datetime | None) -> str:
    date = f"({occurred_at.date().isoformat()}) " if occurred_at else ""
    return f"{date}{author}: {text}"


def _previous(author: str | None, text: str) -> str:
    tail = text[-PREVIOUS_CHARS:]
    return f"{author}: {tail}" if author else tail
