"""Ids: a short type prefix and 128 bits in base62.

Digits come in ASCII order, most significant first, so that byte order of the text (``COLLATE "C"``) is the
order of the integers; with time-ordered UUIDs it is the order in time.
"""

import string
import uuid

DOCUMENT = "kdoc"
VERSION = "kver"
CHUNK = "kchk"
RAW_CAPTURE = "kraw"
ENTITY = "kent"
EDGE = "kedg"
TRANSFORM_CONFIG = "tcfg"
TRANSFORM_RUN = "trun"
GRANT = "mgrt"
SUBSCRIPTION = "msub"
AUDIT_EVENT = "kaud"
ERASURE = "kera"

DIGITS = 22
"""Base62 digits that hold 128 bits."""
ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase

_PAIRS = [high + low for high in ALPHABET for low in ALPHABET]
_HALF = len(ALPHABET) ** 11
"""Half the digits: such a number fits a machine word, in which dividing is quick."""
_VALUES = {digit: value for value, digit in enumerate(ALPHABET)}
_BASE = len(ALPHABET)


class InvalidIdError(ValueError):
    """The text is not an id of the expected type."""


def encode_id(prefix: str, value: uuid.UUID) -> str:
    """``<prefix>_<22 base62 digits>`` of a UUID."""
    return encode_number(prefix, value.int)


def encode_number(prefix: str, value: int) -> str:
    """``<prefix>_<22 base62 digits>`` of 128 bits."""
    high, low = divmod(value, _HALF)
    return f"{prefix}_{_eleven_digits(high)}{_eleven_digits(low)}"


def _eleven_digits(number: int) -> str:
    number, sixth = divmod(number, 3844)
    number, fifth = divmod(number, 3844)
    number, fourth = divmod(number, 3844)
    number, third = divmod(number, 3844)
    first, second = divmod(number, 3844)
    return f"{ALPHABET[first]}{_PAIRS[second]}{_PAIRS[third]}{_PAIRS[fourth]}{_PAIRS[fifth]}{_PAIRS[sixth]}"


def decode_id(prefix: str, text: str) -> uuid.UUID:
    """The UUID in an id; :class:`InvalidIdError` for another prefix, length, alphabet or above 128 bits."""
    head, _, digits = text.partition("_")
    if head != prefix or len(digits) != DIGITS:
        raise InvalidIdError(f"not a {prefix} id: expected {prefix}_ and {DIGITS} base62 digits")
    number = 0
    for digit in digits:
        value = _VALUES.get(digit)
        if value is None:
            raise InvalidIdError(f"not a {prefix} id: {digit!r} is not a base62 digit")
        number = number * _BASE + value
    if number >> 128:
        raise InvalidIdError(f"not a {prefix} id: the number has more than 128 bits")
    return uuid.UUID(int=number)
