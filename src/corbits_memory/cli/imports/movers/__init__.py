"""What other memories and assistants export becomes documents, with the ids, times and people that it had there."""

from corbits_memory.cli.imports.movers.formats import FORMATS, Format, read_export

__all__ = ["FORMATS", "Format", "read_export"]
