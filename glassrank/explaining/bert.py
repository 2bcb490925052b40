"""BERT[CLS]: what the score loses without a word, and where the last layers look.

Query and document are one text to BERT, so that a document without a word is read anew, together
with the query: one text for each word, and for long documents one for each run of words. The score
is read from the last layer's [CLS]; all other rows reach it by way of the layer before.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from glassrank.explaining.cases import Case, Findings, as_matrix
from glassrank.explaining.leave_one_out import (
    MOST_TEXTS,
    PIECES_APPROXIMATE,
    left_out_signal,
    lost_without_doc_words,
    piece_marks,
    query_parts,
    terms_of,
    together,
)
from glassrank.explaining.reading import FIRST
from glassrank.explaining.structure import Matrix, Side
from glassrank.explaining.whole_words import in_runs, shared_evenly, whole_words
from glassrank.models.bert import BERT

ATTENTION = (
    "Attention (mean of heads) tells where a layer looks and is no part of the score; of the last "
    "layer only the row of [CLS] reaches the score."
)


def explain_bert(case: Case) -> Findings:
    """By texts without a word, each read anew, and attention."""
    assert isinstance(case.model, BERT)
    with torch.no_grad():
        maps = case.model.interact(case.query, case.doc, explain=True).parts["attention"]
    layers = maps[0].mean(1).cpu().double()  # (layers, L, L)
    words = whole_words(case.doc_words)
    runs = in_runs(words, MOST_TEXTS)
    # An encoded document begins with a [CLS] that is no part of the joined text.
    first = 0 if _has_first(case) else 1
    lost = lost_without_doc_words(case, [[place + first for place in run] for run in runs])
    shares = shared_evenly(lost, runs, case.doc_count)
    parts = query_parts(case)
    looks = _between(case, layers[-2:][0], "query", "document")  # (Q, D)
    return Findings(
        exact=False,
        parts=parts,
        signals=(left_out_signal(shares),),
        marks=piece_marks(case, runs, [shares], looks),
        rest=(together(case, shares),),
        matrices=tuple(_matrices(case, layers)),
        terms=terms_of(parts),
        notes=(PIECES_APPROXIMATE, ATTENTION, *_runs(len(words), len(runs))),
    )


def _has_first(case: Case) -> bool:
    """As in an ensemble with models that read the document by itself."""
    return case.doc_words[:1] == (FIRST,)


def _between(case: Case, layer: Tensor, rows: Side, columns: Side) -> Tensor:
    """How much one text's pieces look at the other's: a part of (L, L)."""
    queries = len(case.query_words)
    skipped = [-1] if _has_first(case) else []
    docs = [*skipped, *range(queries, queries + case.doc_count - len(skipped))]
    places = {"query": list(range(queries)), "document": docs}
    padded = functional.pad(layer, (0, 1, 0, 1))  # zeros for a piece that is not there
    return padded[places[rows]][:, places[columns]]


def _matrices(case: Case, layers: Tensor) -> Iterator[Matrix]:
    """Of the last layer [CLS]'s row counts; between the two texts, all rows of the one before."""
    last = len(layers)
    wanted: list[tuple[int, Side, Side]] = [(last, "query", "query"), (last, "query", "document")]
    if last > 1:
        wanted += [(last - 1, "query", "document"), (last - 1, "document", "query")]
    for layer, rows, columns in wanted:
        values = _between(case, layers[layer - 1], rows, columns)
        yield as_matrix(
            f"layer {layer}: {rows} to {columns}", values, rows, columns, attention=True
        )


def _runs(words: int, runs: int) -> Iterator[str]:
    if runs < words:
        yield (
            f"The document's {words} words were left out in {runs} runs of neighbours, which share "
            "evenly: each run is read anew."
        )
