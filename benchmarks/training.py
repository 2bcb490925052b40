"""Whether training keeps the device busy: the loop beside the same steps on tensors already there.

    python benchmarks/training.py --device cuda --model bert     # or mores, or tk
    python benchmarks/training.py                # the CPU, with smaller batches

The loop is the real one: it draws a batch, cuts it from the prepared arrays, and learns from it.
Beside it, a second model learns from batches that were cut beforehand: on a GPU from one of them,
as a CUDA graph of the whole step that is replayed again and again (word vectors stay as they are in
it, since a table's rows cannot be recorded). Both take turns, block by block, so that a noisy
neighbour disturbs them alike; figures are medians of blocks after a warm-up.
Needs torch, numpy and safetensors. The last line is JSON.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from glassrank_bench.measuring import processor
from numpy.typing import NDArray

from glassrank.models.io.model_folder import SPECIAL_SUBWORDS, SPECIAL_WORDS
from glassrank.research.train.batches import Sampler, SplitTensors, Tokens
from glassrank.research.train.build import build_model
from glassrank.research.train.config import TrainConfig
from glassrank.research.train.cuda_graph_step import compile_if_long
from glassrank.research.train.loop import train
from glassrank.research.train.prepared import Prepared, Split
from glassrank.research.train.state import RunProgress
from glassrank.research.train.step import Step, make_optimizers
from glassrank.settings import from_plain
from glassrank.storage.mapped_arrays import Ragged

WORDS, SIZE, DEPTH = 20_000, 300, 100
WARM_UP = 1
"""Blocks that do not count."""


def made_up(docs: int, queries: int, *, pieces: bool = False, seed: int = 0) -> Prepared:
    """Documents of 20 to 200 Zipf-distributed words or pieces, queries of 3 to 12, 100 candidates
    each."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(WORDS, SIZE)).astype(np.float32)
    vectors[0] = 0

    def texts(count: int, shortest: int, longest: int) -> Ragged:
        offsets = np.zeros(count + 1, np.int64)
        np.cumsum(rng.integers(shortest, longest + 1, count), out=offsets[1:])
        ids = (2 + (WORDS - 2) ** rng.random(offsets[-1])).astype(np.int32)
        return Ragged(offsets, np.minimum(ids, WORDS - 1))

    def split(count: int) -> Split:
        grades = np.full((count, DEPTH), -1, np.int32)
        grades[np.arange(count), rng.integers(0, DEPTH, count)] = 1
        found = rng.integers(0, docs, count * DEPTH).astype(np.int32)
        return Split(
            queries=texts(count, 3, 12),
            collection=np.zeros(count, np.int32),
            docs=Ragged(np.arange(count + 1) * DEPTH, found),
            grades=grades.ravel(),
            ranks=np.tile(np.arange(1, DEPTH + 1, dtype=np.int32), count),
            first_stage=rng.random(count * DEPTH).astype(np.float32),
            teacher=rng.random(count * DEPTH).astype(np.float32),
        )

    special = SPECIAL_SUBWORDS if pieces else SPECIAL_WORDS
    words = [*special, *(str(number) for number in range(len(special), WORDS))]
    idf: NDArray[np.float32] = np.ones(WORDS, np.float32)
    return Prepared(words, vectors, idf, texts(docs, 20, 200), split(queries), split(4), {})


def run_config(model: str, batch: int, width: int, steps: int, precision: str) -> TrainConfig:
    """TK with 2 layers of 10 heads of 32, or a transformer of MiniLM's shape, and a teacher."""
    small = {"size": 384, "layers": 6, "heads": 12, "feed_forward": 1536}
    layers = {"layers": 2, "heads": 10, "attention_size": 32, "per_head": True, "feed_forward": 300}
    shapes: dict[str, dict[str, object]] = {
        "tk": {"contextual": layers, "term_weights": True},
        "bert": {"encoder": small},
        "mores": {"document": small, "query": {**small, "layers": 4}, "blocks": 2},
    }
    plain = {
        "model": model,
        "out": "out",
        "prepared": "prepared",
        "collections": [{"name": "made up", "docs": "", "train_queries": "", "train_qrels": ""}],
        "config": shapes[model],
        "sampler": {"batch": batch, "negatives": width - 1},
        "loss": {"kind": "kl"},
        "optimizer": {"steps": steps, "clip": 1.0, "precision": precision},
        "validation": {"every": steps},
    }
    return from_plain(TrainConfig, plain)


