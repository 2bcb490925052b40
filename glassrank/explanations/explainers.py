"""`explain`: one document's score, taken apart by the explainer of its model.

A model says by its properties how it is explained: by its kernels, by the summands that it
declares, or, marked approximate, by leaving words out. Families of which more can be shown have an
explainer of their own in `EXPLAINERS`.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.threads import single_thread
from glassrank.deadline import NEVER, Deadline
from glassrank.explanations.attribution import Attribution, Explainer, ScoredPair
from glassrank.explanations.explanation import Explanation
from glassrank.explanations.kernels import explain_kernels, has_kernels
from glassrank.explanations.leave_one_out import (
    explain_leave_one_out,
    explain_leave_one_out_subwords,
    select_salient,
)
from glassrank.explanations.reading import ReadPassage, TokenizedText, read, read_doc
from glassrank.explanations.structure import FIRST_STAGE, Mark, QueryTerm, ScorePart, Text
from glassrank.explanations.subword_merging import merge_subwords
from glassrank.explanations.summands import explain_ensemble, explain_summands
from glassrank.models.model import Model, TokenEmbeddings, no_gradients, to_array
from glassrank.models.text_batches import TokenFilter
from glassrank.rerank import Reranker
from glassrank.rerank.best_passages import ScoredDocs, Scoring
from glassrank.rerank.reranker import WORDS_AT_ONCE, as_doc
from glassrank.rerank.scheduler import Scheduler
from glassrank.rerank.text_candidates import TextCandidates
from glassrank.text.english import is_function_word
from glassrank.types import Doc

OTHER_PASSAGES = "other passages"
WORTH_A_COLOUR = 0.1
"""Of what the content word adds that adds most."""
FOR_PASSAGES = 0.5
"""Of the time for an explanation: to find the passage that a long document is ranked by."""


def explain_text(
    reranker: Reranker,
    query: str,
    text: str | Doc,
    *,
    doc_id: str = "",
    first_stage: float | None = None,
    words: TokenEmbeddings | None = None,
    passage: ReadPassage | None = None,
    left_out: TokenFilter | None = None,
    pieces: bool = False,
    deadline: Deadline = NEVER,
) -> Explanation:
    """Why `text` has its score for `query`. `first_stage` is the first stage's score of it, which
    counts if the model mixes it in. `words` are the text's, as a store has them, or those of its
    `passage`: then the very score is explained that they were ranked with. Of a text that is longer
    than what the model reads, the best passage is explained. What a store has `left_out` is left
    out here as well. Where a model reads pieces of words, they are joined to words again, unless
    `pieces` are asked for. An explanation that is not there by the deadline ends with a LateError.
    """
    with single_thread() if reranker.alone else nullcontext():
        doc = as_doc(text)
        if words is None and passage is None:
            passage = find_best_passage(reranker, query, doc, deadline)
        explanation = _explained(
            reranker, query, doc, doc_id, first_stage, words, passage, left_out, deadline
        )
    return _by_content(explanation if pieces else merge_subwords(explanation))


def _by_content(explanation: Explanation) -> Explanation:
    """With function words and punctuation marked as such, unless the query has nothing else, and
    document words by the content word of the query that they are closest to."""
    if all(is_function_word(word.text) for word in explanation.query.words):
        return explanation

    def described(text: Text) -> Text:
        words = (replace(word, is_content=not is_function_word(word.text)) for word in text.words)
        return replace(text, words=tuple(words))

    query, doc = described(explanation.query), described(explanation.doc)
    content = [q for q, word in enumerate(query.words) if word.is_content]
    marks = [
        _closest_content(explanation, mark, place, content)
        for place, mark in enumerate(explanation.marks)
    ]
    added = [m.share if w.is_content else 0.0 for w, m in zip(doc.words, marks, strict=True)]
    return replace(
        explanation,
        query=query,
        doc=doc,
        marks=tuple(
            replace(mark, stands_out=adds)
            for mark, adds in zip(marks, select_salient(added, WORTH_A_COLOUR), strict=True)
        ),
    )


def _closest_content(
    explanation: Explanation, mark: Mark, place: int, content: Sequence[int]
) -> Mark:
    """Where a word is closest to a function word, or to what an encoder makes of the whole query:
    the content word instead."""
    matrix = next(iter(explanation.matrices), None)
    if mark.term in content or mark.term is None or mark.similarity is None or matrix is None:
        return mark
    if matrix.values[mark.term][place] != mark.similarity:  # another member of an ensemble's
        return mark
    term = max(content, key=lambda q: matrix.values[q][place])
    similarity = matrix.values[term][place]
    centers = [signal.center for signal in explanation.signals]
    if mark.signal is None or any(center is None for center in centers):
        return replace(mark, term=term, similarity=similarity)
    signal = min(range(len(centers)), key=lambda k: abs((centers[k] or 0.0) - similarity))
    return replace(mark, term=term, similarity=similarity, signal=signal)


def _explained(
    reranker: Reranker,
    query: str,
    doc: Doc,
    doc_id: str,
    first_stage: float | None,
    words: TokenEmbeddings | None,
    passage: ReadPassage | None,
    left_out: TokenFilter | None,
    deadline: Deadline,
) -> Explanation:
    model = reranker.model
    asked, given = read(reranker, query, "query"), read_doc(reranker, doc, passage)
    ranked = reranker.encode_doc(given.batch) if words is None else words
    if left_out is not None:
        kept = left_out.kept(to_array(given.batch.ids)[0])
        given = given.only(kept)
        if words is None:
            ranked = TokenEmbeddings(*(values[:, kept] for values in ranked))
    # On a GPU, what `interact` takes of the model as it was trained is not what was ranked.
    on_cpu = reranker.device is None or reranker.device.type == "cpu"
    query_tokens = reranker.encode_query_ids(asked.batch) if on_cpu else None
    case = ScoredPair.of(
        model, asked.batch, given.batch, asked.words, given.words, ranked, query_tokens, deadline
    )
    case = replace(case, score=_score(reranker, case, None))
    findings = explain_pair(case)
    mixed = [*_first_stage(case, first_stage), *_further(passage)]
    root = ScorePart.total("score", "score", (*findings.parts, *mixed))
    asked, given = asked.cut_to(len(case.query_tokens)), given.cut_to(case.num_doc_tokens)
    return Explanation(
        query=asked.text,
        doc_id=doc_id,
        doc=given.text,
        model=model.name,
        score=_score(reranker, case, first_stage) + (passage.further if passage else 0.0),
        is_additive=findings.is_additive,
        parts=root,
        terms=_terms(root, case.query_tokens) if findings.terms is None else findings.terms,
        signals=findings.signals,
        marks=findings.marks,
        rest=(*findings.rest, *mixed),
        matrices=findings.matrices,
        notes=(
            *findings.notes,
            *_passage_notes(reranker, passage),
            *_notes(reranker, asked, given, first_stage, words),
        ),
    )


def explain_pair(case: ScoredPair) -> Attribution:
    """By the explainer that the model's properties ask for."""
    return _explainer(case.model)(case)


