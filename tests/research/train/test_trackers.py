"""The numbers of a run, read back from what TensorBoard and W&B have written."""

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_run import tiny_config, tiny_prepared

from glassrank.errors import InputError
from glassrank.research.train.loop import train
from glassrank.research.train.report import open_trackers

# What other packages warn of is not ours to fix.
pytestmark = pytest.mark.filterwarnings("ignore")


def trained(out: Path, name: str) -> list[dict[str, float]]:
    config = tiny_config()
    with open_trackers([name], out, config) as track:
        train(config, tiny_prepared(), out, track=track)
    return [json.loads(line) for line in (out / "log.jsonl").read_text("utf-8").splitlines()]


def records(content: bytes) -> Iterator[bytes]:
    """Of LevelDB's log format, in which W&B keeps a run: parts with a checksum, a length and a kind
    (whole, first, middle, last), in blocks of 32 KiB, behind seven bytes of the file's own."""
    place, parts = 7, b""
    while place + 7 <= len(content):
        if (left := -place % 32768) < 7 and left:
            place += left
            continue
        _, length, kind = struct.unpack_from("<IHB", content, place)
        parts += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield parts
            parts = b""


def test_tensorboard_shows_the_log(tmp_path: Path) -> None:
    events = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="tensorboard is not there",
    )
    rows = trained(tmp_path / "out", "tensorboard")
    written = events.EventAccumulator(str(tmp_path / "out" / "tensorboard"))
    written.Reload()
    for ours, theirs in (("loss", "loss"), ("value", "RR@10"), ("first_stage", "first_stage")):
        points = [(point.step, point.value) for point in written.Scalars(theirs)]
        assert points == [(row["step"], pytest.approx(row[ours], rel=1e-6)) for row in rows]
    assert len(rows) == 3


def test_wandb_offline_has_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb", reason="wandb is not there")
    proto = pytest.importorskip("wandb.proto.wandb_internal_pb2", reason="wandb has another format")
    for name in ("CONFIG", "CACHE", "DATA"):
        monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path / name))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    rows = trained(tmp_path / "out", "wandb")
    wandb.teardown()  # its process has written all when it has ended
    (path,) = (tmp_path / "out" / "wandb").glob("offline-run-*/*.wandb")
    values = []
    for content in records(path.read_bytes()):
        record = proto.Record()
        record.ParseFromString(content)
        for item in record.history.item:
            if (item.key or "/".join(item.nested_key)) == "RR@10":
                values.append(float(item.value_json))
    assert values == [pytest.approx(row["value"]) for row in rows] and len(rows) == 3


def test_an_unknown_name_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="tensorboard or wandb"):
        trained(tmp_path / "out", "tensorbord")


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_without_the_package_a_run_says_so_before_it_begins(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(InputError, match=r"pip install 'glassrank\[train\]'"):
        trained(tmp_path / "out", name)
    assert not (tmp_path / "out" / "log.jsonl").exists()
