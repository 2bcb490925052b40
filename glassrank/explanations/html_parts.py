"""The parts of the HTML file. All that comes from a text goes through `escape`."""

import html
from collections.abc import Iterable, Iterator

from glassrank.errors import sanitize
from glassrank.explanations.structure import (
    ARROWS,
    WORDS_ADD,
    ExplanationData,
    Mark,
    Matrix,
    PairData,
    ScorePart,
    Word,
    format_number,
    format_signed,
    is_coloured,
    iter_gaps,
    to_letter,
)

STRONGEST = 0.6
"""The darkest shade of a heat map: numbers stay readable on it."""


def escape(text: str) -> str:
    """Text without markup or control characters."""
    return html.escape(sanitize(text), quote=True)


def marked_text(explanation: ExplanationData) -> str:
    """The whole text; salient words are coloured, underlined and numbered."""
    between = (
        f'<span class="cut">{gap}</span>' if unread else gap
        for start, stop, unread in iter_gaps(explanation.doc)
        for gap in [escape(explanation.doc.text[start:stop])]
    )
    phrases = ['<p class="text" dir="auto">']
    for word, mark in zip(explanation.doc.words, explanation.marks, strict=True):
        if word.start is None or word.stop is None:
            continue
        phrases += [next(between), _word(explanation, word, mark)]
    phrases += [next(between), "</p>"]
    return "".join(phrases)


def _word(explanation: ExplanationData, word: Word, mark: Mark) -> str:
    shown = escape(explanation.doc.text[word.start : word.stop])
    classes, cues = "w", ""
    if mark.signal is not None and is_coloured(explanation, word, mark):
        classes += f" s{mark.signal}"
        cues += f'<sup class="bs">{to_letter(mark.signal)}</sup>'
        if mark.term is not None:
            classes += f" t{mark.term}"
            cues += f'<sup class="bt">{mark.term + 1}</sup>'
    title = escape(_describe_mark(explanation, mark))
    return f'<span class="{classes}" title="{title}">{shown}{cues}</span>'


def _describe_mark(explanation: ExplanationData, mark: Mark) -> str:
    phrases = []
    if mark.term is not None and mark.similarity is not None:
        near = explanation.query.words[mark.term].text
        phrases.append(f"similarity {format_number(mark.similarity)} to “{near}”")
    if mark.signal is not None:
        phrases.append(explanation.signals[mark.signal].name)
    phrases.append(f"adds {format_signed(mark.share)}")
    return ", ".join(phrases)


def legend(explanation: ExplanationData) -> str:
    """What each colour, letter and number means."""
    signals = (
        f'<span class="key s{place}">{escape(signal.name)}<sup>{to_letter(place)}</sup></span>'
        for place, signal in enumerate(explanation.signals)
        if signal.is_highlighted
    )
    terms = (
        f'<span class="key t{place}">{escape(word.text)}<sup>{place + 1}</sup></span>'
        for place, word in enumerate(explanation.query.words)
    )
    return f'<p class="faint">Signals: {" ".join(signals)}. Query words: {" ".join(terms)}.</p>'


def signal_table(explanation: ExplanationData) -> str:
    """What each signal adds on each path."""
    paths = explanation.signal_paths
    heads = ["", "signal", "center", "width"]
    for path in paths:
        heads += [f"{path} weight", f"{path} signal", path]
    rows = []
    for place, signal in enumerate(explanation.signals):
        numbers = [signal.center, signal.width]
        for share in signal.paths if paths else ():
            numbers += [share.weight, share.signal, share.value]
        cells = map(_format_optional, [*numbers, signal.value])
        rows.append([to_letter(place), escape(signal.name), *cells])
    return table("Signals, raw values", [*map(escape, heads), "total"], rows)


def term_table(explanation: ExplanationData) -> str:
    """What each query word adds on each path."""
    paths = list(explanation.terms[0].paths) if explanation.terms else []
    rows = []
    for term in explanation.terms:
        word = escape(explanation.query.words[term.word].text)
        values = (*term.paths.values(), term.value)
        rows.append([str(term.word + 1), word, *map(format_number, values)])
    heads = ["", "query word", *map(escape, paths), "total"]
    return table("Query words, raw values", heads, rows)


