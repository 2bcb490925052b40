"""Explanations on a terminal, also readable without colours: a marked word has the letter of its
signal, as in `receptorᵇ`.
"""

import io
import math
from collections.abc import Iterator, Sequence
from itertools import groupby

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text as RichText

from glassrank.errors import sanitize
from glassrank.explanations.structure import (
    ARROWS,
    WORDS_ADD,
    Difference,
    ExplanationData,
    PairData,
    ScorePart,
    Signal,
    format_number,
    format_signed,
    is_coloured,
    iter_gaps,
    pick_colour,
    superscript,
    to_letter,
)

MAX_CHILDREN = 12
"""Shown of a part, the largest; the others are shown as one sum."""
MAX_WORDS = 6
"""Of a document, in one line."""
_BAR = 30  # characters of the longest bar
MAX_PATHS = 3
"""More do not fit side by side; HTML and JSON have them."""


def render_text(drawn: RenderableType, width: int = 100) -> str:
    """Text without colours, for logs and for `print`."""
    file = io.StringIO()
    Console(file=file, width=width, no_color=True, highlight=False).print(drawn)
    return file.getvalue()


def draw(shown: ExplanationData | PairData, full: bool = False) -> Group:
    """For a `rich` console: what decides; `full` adds paths, kernels and raw values."""
    if isinstance(shown, PairData):
        return _draw_pair(shown, full)
    return _draw_one(shown, full)


def _draw_one(explanation: ExplanationData, full: bool) -> Group:
    alone = explanation.against is None  # then raw values are all there is
    return Group(
        _head(explanation),
        RichText(),
        *_against(explanation, full),
        marked_text(explanation, by_term=not full),
        RichText(),
        *_legend(explanation, by_term=not full),
        *(_term_table(explanation) if alone and not full else ()),
        *(_tables(explanation) if full else _largest_words(explanation)),
        *_notes(explanation),
    )


def _tables(explanation: ExplanationData) -> Iterator[RenderableType]:
    yield from _signal_table(explanation)
    yield from _term_table(explanation)
    yield from _word_table(explanation)
    yield _sums(explanation.parts)


def _against(explanation: ExplanationData, full: bool) -> Iterator[RenderableType]:
    """The sentence and its table; with `full`, by path and kernel as well."""
    against = explanation.against
    if against is None:
        return
    yield RichText(sanitize(against.sentence), style="bold")
    yield RichText()
    yield RichText(f"{against.heading}:")
    yield _bars(against.parts, 3 if full else 0)


def _bars(root: ScorePart, levels: int = 0) -> Table:
    table = _table("", "difference")
    table.title = None
    table.add_column("")  # arrow
    table.add_column("")  # bar
    most = max(abs(part.value) for part in (*root.children, root))
    for part in (*root.children, root):
        if part is root:
            table.add_section()
        for depth, below in _levels(part, 0, 0 if part is root else levels):
            table.add_row(
                RichText("  " * depth + sanitize(below.name)),
                *_differing(below.value),
                _bar(below, most),
            )
    return table


def _bar(part: ScorePart, most: float) -> RichText:
    """A bar to scale; that of the context is paler."""
    length = round(_BAR * abs(part.value) / most) if most else 0
    return RichText("█" * length, style="dim" if part.kind == "words" else _style(part.value))


def _levels(part: ScorePart, depth: int, most: int) -> Iterator[tuple[int, ScorePart]]:
    yield depth, part
    for child in part.children if depth < most else ():
        yield from _levels(child, depth + 1, most)


def _draw_pair(comparison: PairData, full: bool) -> Group:
    """Why one document is above the other, both texts in columns, and the differences."""
    sides = (comparison.left, comparison.right)
    texts = Table.grid(expand=True, padding=(0, 2))
    texts.add_column(ratio=1)
    texts.add_column(ratio=1)
    texts.add_row(*map(_head, sides))
    if full:
        texts.add_row(*(Group(*_against(side, full)) for side in sides))
    texts.add_row(*(marked_text(side, by_term=not full) for side in sides))
    if full or comparison.parts is None:
        differences: RenderableType = _difference_table(comparison)
    else:
        differences = Group(RichText("Left minus right:"), _bars(comparison.parts))
    legends = {line.plain: line for side in sides for line in _legend(side, by_term=not full)}
    notes = {line.plain: line for side in sides for line in _notes(side)}
    sentence = [RichText(sanitize(comparison.sentence), style="bold"), RichText()]
    return Group(
        *(sentence if comparison.sentence else []),
        texts,
        RichText(),
        *legends.values(),
        differences,
        *notes.values(),
    )


