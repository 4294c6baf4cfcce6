"""The suites find what is broken, and run as an author runs them: in a folder of one's own, from a shell."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corbits_memory.errors import MemoryError
from corbits_memory.ports import (
    AddResult,
    ExtractedText,
    GrantRule,
    SearchQuery,
    SearchResult,
    StoreCapabilities,
)
from corbits_memory.testing import (
    FakeDocumentStore,
    FakeSource,
    FakeTextExtractor,
    InMemoryGrantStore,
    conformance,
)
from corbits_memory.testing.conformance import (
    AbilitiesConformance,
    DocumentStoreConformance,
    GrantStoreConformance,
    SourceProviderConformance,
    TextExtractorConformance,
    VisibilityConformance,
)
from corbits_memory.testing.retention import StoredDocument

FAKE = [
    f"--exception={test}=the fake searches without filters"
    for test in (
        "test_kinds_narrow_the_hits",
        "test_times_narrow_the_hits",
        "test_a_filter_is_honoured_or_refused",
    )
]


class BlindToPrincipals(FakeDocumentStore):
    async def _visible(self, tenant_id: str, principal_id: str, access: Any) -> Sequence[StoredDocument]:
        return [found for found in self.documents if found.tenant_id == tenant_id]


class JoinsNames(FakeDocumentStore):
    async def add(self, *, tenant_id: str, principal_id: str, **call: Any) -> list[AddResult | MemoryError]:
        return await super().add(tenant_id="-", principal_id=f"{tenant_id}:{principal_id}", **call)

    async def search(self, *, tenant_id: str, principal_id: str, **call: Any) -> SearchResult:
        return await super().search(tenant_id="-", principal_id=f"{tenant_id}:{principal_id}", **call)


class Unlimited(FakeDocumentStore):
    async def search(self, *, query: SearchQuery, **call: Any) -> SearchResult:
        return await super().search(query=replace(query, limit=50), **call)


class Raises(FakeDocumentStore):
    async def add(self, **call: Any) -> list[AddResult | MemoryError]:
        answers = await super().add(**call)
        for answer in answers:
            if isinstance(answer, MemoryError):
                raise answer
        return answers


class Repeats(FakeDocumentStore):
    def _named(self, *_: Any) -> None:
        return None


class Boasts(FakeDocumentStore):
    @property
    def capabilities(self) -> StoreCapabilities:
        return replace(super().capabilities, supports_feed=True)


class ShowsAll(FakeDocumentStore):
    @property
    def capabilities(self) -> StoreCapabilities:
        return StoreCapabilities(supports_retention=True)


class ForgetsTenants(InMemoryGrantStore):
    def collect_grants(self, principal_id: str, tenant_id: str) -> list[GrantRule]:
        return [rule for rule in self._rules.values() if rule.principal_id == principal_id]


class Guesses(FakeTextExtractor):
    async def extract(self, data: bytes, *, mime_type: str | None, filename: str | None) -> ExtractedText:
        return ExtractedText(text=data.decode(), title=str(filename))


@pytest.mark.parametrize(
    ("suite", "broken", "test"),
    [
        (DocumentStoreConformance, BlindToPrincipals, "test_principals_are_apart"),
        (AbilitiesConformance, BlindToPrincipals, "test_only_the_owner_forgets"),
        (DocumentStoreConformance, JoinsNames, "test_names_that_run_into_each_other_are_apart"),
        (DocumentStoreConformance, Unlimited, "test_the_limit_holds"),
        (DocumentStoreConformance, Raises, "test_somebody_elses_name_is_refused_and_spoils_no_other"),
        (DocumentStoreConformance, Repeats, "test_racing_adds_of_one_name_are_one"),
        (DocumentStoreConformance, Boasts, "test_it_says_what_its_methods_tell"),
        (VisibilityConformance, ShowsAll, "test_without_enforcement_nobody_sees_more"),
        (GrantStoreConformance, ForgetsTenants, "test_rules_reach_their_principal_in_their_tenant_alone"),
        (SourceProviderConformance, lambda: FakeSource(id="local"), "test_it_has_a_name_that_stays"),
        (TextExtractorConformance, Guesses, "test_anything_is_read_or_refused"),
    ],
)
def test_what_is_broken_is_found(suite: type[Any], broken: Callable[[], Any], test: str) -> None:
    with pytest.raises((AssertionError, MemoryError, UnicodeDecodeError)):
        getattr(suite(), test)(broken)


def test_an_exception_that_holds_after_all_is_a_failure() -> None:
    class Suite(DocumentStoreConformance):
        exceptions = {"test_the_limit_holds": "we have none"}  # noqa: RUF012

    with pytest.raises(pytest.fail.Exception, match="no exception any more: we have none"):
        Suite().test_the_limit_holds(FakeDocumentStore)
    with pytest.raises(pytest.xfail.Exception, match="we have none"):
        Suite().test_the_limit_holds(Unlimited)


def test_an_exception_that_names_no_test_is_a_failure() -> None:
    class Suite(DocumentStoreConformance):
        exceptions = {"test_nonsense": "why"}  # noqa: RUF012

    with pytest.raises(AssertionError):
        Suite().test_each_exception_names_a_test()


# --- from a shell ------------------------------------------------------------------------------------


ALONE = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""Without the plugins that lie around, which take seconds to import and which no author needs."""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "mine.py").write_text(
        "from corbits_memory.testing import FakeDocumentStore\n"
        "async def made_later():\n"
        "    return FakeDocumentStore()\n"
    )
    quiet = ["-q", "-W", "ignore", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", *arguments, *quiet]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=ALONE)


SUITE = "corbits_memory.testing.conformance"


def test_a_store_that_conforms_passes(tmp_path: Path) -> None:
    done = run(tmp_path, SUITE, "--store=mine:made_later", *FAKE)
    assert done.returncode == 0, done.stdout
    assert " 3 xfailed" in done.stdout


def test_without_its_exceptions_it_fails(tmp_path: Path) -> None:
    plain = ("pytest", "-p", f"{SUITE}.options", "--pyargs", SUITE)
    done = run(tmp_path, *plain, "--store=mine:made_later", *FAKE[1:])
    assert done.returncode == 1
    assert "test_kinds_narrow_the_hits" in done.stdout
    assert "1 failed" in done.stdout


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("--exception=test_nonsense=why", "there is no test test_nonsense"),
        ("--exception=test_the_limit_holds", "must be TEST=REASON"),
    ],
)
def test_a_misspelt_exception_is_an_error(tmp_path: Path, option: str, problem: str) -> None:
    done = run(tmp_path, SUITE, "--store=mine:made_later", option)
    assert done.returncode == 4
    assert problem in done.stderr + done.stdout


def test_what_is_not_named_is_skipped(tmp_path: Path) -> None:
    done = run(tmp_path, "pytest", "--pyargs", SUITE)
    assert done.returncode == 0
    assert " skipped" in done.stdout


def test_the_fakes_do_without_pytest() -> None:
    script = "import sys, corbits_memory.testing; print('pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_every_option_and_suite_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "stores.md").read_text(encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", f"{SUITE}.options", "--help"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, env=ALONE).stdout
    ours = told.partition("conformance of ports")[2].partition("\n\n")[0]
    options = re.findall(r"^  (--[a-z-]+)=", ours, re.MULTILINE)
    assert len(options) == 7
    assert [option for option in options if f"`{option}" not in page] == []
    assert [name for name in conformance.__all__ if name.endswith("Conformance") and name not in page] == []
