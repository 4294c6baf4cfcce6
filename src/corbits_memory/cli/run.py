"""Runs the command line and turns what goes wrong into one line and an exit code."""

import sys
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from corbits_memory.errors import MemoryError

T = TypeVar("T")

DEBUG = "--debug"
FAILED, MISUSED, INTERRUPTED = 1, 2, 130


def run(arguments: list[str] | None = None) -> int:
    """The exit code of a command line (default: the process's)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = _take_debug(words)
    _configure_logging(debug=debug)
    from corbits_memory.cli.app import app

    try:
        app(words, prog_name="corbits-memory")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(bool(stop.code))
    except MemoryError as error:
        if debug:
            raise
        complain(error)
        return MISUSED if error.code == "ambiguous_database" else FAILED
    except BrokenPipeError:
        # Whoever reads our output has read enough.
        _silence_stdout()
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        # The last door: whoever types a command gets a line, not a traceback.
        if debug:
            raise
        sys.stderr.write(
            f"error: {type(error).__name__}: this was not foreseen. Run it again with {DEBUG} to see where, and "
            "report it.\n"
        )
        return FAILED
    return 0


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's work; Ctrl-C ends it in good order."""
    import asyncio

    if sys.platform == "win32":
        # The driver can't use the default loop of Windows.
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            return runner.run(work)
    return asyncio.run(work)


def complain(error: MemoryError) -> None:
    """One line that names the problem and the fix; a line more for each of several problems."""
    lines = [f"error: {error.message}"]
    if isinstance(error.details, (list, tuple)) and len(error.details) > 1:
        shown = [f"  {found['field']}: {found['problem']}" for found in error.details if _is_problem(found)]
        lines += [line for line in shown if line.strip() not in error.message]
    sys.stderr.write("\n".join(lines) + "\n")


def _is_problem(found: Mapping[str, Any]) -> bool:
    return "field" in found and "problem" in found


def _take_debug(words: list[str]) -> bool:
    """Whether ``--debug`` is among the options, wherever; it is taken out."""
    end = words.index("--") if "--" in words else len(words)
    if DEBUG not in words[:end]:
        return False
    words.remove(DEBUG)
    return True


def _configure_logging(*, debug: bool) -> None:
    import logging

    # A command says by itself what went wrong; `serve` sets up logs of its own.
    handler = logging.StreamHandler() if debug else logging.NullHandler()
    logging.basicConfig(level=logging.DEBUG if debug else logging.CRITICAL, handlers=[handler])


def _silence_stdout() -> None:
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
