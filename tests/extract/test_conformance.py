"""The extractor of files passes what any extractor has to."""

from collections.abc import Callable
from typing import ClassVar

import pytest

from corbits_memory.extract import FileTextExtractor
from corbits_memory.testing.conformance import SampleFile, TextExtractorConformance
from tests.extract.files import pdf, word


class TestFileTextExtractor(TextExtractorConformance):
    samples: ClassVar[tuple[SampleFile, ...]] = (
        *TextExtractorConformance.samples,
        SampleFile(
            data=pdf("The pool closes at nine."), text="The pool closes at nine.", filename="pool.pdf"
        ),
        SampleFile(
            data=word("The pool closes at ten.", title="Pool"),
            text="The pool closes at ten.",
            filename="pool.docx",
        ),
        SampleFile(
            data=b"<!doctype html><title>Pool</title><p>The pool is closed.",
            text="The pool is closed.",
            mime_type="text/html",
        ),
    )

    @pytest.fixture
    def factory(self) -> Callable[[], FileTextExtractor]:
        return FileTextExtractor
