"""One explanation, or two side by side, as text, as JSON and as one HTML file. The file works
without scripts and without a network, and its content security policy forbids both.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from glassrank.explanations import html_parts as parts
from glassrank.explanations.against import differences, values_of
from glassrank.explanations.headlines import pair_headline
from glassrank.explanations.structure import (
    Difference,
    ExplanationData,
    Group,
    PairData,
    format_number,
    pick_colour,
    pick_line_style,
)
from glassrank.explanations.terminal import draw, render_text
from glassrank.settings import from_plain, to_plain

SCHEMA, COMPARISON_SCHEMA = "glassrank.explanation/1", "glassrank.comparison/1"
"""Names and versions of the JSON formats; the number changes when readers have to."""

_Key = tuple[Group, str, str, int]

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True)
class Explanation(ExplanationData):
    """Why a document has its score."""

    def to_json(self) -> dict[str, Any]:
        """In full precision; `docs/reference/explanations.md` describes the fields."""
        plain: dict[str, Any] = to_plain(self)
        return {"schema": SCHEMA, **plain}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> "Explanation":
        """The inverse of `to_json`."""
        return from_plain(cls, {name: v for name, v in plain.items() if name != "schema"})

    def __str__(self) -> str:
        return render_text(draw(self))


@dataclass(frozen=True)
class ExplanationPair(PairData):
    """Two explanations side by side."""

    left: Explanation
    right: Explanation

    def to_json(self) -> dict[str, Any]:
        """Both explanations, and their differences."""
        return {
            "schema": COMPARISON_SCHEMA,
            "left": self.left.to_json(),
            "right": self.right.to_json(),
            "differences": to_plain(self.differences),
            "parts": to_plain(self.parts),
            "sentence": self.sentence,
        }

    def __str__(self) -> str:
        return render_text(draw(self))


def compare(left: Explanation, right: Explanation) -> ExplanationPair:
    """Puts two explanations side by side, with what adds more to the left document."""
    listed = _differences(left, right)
    # The scores of two models have no common scale.
    if left.model != right.model or (left.doc_id and left.doc_id == right.doc_id):
        return ExplanationPair(left, right, listed)
    words = [word.text for word in left.query.words]
    parts = differences(values_of(left.parts), values_of(right.parts), words)
    names = left.doc_id or "the left text", right.doc_id or "the right text"
    return ExplanationPair(left, right, listed, parts, pair_headline(*names, parts))


def _differences(left: ExplanationData, right: ExplanationData) -> tuple[Difference, ...]:
    """What each path, kernel and query word adds to the left document more than to the right."""
    mine, others = _values(left), _values(right)
    rows = []
    for key in {**mine, **others}:
        difference = mine.get(key, 0.0) - others.get(key, 0.0)
        rows.append(Difference(*key[:3], mine.get(key), others.get(key), difference))
    return tuple(rows)


def _values(explanation: ExplanationData) -> dict[_Key, float]:
    """Values in the order of display; a name that occurs twice gets a number."""
    seen: Counter[tuple[Group, str, str]] = Counter()
    values: dict[_Key, float] = {}
    for group, name, path, value in _iter_values(explanation):
        key = group, name, path
        values[(*key, seen[key])] = value
        seen[key] += 1
    return values


def _iter_values(explanation: ExplanationData) -> Iterator[tuple[Group, str, str, float]]:
    yield "score", "score", "", explanation.score
    for part in explanation.parts.children:
        yield "part", part.name, "", part.value
    for signal in explanation.signals:
        yield "signal", signal.name, "", signal.value
        if len(signal.paths) > 1:
            for share in signal.paths:
                yield "signal", signal.name, share.path, share.value
    for term in explanation.terms:
        name = explanation.query.words[term.word].text
        yield "term", name, "", term.value
        if len(term.paths) > 1:
            for path, value in term.paths.items():
                yield "term", name, path, value


def html_page(shown: ExplanationData | PairData) -> str:
    """The whole HTML file."""
    sides = (shown,) if isinstance(shown, ExplanationData) else (shown.left, shown.right)
    marks = max(max(len(side.signals), len(side.query.words)) for side in sides)
    query = parts.escape(sides[0].query.text)
    articles = "\n".join(map(_render_article, sides))
    compared = sentence = ""
    if isinstance(shown, PairData):
        if shown.parts is not None:
            sentence = parts.contrast(shown.sentence, "Left minus right", shown.parts)
        inside = parts.difference_table(shown)
        compared = f'<details class="wide"><summary>By kernel</summary>{inside}</details>'
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Why: {query}</title>
<style>
{make_style(marks)}
</style>
</head>
<body>
<h1>{query}</h1>
<input type="radio" name="by" id="by-signal" checked> <label for="by-signal">words by signal</label>
<input type="radio" name="by" id="by-term"> <label for="by-term">words by query word</label>
{sentence}
<main class="two">
{articles}
{compared}
</main>
<p class="faint">Numbers are rounded; they add up before rounding.</p>
</body>
</html>
"""


