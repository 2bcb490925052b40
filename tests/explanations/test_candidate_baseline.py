"""A document against those that were re-ranked with it: differences that add up, a sentence."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from explain_cases import ADDITIVE, APPROXIMATE, reranker, small_ensemble, small_ranker
from subword_cases import make_subword_ranker, make_subword_reranker

import glassrank
from glassrank.deadline import NEVER, Deadline, LateError
from glassrank.embeddings import Store, encode_index
from glassrank.explanations import Explanation, ScorePart, explain_docs
from glassrank.explanations.structure import format_number
from glassrank.index import Index
from glassrank.models import Ranker
from glassrank.models.doc_reader import join_title
from glassrank.rerank import Pipeline, Reranker
from glassrank.research.papers.ensemble import Ensemble
from glassrank.types import Doc

QUERY = "define the androgen receptor , with androgen"
TEXTS = (
    "androgen receptor binds , with hormones in cells",
    "the receptor of the cell is a protein",
    "androgen therapy is given to men with low levels",
    "doctors study how androgen levels change in the body after weeks of treatment",
    "a nuclear receptor , also known as androgen receptor : that is a type of protein",
)
NOT_FOUND = "hormones change"  # has no word of the query, and so is no candidate
SUBWORD_MODELS = ("mores", "bert", "maxsim", "kernel_bert", "single_vector")


def make_reranker(name: str) -> Reranker:
    if name in SUBWORD_MODELS:
        model = make_subword_ranker(name)
        model.mix_first_stage(0.3)
        return make_subword_reranker(model)
    if name == "ensemble":
        return reranker(small_ensemble())
    if name == "exact ensemble":
        members: list[Ranker] = [small_ranker("tk"), small_ranker("tk_windowed", 1)]
        return reranker(Ensemble(members, [(6, 14), (4, 20)]))
    model = small_ranker(name)
    model.mix_first_stage(0.3)
    return reranker(model)


@pytest.fixture
def index(tmp_path: Path) -> Index:
    docs = [Doc(str(n), text) for n, text in enumerate([*TEXTS, NOT_FOUND])]
    return Index.build(docs, tmp_path / "index")


def own_terms(explanation: Explanation) -> dict[str, float]:
    """Of each query word; a word that comes twice counts twice."""
    values: dict[str, float] = {}
    for term in explanation.terms:
        word = explanation.query.words[term.word].text
        values[word] = values.get(word, 0.0) + term.value
    return values


def told_terms(explanation: Explanation, with_first_stage: bool = True) -> dict[str, float]:
    values: dict[str, float] = {}
    assert explanation.against is not None
    waiting = [explanation.against.parts]
    while waiting:
        part = waiting.pop()
        if part.kind == "term":
            first = [child.value for child in part.children if child.name == "first stage"]
            value = part.value if with_first_stage else part.value - math.fsum(first)
            values[part.name] = values.get(part.name, 0.0) + value
        else:
            waiting += part.children
    return values


def check_sums(part: ScorePart) -> None:
    """To the last digit, at every level."""
    if part.children:
        assert part.value == math.fsum(child.value for child in part.children)
    for child in part.children:
        check_sums(child)


@pytest.mark.parametrize(
    "name", [*ADDITIVE, *APPROXIMATE, *SUBWORD_MODELS, "ensemble", "exact ensemble"]
)
def test_differences_add_up_to_the_score_less_the_mean_score(index: Index, name: str) -> None:
    pipeline = Pipeline(index, make_reranker(name), calibrate=False)
    hits = pipeline(QUERY, k=10).hits
    assert len(hits) == len(TEXTS)
    mean = math.fsum(hit.score for hit in hits) / len(hits)
    total = []
    for hit in hits:
        found = glassrank.explain(pipeline, QUERY, hit)
        against = found.against
        assert against is not None
        assert (against.docs, against.of) == (len(hits), len(hits))
        assert against.mean == pytest.approx(mean, rel=1e-5, abs=1e-5)
        difference = found.parts.value - against.mean
        size = math.fsum(abs(leaf.value) for leaf in found.parts.leaves())
        assert against.parts.value == pytest.approx(difference, rel=0, abs=1e-12 * max(1, size))
        assert format_number(against.parts.value) == format_number(difference)
        check_sums(against.parts)
        total.append(against.parts.value)
    assert math.fsum(total) == pytest.approx(0, abs=1e-4)  # the mean is of these, and no others


@pytest.mark.parametrize("name", [*ADDITIVE, "maxsim", "kernel_bert", "exact ensemble"])
@pytest.mark.parametrize("stored", [False, True])
def test_a_difference_is_the_models_own_part_less_its_mean(
    index: Index, name: str, stored: bool, tmp_path: Path
) -> None:
    ranks = make_reranker(name)
    store = None
    if stored:
        encode_index(index, ranks.saved, tmp_path / "store", "float32")
        store = Store.open(tmp_path / "store", ranks.saved.model, index.snapshot)
    pipeline = Pipeline(index, ranks, store=store, calibrate=False)
    hits = pipeline(QUERY, k=10).hits
    explanations = [glassrank.explain(pipeline, QUERY, hit) for hit in hits]
    values = [own_terms(explanation) for explanation in explanations]
    for explanation, own in zip(explanations, values, strict=True):
        assert explanation.against is not None and explanation.against.is_additive
        told = told_terms(explanation)
        for word, value in own.items():
            mean = math.fsum(other[word] for other in values) / len(values)
            assert told.get(word, 0.0) == pytest.approx(value - mean, abs=2e-5)


@pytest.mark.parametrize("name", [*APPROXIMATE, "mores", "bert", "single_vector"])
def test_without_exact_parts_words_are_left_out(index: Index, name: str) -> None:
    pipeline = Pipeline(index, make_reranker(name), calibrate=False)
    ranks = pipeline.reranker
    hits = pipeline(QUERY, k=10).hits
    found = glassrank.explain(pipeline, QUERY, hits[0])
    assert found.against is not None and not found.against.is_additive
    told = told_terms(found, with_first_stage=False)
    texts = [join_title(index.doc(hit.doc_id)) for hit in hits]
    with_it, without = (
        ranks.scores(query, texts).values.astype(float)
        for query in (QUERY, QUERY.replace("receptor ", ""))
    )
    lost = with_it - without
    assert told["receptor"] == pytest.approx(lost[0] - lost.mean(), abs=2e-2)
    assert "by leaving query words out" in str(found)


def test_content_words_come_first_the_largest_first_and_the_rest_is_context(index: Index) -> None:
    pipeline = Pipeline(index, make_reranker("tk"), calibrate=False)
    found = glassrank.explain(pipeline, QUERY, pipeline(QUERY).hits[0])
    assert found.against is not None
    kinds = [part.kind for part in found.against.parts.children]
    assert kinds == ["term"] * 4 + ["words"]
    values = [abs(part.value) for part in found.against.parts.children[:4]]
    assert values == sorted(values, reverse=True)
    context = found.against.parts.children[4]
    assert context.name == "context"
    assert sorted(part.name for part in context.children) == [",", "the", "with"]
    only = "the with of"
    found = glassrank.explain(pipeline, only, pipeline("receptor").hits[0])
    assert found.against is None  # the first stage finds nothing, so there are no others


@pytest.mark.parametrize("name", ["maxsim", "kernel_bert"])
def test_what_an_encoder_makes_of_the_whole_query_is_context(index: Index, name: str) -> None:
    """Its first and last piece are no words."""
    pipeline = Pipeline(index, make_reranker(name), calibrate=False)
    found = glassrank.explain(pipeline, QUERY, pipeline(QUERY).hits[0])
    assert found.against is not None
    (context,) = [part for part in found.against.parts.children if part.kind == "words"]
    assert context.name == "context"
    assert {part.name for part in context.children} == {"[CLS]", "[SEP]", "the", ",", "with"}
    shown = str(found)
    assert "context" in shown and "[CLS]" not in shown


@pytest.mark.parametrize("method", ["bm25", "ql"])
def test_the_first_stages_share_is_divided_among_the_words_that_it_is_a_sum_of(
    index: Index, method: str
) -> None:
    ranks = make_reranker("tk")
    pipeline = Pipeline(index, ranks, method=method, calibrate=False)
    weight = ranks.model.first_stage_weight.item()
    for hit in pipeline(QUERY, k=10):
        found = glassrank.explain(pipeline, QUERY, hit)
        (part,) = [part for part in found.parts.children if part.kind == "first stage"]
        assert hit.first_score is not None
        assert part.value == pytest.approx(weight * hit.first_score, rel=1e-6)
        check_sums(found.parts)
        for child in part.children:  # each word alone, as the index scores it; androgen is twice
            (alone,) = index.top_k([child.name], len(TEXTS), method)
            scores = dict(zip(alone.docs.tolist(), alone.scores.tolist(), strict=True))
            expected = weight * scores[index.snapshot.find(hit.doc_id)]
            assert child.value == pytest.approx(expected, rel=1e-5)
        by_word = {child.number: child.value for child in part.children}
        for term in found.terms:
            assert term.paths["first stage"] == by_word.get(term.word, 0.0)
            assert term.value == pytest.approx(math.fsum(term.paths.values()))


def test_a_first_stage_that_is_no_sum_over_words_stays_in_one_piece(index: Index) -> None:
    pipeline = Pipeline(index, make_reranker("tk"), method="bm25+rm3", calibrate=False)
    hit = pipeline(QUERY).hits[0]
    for found in (
        glassrank.explain(pipeline, QUERY, hit),
        explain_docs(
            Pipeline(index, make_reranker("tk"), calibrate=False), QUERY, ["0"], first_scores=[99.0]
        )[0],
    ):
        (part,) = [part for part in found.parts.children if part.kind == "first stage"]
        assert part.children == ()
        assert found.against is not None
        kinds = [part.kind for part in found.against.parts.children]
        assert kinds == ["term"] * 4 + ["words", "first stage"]
        check_sums(found.against.parts)


def test_the_best_of_the_others_is_named_with_what_it_lacks_or_has(index: Index) -> None:
    pipeline = Pipeline(index, make_reranker("tk"), calibrate=False)
    hits = pipeline(QUERY, k=10).hits
    for hit in hits:
        against = glassrank.explain(pipeline, QUERY, hit).against
        assert against is not None and against.above_rival is not None
        rival = hits[1] if hit is hits[0] else hits[0]
        assert against.rival == rival.doc_id
        assert against.above_rival.value == pytest.approx(hit.score - rival.score, abs=1e-4)
        check_sums(against.above_rival)
        ahead = (
            f"{rival.doc_id}, the next, " if hit is hits[0] else f"{rival.doc_id} is ahead of it"
        )
        assert ahead in against.sentence
        named = against.sentence.split(rival.doc_id)[1]
        terms = [part for part in against.above_rival.children if part.kind == "term"]
        most = max(terms, key=lambda part: part.value if hit is hits[0] else -part.value)
        assert f"“{most.name}”" in named or "as a whole" in named


def test_a_document_that_was_not_found_stands_against_those_that_were(index: Index) -> None:
    pipeline = Pipeline(index, make_reranker("tk"), calibrate=False)
    (found,) = explain_docs(pipeline, QUERY, [str(len(TEXTS))])
    assert found.against is not None and found.against.docs == len(TEXTS)
    told, without = told_terms(found), told_terms(found, with_first_stage=False)
    assert told["androgen"] < without["androgen"]  # which the first stage finds in all others


def test_a_cascade_compares_with_what_the_same_model_ranked(index: Index) -> None:
    ranks = make_reranker("tk")
    second = Reranker(replace(ranks.saved, usage=replace(ranks.saved.usage, depth=2)), exact=True)
    pipeline = Pipeline(index, [make_reranker("knrm"), second], calibrate=False)
    ranking = pipeline(QUERY, k=10)
    assert [hit.stage for hit in ranking] == [2, 2, 1, 1, 1]
    of = []
    for hit in ranking:
        against = glassrank.explain(pipeline, QUERY, hit).against
        assert against is not None
        of.append(against.docs)
    assert of == [2, 2, 5, 5, 5]


def test_models_that_rank_all_need_not_rank_to_say_who_placed_a_document(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline(index, [make_reranker("knrm"), make_reranker("tk")], calibrate=False)
    assert {hit.stage for hit in pipeline(QUERY, k=10)} == {2}
    expected = explain_docs(pipeline, QUERY, ["0"])
    monkeypatch.setattr("glassrank.explanations.hits._MAX_ENCODED", 0)
    monkeypatch.setattr(pipeline, "stream", None)
    found = explain_docs(pipeline, QUERY, ["0"])
    assert [one.model for one in found] == ["tk"] and found == expected
    (missed,) = explain_docs(pipeline, QUERY, ["5"])  # which the first stage does not find
    assert missed.model == "knrm"


def test_a_deadline_cuts_the_others_short_and_the_count_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = Index.build([Doc(str(n), TEXTS[n % 5]) for n in range(100)], tmp_path / "index")
    pipeline = Pipeline(index, make_reranker("tk"), calibrate=False)
    monkeypatch.setattr("glassrank.explanations.candidate_baseline._MAX_ENCODED", 1000)
    (found,) = explain_docs(pipeline, QUERY, ["0"])
    assert found.against is not None and (found.against.docs, found.against.of) == (100, 100)
    time = ticking(monkeypatch)
    (found,) = explain_docs(pipeline, QUERY, ["0"], deadline=Deadline(lambda: time[0], 600_000.0))
    assert found.against is not None and 0 < found.against.docs < 100 and found.against.of == 100
    assert "of the 100" in str(found)


LONG = " ".join([TEXTS[0]] * 300)


def long_docs(folder: Path, model: str) -> Pipeline:
    """Eight documents of many passages, and no store."""
    docs = [Doc(str(n), LONG) for n in range(8)]
    return Pipeline(Index.build(docs, folder / "index"), make_reranker(model), calibrate=False)


def ticking(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock of which every batch that is encoded takes a minute."""
    time = [0.0]
    encode = Reranker.encode_doc

    def encoding(self: Reranker, batch: Any, deadline: Deadline = NEVER) -> Any:
        time[0] += 60_000.0
        deadline.check("a test")  # as ONNX models do
        return encode(self, batch)

    monkeypatch.setattr(Reranker, "encode_doc", encoding)
    return time


