"""What goes wrong between a client and its server; what the server itself refuses is in :mod:`corbits_memory.errors`.

::

    UpstreamError
    └── ServerError                  no usable answer
        ├── UnreachableError         nothing listens there, or the connection broke
        │   └── AnswerTimeoutError   it took too long
        ├── InvalidAnswerError       an answer that is not this protocol's
        ├── AnswerTooLargeError      more than a client takes
        └── RedirectedError          elsewhere, where the token must not go
"""

from corbits_memory.errors import UpstreamError


class ServerError(UpstreamError):
    """The server gave no usable answer."""

    code = "server"


class UnreachableError(ServerError):
    """The server can't be reached; is it running, and is the URL right?"""

    code = "unreachable"


class AnswerTimeoutError(UnreachableError):
    """The server did not answer in time; try again, or give the client a longer timeout."""

    code = "timeout"


class InvalidAnswerError(ServerError):
    """What answers there is not a Corbits Memory server; check the URL."""

    code = "invalid_answer"


class AnswerTooLargeError(ServerError):
    """The answer is larger than this client takes; ask for less at once."""

    code = "answer_too_large"


class RedirectedError(ServerError):
    """The server sends its callers elsewhere; the token was not sent there. Use the new address if you trust it."""

    code = "redirected"
