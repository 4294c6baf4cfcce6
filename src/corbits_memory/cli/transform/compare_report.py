"""What ``transform compare`` tells: a summary and a table on the terminal, and a page that stands by itself."""

from collections.abc import Sequence
from html import escape

from corbits_memory.core.comparison import RANKS, Comparison, Hit, QueryComparison

QUERY_CHARS = 60
Row = tuple[str, str, str]


def summary_rows(total: Comparison) -> list[Row]:
    """A measure, before and after."""
    before, after = total.before, total.after
    rows = [
        ("median, ms", _ms(before.median), _ms(after.median)),
        ("95th percentile, ms", _ms(before.p95), _ms(after.p95)),
        ("strong evidence", str(before.strong), str(after.strong)),
        ("no evidence", str(before.none), str(after.none)),
    ]
    rows += [
        (flag, str(before.degraded.get(flag, 0)), str(after.degraded.get(flag, 0)))
        for flag in sorted({*before.degraded, *after.degraded})
    ]
    if before.quality is not None and after.quality is not None:
        rows += [
            (f"recall@{RANKS}", f"{before.quality.recall:.3f}", f"{after.quality.recall:.3f}"),
            (f"nDCG@{RANKS}", f"{before.quality.ndcg:.3f}", f"{after.quality.ndcg:.3f}"),
            ("MRR", f"{before.quality.reciprocal_rank:.3f}", f"{after.quality.reciprocal_rank:.3f}"),
        ]
    return rows


def headline(total: Comparison) -> list[str]:
    """How far the answers agree, in sentences."""
    correlation = "" if total.correlation is None else f", rank correlation {total.correlation:.2f}"
    lines = [
        f"{total.queries} queries, {total.same} answered the same. Overlap@{RANKS} {total.overlap:.2f}{correlation}.",
        f"{total.only_before} hits only before, {total.only_after} only after.",
    ]
    if total.judged:
        lines.append(
            f"Of {total.judged} judged queries {total.better} are answered better, {total.worse} worse."
        )
    return lines


def by_change(compared: Sequence[QueryComparison]) -> list[QueryComparison]:
    """Those that changed most first: what is judged by its nDCG, losses before gains, then by overlap."""
    return sorted(compared, key=lambda one: (gain(one) or 0.0, one.overlap))


def gain(one: QueryComparison) -> float | None:
    """How much nDCG rose; None where nobody judged."""
    return None if one.quality is None else one.quality[1].ndcg - one.quality[0].ndcg


def query_row(one: QueryComparison) -> tuple[str, ...]:
    change = gain(one)
    query = one.query if len(one.query) <= QUERY_CHARS else one.query[: QUERY_CHARS - 1] + "…"
    return (
        query,
        f"{one.overlap:.2f}",
        "-" if one.correlation is None else f"{one.correlation:.2f}",
        str(len(one.only_before)),
        str(len(one.only_after)),
        "-" if change is None else f"{change:+.3f}",
        _ms(one.before.seconds),
        _ms(one.after.seconds),
    )


QUERY_COLUMNS = (
    "query",
    f"overlap@{RANKS}",
    "correlation",
    "only before",
    "only after",
    "nDCG change",
    "ms before",
    "ms after",
)


def _ms(seconds: float) -> str:
    return f"{seconds * 1_000:.1f}"


