"""What a service answers may repeat what it was sent: that is kept out of messages, which are logged and stored."""

import json
from collections.abc import Sequence

RUN_CHARS = 12
"""The shortest piece of a private text that is recognised."""
PRIVATE_CHARS = 200_000
"""What an answer to more than this says is not told."""
SHORT_CHARS = 8
"""A private text of less is a word that any message may hold."""
PLACE = "[text]"


def redact(text: str, private: Sequence[str]) -> str:
    """``text`` without any run that stands in a private text too, wherever, escaped or not; nothing where that takes
    long. A private text shorter than a run is left out as a whole."""
    if sum(map(len, private)) > PRIVATE_CHARS:
        return ""
    forms = {
        form
        for own in private
        for form in (own, json.dumps(own)[1:-1], json.dumps(own, ensure_ascii=False)[1:-1])
    }
    for form in forms:
        if SHORT_CHARS <= len(form) < RUN_CHARS:
            text = text.replace(form, PLACE)
    long = [form for form in forms if len(form) >= RUN_CHARS]
    told: list[str] = []
    start = 0
    while start < len(text):
        length = _run(text, start, long)
        told.append(PLACE if length else text[start])
        start += length or 1
    return "".join(told)


def _run(text: str, start: int, forms: Sequence[str]) -> int:
    """How many characters from ``start`` on stand together in one of the forms; 0 where they are too few."""
    if start + RUN_CHARS > len(text):
        return 0
    length = RUN_CHARS
    forms = [form for form in forms if text[start : start + length] in form]
    while forms and start + length < len(text):
        longer = [form for form in forms if text[start : start + length + 1] in form]
        if not longer:
            break
        forms, length = longer, length + 1
    return length if forms else 0
