"""Two processes on loopback learn what one does."""

import multiprocessing
import os
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny_run import tiny_config, tiny_prepared

from glassrank.errors import InputError
from glassrank.research.train.batches import BatchRows
from glassrank.research.train.config import TrainConfig
from glassrank.research.train.distributed import Team, join_team
from glassrank.research.train.loop import train
from glassrank.research.train.report import read_log


def small_config() -> TrainConfig:
    """An odd batch, so that shares differ; kernels wide enough for rounding to stay rounding; and
    rates that fall, so that what the first process decides must reach the other."""
    wide = {"centers": [0.9, 0.3, -0.3], "widths": [0.3, 0.3, 0.3]}
    return tiny_config(
        config={"kernels": wide},
        sampler={"batch": 15, "negatives": 2},
        optimizer={
            "steps": 60,
            "rest": 0.01,
            "vectors": 0.001,
            "clip": 1.0,
            "plateau_patience": 0,
            "plateau_factor": 0.1,
        },
        validation={"every": 5, "patience": 4},
    )


def run_process(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    os.environ |= {"WORLD_SIZE": "2", "RANK": str(rank), "GLOO_SOCKET_IFNAME": "lo"}
    with join_team("cpu", f"file://{folder / 'meeting'}") as team:
        trained = train(small_config(), tiny_prepared(), folder / "run", team=team)
        if not team.is_leader:  # what the first process found is known to all
            assert trained.final.at_all == pytest.approx(trained.progress.best)
            assert trained.progress.history


@pytest.mark.slow
def test_two_processes_end_with_the_weights_of_one(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=run_process, args=(rank, tmp_path), daemon=True) for rank in (0, 1)
    ]
    for process in processes:
        process.start()
    alone = train(small_config(), tiny_prepared(), tmp_path / "alone")
    for process in processes:
        process.join(60)
        process.kill()  # one that waits for an answer that never comes
    assert [process.exitcode for process in processes] == [0, 0]
    one, two = (load_file(tmp_path / name / "last/state.safetensors") for name in ("alone", "run"))
    assert one.keys() == two.keys()
    for name in one:
        torch.testing.assert_close(two[name], one[name], rtol=1e-3, atol=1e-5, msg=name)
    logs = [read_log(tmp_path / name / "log.jsonl") for name in ("alone", "run")]
    assert [row["step"] for row in logs[1]] == [row["step"] for row in logs[0]]
    assert [row["loss"] for row in logs[1]] == pytest.approx([row["loss"] for row in logs[0]])
    assert alone.progress.rate_factor < 1


def test_shares_of_a_batch_make_the_whole() -> None:
    batch = BatchRows(np.arange(7), np.arange(21).reshape(7, 3))
    shares = [Team(rank, 3).share(batch) for rank in range(3)]
    assert sorted(np.concatenate([share.queries for share in shares]).tolist()) == list(range(7))
    for share in shares:
        assert np.array_equal(share.candidates, batch.candidates[share.queries])
    parts = [
        Team(rank, 3).weigh(torch.tensor(1.0), len(s.queries), 7) for rank, s in enumerate(shares)
    ]
    assert sum(parts).item() == pytest.approx(1.0)


def test_alone_nothing_is_touched() -> None:
    batch = BatchRows(np.arange(3), np.arange(6).reshape(3, 2))
    loss = torch.tensor(2.0)
    with join_team("cpu") as team:
        assert team.share(batch) is batch
        assert team.weigh(loss, 3, 3) is loss
        assert team.total(loss) is loss
        assert team.seed(5) == 5


def test_more_processes_than_queries_in_a_batch_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a batch of 16 is too small for 17 processes"):
        train(tiny_config(), tiny_prepared(), tmp_path, team=Team(0, 17))


def test_a_process_without_a_gpu_is_told_how_many_there_are() -> None:
    started = {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}
    with (
        mock.patch.dict(os.environ, started),
        mock.patch("torch.cuda.is_available", return_value=True),
        mock.patch("torch.cuda.device_count", return_value=1),
        pytest.raises(InputError, match="start fewer processes"),
        join_team("cuda"),
    ):
        pass
