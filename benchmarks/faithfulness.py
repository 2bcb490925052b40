"""Are explanations true of the model? Deletion and sufficiency of the words that they rank first.

    python benchmarks/faithfulness.py COLLECTION [COLLECTION ...] --model fast --model default

A collection is a folder with collection.tsv.gz and queries.dev.tsv.gz (or another --split). Of each
query the model's best documents, all cut to their first words, are explained by each method: words
that it ranks first are removed, or they alone are kept, and the text is scored anew. A word is
removed wherever it stands, and has the sum of its occurrences' values: what is left of a repeated
word would keep the score, whoever has chosen it.

- deletion: how much of the score goes without the first 1, 2, 3, 5 words; higher is better
- sufficiency: how much of the score these words have alone; higher is better

0 is the score of an empty text, 1 that of the whole one. Few words that match may have more than
the whole text, of which they are a larger part. Intervals are of 95%, by drawing queries anew.

B. DeYoung et al., "ERASER: A Benchmark to Evaluate Rationalized NLP Models", ACL 2020, calls the
two comprehensiveness and sufficiency.
"""

import argparse
import gzip
import json
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from glassrank.explanations import EXPLAINERS, Explanation, ScorePart, explain_text
from glassrank.explanations.attribution import Attribution, Explainer, ScoredPair, to_float64
from glassrank.explanations.leave_one_out import (
    explain_leave_one_out_subwords,
    make_ablation_marks,
    make_ablation_signal,
)
from glassrank.index import Index
from glassrank.index.scoring import BM25
from glassrank.rerank import Reranker
from glassrank.types import Doc

COUNTS = (1, 2, 3, 5)
CANDIDATES, WORDS = 20, 50
DRAWS = 2000
EXACT = "exact"
BASELINES = ("random words", "BM25's terms", "attention")

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Explained:
    """A text, and where its words stand."""

    query: str
    text: str
    words: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]

    def ranked(self, values: Values) -> list[str]:
        """Its different words, those of the largest sums first."""
        sums: dict[str, float] = {}
        for word, value in zip(self.words, values.tolist(), strict=True):
            sums[word] = sums.get(word, 0.0) + value
        return sorted(sums, key=lambda word: -sums[word])

    def without(self, words: Collection[str]) -> str:
        """The text, but for these words."""
        text = self.text
        for word, (start, stop) in reversed(list(zip(self.words, self.spans, strict=True))):
            if word in words:
                text = text[:start] + text[stop:]
        return text

    def only(self, words: Collection[str]) -> str:
        """These words, in the order of the text."""
        described = zip(self.words, self.spans, strict=True)
        return " ".join(self.text[slice(*span)] for word, span in described if word in words)


Method = Callable[[Explained], Values]
"""A value for each word."""


class Methods:
    """All of one model and one collection."""

    def __init__(self, model: str, device: str, index: Index, without: Collection[str]) -> None:
        self.ranks = Reranker.load(model, device)
        self._index = index
        # Slopes and attention are PyTorch's.
        self._opened = Reranker.load(model, device, exact=True)
        self._random = np.random.default_rng(0)
        methods: dict[str, Method] = {
            EXACT: lambda one: shares(explain_text(self.ranks, one.query, one.text)),
            # As explanations are shown: function words have no colour.
            f"{EXACT}, content words": lambda one: shares(
                explain_text(self.ranks, one.query, one.text), content_alone=True
            ),
            "leave one out": lambda one: self._explained(one, explain_leave_one_out_subwords),
            "gradients": lambda one: self._explained(one, by_shares(slopes)),
            "attention": lambda one: self._explained(one, by_shares(attention)),
            "BM25's terms": self._bm25,
            "random words": lambda one: self._random.random(len(one.words)),
        }
        self.by_name = {name: one for name, one in methods.items() if name not in without}

    def read(self, query: str, text: str) -> Explained:
        words = [w for w in explain_text(self.ranks, query, text).doc.words if w.start is not None]
        spans = [(w.start, w.stop) for w in words if w.start is not None and w.stop is not None]
        return Explained(query, text, tuple(w.text for w in words), tuple(spans))

    def _explained(self, one: Explained, explainer: Explainer) -> Values:
        with explained_by(self._opened.model.name, explainer):
            return shares(explain_text(self._opened, one.query, one.text))

    def _bm25(self, one: Explained) -> Values:
        """What a term adds to the first stage's score, divided among its occurrences."""
        snapshot, method = self._index.snapshot, BM25()
        wanted = set(self._index.terms(one.query))
        terms = [self._index.terms(word) for word in one.words]
        values = np.zeros(len(one.words))
        for term in sorted(wanted):
            places = [place for place, own in enumerate(terms) if term in own]
            factors = method.term_factors(snapshot.term(term).statistics, snapshot.collection)
            added = method.score(factors, np.array(len(places)), np.array(method.k1, np.float32))
            values[places] += float(added) / max(1, len(places))
        return values


