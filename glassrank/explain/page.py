"""An explanation, or two side by side, as one HTML file that needs nothing else.

It works without scripts and without a network, and a policy in the file forbids both.
"""

from glassrank.explain import page_parts as parts
from glassrank.explain.differences import ComparisonData
from glassrank.explain.page_style import style
from glassrank.explain.printing import number
from glassrank.explain.structure import ExplanationData

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def html_page(shown: ExplanationData | ComparisonData) -> str:
    """The whole file."""
    sides = (shown,) if isinstance(shown, ExplanationData) else (shown.left, shown.right)
    marks = max(max(len(side.signals), len(side.query.words)) for side in sides)
    query = parts.escaped(sides[0].query.text)
    articles = "\n".join(map(_article, sides))
    compared = ""
    if isinstance(shown, ComparisonData):
        compared = f'<section class="wide">{parts.difference_table(shown)}</section>'
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Why: {query}</title>
<style>
{style(marks)}
</style>
</head>
<body>
<h1>{query}</h1>
<input type="radio" name="by" id="by-signal" checked> <label for="by-signal">words by signal</label>
<input type="radio" name="by" id="by-term"> <label for="by-term">words by query word</label>
<main class="two">
{articles}
{compared}
</main>
<p class="faint">Numbers are rounded; they add up before rounding.</p>
</body>
</html>
"""


def _article(explanation: ExplanationData) -> str:
    kind = "an exact sum" if explanation.exact else "approximate parts"
    maps = "\n".join(parts.heat_map(matrix, explanation) for matrix in explanation.matrices)
    notes = "".join(f"<li>{parts.escaped(note)}</li>" for note in explanation.notes)
    score = f"score <strong>{number(explanation.score)}</strong>, {kind}"
    return f"""<article>
<h2>{parts.escaped(explanation.doc_id or "document")}</h2>
<p>{parts.escaped(explanation.model)}, {score}</p>
{parts.marked_text(explanation)}
{parts.legend(explanation)}
{f'<ul class="faint">{notes}</ul>' if notes else ""}
{parts.term_table(explanation)}
{parts.signal_table(explanation)}
<h3>The score as a sum</h3>
{parts.tree(explanation.parts)}
<details><summary>Match matrix</summary>{maps}</details>
<details><summary>Every word</summary>{parts.word_table(explanation)}</details>
</article>"""
