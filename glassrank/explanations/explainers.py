"""Explains one document's score. Additive models are explained by their kernels or by the summands
that they declare, others, approximately, by ablation; `EXPLAINERS` has families with their own.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.threads import single_thread
from glassrank.deadline import NEVER, Deadline, late_error
from glassrank.explanations.attribution import Attribution, Explainer, ScoredPair
from glassrank.explanations.explanation import Explanation
from glassrank.explanations.kernels import explain_kernels, has_kernels
from glassrank.explanations.leave_one_out import (
    explain_leave_one_out,
    explain_leave_one_out_subwords,
    select_salient,
)
from glassrank.explanations.reading import ReadPassage, read, read_doc
from glassrank.explanations.structure import (
    FIRST_STAGE,
    Mark,
    QueryTerm,
    ScorePart,
    Text,
)
from glassrank.explanations.subword_merging import merge_subwords
from glassrank.explanations.summands import explain_summands
from glassrank.models.model import TokenEmbeddings, no_gradients, to_array
from glassrank.models.text_batches import TokenFilter
from glassrank.rerank import Reranker
from glassrank.rerank.candidates import CandidateGroup, ScoredDocs
from glassrank.rerank.reranker import as_doc
from glassrank.rerank.scheduler import Scheduler
from glassrank.rerank.text_scorer import TextScorer
from glassrank.text.english import is_function_word
from glassrank.types import Doc

OTHER_PASSAGES = "other passages"
MIN_COLOURED_SHARE = 0.1
"""Of what the strongest content word adds: words that add less get no colour."""
PASSAGE_TIME_SHARE = 0.5
"""Of the time for an explanation: to find the passage that a long document is ranked by."""


def explain_text(
    reranker: Reranker,
    query: str,
    text: str | Doc,
    *,
    doc_id: str = "",
    first_stage: float | None = None,
    embeddings: TokenEmbeddings | None = None,
    passage: ReadPassage | Literal["best"] | None = "best",
    left_out: TokenFilter | None = None,
    subwords: bool = False,
    deadline: Deadline = NEVER,
) -> Explanation:
    """Why `text` has its score for `query`.

    `first_stage` is the first stage's score, which counts if the model interpolates it.
    `embeddings` are those of the text, or of its `passage`, in a store: the explained score is then
    the one that the stored document was ranked with. `left_out` are the tokens that the store does
    not keep. Of a text that is longer than the model reads, the best passage is explained; None
    stands for the whole text. Subwords are merged to words, unless `subwords` is true. Raises a
    LateError at the deadline.
    """
    doc, model = as_doc(text), reranker.model
    with single_thread() if reranker.is_deterministic else nullcontext():
        if passage == "best":
            stored = embeddings is not None  # of the whole text
            passage = None if stored else find_best_passage(reranker, query, doc, deadline)
        query_text, doc_text = read(reranker, query, "query"), read_doc(reranker, doc, passage)
        ranked = reranker.encode_doc(doc_text.batch) if embeddings is None else embeddings
        if left_out is not None:
            kept = left_out.kept(to_array(doc_text.batch.ids)[0])
            doc_text = doc_text.only(kept)
            if embeddings is None:
                ranked = TokenEmbeddings(*(values[:, kept] for values in ranked))
        # On a GPU, what `interact` takes of the model as it was trained is not what was ranked.
        on_cpu = reranker.device is None or reranker.device.type == "cpu"
        pair = ScoredPair.of(
            model,
            query_text.batch,
            doc_text.batch,
            query_text.words,
            doc_text.words,
            ranked,
            reranker.encode_query_ids(query_text.batch) if on_cpu else None,
            deadline,
        )
        attribution = explain_pair(replace(pair, score=_score(reranker, pair, None)))
        score = _score(reranker, pair, first_stage)
    added = []
    if model.first_stage_weight is not None and first_stage is not None:
        value = model.first_stage_weight.item() * first_stage
        added.append(ScorePart(FIRST_STAGE, FIRST_STAGE, value))
    if passage is not None and passage.further:
        added.append(ScorePart(OTHER_PASSAGES, "constant", passage.further))
    root = ScorePart.total("score", "score", (*attribution.parts, *added))
    query_text = query_text.cut_to(len(pair.query_tokens))
    doc_text = doc_text.cut_to(pair.num_doc_tokens)
    terms = attribution.terms
    explanation = Explanation(
        query=query_text.text,
        doc_id=doc_id,
        doc=doc_text.text,
        model=model.name,
        score=score + (passage.further if passage else 0.0),
        is_additive=attribution.is_additive,
        parts=root,
        terms=_sum_terms(root, len(pair.query_tokens)) if terms is None else terms,
        signals=attribution.signals,
        marks=attribution.marks,
        rest=(*attribution.rest, *added),
        matrices=attribution.matrices,
        notes=(
            *attribution.notes,
            *_passage_notes(reranker, passage),
            *query_text.notes("query"),
            *doc_text.notes("document"),
            *_score_notes(reranker, first_stage, is_stored=embeddings is not None),
        ),
    )
    return _mark_content(explanation if subwords else merge_subwords(explanation))


def _mark_content(explanation: Explanation) -> Explanation:
    """Marks content words, and assigns document words to the closest of the query."""
    if all(is_function_word(word.text) for word in explanation.query.words):
        return explanation

    def mark_words(text: Text) -> Text:
        words = (replace(word, is_content=not is_function_word(word.text)) for word in text.words)
        return replace(text, words=tuple(words))

    query, doc = mark_words(explanation.query), mark_words(explanation.doc)
    content = [q for q, word in enumerate(query.words) if word.is_content]
    marks = [
        _find_closest_content(explanation, mark, place, content)
        for place, mark in enumerate(explanation.marks)
    ]
    added = [m.share if w.is_content else 0.0 for w, m in zip(doc.words, marks, strict=True)]
    salient = zip(marks, select_salient(added, MIN_COLOURED_SHARE), strict=True)
    marked = tuple(replace(mark, stands_out=adds) for mark, adds in salient)
    return replace(explanation, query=query, doc=doc, marks=marked)


def _find_closest_content(
    explanation: Explanation, mark: Mark, place: int, content: Sequence[int]
) -> Mark:
    """Replaces a function word, or [CLS], as a word's closest query word by a content word."""
    matrix = next(iter(explanation.matrices), None)
    if mark.term in content or mark.term is None or mark.similarity is None or matrix is None:
        return mark
    if matrix.values[mark.term][place] != mark.similarity:  # of another member of an ensemble
        return mark
    term = max(content, key=lambda q: matrix.values[q][place])
    similarity = matrix.values[term][place]
    centers = [signal.center for signal in explanation.signals]
    if mark.signal is None or any(center is None for center in centers):
        return replace(mark, term=term, similarity=similarity)
    signal = min(range(len(centers)), key=lambda k: abs((centers[k] or 0.0) - similarity))
    return replace(mark, term=term, similarity=similarity, signal=signal)


