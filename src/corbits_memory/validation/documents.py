"""Checks of what ``add`` takes."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from corbits_memory.access.tags import shared_peers, tag_problem
from corbits_memory.core import limits
from corbits_memory.core.enums import CreatedByKind, LineageClass, Provenance, RetentionClass, TemporalClass
from corbits_memory.core.planning import split_long_part
from corbits_memory.ports import ExtractedText, NewDocument, Share, TextPart
from corbits_memory.validation.inputs import AddInput, Content, File
from corbits_memory.validation.problems import Problems

ONE_OF = "provide exactly one of content or file"

LANGUAGE = r"^[A-Za-z]{2,32}(?:[-_][A-Za-z0-9]{1,8}){0,4}$"
"""A language's name (``english``) or tag (``en-GB``)."""

TOO_LONG_REFERENCE = (
    "is too long: tenant, adapter and external_ref together may take at most "
    f"{limits.REFERENCE_BYTES:,} bytes in UTF-8"
)

_LANGUAGE = re.compile(LANGUAGE)
_UUID = "00000000-0000-0000-0000-000000000000"


def check_batch(items: object) -> Sequence[object]:
    """The items of a batch; raises :class:`InvalidInputError` when they are no list or too many."""
    problems = Problems()
    if items is None:
        problems.add("items", "is required")
    checked = problems.items("items", items, max_items=limits.BATCH_ITEMS)
    problems.raise_if_any()
    return checked


def check_file(given: AddInput) -> File | None:
    """The file to extract, if there is one; raises :class:`InvalidInputError` unless one thing is given."""
    problems = Problems()
    if (given.content is None) == (given.file is None):
        problems.add("", ONE_OF)
    elif given.file is not None:
        _check_file_fields(problems, given.file)
    problems.raise_if_any()
    return given.file


def _check_file_fields(problems: Problems, file: object) -> None:
    if not isinstance(file, File):
        problems.add("file", "must be a File")
        return
    data: object = file.data
    if not isinstance(data, bytes) or not data:
        problems.add("file.data", "must be bytes, at least one")
    for field, value in (("mime_type", file.mime_type), ("filename", file.filename), ("title", file.title)):
        problems.optional_text(f"file.{field}", value, max_chars=limits.TITLE_CHARS, may_be_blank=True)


def file_content(file: File, read: ExtractedText) -> Content:
    """What was read from a file as a document's content: the caller's title goes before the file's own, and that
    before its name.
    """
    titles = (file.title, read.title, file.filename, "untitled")
    title = next(title for title in titles if title and title.strip())
    return Content(title=title[: limits.TITLE_CHARS], text=read.text)


def new_document(given: AddInput, *, tenant_id: str, principal_id: str) -> NewDocument:
    """The document for the store; raises :class:`InvalidInputError` with every problem at once.

    A text above the size of one chunk becomes several parts.
    """
    problems = Problems()
    content = given.content if isinstance(given.content, Content) else None
    if content is None:
        problems.add("content", "must be a Content")
        content = Content(title="untitled", text=".")
    title = problems.required_text("title", content.title, max_chars=limits.TITLE_CHARS)
    text = problems.required_text("text", content.text, max_chars=limits.TEXT_CHARS)
    derived = bool(given.derived_from)
    share = _share(problems, given.share, principal_id=principal_id, any_tag=derived)
    tags = _tags(problems, "access_tags", given.access_tags, principal_id=principal_id, any_tag=derived)
    generator = _generator(problems, given.generator_agent_id)
    document = NewDocument(
        title=title,
        parts=(),
        kind=problems.identifier("kind", given.kind, max_chars=limits.KIND_CHARS) or "note",
        adapter=problems.identifier("adapter", given.adapter) or "http",
        external_ref=problems.identifier(
            "external_ref", given.external_ref, max_chars=limits.EXTERNAL_REF_CHARS
        ),
        # The caller's own tags; those of the owner and of sharing are the store's to add.
        access_tags=None if given.access_tags is None else tags,
        share=share,
        attributes=problems.scalars("attributes", given.attributes),
        generator_agent_id=generator,
        created_by_kind=problems.choice("created_by_kind", given.created_by_kind, CreatedByKind),
        provenance=_provenance(problems, given.provenance, generator=generator),
        lineage_class=problems.choice("lineage_class", given.lineage_class, LineageClass),
        temporal_class=problems.choice("temporal_class", given.temporal_class, TemporalClass),
        retention_class=problems.choice("retention_class", given.retention_class, RetentionClass)
        or RetentionClass.STANDARD,
        derived_from=_version_refs(problems, "derived_from", given.derived_from),
        supports=_version_refs(problems, "supports", given.supports),
        contradicts=_version_refs(problems, "contradicts", given.contradicts),
        valid_from=problems.instant("valid_from", given.valid_from),
        valid_until=problems.instant("valid_until", given.valid_until),
        occurred_at=problems.instant("occurred_at", given.occurred_at),
        thread=problems.identifier("thread", given.thread),
        author=problems.identifier("author", given.author, max_chars=limits.AUTHOR_CHARS),
        language=_language(problems, given.language),
    )
    _check_reference(problems, document, tenant_id=tenant_id)
    problems.raise_if_any()
    return _with_parts(document, text)