# --- the page ----------------------------------------------------------------------------------------

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #1d2330; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { text-align: left; padding: .3rem .9rem .3rem 0; border-bottom: 1px solid #dde1e8; vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
figure { margin: 1.5rem 0; } figcaption { color: #5a6372; }
summary { cursor: pointer; padding: .3rem 0; } details { border-bottom: 1px solid #dde1e8; }
.sides { display: grid; grid-template-columns: 1fr 1fr; gap: 2rem; } ol { margin: .3rem 0 1rem; padding-left: 1.6rem; }
.gone { color: #a3361f; } .new { color: #12703e; } .relevant { font-weight: 600; }
text { font: 12px system-ui, sans-serif; fill: #5a6372; }
@media (prefers-color-scheme: dark) {
  body { background: #14171d; color: #e4e7ec; } th, td, details { border-color: #333a46; }
  .gone { color: #f08f7c; } .new { color: #6fd39b; } text, figcaption { fill: #a4adbb; color: #a4adbb; }
}
"""
_BARS = 11
_WIDTH, _HEIGHT, _GAP = 640, 180, 8


def report_page(compared: Sequence[QueryComparison], *, before: str, after: str) -> str:
    """One HTML file without scripts that needs no network."""
    total = Comparison.of(compared)
    told = " ".join(map(escape, headline(total)))
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td class=n>{escape(one)}</td><td class=n>{escape(other)}</td></tr>"
        for name, one, other in summary_rows(total)
    )
    charts = _overlap_chart(compared)
    if total.judged:
        charts += _gain_chart(compared)
    queries = "".join(map(_query_section, by_change(compared)))
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8>"
        f'<meta name=viewport content="width=device-width, initial-scale=1">'
        f"<title>{escape(before)} and {escape(after)}</title><style>{_STYLE}</style>"
        f"<h1>{escape(before)} and {escape(after)}</h1><p>{told}</p>"
        f"<table><tr><th></th><th class=n>{escape(before)}</th><th class=n>{escape(after)}</th></tr>{rows}</table>"
        f"{charts}<h2>Queries, losses and the most changed first</h2>{queries}</html>\n"
    )


def _overlap_chart(compared: Sequence[QueryComparison]) -> str:
    counts = [0] * _BARS
    for one in compared:
        counts[round(one.overlap * 10)] += 1
    labels = [f"{bar / 10:.1f}" for bar in range(_BARS)]
    return _chart(counts, labels, f"Queries by overlap@{RANKS} of their two answers")


def _gain_chart(compared: Sequence[QueryComparison]) -> str:
    gains = [change for change in map(gain, compared) if change is not None]
    # As many to the left of no change as to its right.
    counts = [0] * _BARS
    for change in gains:
        counts[round(change * 5) + 5] += 1
    return _chart(
        counts,
        [f"{place / 5 - 1:+.1f}" for place in range(_BARS)],
        f"Judged queries by change of nDCG@{RANKS}",
    )


def _chart(counts: Sequence[int], labels: Sequence[str], caption: str) -> str:
    most = max(counts)
    width = _WIDTH / len(counts)
    bars = []
    for place, (count, label) in enumerate(zip(counts, labels, strict=True)):
        height = (_HEIGHT - 50) * count / most if most else 0
        left, middle = place * width, place * width + width / 2
        bars.append(
            f'<rect x="{left + _GAP / 2:.1f}" y="{_HEIGHT - 25 - height:.1f}" width="{width - _GAP:.1f}" '
            f'height="{height:.1f}" fill="#3d6ec9"/>'
            f'<text x="{middle:.1f}" y="{_HEIGHT - 30 - height:.1f}" text-anchor="middle">{count or ""}</text>'
            f'<text x="{middle:.1f}" y="{_HEIGHT - 8}" text-anchor="middle">{escape(label)}</text>'
        )
    return (
        f'<figure><svg role="img" aria-label="{escape(caption)}" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" style="max-width:100%">{"".join(bars)}</svg>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _query_section(one: QueryComparison) -> str:
    change = gain(one)
    judged = "" if change is None else f", nDCG {change:+.3f}"
    before = _hits(one.before.hits, {hit.document_id for hit in one.only_before}, "gone", one.relevant)
    after = _hits(one.after.hits, {hit.document_id for hit in one.only_after}, "new", one.relevant)
    return (
        f"<details><summary>{escape(one.query)} · overlap {one.overlap:.2f}{judged}</summary>"
        f"<div class=sides><div>{_ms(one.before.seconds)} ms, {escape(one.before.evidence)}{before}</div>"
        f"<div>{_ms(one.after.seconds)} ms, {escape(one.after.evidence)}{after}</div></div></details>"
    )


def _hits(hits: Sequence[Hit], alone: set[str], style: str, relevant: frozenset[str]) -> str:
    if not hits:
        return "<p>nothing</p>"
    items = []
    for hit in hits:
        classes = [style] if hit.document_id in alone else []
        if relevant.intersection(hit.names):
            classes.append("relevant")
        items.append(
            f'<li class="{" ".join(classes)}">{escape(hit.title)} <small>{escape(hit.names[0])}</small></li>'
        )
    return f"<ol>{''.join(items)}</ol>"