class ReadySteps:
    """The loop's steps on examples that were cut beforehand."""

    def __init__(self, config: TrainConfig, prepared: Prepared, device: torch.device) -> None:
        docs = Tokens.of(prepared.docs, config.doc_length, device)
        data = SplitTensors.of(prepared.train, docs, config.query_length, device)
        sampler = Sampler(prepared.train, config.sampler, config.seed)
        self.config = config
        self.model = build_model(config, prepared).to(device).train()
        self.step = Step(self.model, make_optimizers(self.model, config.optimizer), config)
        self.progress = RunProgress()
        self.examples = [data.examples(sampler.batch(i)) for i in range(config.optimizer.steps)]
        self.running = torch.zeros((), device=device)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            examples = self.examples[self.progress.step]
            torch.manual_seed(self.config.seed * 1_000_003 + self.progress.step)
            self.running += self.step.gradients(examples)
            self.step.update(self.progress)
            self.progress.step += 1


class Replayed:
    """A whole step, optimizer and all, as one CUDA graph on one batch: no launch but its own."""

    def __init__(self, config: TrainConfig, prepared: Prepared, device: torch.device) -> None:
        docs = Tokens.of(prepared.docs, config.doc_length, device)
        data = SplitTensors.of(prepared.train, docs, config.query_length, device)
        batch = Sampler(prepared.train, config.sampler, config.seed).batch(0)
        examples = data.examples(batch, pad_to_max=True)
        model = build_model(config, prepared).to(device).train()
        if model.words is not None:
            model.words.requires_grad_(False)
        optimizers = make_optimizers(model, config.optimizer)
        for group in optimizers["dense"].param_groups:
            group["capturable"] = True
        step = Step(model, optimizers, config)
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with compile_if_long(model, config), torch.cuda.stream(stream):
            for _ in range(3):
                step.gradients(examples)
                optimizers["dense"].step()
            stream.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, stream=stream):
                step.gradients(examples)
                optimizers["dense"].step()
        self.used = step, examples  # their memory is what the graph reads and writes
        torch.cuda.current_stream().wait_stream(stream)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.graph.replay()


def measure(
    config: TrainConfig, prepared: Prepared, device: torch.device, block: int
) -> dict[str, list[float]]:
    """Seconds of each block. The loop reports its steps, and between two of its blocks the other
    model has its turn."""
    kind = Replayed if device.type == "cuda" else ReadySteps
    ready = kind(config, prepared, device)
    seconds: dict[str, list[float]] = {"loop": [], "ready": []}
    clock = [0.0]

    def now() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    def after(step: int) -> bool:
        if step % block == 0 and step < config.optimizer.steps:
            seconds["loop"].append(now() - clock[0])
            start = now()
            ready.run(block)
            seconds["ready"].append(now() - start)
            clock[0] = now()
        return False

    with tempfile.TemporaryDirectory() as out:
        clock[0] = now()
        train(config, prepared, Path(out), str(device), should_stop=after)
    return seconds


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return processor()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu", help="cpu, cuda, or cuda:1")
    parser.add_argument("--model", choices=("tk", "bert", "mores"), default="tk")
    parser.add_argument("--steps", type=int, help="in each block; 20 on a GPU, 3 on the CPU")
    parser.add_argument("--blocks", type=int, default=7, help="that count, after one that does not")
    parser.add_argument("--batch", type=int, help="queries; 48 on a GPU, 4 on the CPU")
    parser.add_argument("--width", type=int, help="documents of each; 8 on a GPU, 4 on the CPU")
    options = parser.parse_args()
    device = torch.device(options.device)
    large = device.type == "cuda"
    block = options.steps or (20 if large else 3)
    batch, width = options.batch or (48 if large else 4), options.width or (8 if large else 4)
    torch.set_float32_matmul_precision("high")
    size = (20_000, 10_000) if large else (2_000, 1_000)
    prepared = made_up(*size, pieces=options.model != "tk")
    # One step more: the loop ends with a validation, which must not fall into the last block.
    steps = (WARM_UP + options.blocks) * block + 1
    config = run_config(options.model, batch, width, steps, "bf16" if large else "float32")
    seconds = measure(config, prepared, device, block)
    speed = {
        name: block * batch * width / statistics.median(times[WARM_UP:])
        for name, times in seconds.items()
    }
    ratio = speed["loop"] / speed["ready"]
    print(
        f"{device_name(device)}, torch {torch.__version__}; {options.model}, "
        f"{batch} queries x {width} documents"
    )
    print(f"{'the loop':28} {speed['loop']:12,.0f} examples/s   {ratio:5.2f}")
    other = "one CUDA graph of the step" if large else "on tensors already there"
    print(f"{other:28} {speed['ready']:12,.0f} examples/s   {1:5.2f}")
    result = {
        "device": device_name(device),
        "model": options.model,
        "batch": batch,
        "width": width,
        "steps": block * options.blocks,
        "examples_per_second": speed,
        "ratio": ratio,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