def _explainer(model: Model) -> Explainer:
    if model.name in EXPLAINERS:
        return EXPLAINERS[model.name]
    if model.info.is_additive:
        return explain_kernels if has_kernels(model) else explain_summands
    return explain_leave_one_out_subwords if model.info.uses_subwords else explain_leave_one_out


def _of(module: str, function: str) -> Explainer:
    """Of a family that PyTorch computes, imported when it is first asked for."""

    def explain(case: ScoredPair) -> Attribution:
        explainer: Explainer = getattr(
            import_module(f"glassrank.explanations.{module}"), f"explain_{function}"
        )
        return explainer(case)

    return explain


EXPLAINERS: dict[str, Explainer] = {
    "tk_windowed": _of("windows", "windows"),
    "pacrr": _of("gradients", "ngrams"),
    "co_pacrr": _of("gradients", "ngrams"),
    "rpacrr": _of("gradients", "ngrams"),
    "matchpyramid": _of("gradients", "pyramid"),
    "duet": _of("gradients", "duet"),
    "bert": _of("transformers", "bert"),
    "mores": _of("transformers", "mores"),
    "ensemble": lambda case: explain_ensemble(case, explain_pair),
}


def _score(reranker: Reranker, case: ScoredPair, first_stage: float | None) -> float:
    """As ranking has it, the first stage's share added in the model's own precision."""
    given: Any = None
    if first_stage is not None:
        like = case.query.mask
        given = np.full(1, first_stage, np.float32)
        given = given if isinstance(like, np.ndarray) else like.new_tensor(given)
    with no_gradients(reranker.fast_model):
        return float(reranker.fast_model.rank(case.query, case.doc, given).score.item())


def _first_stage(case: ScoredPair, first_stage: float | None) -> list[ScorePart]:
    weight = case.model.first_stage_weight
    if weight is None or first_stage is None:
        return []
    return [ScorePart(FIRST_STAGE, FIRST_STAGE, weight.item() * first_stage)]