def word_table(explanation: ExplanationData) -> str:
    """Every document word's share, and what belongs to no word."""
    rows = []
    for word, mark in zip(explanation.doc.words, explanation.marks, strict=True):
        near = "" if mark.term is None else escape(explanation.query.words[mark.term].text)
        signal = "" if mark.signal is None else escape(explanation.signals[mark.signal].name)
        similarity = _format_optional(mark.similarity)
        rows.append([escape(word.text), near, similarity, signal, format_signed(mark.share)])
    for part in explanation.rest:
        rows.append([escape(part.name), "", "", "", format_signed(part.value)])
    heads = ["word", "closest query word", "similarity", "signal", "adds"]
    return table(WORDS_ADD, heads, rows)


def heat_map(matrix: Matrix, explanation: ExplanationData) -> str:
    """A table with the document's words as rows, since there are more of them."""
    words = {"query": explanation.query.words, "document": explanation.doc.words}
    rows, columns, values = matrix.rows, matrix.columns, matrix.values
    if (rows, columns) == ("query", "document"):
        rows, columns, values = columns, rows, tuple(zip(*values, strict=True))
    largest = max((abs(value) for row in values for value in row), default=0.0) or 1.0
    heads = ["", *(escape(word.text) for word in words[columns])]
    body = [
        f'<tr><th scope="row">{escape(word.text)}</th>'
        + "".join(_render_cell(value, largest) for value in row)
        + "</tr>"
        for word, row in zip(words[rows], values, strict=False)
    ]
    return _render_frame(escape(matrix.name), heads, body, "heat")


def _render_cell(value: float, largest: float) -> str:
    less = ' class="less"' if value < 0 else ""
    return (
        f'<td{less} style="--v:{STRONGEST * abs(value) / largest:.2f}">{format_number(value)}</td>'
    )


def tree(part: ScorePart) -> str:
    """The score as a tree of parts; the first levels are open."""
    return f'<ul class="tree">{_render_branch(part, 0)}</ul>'


def _render_branch(part: ScorePart, depth: int) -> str:
    line = f"{escape(part.name)} <b>{format_number(part.value)}</b>"
    if not part.children:
        return f'<li data-kind="{part.kind}">{line}</li>'
    inside = "".join(_render_branch(child, depth + 1) for child in part.children)
    opened = " open" if depth < 2 else ""
    return (
        f'<li data-kind="{part.kind}"><details{opened}><summary>{line}</summary>'
        f"<ul>{inside}</ul></details></li>"
    )


def contrast(sentence: str, heading: str, parts: ScorePart) -> str:
    """What puts a document above the others, or above one: a sentence and a table."""
    shown = (*parts.children, parts)
    low, high = (sign * max(0.0, *(sign * part.value for part in shown)) for sign in (-1, 1))
    rows = [[escape(p.name), _render_difference(p.value), _render_bar(p, low, high)] for p in shown]
    drawn = table(escape(heading), ["", "difference", ""], rows, "differing")
    return f'<p class="sentence">{escape(sentence)}</p>\n{drawn}'


def _render_bar(part: ScorePart, low: float, high: float) -> str:
    """The bars of a table share one scale, from the lowest value to the highest."""
    whole = (high - low) or 1.0
    kind = part.name if part.kind == "words" else "less" if part.value < 0 else "more"
    start = 100 * (min(part.value, 0.0) - low) / whole
    place = f"--from:{start:.2f}%;--wide:{100 * abs(part.value) / whole:.2f}%"
    return f'<span class="bar {kind}" style="{place}"></span>'


def _render_difference(value: float) -> str:
    text = format_signed(value)
    way = {"+": "up", "-": "down"}.get(text[0], "")
    return f'<span class="{way}">{text} {ARROWS.get(text[0], "")}</span>'


def difference_table(comparison: PairData) -> str:
    """What adds more to the left document than to the right."""
    rows = []
    for row in comparison.differences:
        sides = map(_format_optional, (row.left, row.right))
        difference = _render_difference(row.difference)
        rows.append([escape(row.name), escape(row.path), *sides, difference])
    return table("Left minus right", ["", "path", "left", "right", "difference"], rows)


def table(caption: str, heads: Iterable[str], rows: Iterable[Iterable[str]], kind: str = "") -> str:
    """A table of cells that are HTML already."""
    return _render_frame(caption, heads, (f"<tr>{''.join(_cells(row))}</tr>" for row in rows), kind)


def _cells(row: Iterable[str]) -> Iterator[str]:
    for place, cell in enumerate(row):
        yield f'<th scope="row">{cell}</th>' if place == 0 else f"<td>{cell}</td>"


def _render_frame(caption: str, heads: Iterable[str], rows: Iterable[str], kind: str) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{caption}">'
        f'<table class="{kind}"><caption>{caption}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _format_optional(value: float | None) -> str:
    return "" if value is None else format_number(value)
