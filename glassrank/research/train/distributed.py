"""Data-parallel training: each process takes a share of the batch, all keep the same weights.

    torchrun --nproc-per-node 4 -m glassrank.research.train CONFIG.toml

Batches are those of a single process and gradients are summed, so results are equal up to rounding.
Only the first process validates, logs and saves.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
from torch import Tensor, distributed, nn

from glassrank.backends.gpu import get_device
from glassrank.errors import InputError
from glassrank.research.train.batches import BatchRows

T = TypeVar("T")

_PATIENCE = timedelta(hours=2)  # how long the others wait while the first process validates


@dataclass(frozen=True)
class Team:
    """The processes of a run, seen from one of them. Alone, every method returns its input."""

    rank: int = 0
    size: int = 1
    device: str = "cpu"

    @property
    def is_leader(self) -> bool:
        """Whether this process validates, logs and saves."""
        return self.rank == 0

    def share(self, batch: BatchRows) -> BatchRows:
        """This process's part of a batch: every `size`-th query."""
        if self.size == 1:
            return batch
        mine = slice(self.rank, None, self.size)
        passages = None if batch.passages is None else batch.passages[mine]
        return BatchRows(batch.queries[mine], batch.candidates[mine], passages)

    def seed(self, seed: int) -> int:
        """A seed for each process, so that dropout differs; the first keeps its own."""
        return seed + (self.rank << 48)

    def weigh(self, loss: Tensor, rows: int, whole: int) -> Tensor:
        """Weigh a share's mean loss by its size; shares may differ by one row."""
        return loss if self.size == 1 else loss * (rows / whole)

    def add_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace each gradient by its sum over all processes."""
        if self.size == 1:
            return
        trained = [(p, p.grad) for p in parameters if p.grad is not None]
        dense = [grad for _, grad in trained if not grad.is_sparse]
        if dense:
            joined = torch.cat([grad.flatten() for grad in dense])  # one message
            distributed.all_reduce(joined)
            parts = torch.split(joined, [grad.numel() for grad in dense])
            for grad, part in zip(dense, parts, strict=True):
                grad.copy_(part.view_as(grad))
        for parameter, grad in trained:
            if grad.is_sparse:
                parameter.grad = self._join_rows(grad)

    def _join_rows(self, grad: Tensor) -> Tensor:
        """Concatenate sparse rows of all processes; the optimizer sums rows of the same word."""
        grad = grad.coalesce()  # less to send
        count = torch.tensor([grad.values().shape[0]], device=grad.device)
        counts = torch.cat(self._all_gather(count)).tolist()
        missing = max(counts) - int(counts[self.rank])  # messages need one length
        # (n, 1) and (n, E) of each process
        rows = self._all_gather(nn.functional.pad(grad.indices().T, (0, 0, 0, missing)))
        values = self._all_gather(nn.functional.pad(grad.values(), (0, 0, 0, missing)))
        return torch.sparse_coo_tensor(
            torch.cat([part[:n] for part, n in zip(rows, counts, strict=True)]).T,
            torch.cat([part[:n] for part, n in zip(values, counts, strict=True)]),
            grad.shape,
            check_invariants=False,
        )

    def _all_gather(self, mine: Tensor) -> list[Tensor]:
        mine = mine.contiguous()
        everyone = [torch.empty_like(mine) for _ in range(self.size)]
        distributed.all_gather(everyone, mine)
        return everyone

    def total(self, value: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.size > 1:
            value = value.clone()
            distributed.all_reduce(value)
        return value

    def broadcast(self, value: T) -> T:
        """The first process's value."""
        if self.size == 1:
            return value
        held = [value]
        distributed.broadcast_object_list(held, src=0, device=torch.device(self.device))
        return held[0]

    @contextmanager
    def leader_first(self) -> Iterator[None]:
        """Others enter after the first process has left."""
        if self.size > 1 and not self.is_leader:
            distributed.barrier()
        yield
        if self.size > 1 and self.is_leader:
            distributed.barrier()


ALONE = Team()


@contextmanager
def join_team(device: str, address: str = "env://") -> Iterator[Team]:
    """The team that torchrun started, or one of one; each process takes its local GPU."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Team(device=device)
        return
    rank, local = int(os.environ["RANK"]), int(os.environ.get("LOCAL_RANK", "0"))
    target = get_device(device)
    if target.type == "cuda":
        if local >= torch.cuda.device_count():
            raise InputError(
                f"there are {torch.cuda.device_count()} GPUs for process {local + 1}; start fewer "
                "processes, or use the device cpu"
            )
        target = torch.device("cuda", local)
        torch.cuda.set_device(target)
    distributed.init_process_group(
        "nccl" if target.type == "cuda" else "gloo",
        init_method=address,
        rank=rank,
        world_size=size,
        timeout=_PATIENCE,
        device_id=target if target.type == "cuda" else None,
    )
    try:
        yield Team(rank, size, str(target))
    finally:
        distributed.destroy_process_group()