def _further(passage: ReadPassage | None) -> list[ScorePart]:
    if passage is None or not passage.further:
        return []
    return [ScorePart(OTHER_PASSAGES, "constant", passage.further)]


def find_best_passage(
    reranker: Reranker, query: str, doc: Doc, deadline: Deadline = NEVER
) -> ReadPassage | None:
    """Of those that can be read in half of the time; None where the document is read as a whole."""
    (found,) = reranker.read([doc])
    if found.is_whole:
        return None
    encoded = reranker.encode_query(query)
    return get_passage(score_texts(reranker, encoded, [doc], due=deadline.share(FOR_PASSAGES)))


def score_texts(
    reranker: Reranker,
    query: TokenEmbeddings,
    docs: Sequence[Doc],
    first_stage: NDArray[np.float32] | None = None,
    due: Deadline = NEVER,
) -> ScoredDocs:
    """Documents, encoded live, however long it takes, with all of their passages that can be read
    in time."""
    ready = TextCandidates.of_texts(reranker, query, docs, first_stage)
    passages = reranker.usage.passages
    scoring = Scoring(ready, Scheduler(), reranker.cost, WORDS_AT_ONCE, passages)
    scoring.first(NEVER)
    scoring.further(due)
    return scoring.placed(live=True)


def get_passage(placed: ScoredDocs, place: int = 0) -> ReadPassage | None:
    """The passage that a document was ranked by, or None where it was read as a whole."""
    start, stop = placed.spans[place].tolist()
    if stop < 0:
        return None
    further, truncated = float(placed.further[place]), bool(placed.truncated[place])
    return ReadPassage(int(placed.numbers[place]), int(start), int(stop), further, truncated)


def _passage_notes(reranker: Reranker, passage: ReadPassage | None) -> Iterator[str]:
    if passage is not None:
        yield (
            f"The document is longer than the {reranker.usage.doc_length} words that the model "
            f"reads at once; what is explained is its best passage, number {passage.number + 1}"
            + (", of those that were read." if passage.truncated else ".")
        )
        if passage.further and reranker.usage.passages.first:
            yield (
                f"So much as {reranker.usage.passages.first:g} of the score is the first passage's "
                "instead: the difference is what other passages add."
            )


def _terms(root: ScorePart, words: tuple[str, ...]) -> tuple[QueryTerm, ...]:
    """What each query word added: the same parts, summed the other way."""
    paths = list(_paths(root, ""))
    by_path = [(name, _by_term(path, len(words))) for name, path in paths]
    whole = _by_term(root, len(words))
    return tuple(
        QueryTerm(q, whole[q], {name: values[q] for name, values in by_path})
        for q in range(len(words))
    )


def _paths(part: ScorePart, prefix: str) -> Iterator[tuple[str, ScorePart]]:
    for child in part.children:
        if child.kind == "path":
            yield prefix + child.name, child
        elif child.kind == "member":
            yield from _paths(child, f"{child.name}: ")


def _by_term(part: ScorePart, terms: int) -> list[float]:
    by_term: list[list[float]] = [[] for _ in range(terms)]
    waiting = [part]
    while waiting:
        part = waiting.pop()
        if part.kind == "term" and part.number is not None:
            by_term[part.number].append(part.value)
        else:
            waiting += part.children
    return [math.fsum(values) for values in by_term]


def _notes(
    reranker: Reranker,
    query: TokenizedText,
    doc: TokenizedText,
    first_stage: float | None,
    stored: TokenEmbeddings | None,
) -> Iterator[str]:
    yield from query.notes("query")
    yield from doc.notes("document")
    if reranker.model.first_stage_weight is not None and first_stage is None:
        yield "The model mixes in the first stage's score, which was not given: it is left out."
    yield from _precision(reranker, stored)
    if reranker.fast_model.info.uses_subwords and reranker.fast_model is not reranker.model:
        yield "Layers are rounded for speed: beside other documents the score's last digits differ."


def _precision(reranker: Reranker, stored: TokenEmbeddings | None) -> Iterator[str]:
    """Which of the scores that a document can have is explained, where there is more than one."""
    if stored is not None:
        yield "What is explained is the score of the document's words as the store has them."
    elif reranker.exact:
        yield "What is explained is the exact score, of unrounded layers."
    elif reranker.fast_model is not reranker.model or reranker.device is None:
        yield "What is explained is the score as ranked, of layers rounded for speed."