def explain_pair(pair: ScoredPair) -> Attribution:
    """Applies the explainer that fits the model."""
    model = pair.model
    if model.name in EXPLAINERS:
        return EXPLAINERS[model.name](pair)
    if model.info.is_additive:
        return (explain_kernels if has_kernels(model) else explain_summands)(pair)
    explain = explain_leave_one_out_subwords if model.info.uses_subwords else explain_leave_one_out
    return explain(pair)


def _load_explainer(module: str, function: str) -> Explainer:
    """An explainer of a paper's model, imported when it is first called: it needs PyTorch."""

    def explain(pair: ScoredPair) -> Attribution:
        papers = import_module(f"glassrank.research.papers.explainers.{module}")
        explainer: Explainer = getattr(papers, function)
        return explainer(pair)

    return explain


EXPLAINERS: dict[str, Explainer] = {
    "tk_windowed": _load_explainer("windows", "explain_windows"),
    "tkl": _load_explainer("regions", "explain_regions"),
    **dict.fromkeys(
        ("pacrr", "co_pacrr", "rpacrr"), _load_explainer("gradients", "explain_ngrams")
    ),
    "matchpyramid": _load_explainer("gradients", "explain_pyramid"),
    "duet": _load_explainer("gradients", "explain_duet"),
    "bert": _load_explainer("transformers", "explain_bert"),
    "mores": _load_explainer("transformers", "explain_mores"),
    "ensemble": _load_explainer("members", "explain_ensemble"),
}