def cut(text: str) -> str:
    """To its first words: each is left out by itself then, and one passage is all there is."""
    return " ".join(text.split()[:WORDS])


def shares(explanation: Explanation, content_alone: bool = False) -> Values:
    """Of the words that stand in the text; function words may come last."""
    described = zip(explanation.doc.words, explanation.marks, strict=True)
    return np.array(
        [
            mark.share if word.is_content or not content_alone else -np.inf
            for word, mark in described
            if word.start is not None
        ]
    )


@contextmanager
def explained_by(model: str, explainer: Explainer) -> Iterator[None]:
    """A model of this name has this explainer for a while."""
    before = EXPLAINERS.get(model)
    EXPLAINERS[model] = explainer
    try:
        yield
    finally:
        del EXPLAINERS[model]
        if before is not None:
            EXPLAINERS[model] = before


def by_shares(of: Callable[[ScoredPair], Values]) -> Explainer:
    """An explainer that knows a value for each piece, and no more."""

    def explain(case: ScoredPair) -> Attribution:
        values = of(case).tolist()
        return Attribution(
            is_additive=False,
            parts=(ScorePart("score", "constant", case.score),),
            signals=(make_ablation_signal(values),),
            marks=make_ablation_marks(values, None),
            rest=(),
            matrices=(),
            terms=(),
        )

    return explain


def slopes(case: ScoredPair) -> Values:
    """The score's slope at each similarity times the similarity, summed over query pieces."""
    out = case.interact_with_gradients()
    (slope,) = torch.autograd.grad(out.score.sum(), out.parts["similarity"])
    matrix = case.trim_padding(slope) * case.trim_padding(out.parts["similarity"])  # (Q, D)
    return np.asarray(matrix.sum(0))


def attention(case: ScoredPair) -> Values:
    """What [CLS] looks at in the document encoder's last layer, mean of heads."""
    maps: list[Any] = []
    with torch.no_grad():
        case.model.encoder(case.doc_batch.ids, case.doc_batch.mask, maps)
    return to_float64(maps[-1][0].mean(0)[0, : case.num_doc_tokens])


def curves(methods: Methods, one: Explained) -> tuple[float, dict[str, Values]]:
    """What the score has above that of an empty text; and of each method what goes by deletion,
    and what is kept, by how many words: (2, counts)."""
    texts = [one.text, ""]
    for method in methods.by_name.values():
        order = one.ranked(method(one))
        for count in COUNTS:
            texts += [one.without(order[:count]), one.only(order[:count])]
    scores = methods.ranks.scores(one.query, texts).values.astype(np.float64)
    whole, nothing = scores[:2].tolist()
    table = scores[2:].reshape(len(methods.by_name), len(COUNTS), 2)
    lost, kept = whole - table[..., 0], table[..., 1] - nothing
    both = np.stack([lost, kept], 1)  # (methods, 2, counts)
    return whole - nothing, dict(zip(methods.by_name, both, strict=True))


