"""Text out of files: PDF, DOCX, HTML, Markdown and plain text.

>>> memory = create_memory(config, text_extractor=FileTextExtractor())

What parses is libraries of the extra ``extract``, in a process of its own for each file, with limits.
"""

from corbits_memory.extract.bounds import Bounds
from corbits_memory.extract.extractor import FileTextExtractor

__all__ = ["Bounds", "FileTextExtractor"]
