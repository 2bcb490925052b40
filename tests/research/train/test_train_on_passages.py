"""Training on passages: those of the served model, drawn from their document; the best counts."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_run import tiny_config, tiny_prepared

sys.path.append(str(Path(__file__).parents[2] / "embeddings"))
from small_mores import COMMON, small_mores

import glassrank.research.train.validate as validating
from glassrank.corpus import read_docs, read_queries
from glassrank.errors import InputError
from glassrank.models.doc_reader import join_title
from glassrank.models.io.model_folder import SavedModel, Usage
from glassrank.models.io.torch_files import save_model
from glassrank.rerank import Reranker
from glassrank.research.evaluate import evaluate
from glassrank.research.train.adapt import adapt
from glassrank.research.train.batches import Sampler, SplitTensors, Tokens
from glassrank.research.train.build import build_model
from glassrank.research.train.config import SamplerConfig, TrainConfig
from glassrank.research.train.config_files import preparation_settings
from glassrank.research.train.distributed import Team
from glassrank.research.train.experiment import experiment
from glassrank.research.train.loop import train
from glassrank.research.train.prepare import prepare
from glassrank.research.train.prepared import Prepared, Split
from glassrank.research.train.prepared_folders import load_prepared, save_prepared
from glassrank.research.train.training_texts import read_collections
from glassrank.research.train.validate import make_runs, score_candidates
from glassrank.settings import from_plain
from glassrank.types import Doc, Run

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of one word to sixty, some with titles; what a query asks for may stand late."""
    folder = tmp_path_factory.mktemp("passages")
    rng = np.random.default_rng(5)
    numbers = range(10, 40)  # as they stand in an index, too
    rows, queries, qrels = [], [], []
    for number in numbers:
        words = rng.choice(COMMON, rng.choice([1, 7, 20, 50])).tolist()
        asked = [f"{word}." if place % 7 == 6 else word for place, word in enumerate(words)]
        title = "of the " + str(rng.choice(COMMON)) if number % 3 == 0 else ""
        rows.append({"id": f"d{number}", "title": title, "text": " ".join(asked)})
        if number < 28:
            queries.append(f"q{number}\t{' '.join(words[-4:])}\n")
            qrels.append(f"q{number} 0 d{number} {1 + number % 2}\nq{number} 0 d39 0\n")
    (folder / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, part in (("train", slice(0, 15)), ("dev", slice(15, 18)), ("all", slice(12, 18))):
        (folder / f"{name}.tsv").write_text("".join(queries[part]))
        (folder / f"{name}.qrels").write_text("".join(qrels[part]))
    for name, doc_words in (("mores", None), ("mores-words", 9)):
        saved = small_mores(doc_words=doc_words)
        save_model(folder / name, saved.model, saved.usage, saved.vocabulary, "")
    return folder


COLLECTION = {
    "name": "words", "docs": "docs.jsonl", "train_queries": "train.tsv",
    "train_qrels": "train.qrels", "dev_queries": "dev.tsv", "dev_qrels": "dev.qrels",
}  # fmt: skip
KNRM: dict[str, object] = {
    "model": "knrm",
    "vectors": {"size": 8, "min_count": 1, "whole_documents": True},
}
MORES: dict[str, object] = {"model": "mores", "start": {"model": "mores"}, "doc_length": 14}
MODELS: dict[str, dict[str, object]] = {
    "knrm": KNRM,
    "overlap": {**KNRM, "passages": {"overlap": 5}},
    "few passages": {**KNRM, "passages": {"most": 2}},
    "the best two": {**KNRM, "passages": {"best": 2}, "first_stage_weight": True},
    "first stage": {**KNRM, "first_stage_weight": True},
    "no stop words": {**KNRM, "remove_stop_words": True},
    "mores": MORES,
    "pieces and words": {**MORES, "start": {"model": "mores-words"}},
}


def config(**changes: object) -> TrainConfig:
    plain = {
        "out": "out",
        "prepared": "prepared",
        "query_length": 12,
        "doc_length": 14,
        "collections": [COLLECTION],
        "candidates": {"train_depth": 10, "dev_depth": 8},
        "sampler": {"batch": 8, "negatives": 2},
        "optimizer": {"steps": 6, "rest": 0.01, "vectors": 0.01, "contextual": 0.01},
        "validation": {"every": 3},
        "train_on": "passages",
        **changes,
    }
    return from_plain(TrainConfig, plain)


PREPARED: dict[str, Prepared] = {}


def prepared_for(run: TrainConfig, base: Path) -> Prepared:
    """Arrays, which are made once for the same settings."""
    if (settings := repr(run)) not in PREPARED:
        PREPARED[settings] = prepare(run, read_collections(run, base), base)
    return PREPARED[settings]


def served(run: TrainConfig, prepared: Prepared, base: Path) -> Reranker:
    """The untrained model as a folder would have it."""
    model = build_model(run, prepared, base)
    if model.first_stage_weight is not None:
        model.first_stage_weight.data.fill_(0.3)
    usage = Usage(
        run.query_length,
        run.doc_length,
        passages=run.passages,
        remove_stop_words=run.remove_stop_words,
    )
    return Reranker(SavedModel(model.eval(), usage, prepared.words), exact=True)


def scored(run: TrainConfig, prepared: Prepared, split: Split, model: object) -> np.ndarray:
    data = SplitTensors.of(
        split, Tokens.of(prepared.docs, run.doc_length, CPU), run.query_length, CPU
    )
    return score_candidates(model, data, np.arange(len(split.queries)))  # type: ignore[arg-type]


def docs_of(base: Path) -> list[Doc]:
    return list(read_docs(str(base / "docs.jsonl")))


def passages_of(prepared: Prepared, doc: int) -> list[list[int]]:
    assert prepared.passages is not None
    first, last = prepared.passages.offsets[doc : doc + 2].tolist()
    return [prepared.docs[number].tolist() for number in range(first, last)]


# What is read


@pytest.mark.parametrize("name", MODELS)
def test_passages_are_those_that_the_served_model_reads(name: str, base: Path) -> None:
    run = config(**MODELS[name])
    prepared = prepared_for(run, base)
    reader, counts = served(run, prepared, base), []
    for number, doc in enumerate(docs_of(base)):
        (read,) = reader.read([doc])
        passages = [passage.ids.tolist() for passage in read.all().passages]
        assert passages_of(prepared, number) == passages
        counts.append(len(passages))
    assert min(counts) == 1 and max(counts) == (2 if name == "few passages" else max(counts)) > 1
    assert prepared.doc_count == 30 and prepared.description["docs"] == 30


@pytest.mark.parametrize("whole", [True, False])
def test_what_is_rare_is_counted_in_documents(whole: bool, base: Path) -> None:
    run = config(**KNRM, passages={"overlap": 5})
    run = replace(run, vectors=replace(run.vectors, whole_documents=whole))
    prepared = prepared_for(run, base)
    texts = [join_title(doc).lower().replace(".", " ").split() for doc in docs_of(base)]
    for word in COMMON:
        frequency = sum(word in text for text in texts)
        rarity = prepared.idf[prepared.words.index(word)]
        assert rarity == pytest.approx(np.log(30 / frequency), rel=1e-6)


# How documents are scored


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.long
def test_a_document_has_the_score_of_the_served_model_to_the_last_bit(
    name: str, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validating, "_BATCH_PAIRS", 1)  # as `exact` has it: each by itself
    run = config(**MODELS[name])
    prepared = prepared_for(run, base)
    reranker, docs = served(run, prepared, base), docs_of(base)
    scores = scored(run, prepared, prepared.dev, reranker.model)
    for number, query in enumerate(read_queries(str(base / "dev.tsv"))):
        part = slice(*prepared.dev.docs.offsets[number : number + 2].tolist())
        candidates = [docs[doc] for doc in prepared.dev.docs[number]]
        first_stage = prepared.dev.first_stage[part].tolist()
        expected = reranker.scores(query.text, candidates, first_stage).values
        assert scores[part].dtype == expected.dtype == np.float32
        assert scores[part].tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", ["knrm", "first stage", "mores"])
def test_documents_that_fit_have_the_scores_they_had(
    name: str, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validating, "_BATCH_PAIRS", 1)
    run = config(**MODELS[name])
    plain = replace(run, train_on="beginnings")
    divided, cut = prepared_for(run, base), prepared_for(plain, base)
    model = served(run, divided, base).model
    scores, before = (scored(run, arrays, arrays.dev, model) for arrays in (divided, cut))
    assert divided.passages is not None
    fits = (np.diff(divided.passages.offsets) == 1)[divided.dev.docs.values]
    assert 0.1 < fits.mean() < 0.9
    assert divided.words == cut.words  # so that ids are the same
    assert scores[fits].tobytes() == before[fits].tobytes()
    assert (scores[~fits] != before[~fits]).mean() > 0.5


@pytest.mark.long
def test_where_all_documents_fit_training_is_what_it_was(base: Path, tmp_path: Path) -> None:
    run = config(**KNRM, doc_length=80)
    trained = [
        train(each, prepared_for(each, base), tmp_path / each.train_on, base=base)
        for each in (run, replace(run, train_on="beginnings"))
    ]
    first, second = (each.model.state_dict() for each in trained)
    assert first.keys() == second.keys() and all(torch.equal(first[n], second[n]) for n in first)
    assert trained[0].progress.history == trained[1].progress.history


@pytest.mark.parametrize("best", [1, 2])
def test_a_document_is_as_good_as_its_best_passages(best: int, base: Path) -> None:
    run = config(**KNRM, passages={"best": best})
    prepared = prepared_for(run, base)
    assert prepared.passages is not None
    model = served(run, prepared, base).model
    whole = scored(run, prepared, prepared.dev, model)
    for place in range(0, len(whole), 7):
        query, doc = prepared.dev.docs.row_ids[place], prepared.dev.docs.values[place]
        texts = np.arange(*prepared.passages.offsets[doc : doc + 2]).astype(np.int32)
        each = replace(
            prepared.dev.select(np.array([query])),
            docs=type(prepared.docs)(np.array([0, len(texts)]), texts),
            first_stage=np.zeros(len(texts), np.float32),
            grades=np.zeros(len(texts), np.int32),
            passages=None,
        )
        values = sorted(scored(run, prepared, each, model).tolist())
        assert whole[place] == pytest.approx(sum(values[-best:]), rel=1e-5)


# What is drawn


def test_a_passage_is_drawn_from_its_document_and_every_one_is(base: Path) -> None:
    prepared = prepared_for(config(**KNRM), base)
    split, passages = prepared.train, prepared.passages
    assert passages is not None
    sampler = Sampler(split, SamplerConfig(batch=400, negatives=3), seed=1)
    batch = sampler.batch(3)
    assert batch.passages is not None
    docs = split.docs.values[batch.candidates]
    assert (split.grades[batch.candidates[:, 0]] > 0).all()
    assert (passages.offsets[docs] <= batch.passages).all()
    assert (batch.passages < passages.offsets[docs + 1]).all()
    drawn = set(zip(docs.ravel().tolist(), batch.passages.ravel().tolist(), strict=True))
    for doc in np.unique(docs).tolist():
        for text in range(*passages.offsets[doc : doc + 2].tolist()):
            assert (doc, text) in drawn
    assert np.array_equal(batch.passages, sampler.batch(3).passages)  # a run that goes on
    without = Sampler(
        replace(split, passages=None), SamplerConfig(batch=400, negatives=3), seed=1
    ).batch(3)
    assert without.passages is None and np.array_equal(without.candidates, batch.candidates)
    shares = [Team(rank, 3).share(batch) for rank in range(3)]
    for rank, share in enumerate(shares):
        assert np.array_equal(share.passages, batch.passages[rank::3])  # type: ignore[arg-type]


def test_a_step_reads_what_was_drawn_with_its_documents_grade(base: Path) -> None:
    run = config(**KNRM)
    prepared = prepared_for(run, base)
    data = SplitTensors.of(
        prepared.train, Tokens.of(prepared.docs, run.doc_length, CPU), run.query_length, CPU
    )
    batch = Sampler(prepared.train, run.sampler, seed=1).batch(0)
    assert batch.passages is not None
    examples = data.examples(batch)
    for row, text in enumerate(batch.passages.ravel().tolist()):
        assert examples.doc.ids[row][examples.doc.mask[row] > 0].tolist() == list(
            prepared.docs[text]
        )
    grades = prepared.train.grades[batch.candidates].clip(min=0)
    assert np.array_equal(examples.grades.numpy(), grades) and grades.max() == 2


# What comes of it


def ranked(run: TrainConfig, prepared: Prepared, base: Path, reranker: Reranker) -> Run:
    """What the served model makes of the candidates of all queries."""
    docs, rows = docs_of(base), []
    for number, query in enumerate(read_queries(str(base / "all.tsv"))):
        part = slice(*prepared.train.docs.offsets[number : number + 2].tolist())
        listed = [
            doc
            for doc, rank in zip(
                prepared.train.docs[number].tolist(), prepared.train.ranks[part], strict=True
            )
            if rank
        ]
        scores = reranker.scores(query.text, [docs[doc] for doc in listed]).values
        rows.append((str(number), [str(doc) for doc in listed], scores.astype(float)))
    return Run.from_rows(rows)


@pytest.mark.long
def test_adaptation_counts_best_passages(base: Path, tmp_path: Path) -> None:
    whole = {**COLLECTION, "train_queries": "all.tsv", "train_qrels": "all.qrels"}
    for name in ("dev_queries", "dev_qrels"):
        del whole[name]
    run = config(**MORES, collections=[whole], folds={"count": 3})
    prepared = prepared_for(run, base)
    adapted = adapt(run, prepared, tmp_path, modes=["none"], base=base)
    qrels = make_runs(prepared.train, np.arange(6), np.zeros(len(prepared.train.grades)))[2]
    expected = evaluate(
        ranked(run, prepared, base, served(run, prepared, base)), qrels, ["nDCG@10"]
    )
    assert adapted.modes["none"].mean["nDCG@10"] == pytest.approx(expected.mean["nDCG@10"])
    cut = adapt(
        replace(run, train_on="beginnings"),
        prepared_for(replace(run, train_on="beginnings"), base),
        tmp_path / "cut",
        modes=["none"],
        base=base,
    )
    assert adapted.modes["none"].mean != cut.modes["none"].mean


def test_the_card_says_what_was_read(base: Path, tmp_path: Path) -> None:
    cards = []
    for run in (config(**KNRM), config(**KNRM, train_on="beginnings")):
        prepared = prepared_for(run, base)
        train(run, prepared, tmp_path / run.train_on, base=base)
        cards.append((tmp_path / run.train_on / "best" / "card.md").read_text())
        assert ", 30 documents)" in cards[-1]
        assert f'"train_on": "{run.train_on}"' in cards[-1]
    said = f"- Documents in {len(prepared_for(config(**KNRM), base).docs)} passages: training draws"
    assert said in cards[0] and "is that of its best\n" in cards[0]
    assert "passages: training" not in cards[1]


def test_an_experiment_compares_both_ways_to_train(base: Path, tmp_path: Path) -> None:
    text = (base / "docs.jsonl").read_text()
    (tmp_path / "docs.jsonl").write_text(text)
    for name in ("train", "dev"):
        for end in ("tsv", "qrels"):
            (tmp_path / f"{name}.{end}").write_text((base / f"{name}.{end}").read_text())
    lines = "".join(f'{name} = "{value}"\n' for name, value in COLLECTION.items())
    for way in ("beginnings", "passages"):
        (tmp_path / f"{way}.toml").write_text(
            f'model = "knrm"\nout = "runs/{way}"\nprepared = "{way}"\ntrain_on = "{way}"\n'
            "doc_length = 14\nvectors = { size = 8, min_count = 1 }\n"
            "optimizer = { steps = 4 }\nvalidation = { every = 2 }\n"
            f"[[collections]]\n{lines}"
        )
    paths = [tmp_path / "beginnings.toml", tmp_path / "passages.toml"]
    result = experiment(paths, measures=["AP"], baseline="beginnings")
    means = {name: seeds[0].evaluation.mean["AP"] for name, seeds in result.systems.items()}
    assert len(set(means.values())) == 2  # the same candidates, read in two ways
    assert result.comparisons[0].system_name == "passages"


# Arrays of one way are not those of the other


def test_prepared_arrays_know_how_documents_were_divided(base: Path, tmp_path: Path) -> None:
    run = config(**KNRM)
    plain, other = (
        replace(run, train_on="beginnings"),
        replace(run, passages=replace(run.passages, overlap=5)),
    )
    prints = []
    for number, each in enumerate((run, plain, other)):
        save_prepared(tmp_path / str(number), prepared_for(each, base))
        prints.append(load_prepared(tmp_path / str(number), each).fingerprint)
    assert len(set(prints)) == 3
    with pytest.raises(InputError, match="was made with train_on = 'beginnings', now it is 'pass"):
        load_prepared(tmp_path / "1", run)
    with pytest.raises(InputError, match="was made with train_on = 'passages', now it is 'beginn"):
        load_prepared(tmp_path / "0", plain)
    with pytest.raises(InputError, match=r"was made with passages\.overlap = 5, now it is 0"):
        load_prepared(tmp_path / "2", run)
    # A model may divide documents otherwise than the arrays of beginnings, which have no passages.
    load_prepared(tmp_path / "1", replace(plain, passages=other.passages))


def test_arrays_of_before_are_of_beginnings(tmp_path: Path) -> None:
    before = preparation_settings(tiny_config())
    del before["train_on"]
    save_prepared(
        tmp_path / "arrays", replace(tiny_prepared(), description={"preparation": before})
    )
    load_prepared(tmp_path / "arrays", tiny_config())
    with pytest.raises(InputError, match="train_on = 'beginnings'"):
        load_prepared(tmp_path / "arrays", tiny_config(train_on="passages"))


REFUSED: dict[str, tuple[Callable[[], TrainConfig], str]] = {
    "cut": (lambda: config(**KNRM, passages={"most": 1}), r"passages\.most above 1"),
    "teacher": (
        lambda: config(**KNRM, candidates={"teacher": "mores"}),
        "a teacher reads the beginnings of documents",
    ),
    "teachers": (
        lambda: config(**KNRM, candidates={"teachers": {"mores": 1.0}}),
        r"give its scores of whole documents in candidates\.teacher_scores",
    ),
    "texts": (
        lambda: config(
            **KNRM,
            sampler={"kind": "triples", "triples": "triples.tsv", "triples_of": "texts"},
        ),
        "have no passages",
    ),
    "neither": (lambda: config(**KNRM, train_on="middles"), "train_on"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_one_sentence(name: str) -> None:
    make, sentence = REFUSED[name]
    with pytest.raises(InputError, match=sentence) as caught:
        make()
    assert "\n" not in str(caught.value)
