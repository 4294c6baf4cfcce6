"""What an export looks like: lines of JSON, each an object that its kind names.

::

    {"corbits-memory-export": 1, "tenant": …}          what this is
    {"document": …}                                    then document by document, in the order of their ids:
    {"raw_capture": …}                                   what the next version was made from, where told,
    {"version": …}                                       its versions by number, each followed by
    {"chunk": …, "vector": …, "previous": …}               its text in order
    {"edge": …}                                            and what it refers to;
    {"edge": …, "entity": …}                             last what the document is about
    {"end": {"documents": …, …}}                       how many of each there were

So a version and its text stand together, and whoever reads holds no more than one version at a time.
"""

from typing import Any

FORMAT, FORMAT_VERSION = "corbits-memory-export", 2
KINDS = ("document", "raw_capture", "version", "chunk", "edge")
END = "end"

Line = dict[str, Any]
Row = dict[str, Any]


def plural(kind: str) -> str:
    """The name under which the last line counts a kind of line."""
    return f"{kind}s"
