"""Draws the models' figures, `docs/models/*.svg`, each after its paper's.

python docs/make_figures.py

A figure is levels of boxes, from the texts above to the score below. Levels of the same size are
joined one to one, others all to all.
"""

from html import escape
from itertools import pairwise
from pathlib import Path

_TEXTS = ["query", "document"]
_WIDTH, _HEIGHT, _GAP, _STEP = 190, 44, 20, 76

FIGURES: dict[str, list[list[str]]] = {
    "tk": [
        _TEXTS,
        ["word vectors", "word vectors"],
        ["self-attention,\n2 layers, mixed in", "the same layers"],
        ["one match matrix of cosines"],
        ["11 kernels: soft counts\nfor each query word"],
        ["logarithms of the counts", "counts by\ndocument length"],
        ["weighted sum: score"],
    ],
    "tk_windowed": [
        _TEXTS,
        ["contextual words, as TK", "contextual words, as TK"],
        ["one match matrix"],
        ["kernels in small windows", "kernels in larger ones", "… in each size"],
        ["windows' scores, sorted", "windows' scores, sorted", "windows' scores, sorted"],
        ["weighted sum, best windows\nfirst: score"],
    ],
    "tkl": [
        _TEXTS,
        ["contextual words, as TK", "contextual words of chunks,\na few words overlap"],
        ["one match matrix"],
        ["kernels in a window\nthat slides"],
        ["saturation by query word\nand window"],
        ["best windows that\ndo not overlap", "windows beside them"],
        ["weighted sum: score"],
    ],
    "knrm": [
        _TEXTS,
        ["word vectors", "word vectors"],
        ["one match matrix of cosines"],
        ["kernels: exact matches,\nand soft ones"],
        ["logarithms, summed\nover query words"],
        ["one layer: score"],
    ],
    "conv_knrm": [
        _TEXTS,
        ["word vectors", "word vectors"],
        ["convolutions over\n1, 2, 3 words", "convolutions over\n1, 2, 3 words"],
        ["nine match matrices: every\nn-gram size with every other"],
        ["kernels, as KNRM"],
        ["one layer: score"],
    ],
    "matchpyramid": [
        _TEXTS,
        ["word vectors", "word vectors"],
        ["one match matrix,\nread as a picture"],
        ["convolution"],
        ["dynamic pooling, bins by\nthe texts' own lengths"],
        ["… more of both"],
        ["dense layers: score"],
    ],
    "duet": [
        _TEXTS,
        ["words of both"],
        ["where query words occur,\nby their rarity", "vectors of the query\nand of windows"],
        ["local half: convolution,\ndense layers", "distributed half: products,\ndense layers"],
        ["sum, dense layers: score"],
    ],
    "pacrr": [
        _TEXTS,
        ["one match matrix of cosines"],
        ["1 x 1", "2 x 2 convolutions", "n x n convolutions"],
        ["maximum over filters", "maximum over filters", "maximum over filters"],
        ["k best of each query word,\nbeside its idf"],
        ["dense layers: score"],
    ],
    "co_pacrr": [
        _TEXTS,
        ["one match matrix of cosines"],
        ["n x n convolutions,\nmaximum over filters", "what the words around\nsay of the query"],
        ["k best of the first quarter", "… of the half", "… of all"],
        ["with the context of each match;\nquery words in random order"],
        ["dense layers: score"],
    ],
    "rpacrr": [
        _TEXTS,
        ["one match matrix"],
        ["n x n convolutions, dropout"],
        ["1 x 1 convolutions, or the\nmaximum over filters"],
        ["k best of each query word,\nor attention by rows"],
        ["dense layers: score"],
    ],
    "bert": [
        ["[CLS] query [SEP] document [SEP]"],
        ["subwords, positions,\nwhich text"],
        ["transformer, all layers"],
        ["vector of [CLS]"],
        ["pooling layer, one linear\nlayer: score"],
    ],
    "mores": [
        _TEXTS,
        ["query module:\ntransformer", "document module:\ntransformer (stored: S1)"],
        ["query rows", "keys and values of each\nblock (stored: S2)"],
        ["interaction blocks: attention to the\ndocument, then to the query"],
        ["vector of [CLS]: score"],
    ],
    "maxsim": [
        _TEXTS,
        ["pretrained encoder", "the same encoder"],
        ["unit vectors of subwords,\nand weights", "unit vectors of subwords\n(stored)"],
        ["one match matrix of cosines"],
        ["maximum for each query piece"],
        ["weighted sum: score"],
    ],
    "kernel_bert": [
        _TEXTS,
        ["pretrained encoder", "the same encoder"],
        ["unit vectors of subwords,\nand weights", "unit vectors of subwords\n(stored)"],
        ["one match matrix of cosines"],
        ["kernels that count subwords\nof at least some similarity"],
        ["logarithms of the counts", "counts by\ndocument length"],
        ["weighted sum, weights of 0\nor more: score"],
    ],
    "single_vector": [
        _TEXTS,
        ["pretrained encoder", "the same encoder"],
        ["mean of the subwords,\nor the first", "mean of the subwords,\nor the first (stored)"],
        ["cosine: score"],
    ],
    "ensemble": [
        _TEXTS,
        ["a model", "another", "a third"],
        ["its score", "its score", "its score"],
        ["mean: score"],
    ],
}  # fmt: skip


