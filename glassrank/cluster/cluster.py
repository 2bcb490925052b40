"""A Ray cluster: tasks that are done again if their worker dies, and an actor for each shard.

Nothing outside of this file imports Ray, and this file does so when a cluster is asked for.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import isinf
from typing import Any

from glassrank.cluster.shard import Requests, Shard, Shards
from glassrank.deadline import NEVER, Deadline
from glassrank.errors import GlassrankError, needs_extra
from glassrank.rerank.reranker import Reranker

LOCAL = "local"
_OBJECT_BYTES = 256 << 20  # on one machine: what travels are numbers and scores
_CALLS_AT_ONCE = 4
_TRIES = 20
_PATIENCE_SECONDS = 900.0
"""That a shard may take to come back elsewhere, where no deadline says otherwise."""


@contextmanager
def connect(address: str | None) -> Iterator[None]:
    """Connects to a Ray cluster, or starts one here; disconnects unless it was connected before.
    None: there is nothing to connect to."""
    if address is None:
        yield
        return
    with needs_extra("cluster"):
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # send no statistics
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        import ray
    if ray.is_initialized():
        yield
        return
    here: dict[str, Any] = {}
    if address == LOCAL:
        here = {"num_cpus": os.cpu_count(), "object_store_memory": _OBJECT_BYTES}
        here |= {"include_dashboard": False}
    try:
        ray.init(address, log_to_driver=False, logging_level="ERROR", **here)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise GlassrankError(
            f"no Ray cluster at {address!r} ({error}); give the address that `ray start` printed, "
            f"or {LOCAL}"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def processors() -> int:
    """Of all machines of the cluster."""
    import ray

    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def run_tasks(
    task: Callable[..., Any], calls: Sequence[tuple[Any, ...]], *, gpus: int = 0
) -> Iterator[Any]:
    """The results of calls, as they finish. The task of a dead worker runs again elsewhere; an
    error in the input is raised once, and the other tasks are cancelled."""
    import ray

    remote = ray.remote(
        max_retries=_TRIES, num_cpus=1, num_gpus=gpus, scheduling_strategy="SPREAD"
    )(task)
    pending = [remote.remote(*call) for call in calls]
    try:
        while pending:
            (done,), pending = ray.wait(pending, num_returns=1)
            yield _result(done)
    except ray.exceptions.RayTaskError:
        raise
    except ray.exceptions.RayError as error:  # tried as often as it may be
        raise GlassrankError(
            f"workers died over the same task {_TRIES} times ({type(error).__name__}); see whether "
            "they have enough memory, and run this again"
        ) from error
    finally:
        for reference in pending:
            ray.cancel(reference, force=True)


def _result(reference: Any) -> Any:
    import ray

    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, GlassrankError):
            raise error.cause from None
        raise


class ShardActor(Shard):
    """A shard in a process of its own; it loads its models there."""

    def __init__(self, models: Sequence[str], exact: bool) -> None:
        super().__init__([Reranker.load(name, exact=exact) for name in models])


class RayShards(Shards):
    """One actor for each shard. Ray restarts an actor that died, and repeats its calls."""

    def __init__(self, count: int, models: Sequence[str] = (), *, exact: bool = False) -> None:
        import ray

        # Half of the machines may fail, and all shards still fit on the rest.
        share = min(1.0, processors() / count / 2)
        actor = ray.remote(ShardActor).options(
            num_cpus=round(share, 3),
            max_restarts=-1,
            max_task_retries=-1,
            max_concurrency=_CALLS_AT_ONCE,
            scheduling_strategy="SPREAD",
        )
        self.actors = [actor.remote(list(models), exact) for _ in range(count)]

    def __len__(self) -> int:
        return len(self.actors)

    def call(self, method: str, requests: Requests, deadline: Deadline = NEVER) -> dict[int, Any]:
        """All at once."""
        import ray

        references = {
            number: getattr(self.actors[number], method).remote(*request)
            for number, request in requests.items()
        }
        if not references:
            return {}
        late = not isinf(deadline.at)
        seconds = max(0.0, deadline.remaining() / 1e3) if late else _PATIENCE_SECONDS
        ready, _ = ray.wait(list(references.values()), num_returns=len(references), timeout=seconds)
        answers = {}
        for number, reference in references.items():
            with suppress(ray.exceptions.RayActorError):
                if reference in ready:
                    answers[number] = _result(reference)
            if not late and number not in answers:
                raise GlassrankError(
                    f"the shard {requests[number][0].name} does not respond; check that the "
                    "cluster has room for it and can read the index, and run this again"
                )
        return answers

    def close(self) -> None:
        """Ends their processes."""
        import ray

        for actor in self.actors:
            ray.kill(actor)