def _render_article(explanation: ExplanationData) -> str:
    kind = "additive parts" if explanation.is_additive else "approximate parts"
    maps = "\n".join(parts.heat_map(matrix, explanation) for matrix in explanation.matrices)
    notes = "".join(f"<li>{parts.escape(note)}</li>" for note in explanation.notes)
    score = f"score <strong>{format_number(explanation.score)}</strong>, {kind}"
    against, contrast, differences = explanation.against, "", ""
    if against is not None:
        contrast = parts.contrast(against.sentence, against.heading, against.parts)
        heading = parts.escape(against.heading)
        differences = f"<h3>{heading}</h3>\n{parts.tree(against.parts)}"
    return f"""<article>
<h2>{parts.escape(explanation.doc_id or "document")}</h2>
<p>{parts.escape(explanation.model)}, {score}</p>
{contrast}
{parts.marked_text(explanation)}
{parts.legend(explanation)}
{f'<ul class="faint">{notes}</ul>' if notes else ""}
{"" if against else parts.term_table(explanation)}
<details><summary>Kernels and raw values</summary>
{differences}
{parts.term_table(explanation) if against else ""}
{parts.signal_table(explanation)}
<h3>The score as a sum</h3>
{parts.tree(explanation.parts)}
</details>
<details><summary>Match matrix</summary>{maps}</details>
<details><summary>Every word</summary>{parts.word_table(explanation)}</details>
</article>"""


_STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #fff; --faint: #666; --edge: #ccc;
  --cold: 0 114 178; --warm: 213 94 0; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --paper: #16181c; --faint: #a0a0a0; --edge: #444;
    --cold: 86 180 233; --warm: 230 159 0; } }
body { margin: 1.5rem auto; max-width: 90rem; padding: 0 1rem; color: var(--ink);
  background: var(--paper); font: 1rem/1.6 system-ui, sans-serif; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.15rem; } h3 { font-size: 1rem; }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(28rem, 100%), 1fr));
  gap: 2rem; }
.sentence { font-size: 1.1rem; font-weight: bold; }
.wide { grid-column: 1 / -1; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; }
.cut, .faint { color: var(--faint); }
.w sup { display: none; font-size: .65em; user-select: none; }
.scroll { overflow: auto; max-height: 32rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: bold; }
th, td { padding: .15rem .6rem; text-align: right; }
th:first-child, th[scope=row] { text-align: left; }
thead th { position: sticky; top: 0; background: var(--paper); border-bottom: 1px solid; }
.heat td { background: rgb(var(--cold) / var(--v)); }
.heat td.less { background: rgb(var(--warm) / var(--v)); }
.up { color: rgb(var(--cold)); } .down { color: rgb(var(--warm)); }
.differing { width: 100%; max-width: 60rem; } .differing td:last-child { width: 60%; }
.bar { display: block; position: relative; height: .8em; }
.bar::after { content: ""; position: absolute; top: 0; bottom: 0; left: var(--from);
  width: max(var(--wide), 1px); background: rgb(var(--cold)); }
.bar.less::after { background: rgb(var(--warm)); }
.bar.context::after { background: var(--faint); opacity: .55; }
.tree, .tree ul { list-style: none; padding-left: 1.2rem; border-left: 1px solid var(--edge); }
.tree b { font-variant-numeric: tabular-nums; font-weight: normal; float: right; }
.tree > li { max-width: 32rem; }
summary { cursor: pointer; }
:focus-visible { outline: 3px solid rgb(var(--cold)); outline-offset: 2px; }
#by-signal:checked ~ main .bs, #by-term:checked ~ main .bt { display: inline; }
"""


def make_style(marks: int) -> str:
    """CSS with a colour and a line style for each of `marks` signals or query words."""
    rules = [_STYLE.strip()]
    for place in range(marks):
        tint = " ".join(str(int(pick_colour(place)[at : at + 2], 16)) for at in (1, 3, 5))
        rules.append(
            f"#by-signal:checked ~ main .s{place}, #by-term:checked ~ main .t{place}, "
            f".key.s{place}, .key.t{place} {{ background: rgb({tint} / .25); "
            f"text-decoration: underline 2px {pick_line_style(place)} {pick_colour(place)}; }}"
        )
    return "\n".join(rules)
