"""Documents longer than the model reads: the best passage counts, live and stored, in time."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "embeddings"))
from small_mores import small_bert, small_mores
from small_store import LONGEST, live_scores, small_saved

from glassrank.deadline import Deadline
from glassrank.embeddings import Store, encode_index
from glassrank.errors import InputError
from glassrank.index import Index
from glassrank.models.io.model_folder import Passages, SavedModel
from glassrank.models.model import aggregate_passages
from glassrank.rerank import Pipeline, Reranker, rank
from glassrank.rerank.candidates import CandidateGroup, PassageList
from glassrank.rerank.scheduler import CostModel, Scheduler
from glassrank.settings import from_plain
from glassrank.types import Doc

QUERY = "cat dog elk"
LATE = Doc("late", "fox gnu hen. " * 12 + "The cat, the dog and the elk. " + "Ant bee. " * 9, "jay")
"""What the query asks for stands behind what is read at once."""
SHORT = [Doc("short", "cat ant bee"), Doc("none", "ant")]


def many_docs() -> list[Doc]:
    chance = np.random.default_rng(3)
    names = ["ant", "bee", "cat", "dog", "elk", "fox.", "gnu", "hen"]
    return [
        Doc(f"d{n:02}", " ".join(chance.choice(names, chance.integers(1, 90))), "jay" * (n % 2))
        for n in range(30)
    ]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Two segments."""
    index = Index.build([LATE, *SHORT, *many_docs()[:20]], tmp_path_factory.mktemp("p") / "index")
    index.add(many_docs()[20:])
    return index


def with_passages(saved: SavedModel, **settings: float) -> SavedModel:
    how = from_plain(Passages, settings, "passages")
    return replace(saved, usage=replace(saved.usage, passages=how))


def scores(pipeline: Pipeline, query: str = QUERY) -> dict[str, float]:
    numbers = np.arange(len(pipeline.index))
    found = pipeline.rerank(query, numbers, np.zeros(len(numbers)))
    return {hit.doc_id: hit.score for hit in found}


@pytest.mark.parametrize(
    "saved",
    [
        small_saved("tk"),
        small_saved("conv_knrm"),
        small_saved("knrm"),
        small_saved("tk+knrm"),
        with_passages(small_saved("tk"), overlap=4),
        with_passages(small_saved("tk"), best=3),
        with_passages(small_saved("tk"), first=0.5),
        small_mores(),
        small_mores(doc_words=12),
    ],
    ids="tk conv_knrm knrm ensemble overlap best first mores words-and-pieces".split(),
)
def test_stored_passages_have_the_scores_of_live_ones(
    index: Index, saved: SavedModel, tmp_path: Path
) -> None:
    encode_index(index, saved, tmp_path / "store", "float32")
    store = Store.open(tmp_path / "store", saved.model, index.snapshot)
    reranker = Reranker(saved, exact=True)
    stored = scores(Pipeline(index, reranker, store=store, calibrate=False))
    live = scores(Pipeline(index, reranker, use_store=False, calibrate=False))
    own = reranker.scores(QUERY, list(index.docs())).values
    for doc, value in zip(index.docs(), own, strict=True):
        assert stored[doc.doc_id] == pytest.approx(live[doc.doc_id], rel=1e-4, abs=1e-5)
        assert live[doc.doc_id] == pytest.approx(value, rel=1e-4, abs=1e-5)


def test_a_model_that_reads_both_texts_as_one_reads_passages_too(index: Index) -> None:
    reranker = Reranker(small_bert(), exact=True)
    cut = Reranker(with_passages(small_bert(), most=1), exact=True)
    docs = list(index.docs())
    best, first = reranker.scores(QUERY, docs).values, cut.scores(QUERY, docs).values
    lengths = [len(doc.passages) for doc in (d.all() for d in reranker.read(docs))]
    whole = np.array(lengths) == 1
    assert whole.any()
    np.testing.assert_allclose(best[whole], first[whole], rtol=1e-5)
    assert np.mean(best[~whole] != first[~whole]) > 0.5


def test_the_best_passage_is_the_score_and_the_hit_says_where_it_stands(index: Index) -> None:
    saved = small_saved("tk")
    pipeline = Pipeline(index, Reranker(saved, exact=True), use_store=False, calibrate=False)
    hits = {hit.doc_id: hit for hit in pipeline(QUERY, k=50)}
    start, stop = hits["late"].passage
    part = hits["late"].text[start:stop]
    assert part in LATE.text
    alone = live_scores(saved, QUERY, [Doc("", part, "jay")])[0]
    assert hits["late"].score == pytest.approx(alone, rel=1e-4)
    assert not hits["late"].truncated
    assert hits["short"].passage is None
    assert hits["late"].to_dict()["passage"] == (start, stop)


def test_documents_that_fit_are_ranked_as_if_nothing_were_divided(tmp_path: Path) -> None:
    """To the last bit, stored and live."""
    docs = [Doc(doc.doc_id, " ".join(doc.text.split()[:9]), doc.title) for doc in many_docs()]
    index = Index.build(docs, tmp_path / "index")
    found = []
    for most in (1, 64):
        saved = with_passages(small_saved("tk"), most=most)
        encode_index(index, saved, tmp_path / str(most))
        store = Store.open(tmp_path / str(most), saved.model, index.snapshot)
        for how in ({"store": store}, {"use_store": False}):
            found.append(scores(Pipeline(index, Reranker(saved), calibrate=False, **how)))
    assert found[0] == found[2]
    assert found[1] == found[3]


