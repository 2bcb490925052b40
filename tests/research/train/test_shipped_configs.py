"""The configs that come with the project: each one says what it means to say."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from glassrank.models.late_interaction import TKConfig
from glassrank.research.papers.duet import Duet
from glassrank.research.papers.knrm import KNRMConfig
from glassrank.research.papers.matchpyramid import MatchPyramid
from glassrank.research.papers.pacrr import PACRR, CoPACRR
from glassrank.research.papers.rpacrr import RPACRRConfig
from glassrank.research.train.config_files import find_model_class, read_config
from glassrank.settings import from_plain, to_plain
from tests.parity.authors import tk_authors

read = cache(read_config)
CONFIGS = Path(__file__).parents[3] / "configs"
WHOLE = [path for path in sorted(CONFIGS.rglob("*.toml")) if "\nout = " in path.read_text("utf-8")]


@pytest.mark.parametrize("path", WHOLE, ids=lambda path: str(path.relative_to(CONFIGS)))
def test_it_is_valid(path: Path) -> None:
    config = read(path)
    assert config.collections and config.out and config.prepared


def test_there_are_some() -> None:
    assert len(WHOLE) > 15


@pytest.mark.parametrize("path", WHOLE, ids=lambda path: str(path.relative_to(CONFIGS)))
def test_what_it_begins_with_is_made_by_another(path: Path) -> None:
    """A model that a config begins with or learns from is the result of a config that is here."""
    config = read(path)
    made = {(other.parent / read(other).out).resolve() / "best" for other in WHOLE}
    for needed in (config.start.model, config.candidates.teacher):
        if needed is not None and needed.startswith("../../runs/"):
            assert (path.parent / needed).resolve() in made


TABLES = ("insuranceqa", "wiki-headings", "long-documents")
SHARED = [path.stem for path in WHOLE if path.parent.name == "wiki-headings"]


@pytest.mark.parametrize("name", SHARED)
def test_a_model_is_trained_the_same_way_for_every_table(name: str) -> None:
    """Collections and lengths differ, and nothing that a model could win by."""
    named = {"mores-2": {"insuranceqa": "mores"}}.get(name, {})
    plain = [to_plain(read(CONFIGS / table / f"{named.get(table, name)}.toml")) for table in TABLES]
    for part in ("model", "start", "vectors", "loss", "optimizer", "validation", "search"):
        assert all(other[part] == plain[0][part] for other in plain), part


@pytest.mark.parametrize("collection", ["nfcorpus", "cranfield"])
def test_rpacrr_and_its_parts_differ_in_what_they_are_named_for(collection: str) -> None:
    paths = [path for path in WHOLE if path.match(f"graded/{collection}-*.toml")]
    assert len(paths) == 8
    for path in paths:
        name = path.stem.removeprefix(f"{collection}-")
        config, paper = read(path), read(CONFIGS / "papers" / f"{name}.toml")
        same = [config.vectors, config.optimizer, config.validation, config.candidates]
        first = read(paths[0])
        assert same == [first.vectors, first.optimizer, first.validation, first.candidates]
        assert (config.config["query_length"], config.config["doc_length"]) == (16, 300)
        if name != "pacrr":  # papers/pacrr.toml is the TK paper's
            assert config.loss == paper.loss
            # Judgments of these collections name relevant documents alone.
            judged = replace(paper.sampler, positives="found", unjudged="irrelevant")
            assert config.sampler == judged
            assert {**config.config, **paper.config} == config.config


def test_the_runs_of_trec_2019_differ_in_their_vectors_alone() -> None:
    """The ensemble needs the same vocabulary and dev queries; and nothing of DL is trained on."""
    first, second = (to_plain(read(CONFIGS / "trec-2019" / f"p{n}.toml")) for n in (1, 2))
    assert {n for n in first if first[n] != second[n]} == {"vectors", "out", "prepared"}
    for name in ("size", "min_count", "most_words", "unknown_buckets", "whole_documents"):
        assert first["vectors"][name] == second["vectors"][name]
    assert "trec-dl" not in str(first["collections"])
    tk = read(CONFIGS / "insuranceqa" / "tk-2.toml")
    for part in ("loss", "optimizer", "config"):
        assert first[part] == to_plain(tk)[part]


@pytest.mark.parametrize("table", TABLES)
def test_every_model_of_a_table_has_as_many_settings_to_try(table: str) -> None:
    configs = {name: read(CONFIGS / table / f"{name}.toml") for name in SHARED if name != "mores-2"}
    assert {len(config.search) for config in configs.values()} == {2}
    words = [
        config for config in configs.values() if not find_model_class(config).info.uses_subwords
    ]
    parts = "vectors candidates sampler loss search query_length doc_length".split()
    for part in parts:
        assert all(getattr(config, part) == getattr(words[0], part) for config in words), part


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("duet", tk_authors(Duet)),
        ("pacrr", tk_authors(PACRR)),
        ("co_pacrr", tk_authors(CoPACRR)),
        ("matchpyramid", tk_authors(MatchPyramid)),
        ("tk-2", TKConfig()),
        ("knrm", KNRMConfig()),
        ("rpacrrf", RPACRRConfig(one_by_one=True, use_masking=False)),
    ],
)
def test_baselines_of_the_papers_are_as_their_authors_ran_them(name: str, settings: object) -> None:
    config = read(CONFIGS / "papers" / f"{name}.toml")
    assert from_plain(type(settings), config.config) == settings
