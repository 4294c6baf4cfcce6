"""The suites over what the options name."""

from collections.abc import Callable
from typing import Any

import pytest

from corbits_memory.testing.conformance import (
    AbilitiesConformance,
    DocumentStoreConformance,
    GrantStoreConformance,
    SourceProviderConformance,
    TextExtractorConformance,
    VisibilityConformance,
)
from corbits_memory.testing.conformance.options import exceptions_of, factory_of


class _Named:
    """Settings that come from the options."""

    option: str

    @pytest.fixture
    def factory(self, request: pytest.FixtureRequest) -> Callable[[], Any]:
        config = request.config
        named = exceptions_of(config)
        # Each suite is told its own.
        vars(self)["exceptions"] = {test: why for test, why in named.items() if hasattr(self, test)}
        vars(self)["patience"] = config.getoption("--patience", default=0.0)
        vars(self)["query"] = config.getoption("--source-query", default="deploy")
        return factory_of(config, self.option)


class TestDocuments(_Named, DocumentStoreConformance):
    option = "--store"


class TestVisibility(_Named, VisibilityConformance):
    option = "--store"


class TestAbilities(_Named, AbilitiesConformance):
    option = "--store"


class TestGrantStore(_Named, GrantStoreConformance):
    option = "--grant-store"


class TestSource(_Named, SourceProviderConformance):
    option = "--source"


class TestTextExtractor(_Named, TextExtractorConformance):
    option = "--text-extractor"
