"""Several processes on one run: each learns from its share of a batch, all keep the same weights.

    torchrun --nproc-per-node 4 -m glassrank.research.train CONFIG.toml

Batches are those of one process, and gradients are added up before each update, so that the result
is the same up to rounding. The first process alone validates, logs and saves.
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

_PATIENCE = timedelta(hours=2)
"""How long the others wait while the first one validates. torchrun ends them all if one fails."""


@dataclass(frozen=True)
class Team:
    """The processes of a run, as one of them sees it. Alone, every call gives back what it got."""

    rank: int = 0
    size: int = 1
    device: str = "cpu"

    @property
    def leads(self) -> bool:
        """Whether this process writes and speaks."""
        return self.rank == 0

    def share(self, batch: BatchRows) -> BatchRows:
        """Every `size`-th query, with its candidates."""
        if self.size == 1:
            return batch
        mine = slice(self.rank, None, self.size)
        passages = None if batch.passages is None else batch.passages[mine]
        return BatchRows(batch.queries[mine], batch.candidates[mine], passages)

    def seed(self, seed: int) -> int:
        """Others drop other units than the first process, which drops those of one alone."""
        return seed + (self.rank << 48)

    def weighed(self, loss: Tensor, rows: int, whole: int) -> Tensor:
        """A share's mean loss as its part of the whole batch's; shares may differ by one row."""
        return loss if self.size == 1 else loss * (rows / whole)

    def add_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replaces each gradient by its sum over all processes."""
        if self.size == 1:
            return
        trained = [p for p in parameters if p.grad is not None]
        dense = [p.grad for p in trained if p.grad is not None and not p.grad.is_sparse]
        if dense:
            joined = torch.cat([grad.flatten() for grad in dense])  # one message, not one for each
            distributed.all_reduce(joined)
            parts = torch.split(joined, [grad.numel() for grad in dense])
            for grad, part in zip(dense, parts, strict=True):
                grad.copy_(part.view_as(grad))
        for parameter in trained:
            if parameter.grad is not None and parameter.grad.is_sparse:
                parameter.grad = self._joined(parameter.grad)

    def _joined(self, grad: Tensor) -> Tensor:
        """Rows of all processes, one after the other: the optimizer adds up those of one word."""
        grad = grad.coalesce()  # each word once: much less to send
        count = torch.tensor([grad.values().shape[0]], device=grad.device)
        counts = torch.cat(self._gathered(count)).tolist()
        missing = max(counts) - int(counts[self.rank])  # messages must be of one length
        # (n, 1) and (n, E) of each process
        rows = self._gathered(nn.functional.pad(grad.indices().T, (0, 0, 0, missing)))
        values = self._gathered(nn.functional.pad(grad.values(), (0, 0, 0, missing)))
        return torch.sparse_coo_tensor(
            torch.cat([part[:n] for part, n in zip(rows, counts, strict=True)]).T,
            torch.cat([part[:n] for part, n in zip(values, counts, strict=True)]),
            grad.shape,
            check_invariants=False,
        )

    def _gathered(self, mine: Tensor) -> list[Tensor]:
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

    def agreed(self, value: T) -> T:
        """What the first process has, in every process."""
        if self.size == 1:
            return value
        held = [value]
        distributed.broadcast_object_list(held, src=0, device=torch.device(self.device))
        return held[0]

    @contextmanager
    def leader_first(self) -> Iterator[None]:
        """The others enter when the first process has left."""
        if self.size > 1 and not self.leads:
            distributed.barrier()
        yield
        if self.size > 1 and self.leads:
            distributed.barrier()


ALONE = Team()


@contextmanager
def joined(device: str, address: str = "env://") -> Iterator[Team]:
    """The team that torchrun started this process in; a team of one where it did not.

    Each process takes the GPU of its own number. `address` says where processes meet.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Team(device=device)
        return
    rank, local = int(os.environ["RANK"]), int(os.environ.get("LOCAL_RANK", "0"))
    target = get_device(device)
    if target.type == "cuda":
        if local >= torch.cuda.device_count():
            raise InputError(
                f"process {local + 1} of this machine has no GPU of its own, there are "
                f"{torch.cuda.device_count()}; start as many processes, or name the device cpu"
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
