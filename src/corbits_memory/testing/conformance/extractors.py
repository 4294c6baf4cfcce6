"""What every text extractor must do."""

from dataclasses import dataclass
from typing import ClassVar

from corbits_memory.errors import InvalidInputError
from corbits_memory.ports import ExtractedText, TextExtractor
from corbits_memory.testing.conformance.running import Conformance, conforms


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleFile:
    """A file, and words that stand in it."""

    data: bytes
    text: str
    mime_type: str | None = None
    filename: str | None = None


class TextExtractorConformance(Conformance):
    """Text from files that it reads, and an error that says so for those that it doesn't."""

    samples: ClassVar[tuple[SampleFile, ...]] = (
        SampleFile(
            data=b"# Deploys\n\nFridays are frozen.",
            text="Fridays are frozen.",
            mime_type="text/markdown",
            filename="deploys.md",
        ),
    )

    @conforms
    async def test_it_has_the_method(self, extractor: TextExtractor) -> None:
        assert isinstance(extractor, TextExtractor)

    @conforms
    async def test_the_text_of_a_file_is_found(self, extractor: TextExtractor) -> None:
        for sample in self.samples:
            found = await extractor.extract(sample.data, mime_type=sample.mime_type, filename=sample.filename)
            assert isinstance(found, ExtractedText)
            assert sample.text in found.text
            assert found.title is None or found.title.strip()

    @conforms
    async def test_the_same_file_gives_the_same_text(self, extractor: TextExtractor) -> None:
        """Else each import of an unchanged file were a new version."""
        for sample in self.samples:
            both = [
                await extractor.extract(sample.data, mime_type=sample.mime_type, filename=sample.filename)
                for _ in range(2)
            ]
            assert both[0] == both[1]

    @conforms
    async def test_anything_is_read_or_refused(self, extractor: TextExtractor) -> None:
        for data in (
            b"",
            b"\x00\xff\xfe\x80" * 100,
            b"%PDF-1.7 cut off",
            b"PK\x03\x04 no archive",
            b"\xef\xbb\xbf",
        ):
            for mime_type, filename in (
                (None, None),
                ("application/pdf", "a.pdf"),
                ("text/plain", "../../etc/passwd"),
                ("no mime type", "\ud800"),
            ):
                try:
                    found = await extractor.extract(data, mime_type=mime_type, filename=filename)
                except InvalidInputError:
                    continue
                assert isinstance(found, ExtractedText)
