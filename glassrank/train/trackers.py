"""Where the numbers of a run go beside its own log: TensorBoard's event files, or W&B.

with tracking(["tensorboard"], out, config) as track:
    track({"step": 100, "loss": 0.3, "value": 0.4})   # one row for each validation
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from glassrank.errors import InputError
from glassrank.settings import to_plain
from glassrank.train.config import TrainConfig

Track = Callable[[Mapping[str, float]], None]


@contextmanager
def tracking(names: Sequence[str], out: Path, config: TrainConfig) -> Iterator[Track]:
    """To all that are named, until the block ends."""
    with ExitStack() as stack:
        trackers = [stack.enter_context(_known(name)(out, config)) for name in names]

        def track(row: Mapping[str, float]) -> None:
            for tracker in trackers:
                tracker(row)

        yield track


def _known(name: str) -> Callable[[Path, TrainConfig], AbstractContextManager[Track]]:
    if name not in _TRACKERS:
        raise InputError(f"{name!r} is not known; numbers go to {' or '.join(_TRACKERS)}")
    return _TRACKERS[name]


@contextmanager
def _tensorboard(out: Path, config: TrainConfig) -> Iterator[Track]:
    """In `out/tensorboard`; a run that goes on writes a further file there."""
    try:
        board: Any = import_module("torch.utils.tensorboard")
    except ImportError:
        raise _missing("tensorboard") from None
    writer = board.SummaryWriter(str(out / "tensorboard"))

    def track(row: Mapping[str, float]) -> None:
        for name, value in _values(row, config).items():
            writer.add_scalar(name, value, int(row["step"]))
        writer.flush()

    try:
        yield track
    finally:
        writer.close()


@contextmanager
def _wandb(out: Path, config: TrainConfig) -> Iterator[Track]:
    """As W&B's environment says: with `WANDB_MODE=offline`, in `out/wandb` alone. A run that goes
    on is the same one there."""
    try:
        import wandb
    except ImportError:
        raise _missing("wandb") from None
    out.mkdir(parents=True, exist_ok=True)
    run = wandb.init(
        project="glassrank",
        name=out.name,
        id=hashlib.blake2b(str(out.resolve()).encode(), digest_size=8).hexdigest(),
        resume="allow",
        dir=str(out),
        config=to_plain(config),
    )
    try:
        yield lambda row: run.log(_values(row, config), step=int(row["step"]))
    finally:
        run.finish()


_TRACKERS = {"tensorboard": _tensorboard, "wandb": _wandb}


def _values(row: Mapping[str, float], config: TrainConfig) -> dict[str, float]:
    """All but the step, the measure under its name."""
    names = {"value": config.validation.measure}
    return {names.get(name, name): value for name, value in row.items() if name != "step"}


def _missing(package: str) -> InputError:
    return InputError(
        f"numbers go to {package} only where it is: pip install 'glassrank[{package}]'"
    )
