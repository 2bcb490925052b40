"""The report of what was learned, as text and as a page."""

from collections.abc import Callable
from html import escape

from glassrank.research.learn.learn import Outcome
from glassrank.types import Doc

_TITLE_CHARS = 70
_STYLE = (
    "body{font:16px/1.5 system-ui;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "td,th{vertical-align:top;text-align:left;padding:.3rem 1rem .3rem 0;border-top:1px solid #ccc}"
)


def describe(outcome: Outcome, find_doc: Callable[[int], Doc]) -> str:
    """The report as text."""
    lines = [_headline(outcome), ""]
    for change in outcome.changes:
        lines.append(f"{change.text[:_TITLE_CHARS]}  (nDCG@10 {change.gain:+.3f})")
        for before, after in zip(change.before, change.after, strict=False):
            titles = [_title(find_doc(number)) for number in (before, after)]
            lines.append(f"    {titles[0]:{_TITLE_CHARS}}  {titles[1]}")
    return "\n".join(lines)


def render(outcome: Outcome, find_doc: Callable[[int], Doc]) -> str:
    """The report as an HTML page."""
    rows = []
    for change in outcome.changes:
        cells = [
            "<ol>" + "".join(f"<li>{escape(_title(find_doc(n)))}</li>" for n in numbers) + "</ol>"
            for numbers in (change.before, change.after)
        ]
        rows.append(
            f"<tr><th scope=row>{escape(change.text)}<br><small>{change.gain:+.3f}</small></th>"
            f"<td>{cells[0]}</td><td>{cells[1]}</td></tr>"
        )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>glassrank learn</title>'
        f"<style>{_STYLE}</style></head><body><h1>What was learned</h1>"
        f"<p>{escape(_headline(outcome)).replace(chr(10), '<br>')}</p>"
        "<table><thead><tr><th>query<th>before<th>after</thead><tbody>"
        f"{''.join(rows)}</tbody></table></body></html>\n"
    )


def _headline(outcome: Outcome) -> str:
    low, high = outcome.interval
    verdict = (
        "It helps: the interval is above 0."
        if outcome.helps
        else "It does not help for certain: the interval is not above 0. Nothing is changed."
    )
    return (
        f"Learned from {outcome.queries:,} queries; {outcome.held_out:,} others decide.\n"
        f"nDCG@10 before {outcome.before:.4f}, after {outcome.after:.4f}: "
        f"{outcome.after - outcome.before:+.4f}, 95% interval {low:+.4f} to {high:+.4f}.\n"
        f"{outcome.share:.0%} of the way from the old weights to the new ones. {verdict}"
    )


def _title(doc: Doc) -> str:
    text = " ".join((doc.title or doc.text[: 4 * _TITLE_CHARS]).split())
    return text if len(text) <= _TITLE_CHARS else f"{text[: _TITLE_CHARS - 2]} …"