def _score(reranker: Reranker, pair: ScoredPair, first_stage: float | None) -> float:
    """The ranked score, with the first stage's share added in the model's precision."""
    first_scores: Any = None
    if first_stage is not None:
        like = pair.query.mask
        first_scores = np.full(1, first_stage, np.float32)
        if not isinstance(like, np.ndarray):
            first_scores = like.new_tensor(first_scores)
    with no_gradients(reranker.fast_model):
        return float(reranker.fast_model.rank(pair.query, pair.doc, first_scores).score.item())


def find_best_passage(
    reranker: Reranker, query: str, doc: Doc, deadline: Deadline = NEVER
) -> ReadPassage | None:
    """The best passage that is read in half of the time; None if the model reads the whole text."""
    (found,) = reranker.read([doc])
    if found.is_whole:
        return None
    deadline = deadline.share(PASSAGE_TIME_SHARE)
    return get_passage(
        score_texts(reranker, reranker.encode_query(query), [doc], deadline=deadline)
    )


def score_texts(
    reranker: Reranker,
    query: TokenEmbeddings,
    docs: Sequence[Doc],
    first_stage: NDArray[np.float32] | None = None,
    deadline: Deadline = NEVER,
    abort_at: Deadline = NEVER,
) -> ScoredDocs:
    """Scores all first passages, then further ones until the deadline."""
    group = CandidateGroup(TextScorer.of_texts(reranker, query, docs, first_stage))
    scheduler = Scheduler()
    group.score_first(scheduler, NEVER, abort_at)
    group.score_further(scheduler, deadline, abort_at)
    scored = group.scored_docs(reranker.usage.passages)
    if len(scored.scores) < len(docs):  # the scheduler stops before a chunk that would be late
        raise late_error("these texts")
    return scored


def get_passage(scored: ScoredDocs, place: int = 0) -> ReadPassage | None:
    """The passage that a document was ranked by; None if the model read the whole text."""
    start, stop = scored.spans[place].tolist()
    if stop < 0:
        return None
    further, truncated = float(scored.further[place]), bool(scored.truncated[place])
    return ReadPassage(int(scored.passages[place]), int(start), int(stop), further, truncated)


def _passage_notes(reranker: Reranker, passage: ReadPassage | None) -> Iterator[str]:
    if passage is None:
        return
    yield (
        f"The document is longer than the {reranker.usage.doc_length} words that the model reads "
        f"at once: this explains its best passage, number {passage.number + 1}"
        + (", of those that were read." if passage.truncated else ".")
    )
    if passage.further and reranker.usage.passages.first:
        yield (
            f"The first passage counts for {reranker.usage.passages.first:g} of the score: the "
            "difference is in what other passages add."
        )


def _sum_terms(root: ScorePart, count: int) -> tuple[QueryTerm, ...]:
    by_path = [(name, _sum_by_term(path, count)) for name, path in _paths(root, "")]
    whole = _sum_by_term(root, count)
    return tuple(
        QueryTerm(q, whole[q], {name: values[q] for name, values in by_path}) for q in range(count)
    )


def _paths(part: ScorePart, prefix: str) -> Iterator[tuple[str, ScorePart]]:
    for child in part.children:
        if child.kind == "path":
            yield prefix + child.name, child
        elif child.kind == "member":
            yield from _paths(child, f"{child.name}: ")


def _sum_by_term(part: ScorePart, terms: int) -> list[float]:
    by_term: list[list[float]] = [[] for _ in range(terms)]
    waiting = [part]
    while waiting:
        part = waiting.pop()
        if part.kind == "term" and part.number is not None:
            by_term[part.number].append(part.value)
        else:
            waiting += part.children
    return [math.fsum(values) for values in by_term]


def _score_notes(
    reranker: Reranker, first_stage: float | None, *, is_stored: bool
) -> Iterator[str]:
    """Which of the scores that a document can have is explained, where there is more than one."""
    if reranker.model.first_stage_weight is not None and first_stage is None:
        yield "The model adds the first stage's score, which was not given: it is left out."
    is_rounded = reranker.fast_model is not reranker.model
    if is_stored:
        yield "This explains the score of the document's embeddings in the store."
    elif reranker.exact:
        yield "This explains the exact score, of unrounded layers."
    elif is_rounded or reranker.device is None:
        yield "This explains the score as ranked, of layers that are rounded for speed."
    if reranker.fast_model.info.uses_subwords and is_rounded:
        yield "Layers are rounded for speed: beside other documents the score's last digits differ."
