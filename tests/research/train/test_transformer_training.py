"""Transformers in the same trainer: from a BERT's folder, or from what was trained before."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from glassrank.errors import InputError
from glassrank.models import Ranker
from glassrank.models.io.load import load_model
from glassrank.research.train.adapt import adapt
from glassrank.research.train.batches import Sampler, SplitTensors, Tokens
from glassrank.research.train.build import build_model
from glassrank.research.train.config import TrainConfig
from glassrank.research.train.cuda_graph_step import CudaGraphStep
from glassrank.research.train.loop import train
from glassrank.research.train.prepared import Prepared
from glassrank.research.train.prepared_folders import load_prepared, save_prepared
from glassrank.research.train.state import RunProgress
from glassrank.research.train.step import Step, make_optimizers
from tests.research.train.tiny_bert import (
    PIECES,
    config,
    prepared_for,
    write_collection_and_bert,
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_collection_and_bert(tmp_path_factory.mktemp("transformers"))


@pytest.mark.parametrize("model", ["bert", "mores"])
@pytest.mark.long
def test_it_learns_saves_and_is_read_back(model: str, base: Path, tmp_path: Path) -> None:
    run = config(model)
    prepared = prepared_for(run, base)
    save_prepared(tmp_path / "prepared", prepared)
    trained = train(run, load_prepared(tmp_path / "prepared"), tmp_path / "out", base=base)
    losses = [row["loss"] for row in trained.progress.history]
    assert losses[-1] < 0.8 * losses[0]
    saved = load_model(tmp_path / "out" / "best")
    assert saved.vocabulary == PIECES and saved.usage.doc_length == 12
    assert "Started from " in (tmp_path / "out" / "best" / "card.md").read_text()


def test_texts_are_pieces_between_special_ones_cut_to_their_length(base: Path) -> None:
    prepared = prepared_for(config("bert", doc_length=6), base)
    cls, sep = PIECES.index("[CLS]"), PIECES.index("[SEP]")
    for row in range(len(prepared.docs)):
        ids = prepared.docs[row]
        assert len(ids) == 6 and ids[0] == cls and ids[-1] == sep


def test_limits_in_words_come_first(base: Path) -> None:
    limits = {"text": {"query_words": 2, "doc_words": 4}}
    prepared = prepared_for(config("mores", config=limits), base)
    assert {len(prepared.docs[row]) for row in range(60)} == {2 + 4}
    assert {len(prepared.train.queries[row]) for row in range(16)} == {2 + 2}


def test_a_model_that_goes_on_learning_keeps_its_limits(base: Path, tmp_path: Path) -> None:
    run = config("mores", config={"text": {"query_words": 2, "doc_words": 4}})
    quick = replace(run, optimizer=replace(run.optimizer, steps=1))
    train(quick, prepared_for(run, base), tmp_path, base=base)
    later = prepared_for(config("mores", start={"model": str(tmp_path / "best")}), base)
    assert {len(later.docs[row]) for row in range(60)} == {2 + 4}


def test_a_start_may_be_copied_or_random(base: Path) -> None:
    prepared = prepared_for(config("mores"), base)
    models = {
        kind: build_model(
            config("mores", start={"bert": "bert", "interaction": kind}), prepared, base
        )
        for kind in ("copied", "random_cross", "random")
    }
    weights = {kind: dict(model.named_parameters()) for kind, model in models.items()}
    cross = next(n for n in weights["copied"] if "interaction" in n and "cross" in n and "key" in n)
    inner = next(n for n in weights["copied"] if "interaction" in n and "inner.weight" in n)
    assert not torch.equal(weights["copied"][cross], weights["random_cross"][cross])
    assert torch.equal(weights["copied"][inner], weights["random_cross"][inner])
    assert not torch.equal(weights["copied"][inner], weights["random"][inner])


def test_encoders_have_one_rate_and_the_rest_another(base: Path) -> None:
    run = config("mores", optimizer={"contextual": 0.1, "rest": 0.2, "weight_decay": 0.3})
    model = build_model(run, prepared_for(run, base), base)
    groups = make_optimizers(model, run.optimizer)["dense"].param_groups
    rates = {id(p): (g["lr"], g["weight_decay"]) for g in groups for p in g["params"]}
    for name, parameter in model.named_parameters():
        rate = 0.2 if name.startswith("interaction") else 0.1
        assert rates[id(parameter)] == (rate, 0.3 if parameter.ndim > 1 else 0.0), name


@pytest.fixture(scope="module")
def trained_folder(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = config("mores", optimizer={"steps": 10, "contextual": 0.01, "rest": 0.01})
    out = tmp_path_factory.mktemp("trained")
    train(run, prepared_for(run, base), out, base=base)
    return out / "best"


def folded(base: Path, folder: Path, **changes: object) -> TrainConfig:
    run = config("mores", start={"model": str(folder)}, folds={"count": 3}, **changes)
    whole = replace(run.collections[0], train_queries="all.tsv", train_qrels="all.qrels")
    whole = replace(whole, dev_queries=None, dev_qrels=None)
    return replace(run, collections=(whole,), optimizer=replace(run.optimizer, steps=6))


@pytest.mark.long
def test_adaptation_moves_what_it_is_to_move(
    base: Path, trained_folder: Path, tmp_path: Path
) -> None:
    run = folded(base, trained_folder)
    prepared = prepared_for(run, base)
    assert sorted(np.bincount(prepared.train.folds).tolist()) == [8, 8, 8]  # type: ignore[arg-type]
    found = adapt(run, prepared, tmp_path, base=base)
    assert list(found.modes) == ["none", "all", "interaction", "representation"]
    assert len(found.first_stage.query_ids) == 24
    before = load_model(trained_folder).model.state_dict()
    for mode, moved in (
        ("all", {True, False}),
        ("interaction", {True}),
        ("representation", {False}),
    ):
        after = load_model(tmp_path / mode / "0" / "best").model.state_dict()
        changed = {
            n.startswith("interaction") for n in before if not torch.equal(before[n], after[n])
        }
        assert changed == moved, mode


def test_a_query_is_scored_by_a_model_that_did_not_learn_from_it(
    base: Path, trained_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import glassrank.research.train.adapt as module

    run = folded(base, trained_folder)
    prepared = prepared_for(run, base)
    seen: list[tuple[set[tuple[int, ...]], set[tuple[int, ...]]]] = []
    real_train, real_scored = module.train, module.score_candidates

    def queries_of(split: object) -> set[tuple[int, ...]]:
        rows = split.queries  # type: ignore[attr-defined]
        return {tuple(rows[i].tolist()) for i in range(len(rows))}

    def spy_train(config: TrainConfig, own: Prepared, *rest: object, **more: object) -> object:
        seen.append((queries_of(own.train) | queries_of(own.dev), set()))
        return real_train(config, own, *rest, **more)  # type: ignore[arg-type]

    def spy_scored(model: Ranker, data: SplitTensors, queries: Any, precision: str) -> object:
        seen[-1] = (seen[-1][0], queries_of(data.split.select(queries)))
        return real_scored(model, data, queries, precision)

    monkeypatch.setattr(module, "train", spy_train)
    monkeypatch.setattr(module, "score_candidates", spy_scored)
    adapt(run, prepared, tmp_path, modes=["interaction"], base=base)
    assert len(seen) == 3
    for learnt, tested in seen:
        assert tested and not learnt & tested


@pytest.mark.parametrize("shape", ["lists", "robust04"])
def test_folds_may_come_from_a_file(shape: str, base: Path, trained_folder: Path) -> None:
    lists = [[f"q{n}" for n in range(24) if n % 3 == fold] for fold in range(3)]
    plain: object = lists
    if shape == "robust04":
        plain = {f"s{n}": {"predict": {"test": ids}} for n, ids in enumerate(lists)}
    (base / f"{shape}.json").write_text(json.dumps(plain))
    run = folded(base, trained_folder)
    run = replace(run, folds=replace(run.folds, file=f"{shape}.json"))  # type: ignore[type-var]
    prepared = prepared_for(run, base)
    assert prepared.train.folds is not None
    assert prepared.train.folds.tolist() == [n % 3 for n in range(24)]


def test_any_model_learns_from_a_trained_one(
    base: Path, trained_folder: Path, tmp_path: Path
) -> None:
    run = config(
        "knrm",
        start={},
        vectors={"size": 8, "min_count": 1},
        candidates={"teacher": str(trained_folder)},
        loss={"kind": "margin_mse"},
        optimizer={"steps": 5},
    )
    prepared = prepared_for(run, base)
    teacher = load_model(trained_folder)
    from glassrank.rerank import Reranker

    scored = Reranker(teacher, exact=True)
    query, doc = 3, int(prepared.train.docs[3][1])
    text, asked = (
        " ".join(prepared.words[word] for word in ids)
        for ids in (prepared.docs[doc], prepared.train.queries[query])
    )
    place = prepared.train.docs.offsets[query] + 1
    assert prepared.train.teacher is not None
    expected = scored.scores(asked, [text]).values[0]
    assert prepared.train.teacher[place] == pytest.approx(expected, abs=1e-5)
    train(run, prepared, tmp_path, base=base)


def test_mistakes_are_one_sentence(base: Path, trained_folder: Path) -> None:
    with pytest.raises(InputError, match=r"reads subwords: name their source with start\.bert"):
        prepared_for(config("bert", start={}), base)
    with pytest.raises(InputError, match=r"start\.layers needs start\.model"):
        config("kernel_bert", start={"bert": "a", "model": "b", "layers": [0]})
    run = config("mores")
    prepared = prepared_for(run, base)
    with pytest.raises(InputError, match="another vocabulary"):
        other = replace(prepared, words=[*PIECES, "more"])
        build_model(config("mores", start={"model": str(trained_folder)}), other, base)
    with pytest.raises(InputError, match="is a mores, not a bert"):
        build_model(config("bert", start={"model": str(trained_folder)}), prepared, base)
    with pytest.raises(InputError, match="needs a modular model"):
        build_model(config("bert", start={"bert": "bert", "parts": "interaction"}), prepared, base)
    with pytest.raises(InputError, match=r"config\.query is given by start\.bert"):
        build_model(config("mores", config={"query": {"layers": 1}}), prepared, base)
    with pytest.raises(InputError, match=r"set start\.model, add \[folds\]"):
        adapt(run, prepared, base / "nowhere")


@pytest.mark.parametrize("model", ["bert", "mores", "kernel_bert", "maxsim"])
def test_a_recorded_step_learns_what_the_plain_one_does(model: str, base: Path) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    run = config(model)
    prepared = prepared_for(run, base)
    docs = Tokens.of(prepared.docs, run.doc_length, torch.device(device))
    data = SplitTensors.of(prepared.train, docs, run.query_length, torch.device(device))
    sampler = Sampler(prepared.train, run.sampler, run.seed)
    weights = []
    for recorded in (False, True):
        ranker = build_model(run, prepared, base).to(device)
        optimizers = make_optimizers(ranker, run.optimizer)
        batches = [data.examples(sampler.batch(step), pad_to_max=recorded) for step in range(4)]
        step: Step = (
            CudaGraphStep(ranker, optimizers, run, batches[0])
            if recorded
            else Step(ranker, optimizers, run)
        )
        progress = RunProgress()
        for batch in batches:
            step.gradients(batch)
            step.update(progress)
            progress.step += 1
        weights.append(ranker.state_dict())
    for name, plain in weights[0].items():
        torch.testing.assert_close(weights[1][name], plain, rtol=1e-3, atol=1e-4, msg=name)
