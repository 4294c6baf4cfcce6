"""``python -m benchmarks``: run a part and put its figures into docs/benchmarks.md."""

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from benchmarks.datasets import DataMissingError
from benchmarks.report import replace_section, section

PARTS = (
    "retrieval",
    "speed",
    "access",
    "start",
    "memory",
    "feed",
    "lifecycle",
    "transfer",
    "agents",
    "replay",
)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("part", nargs="?", default="all", choices=(*PARTS, "all"))
    parser.add_argument("--quick", action="store_true", help="small subsets; prints, and writes no document")
    parser.add_argument(
        "--full", action="store_true", help="speed: also a million chunks (half an hour more)"
    )
    parser.add_argument("--only", nargs="*", default=(), help="retrieval: sets whose names begin so")
    parser.add_argument("--details", type=Path, help="retrieval: a JSON file for each question's scores")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = build_parser().parse_args(arguments)
    chosen = PARTS if options.part == "all" else (options.part,)
    for part in chosen:
        try:
            body = asyncio.run(_run(part, options))
        except DataMissingError as problem:
            print(f"{part}: skipped. {problem}")
            continue
        print(f"## {part.capitalize()}\n\n{body}\n")
        if not options.quick and not options.only:
            flags = " --full" if options.full and part == "speed" else ""
            replace_section(part, section(body=body, command=f"make bench ARGS='{part}{flags}'"))
    return 0


async def _run(part: str, options: argparse.Namespace) -> str:
    # Each part has imports of its own, and `start` measures processes that must not wait for those of others.
    if part == "retrieval":
        from benchmarks.retrieval import run_retrieval

        return await run_retrieval(quick=options.quick, only=options.only, details=options.details)
    if part == "speed":
        from benchmarks.speed import run_speed

        return await run_speed(quick=options.quick, full=options.full)
    if part == "access":
        from benchmarks.access import run_access

        return await run_access(quick=options.quick)
    if part == "start":
        from benchmarks.start import run_start

        return await run_start(quick=options.quick)
    if part == "agents":
        from benchmarks.agents import run_agents

        return await run_agents(quick=options.quick)
    if part == "feed":
        from benchmarks.feed import run_feed

        return await run_feed(quick=options.quick)
    if part == "lifecycle":
        from benchmarks.lifecycle import run_lifecycle

        return await run_lifecycle(quick=options.quick)
    if part == "transfer":
        from benchmarks.transfer import run_transfer

        return await run_transfer(quick=options.quick)
    if part == "replay":
        from benchmarks.replay import run_replay

        return await run_replay(quick=options.quick)
    from benchmarks.memory import run_memory

    return await run_memory()