def _check_reference(problems: Problems, document: NewDocument, *, tenant_id: str) -> None:
    """The three names make one key in the database, whose size is limited in bytes."""
    # A document without a reference gets one that names the tenant again.
    reference = document.external_ref or f"memory:{tenant_id}:{_UUID}"
    size = sum(len(name.encode()) for name in (tenant_id, document.adapter, reference))
    if size > limits.REFERENCE_BYTES:
        problems.add("external_ref" if document.external_ref else "adapter", TOO_LONG_REFERENCE)


def _with_parts(document: NewDocument, text: str) -> NewDocument:
    return replace(document, parts=tuple(TextPart(text=part) for part in split_long_part(text)))


def _provenance(problems: Problems, value: object, *, generator: str | None) -> Provenance | None:
    """What was asked for; but what an agent generated is at best inferred, whatever the body says."""
    asked = problems.choice("provenance", value, Provenance)
    if generator and asked is Provenance.STATED:
        return Provenance.INFERRED
    return asked


def _generator(problems: Problems, value: object) -> str | None:
    if isinstance(value, str) and not value.strip():
        return None
    checked = problems.identifier("generator_agent_id", value)
    return checked.strip() if checked else None


def _version_refs(problems: Problems, field: str, value: object) -> tuple[str, ...]:
    return problems.identifiers(field, value, max_items=limits.VERSION_REFS)


def _language(problems: Problems, value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not _LANGUAGE.fullmatch(value):
        problems.add("language", "must be a language's name or tag, like english or en-GB")
        return None
    return value


def check_share(given: Mapping[str, object], *, principal_id: str, widening: bool) -> Share:
    """The request of ``share`` or (not ``widening``) ``unshare``: it must name somebody else or a tag.

    Raises :class:`InvalidInputError` with every problem at once.
    """
    problems = Problems()
    share = _share_fields(problems, given, field="", principal_id=principal_id, any_tag=not widening)
    if not (share.tenant or share.principals or share.tags) and not problems:
        problems.add("", "name at least one of tenant, principals (other than yourself) and tags")
    problems.raise_if_any()
    return share


def _share(problems: Problems, value: object, *, principal_id: str, any_tag: bool) -> Share | None:
    """The share request, from a :class:`Share` or from an object of a body (other keys are ignored)."""
    if value is None:
        return None
    if isinstance(value, Share):
        value = {name: getattr(value, name) for name in ("tenant", "principals", "tags", "required")}
    if not isinstance(value, Mapping):
        problems.add("share", "must be an object")
        return None
    return _share_fields(problems, value, field="share.", principal_id=principal_id, any_tag=any_tag)


def _share_fields(
    problems: Problems, value: Mapping[str, object], *, field: str, principal_id: str, any_tag: bool
) -> Share:
    return Share(
        tenant=problems.flag(f"{field}tenant", value.get("tenant")),
        principals=_peers(problems, f"{field}principals", value.get("principals"), principal_id=principal_id),
        tags=_tags(problems, f"{field}tags", value.get("tags"), principal_id=principal_id, any_tag=any_tag),
        required=problems.flag(f"{field}required", value.get("required")),
    )


def _peers(problems: Problems, field: str, value: object, *, principal_id: str) -> tuple[str, ...]:
    """The principals to share with; blanks and the sharer itself are let pass and left out."""
    items = problems.items(field, value, max_items=limits.SHARED_PRINCIPALS)
    peers = []
    for index, item in enumerate(items):
        if isinstance(item, str) and not item.strip():
            continue
        peer = problems.entry(f"{field}[{index}]", item)
        if peer is not None:
            peers.append(peer)
    return shared_peers(principal_id, Share(principals=tuple(peers)))


def _tags(
    problems: Problems, field: str, value: object, *, principal_id: str, any_tag: bool
) -> tuple[str, ...]:
    """Tags, each once. ``any_tag``: reserved ones too, where a store checks that a source carries them."""
    tags = []
    for index, item in enumerate(problems.items(field, value, max_items=limits.ACCESS_TAGS)):
        problem = (
            tag_problem(item, principal_id=principal_id, reserved_too=any_tag)
            if isinstance(item, str)
            else "must be text"
        )
        if problem:
            problems.add(f"{field}[{index}]", problem)
        elif isinstance(item, str):
            tags.append(item.strip())
    return tuple(dict.fromkeys(tags))