def test_of_long_documents_few_are_encoded_to_compare_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = long_docs(tmp_path, "tk")
    passages = len(pipeline.reranker.read([Doc("", LONG)])[0].all().passages)
    assert passages > 10
    counts = []
    for most in (1, 6 * passages, 1000):
        monkeypatch.setattr("glassrank.explanations.candidate_baseline._MAX_ENCODED", most)
        (found,) = explain_docs(pipeline, QUERY, ["0"])
        assert found.against is not None
        counts.append(found.against.docs)
    assert counts[0] == 2 < counts[1] < counts[2] == 8


@pytest.mark.parametrize("model", ["tk", "exact ensemble"])
def test_a_deadline_cuts_a_long_document_short_and_a_note_says_so(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = long_docs(tmp_path, model)
    (whole,) = explain_docs(pipeline, QUERY, ["0"])
    told = " ".join(whole.notes)
    assert "its best passage, number" in told and "were read" not in told
    time = ticking(monkeypatch)
    (found,) = explain_docs(pipeline, QUERY, ["0"], deadline=Deadline(lambda: time[0], 600_000.0))
    assert "of those that were read." in " ".join(found.notes)
    assert found.against is None and found.terms
    assert time[0] < 800_000
    with pytest.raises(LateError, match="not enough time for this explanation"):
        explain_docs(pipeline, QUERY, ["0"], deadline=Deadline(lambda: 2.0, 1.0))


def test_a_text_alone_has_no_others() -> None:
    found = glassrank.explain(make_reranker("tk"), QUERY, TEXTS[0])
    assert found.against is None
    assert "Query words, raw values" in str(found)
