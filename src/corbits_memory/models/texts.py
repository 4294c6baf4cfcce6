"""What is done to a text before a model sees it."""


def clean(text: str) -> str:
    """Without NUL (it ends a C string, and so the text) and with lone surrogates made encodable."""
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")


def windows(text: str, size: int) -> list[str]:
    """Pieces of at most ``size`` characters that make up the text, cut at white space where there is some.

    A cut falls in the second half of a window, so that no piece but the last is shorter than that.
    """
    pieces: list[str] = []
    start = 0
    while len(text) - start > size:
        end = start + size
        cut = max(text.rfind(" ", start + size // 2, end), text.rfind("\n", start + size // 2, end))
        end = cut + 1 if cut >= 0 else end
        pieces.append(text[start:end])
        start = end
    pieces.append(text[start:])
    return pieces
