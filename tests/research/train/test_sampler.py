"""Batches: who is a positive, who a negative, and how collections are mixed."""

from dataclasses import replace

import numpy as np
import pytest
from tiny_run import tiny_prepared

from glassrank.errors import InputError
from glassrank.research.train.batches import Sampler
from glassrank.research.train.config import SamplerConfig, Sampling, Unjudged
from glassrank.research.train.prepared import Split
from glassrank.storage.mapped_arrays import Ragged


def graded_split() -> Split:
    """One query with documents of grades 3, 1, 0, 0, and two that nobody judged."""
    base = tiny_prepared().train
    return replace(
        base,
        queries=Ragged.from_rows([np.array([2])], np.int32),
        collection=np.zeros(1, np.int32),
        docs=Ragged.from_rows([np.arange(6)], np.int32),
        grades=np.array([3, 1, 0, 0, -1, -1], np.int32),
    )


def pairs(kind: Sampling, unjudged: Unjudged = "unknown") -> set[tuple[int, int]]:
    config = SamplerConfig(kind=kind, unjudged=unjudged, negatives=1, batch=400)
    sampler = Sampler(graded_split(), config, seed=1)
    return {(int(p), int(n)) for p, n in sampler.batch(0).candidates}


def test_first_stage_negatives_are_all_that_is_not_relevant() -> None:
    assert pairs("first_stage") == {(p, n) for p in (0, 1) for n in (2, 3, 4, 5)}


def test_nearest_grade_negatives_are_one_grade_lower() -> None:
    assert pairs("nearest_grade") == {(0, 1), (1, 2), (1, 3)}


def test_lower_grade_negatives_are_all_judged_below() -> None:
    assert pairs("lower_grades") == {(0, 1), (0, 2), (0, 3), (1, 2), (1, 3)}


def test_groups_of_grades_come_up_by_their_sizes() -> None:
    """Grade x against x - 1 alone, as in the RPACRR paper, every positive as likely as another."""
    assert pairs("grade_groups") == {(1, 2), (1, 3)}  # nothing has grade 2, one below 3
    base = graded_split()
    split = replace(
        base,
        queries=Ragged.from_rows([np.array([2])] * 2, np.int32),
        collection=np.zeros(2, np.int32),
        docs=Ragged.from_rows([np.arange(8), np.arange(2)], np.int32),
        grades=np.array([2, 1, 1, 1, 0, 0, 0, 0, 1, 0], np.int32),
    )
    config = SamplerConfig(kind="grade_groups", negatives=1, batch=5000)
    positives = Sampler(split, config, seed=1).batch(0).candidates[:, 0]
    counts = np.bincount(positives, minlength=10)
    assert set(np.flatnonzero(counts).tolist()) == {0, 1, 2, 3, 8}
    assert (abs(counts[counts > 0] / 5000 - 1 / 5) < 0.03).all()


@pytest.mark.parametrize("kind", ["nearest_grade", "lower_grades", "grade_groups"])
def test_what_nobody_judged_can_be_of_grade_0(kind: Sampling) -> None:
    """Or a collection that names relevant documents alone has no negative to learn from."""
    assert pairs(kind, "irrelevant") == pairs(kind) | {
        (positive, place) for positive, below in pairs(kind) if below in (2, 3) for place in (4, 5)
    }


def test_negatives_of_a_query_are_different() -> None:
    sampler = Sampler(tiny_prepared().train, SamplerConfig(negatives=9, batch=50), seed=1)
    for row in sampler.batch(3).candidates:
        assert len(set(row.tolist())) == 10


def test_too_few_negatives_come_again() -> None:
    sampler = Sampler(graded_split(), SamplerConfig(negatives=9, batch=5), seed=1)
    assert set(sampler.batch(0).candidates[:, 1:].ravel().tolist()) == {2, 3, 4, 5}


def test_a_batch_depends_on_seed_and_step_alone() -> None:
    split = tiny_prepared().train
    first, second = (Sampler(split, SamplerConfig(), seed=5) for _ in range(2))
    second.batch(1)
    assert np.array_equal(first.batch(9).candidates, second.batch(9).candidates)
    assert not np.array_equal(first.batch(9).candidates, first.batch(10).candidates)


@pytest.mark.parametrize(("power", "expected"), [(1.0, 50 / 60), (0.0, 0.5)])
def test_collections_are_mixed_by_size_to_a_power(power: float, expected: float) -> None:
    base = tiny_prepared().train
    split = replace(base, collection=(np.arange(60) >= 50).astype(np.int32))
    sampler = Sampler(split, SamplerConfig(batch=20_000, collection_power=power), seed=1)
    share = (sampler.batch(0).queries < 50).mean()
    assert share == pytest.approx(expected, abs=0.02)


def test_nothing_to_learn_from_is_an_error() -> None:
    base = tiny_prepared().train
    with pytest.raises(InputError, match="no query has both a positive"):
        Sampler(replace(base, grades=np.full_like(base.grades, -1)), SamplerConfig(), seed=1)


def test_positives_may_be_those_that_the_first_stage_found() -> None:
    split = replace(graded_split(), ranks=np.array([0, 2, 1, 0, 3, 4], np.int32))
    found = SamplerConfig(positives="found", negatives=1, batch=400)
    drawn = Sampler(split, found, seed=1).batch(0).candidates
    assert {(int(p), int(n)) for p, n in drawn} == {(1, n) for n in (2, 3, 4, 5)}