def draw(levels: list[list[str]]) -> str:
    """The figure as SVG."""
    widest = max(map(len, levels))
    width = widest * (_WIDTH + _GAP) + _GAP
    height = (len(levels) - 1) * _STEP + _HEIGHT + 2 * _GAP
    places = [
        [
            (width / 2 + (number - (len(level) - 1) / 2) * (_WIDTH + _GAP), _GAP + row * _STEP)
            for number in range(len(level))
        ]
        for row, level in enumerate(levels)
    ]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" font-family="sans-serif" font-size="12">',
        '<defs><marker id="to" markerWidth="8" markerHeight="8" refX="7" refY="3" orient="auto">'
        '<path d="M0,0L7,3L0,6z" fill="#777"/></marker></defs>',
    ]
    for above, below in pairwise(places):
        same = len(above) == len(below)
        pairs = zip(above, below, strict=True) if same else ((a, b) for a in above for b in below)
        lines += [
            f'<path d="M{a:g},{y + _HEIGHT:g}L{b:g},{z:g}" stroke="#777" marker-end="url(#to)"/>'
            for (a, y), (b, z) in pairs
        ]
    for row, (level, row_places) in enumerate(zip(levels, places, strict=True)):
        fill = "#f3e3d3" if row == 0 else "#d5e6d5" if row == len(levels) - 1 else "#e4ecf7"
        for label, (x, y) in zip(level, row_places, strict=True):
            lines.append(_box(label, x, y, fill))
    return "\n".join([*lines, "</svg>", ""])


def _box(label: str, x: float, y: float, fill: str) -> str:
    parts = label.split("\n")
    wide = max(_WIDTH, 7 * max(map(len, parts)))
    top = y + _HEIGHT / 2 + 4 - 7.5 * (len(parts) - 1)
    texts = "".join(
        f'<text x="{x:g}" y="{top + 15 * number:g}" text-anchor="middle">{escape(part)}</text>'
        for number, part in enumerate(parts)
    )
    return (
        f'<rect x="{x - wide / 2:g}" y="{y:g}" width="{wide}" height="{_HEIGHT}" rx="6" '
        f'fill="{fill}" stroke="#777"/>{texts}'
    )


def main() -> None:
    """Writes them all."""
    folder = Path(__file__).parent / "models"
    for name, levels in FIGURES.items():
        (folder / f"{name}.svg").write_text(draw(levels), "utf-8")


if __name__ == "__main__":
    main()