def _difference_table(comparison: PairData) -> Table:
    table = _table("Differences", "left", "right", "left - right")
    table.add_column("")
    for _, rows in groupby(comparison.differences, key=lambda row: row.group):
        table.add_section()
        for row in rows:
            table.add_row(*_difference(row))
    return table


def marked_text(explanation: ExplanationData, by_term: bool = False) -> RichText:
    """The whole text; salient words are coloured and numbered, unread ones are dim."""
    text = explanation.doc.text
    drawn = RichText()
    between = iter_gaps(explanation.doc)
    for word, mark in zip(explanation.doc.words, explanation.marks, strict=True):
        if word.start is None or word.stop is None:
            continue
        start, stop, unread = next(between)
        drawn.append(sanitize(text[start:stop]), style="dim" if unread else "")
        shown = sanitize(text[word.start : word.stop])
        if mark.signal is None or not is_coloured(explanation, word, mark):
            drawn.append(shown)
            continue
        if by_term and mark.term is not None:
            place, cue = mark.term, str(mark.term + 1)
        else:
            place, cue = mark.signal, to_letter(mark.signal)
        drawn.append(shown, style=f"bold underline {pick_colour(place)}")
        drawn.append(superscript(cue), style=pick_colour(place))
    start, stop, unread = next(between)
    drawn.append(sanitize(text[start:stop]), style="dim" if unread else "")
    return drawn


def _head(explanation: ExplanationData) -> RichText:
    head = RichText()
    if explanation.doc_id:
        head.append(sanitize(explanation.doc_id), style="bold")
        head.append("  ")
    head.append(f"{explanation.model}  score ")
    head.append(format_number(explanation.score), style="bold cyan")
    head.append(
        "  additive parts" if explanation.is_additive else "  approximate parts", style="dim"
    )
    head.append(f"\nquery: {sanitize(explanation.query.text)}", style="dim")
    return head


def _legend(explanation: ExplanationData, by_term: bool = False) -> Iterator[RichText]:
    by_term = by_term and any(mark.term is not None for mark in explanation.marks)
    if by_term:
        words = enumerate(explanation.query.words)
        keys = {q: f"{sanitize(w.text)}{superscript(str(q + 1))}" for q, w in words if w.is_content}
    else:
        signals = enumerate(explanation.signals)
        keys = {k: f"{s.name}{superscript(to_letter(k))}" for k, s in signals if s.is_highlighted}
    legend = RichText()
    for place, key in keys.items():
        legend.append(key, style=f"underline {pick_colour(place)}")
        legend.append("   ")
    if by_term or legend:
        yield legend


def _signal_table(explanation: ExplanationData) -> Iterator[RenderableType]:
    """With the weight and signal of each path if there is room, else with values alone."""
    signals, paths = explanation.signals, explanation.signal_paths
    if not signals:
        return
    if len(paths) > MAX_PATHS:
        paths = []
    tables = []
    for full in (True, False):
        table = _table("Signals, raw values")
        for path in paths:
            for heading in (f"{path}\nweight", f"{path}\nsignal", path) if full else (path,):
                table.add_column(heading, justify="right", no_wrap=full, overflow="fold")
        table.add_column("total", justify="right")
        for place, signal in enumerate(signals):
            cells = _cells(signal, full) if paths else []
            table.add_row(f"{to_letter(place)} {signal.name}", *cells, format_number(signal.value))
        tables.append(table)
    known = all(share.weight is not None for share in signals[0].paths)
    yield _FirstThatFits(*tables) if known else tables[1]


class _FirstThatFits:
    """A wide table, or a narrow one on a narrow terminal: a truncated number would be wrong."""

    def __init__(self, wide: Table, narrow: Table) -> None:
        self.wide, self.narrow = wide, narrow

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        needed = Measurement.get(console, options.update(max_width=1000), self.wide)
        yield self.wide if needed.minimum <= options.max_width else self.narrow