def test_what_is_still_cut_is_told(index: Index, tmp_path: Path) -> None:
    saved = with_passages(small_saved("tk"), most=2)
    report = encode_index(index, saved, tmp_path / "store")
    store = Store.open(tmp_path / "store", saved.model, index.snapshot)
    for how in ({"store": store}, {"use_store": False}):
        pipeline = Pipeline(index, Reranker(saved), calibrate=False, **how)
        ranking = pipeline(QUERY, k=50)
        truncated = {hit.doc_id for hit in ranking if hit.truncated}
        assert "late" in truncated
        assert not {"short", "none"} & truncated
        assert all(
            hit["truncated"] == (hit["doc_id"] in truncated) for hit in ranking.to_json()["hits"]
        )
    found = Pipeline(index, Reranker(saved), use_store=False, calibrate=False).rerank(
        QUERY, np.arange(len(index)), np.zeros(len(index))
    )
    assert report.cut == sum(hit.truncated for hit in found)


class SetClock:
    time = 0.0

    def __call__(self) -> float:
        return self.time


class Counted:
    """Documents of known passages; every passage takes one millisecond."""

    is_interruptible = encodes = False
    max_chunk = 1e9

    def __init__(self, clock: "SetClock", values: Sequence[Sequence[float]]) -> None:
        self._clock, self._all = clock, values
        self.cost = CostModel(0.0, 1.0)
        self.first_stage = np.zeros(len(values), np.float32)
        self.order: list[tuple[int, int]] = []
        self._round = 0

    def first_passages(self, number: int = 0, depth: int | None = None) -> PassageList:
        docs = [doc for doc, own in enumerate(self._all[:depth]) if len(own) > number]
        return PassageList(np.array(docs, np.int64), np.full(len(docs), number), np.ones(len(docs)))

    def further_passages(self, docs: int) -> PassageList | None:
        self._round += 1
        some = self.first_passages(self._round, docs)
        return some if len(some.docs) else None

    def score(self, passages: PassageList, deadline: Deadline) -> np.ndarray:
        pairs = list(zip(passages.docs.tolist(), passages.numbers.tolist(), strict=True))
        self.order += pairs
        self._clock.time += len(pairs)
        return np.array([self._all[doc][number] for doc, number in pairs], np.float32)

    def spans(self, docs: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        return np.stack([numbers, numbers + 1], 1)

    def is_cut(self, docs: int) -> np.ndarray:
        return np.zeros(docs, np.bool_)


@pytest.mark.parametrize("budget", [2.5, 4.5, 7.5, 20.0])
def test_every_document_is_looked_at_once_before_any_is_looked_at_again(budget: float) -> None:
    clock = SetClock()
    values = [[1.0, 5.0, 2.0], [3.0], [2.0, 1.0, 9.0], [0.0, 4.0]]
    counted = Counted(clock, values)
    group, scheduler = CandidateGroup(counted), Scheduler(clock)
    deadline = Deadline.after(budget, clock)
    group.score_first(scheduler, deadline)
    group.score_further(scheduler, deadline)
    scored = group.scored_docs(Passages())
    assert clock.time <= budget
    assert len(counted.order) == min(int(budget), 9)
    assert counted.order == sorted(counted.order, key=lambda pair: (pair[1], pair[0]))
    for doc in scored.places.tolist():
        read = [values[doc][number] for own, number in counted.order if own == doc]
        assert scored.scores[doc] == max(read)
        assert scored.passages[doc] == int(np.argmax(read))
        assert scored.truncated[doc] == (len(read) < len(values[doc]))


def test_the_first_stage_counts_once() -> None:
    values, docs = np.array([3, 7, 2, 5], np.float32), np.array([0, 1, 0, 0])
    shares = np.array([1, 2], np.float32)
    found = aggregate_passages(values, docs, shares, best=2)
    assert found.scores.tolist() == [5 + 3 - 1, 7]
    assert found.passages.tolist() == [3, 1]


def test_a_part_of_the_score_is_the_first_passages(index: Index) -> None:
    """From only the first passage to only the best one, and never where there is one alone."""
    docs = list(index.docs())
    begin, best, half = (
        Reranker(with_passages(small_saved("tk"), **how), exact=True).scores(QUERY, docs).values
        for how in ({"first": 1}, {}, {"first": 0.5})
    )
    np.testing.assert_allclose(half, (begin + best) / 2, rtol=1e-5)
    whole = np.array([doc.is_whole for doc in Reranker(small_saved("tk")).read(docs)])
    assert (best[~whole] > begin[~whole]).any() and (best[whole] == begin[whole]).all()
    firsts = [Doc("", doc.texts[0]) for doc in Reranker(small_saved("tk")).read(docs)]
    np.testing.assert_allclose(begin, live_scores(small_saved("tk"), QUERY, firsts), rtol=1e-4)
    with pytest.raises(InputError, match=r"passages\.first: expected a number from 0 to 1"):
        Passages(first=1.5)


def test_titles_of_given_texts_stand_before_each_passage() -> None:
    reranker = Reranker(small_saved("tk"))
    text = {"title": "cat dog", "text": "fox gnu hen. " * 12}
    (hit,) = rank(QUERY, [text], model=reranker)
    assert hit.passage is not None
    ids = [
        p.ids.tolist() for p in reranker.read([Doc("", text["text"], "cat dog")])[0].all().passages
    ]
    assert len(ids) > 1
    assert all(own[:2] == ids[0][:2] and len(own) <= LONGEST for own in ids)


def test_a_title_leaves_half_of_the_room() -> None:
    reranker = Reranker(small_saved("tk"))
    (read,) = reranker.read([Doc("", "fox gnu hen " * 20, "cat " * 50)])
    read.all()
    assert all(len(passage.ids) <= LONGEST for passage in read.passages)
    assert len(read.passages) == -(-60 // (LONGEST - LONGEST // 2))