def measure(
    model: str,
    folder: Path,
    split: str,
    queries: int,
    docs: int,
    device: str,
    without: Collection[str],
) -> dict[str, Any]:
    """Sums over each query's documents, so that one of little score does not count as much."""
    texts = dict(lines(folder / "collection.tsv.gz"))
    asked = [text for _, text in lines(folder / f"queries.{split}.tsv.gz")]
    np.random.default_rng(0).shuffle(asked)
    spreads: list[float] = []
    found: dict[str, list[Values]] = {}
    with tempfile.TemporaryDirectory() as place:
        index = Index.build((Doc(*pair) for pair in texts.items()), Path(place) / "index")
        methods = Methods(model, device, index, without)
        for query in asked:
            (top,) = index.top_k([query], CANDIDATES)
            if len(spreads) == queries:
                break
            if len(top.docs) < CANDIDATES:
                continue
            candidates = [cut(texts[index.snapshot.doc_id(doc)]) for doc in top.docs.tolist()]
            best = np.argsort(-methods.ranks.scores(query, candidates).values)[:docs]
            own = [curves(methods, methods.read(query, candidates[n])) for n in best.tolist()]
            spreads.append(sum(spread_over_windows for spread_over_windows, _ in own))
            for name in methods.by_name:
                found.setdefault(name, []).append(np.sum([table[name] for _, table in own], axis=0))
            print(f"{folder.name} {model}: {len(spreads)}", end="\r", file=sys.stderr)
    if "BM25's terms" in found:  # query by query: most of what intervals span is the queries'
        pairs = zip(found[EXACT], found["BM25's terms"], strict=True)
        found[f"{EXACT} minus BM25's terms"] = [exact - bm25 for exact, bm25 in pairs]
    return {name: summary(np.stack(own), np.array(spreads)) for name, own in found.items()}


def summary(values: Values, spreads: Values) -> dict[str, Any]:
    """Of (queries, 2, counts): shares of the score, their mean over counts, and its interval."""
    drawn = np.random.default_rng(0).integers(len(spreads), size=(DRAWS, len(spreads)))
    shares = values.sum(0) / spreads.sum()  # (2, counts)
    means = values.mean(2)[drawn].sum(1) / spreads[drawn].sum(1)[:, None]  # (draws, 2)
    low, high = np.quantile(means, (0.025, 0.975), axis=0)
    return {
        name: {
            "by_count": dict(zip(map(str, COUNTS), shares[side].round(4).tolist(), strict=True)),
            "mean": round(float(shares[side].mean()), 4),
            "interval": [round(float(low[side]), 4), round(float(high[side]), 4)],
        }
        for side, name in enumerate(("deletion", "sufficiency"))
    }


def lines(path: Path) -> Iterator[tuple[str, str]]:
    """Ids and texts."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            name, _, text = line.rstrip("\n").partition("\t")
            yield name, text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("collections", nargs="+", type=Path)
    parser.add_argument("--model", action="append", help="fast and default unless given")
    parser.add_argument("--split", default="dev", help="of queries; train where there is no dev")
    parser.add_argument("--queries", type=int, default=60)
    parser.add_argument("--docs", type=int, default=3, help="the best, of each query")
    parser.add_argument("--without", action="append", default=[], help="a method, by its name")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    report = []
    print(
        "| collection | model | words by | deletion | | sufficiency | |",
        "|---|---|---|---|---|---|---|",
        sep="\n",
    )
    for folder in options.collections:
        has_split = (folder / f"queries.{options.split}.tsv.gz").exists()
        split = options.split if has_split else "train"
        for model in options.model or ["fast", "default"]:
            sizes = options.queries, options.docs
            table = measure(model, folder, split, *sizes, options.device, options.without)
            report.append({"collection": folder.name, "split": split, "model": model, **table})
            for name, row in table.items():
                cells = [
                    f"{row[kind]['mean']:.3f} | {row[kind]['interval'][0]:.3f} to "
                    f"{row[kind]['interval'][1]:.3f}"
                    for kind in ("deletion", "sufficiency")
                ]
                print(f"| {folder.name} | {model} | {name} | {' | '.join(cells)} |", flush=True)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
