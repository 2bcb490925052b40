"""Where a paper and our defaults differ: what docs/papers.md names is there, and has its effect."""

import re
import typing
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_run import tiny_config

from glassrank.models import MODELS
from glassrank.research.train.config import TrainConfig
from glassrank.research.train.config_files import read_config
from glassrank.research.train.prepare import _make_vectors
from glassrank.research.train.training_texts import read_collections
from glassrank.research.train.vector_training import train_word2vec
from glassrank.text.words import Vocabulary

ROOT = Path(__file__).parents[3]
PAPERS = (ROOT / "docs" / "papers.md").read_text("utf-8")
ROWS = [line.split(" | ") for line in PAPERS.splitlines() if line.startswith("| ")][1:]
SETTINGS = [
    name for row in ROWS for name in re.findall(r"`([a-z_]+(?:\.[a-z_]+)*)(?: = [^`]+)?`", row[2])
]


def is_setting(path: str, kind: Any = TrainConfig) -> bool:
    """Of a training config; behind `config.`, of some model's."""
    name, _, rest = path.partition(".")
    if kind is TrainConfig and name == "config":
        return any(is_setting(rest, family.info.config_type) for family in MODELS.values())
    if not is_dataclass(kind) or name not in {field.name for field in fields(kind)}:
        return False
    return not rest or is_setting(rest, typing.get_type_hints(kind)[name])


def test_there_are_settings_to_look_at() -> None:
    assert len(SETTINGS) > 8 and not is_setting("vectors.windows") and not is_setting("config.x")


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_that_is_named_is_one(name: str) -> None:
    assert is_setting(name)


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("tk-per-head", "config.contextual.per_head", True),
        ("tk-2", "validation.depth", "best"),
        ("tk-2", "vectors.whole_documents", True),
        ("conv_knrm", "config.kernels.widths", [1e-4, *[0.1] * 10]),
        ("rpacrr", "sampler.kind", "grade_groups"),
        ("rpacrr", "vectors.window", 10),
        ("rpacrr", "remove_stop_words", True),
        ("mores-adapt", "train_on", "passages"),
        ("mores-4", "config.blocks", 4),
        ("mores-random-cross", "start.interaction", "random_cross"),
        ("trec-2019-d3", "doc_length", 800),
        ("trec-2019-p2", "vectors.scale", 10.0),
        ("msmarco-document-pacrr", "config.k", 5),
        ("msmarco-document-duet", "config.dropout", 0.0),
    ],
)
def test_configs_have_what_their_papers_say(name: str, path: str, value: object) -> None:
    found: Any = read_config(ROOT / "configs" / "papers" / f"{name}.toml")
    for step in path.split("."):
        found = found[step] if isinstance(found, dict) else getattr(found, step)
    assert found == value


def test_word2vec_looks_as_far_as_the_window_says() -> None:
    pytest.importorskip("gensim", reason="gensim is not installed")
    texts = [["a", "b", "c", "d", "e", "f"] * 5] * 20
    words = Vocabulary(["a", "b", "c", "d", "e", "f"])
    made = {}
    for window in (1, 10):
        config = tiny_config(vectors={"source": "word2vec", "size": 4, "window": window})
        made[window], _ = _make_vectors(config, words, Path(), texts)
        expected = train_word2vec(texts, words, 4, window=window, seed=config.seed).matrix
        np.testing.assert_array_equal(made[window], expected)
    assert not np.array_equal(made[1], made[10])


COVERED = {
    "MSMARCO-Passage": ("tk-1", "tk-2", "tk-3", "knrm", "conv_knrm", "bert", "bert-large"),
    "MSMARCO-Document": ("msmarco-document-tk-2", "msmarco-document-bert"),
    "TREC CAR": ("trec-car-tk-2", "trec-car-bert"),
    "TREC 2019": ("trec-2019-p1", "trec-2019-p2", "trec-2019-d1", "trec-2019-d3"),
    "MORES": ("mores-1", "mores", "mores-3", "mores-4", "mores-random-cross", "mores-random"),
    "Robust04": ("mores-adapt", "mores-adapt-descriptions"),
    "ClueWeb09-B": ("mores-adapt-clueweb09", "mores-adapt-clueweb09-descriptions"),
    "Web track": ("rpacrr", "rpacrrf"),
}


@pytest.mark.parametrize("paper", COVERED)
def test_every_table_of_the_papers_has_its_configs(paper: str) -> None:
    configs = [read_config(ROOT / "configs" / "papers" / f"{name}.toml") for name in COVERED[paper]]
    assert len({config.out for config in configs}) == len(configs)


def test_the_query_may_be_the_description_of_a_topic(tmp_path: Path) -> None:
    topic = "<top><num>Number: {0}<title> cat\n<desc> Description: where {0} cats sit</top>\n"
    (tmp_path / "topics.txt").write_text("".join(map(topic.format, (1, 2))))
    (tmp_path / "qrels.txt").write_text("1 0 d1 1\n2 0 d2 1\n")
    (tmp_path / "docs.tsv").write_text("d1\ta cat\nd2\tcats sit\n")
    files = {f"{split}_{kind}": f"{name}.txt" for split in ("train", "dev")
             for kind, name in (("queries", "topics"), ("qrels", "qrels"))}  # fmt: skip
    collection = {"name": "c", "docs": "docs.tsv", **files}
    asked = [
        read_collections(tiny_config(collections=[{**collection, **field}]), tmp_path).dev.queries[
            0
        ]
        for field in ({}, {"topic_field": "desc"})
    ]
    assert asked == [["cat"], ["where", "1", "cats", "sit"]]
