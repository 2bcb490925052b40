"""A Ray cluster: tasks that are done again if their worker dies, and an actor for each shard.

Nothing outside of this file imports Ray, and this file does so when a cluster is asked for.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import isinf
from typing import Any

from glassrank.cluster.shard import Questions, Shards, ShardServer
from glassrank.deadline import NEVER, Deadline
from glassrank.errors import GlassrankError
from glassrank.integrations import extra
from glassrank.rerank.reranker import Reranker

LOCAL = "local"
_OBJECT_BYTES = 256 << 20
"""On one machine: what travels are numbers and scores."""
_CALLS_AT_ONCE = 4
_TRIES = 20
_PATIENCE_SECONDS = 900.0
"""That a shard may take to come back elsewhere, where no deadline says otherwise."""


@contextmanager
def connected(address: str) -> Iterator[None]:
    """To a cluster, or to this machine as one; left again at the end, unless somebody else was
    connected already."""
    with extra("cluster"):
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody is told
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
            f"there is no Ray cluster at {address!r} ({error}); give the address that `ray start` "
            f"printed, or {LOCAL}"
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
) -> Iterator[tuple[int, Any]]:
    """Each call's number and result, as they come. What a dead worker was at is done again
    elsewhere; what is wrong with the input is said once, and the rest is left."""
    import ray

    remote = ray.remote(
        max_retries=_TRIES, num_cpus=1, num_gpus=gpus, scheduling_strategy="SPREAD"
    )(task)
    pending = {remote.remote(*call): number for number, call in enumerate(calls)}
    try:
        while pending:
            (done,), _ = ray.wait(list(pending), num_returns=1)
            yield pending[done], _result(done)
            del pending[done]
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


class ShardActor(ShardServer):
    """A shard in a process of its own; it loads its models there."""

    def __init__(self, models: Sequence[str], device: str, exact: bool, verify: bool) -> None:
        super().__init__(
            [Reranker.load(name, device, exact=exact) for name in models], verify=verify
        )


class RayShards(Shards):
    """One actor for each shard. Ray starts one that died again, where there is room, and what it
    was asked is asked again."""

    def __init__(
        self,
        count: int,
        models: Sequence[str] = (),
        *,
        device: str = "cpu",
        exact: bool = False,
        verify: bool = True,
    ) -> None:
        import ray

        # Half of the machines may go, and all shards still find a place.
        share = min(1.0, processors() / count / 2)
        actor = ray.remote(ShardActor).options(
            num_cpus=round(share, 3),
            num_gpus=1 if device == "cuda" else 0,
            max_restarts=-1,
            max_task_retries=-1,
            max_concurrency=_CALLS_AT_ONCE,
            scheduling_strategy="SPREAD",
        )
        self.actors = [actor.remote(list(models), device, exact, verify) for _ in range(count)]

    def __len__(self) -> int:
        return len(self.actors)

    def ask(self, call: str, questions: Questions, deadline: Deadline = NEVER) -> dict[int, Any]:
        """All at once."""
        import ray

        references = {
            number: getattr(self.actors[number], call).remote(*question)
            for number, question in questions.items()
        }
        if not references:
            return {}
        late = not isinf(deadline.at)
        seconds = max(0.0, deadline.remaining() / 1e3) if late else _PATIENCE_SECONDS
        ready, _ = ray.wait(list(references.values()), num_returns=len(references), timeout=seconds)
        answers = {}
        for number, reference in references.items():
            if reference in ready:
                try:
                    answers[number] = _result(reference)
                    continue
                except ray.exceptions.RayActorError:
                    pass
            if not late:
                raise GlassrankError(
                    f"the shard {questions[number][0].name} does not come back; see whether the "
                    "cluster has room for it and sees the index, and run this again"
                )
        return answers

    def close(self) -> None:
        """Ends their processes."""
        import ray

        for actor in self.actors:
            ray.kill(actor)