def _table(title: str, *numbers: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1))
    table.pad_edge = False
    table.add_column("", overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right", overflow="fold")
    return table


def _cells(signal: Signal, full: bool) -> Iterator[str]:
    for share in signal.paths:
        if full and share.weight is not None and share.signal is not None:
            yield from (format_number(share.weight), format_number(share.signal))
        yield format_number(share.value)


def _term_table(explanation: ExplanationData) -> Iterator[RenderableType]:
    if not explanation.terms:
        return
    names = list(explanation.terms[0].paths)
    names = names if len(names) <= MAX_PATHS else []
    table = _table("Query words, raw values", *names, "total")
    for term in explanation.terms:
        word = sanitize(explanation.query.words[term.word].text)
        values = [*(term.paths[name] for name in names), term.value]
        table.add_row(RichText(word), *map(format_number, values))
    yield table


def _largest_words(explanation: ExplanationData) -> Iterator[RichText]:
    marked = zip(explanation.doc.words, explanation.marks, strict=True)
    found = [(word, mark) for word, mark in marked if word.is_content]
    found.sort(key=lambda pair: -abs(pair[1].share))
    largest_words = (
        f"{sanitize(word.text)} {format_signed(mark.share)}" for word, mark in found[:MAX_WORDS]
    )
    if found:
        yield RichText(f"{WORDS_ADD}. The largest: {', '.join(largest_words)}.")


def _word_table(explanation: ExplanationData) -> Iterator[RenderableType]:
    """The document words with the largest shares, in the order of the text."""
    described = list(zip(explanation.doc.words, explanation.marks, strict=True))
    order = sorted(range(len(described)), key=lambda word: -abs(described[word][1].share))
    table = _table(f"{WORDS_ADD}: the largest", "adds", "similarity")
    table.add_column("closest query word")
    table.add_column("signal")
    for place in sorted(order[:MAX_CHILDREN]):
        word, mark = described[place]
        near = "" if mark.term is None else explanation.query.words[mark.term].text
        table.add_row(
            RichText(sanitize(word.text)),
            format_signed(mark.share),
            "" if mark.similarity is None else format_number(mark.similarity),
            RichText(sanitize(near)),
            "" if mark.signal is None else explanation.signals[mark.signal].name,
        )
    if described:
        yield table


def _sums(root: ScorePart) -> Table:
    """Two levels of the tree below its root; tables, HTML and JSON have the rest."""
    table = _table("Sums", "value")
    table.add_row(RichText(root.name), format_number(root.value))
    for part in root.children:
        table.add_row(RichText(f"  {part.name}"), format_number(part.value))
        for name, value in _largest(part.children):
            table.add_row(RichText(f"    {name}"), format_number(value))
    return table


def _largest(parts: Sequence[ScorePart]) -> Iterator[tuple[str, float]]:
    order = sorted(range(len(parts)), key=lambda place: -abs(parts[place].value))
    yield from ((sanitize(parts[n].name), parts[n].value) for n in sorted(order[:MAX_CHILDREN]))
    if others := order[MAX_CHILDREN:]:
        yield f"{len(others)} more", math.fsum(parts[n].value for n in others)


def _notes(explanation: ExplanationData) -> Iterator[RichText]:
    for note in explanation.notes:
        yield RichText(note, style="italic")


def _differing(value: float) -> Iterator[RichText]:
    """With a sign and an arrow: nothing depends on colour alone."""
    text = format_signed(value)
    yield RichText(text, style=_style(value))
    yield RichText(ARROWS.get(text[0], ""), style=_style(value))


def _style(value: float) -> str:
    return "bold #0072B2" if value > 0 else "bold #D55E00" if value < 0 else ""


def _difference(row: Difference) -> Iterator[RichText]:
    indent = "  " if row.path else ""
    yield RichText(f"{indent}{sanitize(row.name)}{f' ({row.path})' if row.path else ''}")
    for value in (row.left, row.right):
        yield RichText("-" if value is None else format_number(value))
    yield from _differing(row.difference)
