"""What a text without a title is called."""

TITLE_CHARS = 80


def first_line(text: str) -> str:
    line = next((line.strip().lstrip("# ") for line in text.splitlines() if line.strip(" #")), "")
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1] + "…"
