"""What stands for a request that may be sent again."""

import hashlib
import hmac
import json
import re
from collections.abc import Sequence

from pydantic_core import to_jsonable_python

from corbits_memory.core import limits
from corbits_memory.errors import InvalidInputError
from corbits_memory.ports import Once
from corbits_memory.validation.problems import Problems

IDEMPOTENCY_KEY = r"[\x21-\x7e]+"
_KEY = re.compile(IDEMPOTENCY_KEY)


def once_of(key: object, items: Sequence[object]) -> Once:
    """The key and the request, as hashes. Raises :class:`InvalidInputError` when this can't be a key.

    The items as they came in, unchecked: two requests are the same when they say the same.
    """
    problems = Problems()
    if not isinstance(key, str) or not _KEY.fullmatch(key) or len(key) > limits.IDEMPOTENCY_KEY_CHARS:
        problems.add(
            "idempotency_key",
            f"must be 1 to {limits.IDEMPOTENCY_KEY_CHARS} printable ASCII characters without spaces",
        )
    problems.raise_if_any()
    secret = str(key).encode()
    try:
        said = to_jsonable_python(items, bytes_mode="base64", inf_nan_mode="constants", fallback=str)
        text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    except (ValueError, TypeError, RecursionError):
        # No document is like that; which field it is, the checks of the items would say too late.
        raise InvalidInputError(
            "the input is nested too deeply, or holds a number that is too long"
        ) from None
    return Once(
        key=hashlib.sha256(secret).digest(), request=hmac.digest(secret, text.encode(), hashlib.sha256)
    )
