"""The command ``corbits-memory``. Nothing heavy is imported before a command needs it."""


def main() -> int:
    """Run the command line; the exit code: 0 done, 1 failed, 2 used wrongly."""
    from corbits_memory.cli.run import run

    return run()
