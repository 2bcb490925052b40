"""Runs the experiments of a plan on a GPU for a limited time, one process for each config and seed.

    python benchmarks/paper_runs.py pack configs/ablations/plan.toml --out texts
    python benchmarks/paper_runs.py run configs/ablations/plan.toml --texts texts --out results \\
        --seconds 1600 --device cuda --processes 3

`pack` runs where the data is: it reads and searches the collections of all configs, so that the
GPU's machine needs neither them nor Numba. `run` prepares arrays from them, then writes
OUT/TABLE-CONFIG.SEED.json (as `experiment --json` has it) after each run, and leaves out what is
already there: the next session goes on. A run begins only if its estimate fits the time left.
"""

import argparse
import hashlib
import json
import lzma
import pickle
import shutil
import subprocess
import sys
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

from glassrank.research.train.config import TrainConfig
from glassrank.research.train.config_files import preparation_settings, read_config


def read_plan(path: Path) -> tuple[dict[str, Any], list[tuple[Path, float, int]]]:
    """The plan, and its runs in their order: config, estimated seconds, seed."""
    plan = tomllib.loads(path.read_text("utf-8"))
    return plan, [
        ((path.parent / f"{name}.toml").resolve(), float(group["seconds"]), seed)
        for group in plan["runs"]
        for name in group["configs"]
        for seed in group.get("seeds", plan["seeds"])
    ]


def texts_name(config: TrainConfig) -> str:
    """Configs that read the same texts in the same lengths share a file."""
    told = json.dumps(preparation_settings(config), sort_keys=True, default=str)
    return f"{Path(config.prepared).parent.name}-{hashlib.sha256(told.encode()).hexdigest()[:8]}"


def pack(options: argparse.Namespace) -> None:
    """Write the texts and candidates of each collection."""
    from glassrank.research.train.training_texts import read_collections

    options.out.mkdir(parents=True, exist_ok=True)
    for path, *_ in read_plan(options.plan)[1]:
        config = read_config(path)
        file = options.out / f"{texts_name(config)}.pickle.xz"
        if file.exists():
            continue
        texts = read_collections(config, path.parent, say)
        with lzma.open(file, "wb", preset=1) as packed:
            pickle.dump(replace(texts, docs=list(texts.docs)), packed)
        say(f"{file}: {file.stat().st_size:,} bytes")


def prepare(options: argparse.Namespace, path: Path) -> None:
    """Make the arrays of a config from its packed texts, once."""
    from glassrank.research.train.prepare import prepare as make
    from glassrank.research.train.prepared_folders import save_prepared

    config = read_config(path)
    folder = path.parent / config.prepared
    if not folder.exists():
        with lzma.open(options.texts / f"{texts_name(config)}.pickle.xz") as packed:
            texts = pickle.load(packed)  # written by `pack`
        folder.parent.mkdir(parents=True, exist_ok=True)
        save_prepared(folder, make(config, texts, path.parent, say, options.device))


def run(options: argparse.Namespace) -> None:
    """Run as many of the plan as fit the time."""
    began = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    plan, runs = read_plan(options.plan)
    waiting = [run for run in runs if not result_file(options.out, run[0], run[2]).exists()]
    running: list[subprocess.Popen[bytes]] = []
    for path, seconds, seed in waiting:
        while len([one for one in running if one.poll() is None]) >= options.processes:
            time.sleep(0.2)
        left = options.seconds - (time.monotonic() - began)
        if seconds * options.scale > left:
            say(f"no time for {path.stem}, seed {seed}: {left:.0f} s are left")
            continue
        prepare(options, path)
        say(f"{time.monotonic() - began:6.0f} s: {path.stem}, seed {seed}")
        target = result_file(options.out, path, seed)
        command = [sys.executable, __file__, "one", str(path), "--seed", str(seed)]
        command += ["--device", options.device, "--out", str(target)]
        command += [part for name in plan["measures"] for part in ("-m", name)]
        with target.with_suffix(".log").open("wb") as log:
            running.append(subprocess.Popen(command, stdout=log, stderr=log))
    for one in running:
        try:
            one.wait(max(1.0, options.seconds - (time.monotonic() - began)))
        except subprocess.TimeoutExpired:
            one.terminate()
    shutil.copy(options.plan, options.out / "plan.toml")
    say(f"{len(list(options.out.glob('*.json')))} results in {options.out}")


def result_file(out: Path, path: Path, seed: int) -> Path:
    """OUT/TABLE-CONFIG.SEED.json."""
    return out / f"{path.parent.name}-{path.stem}.{seed}.json"


def one(options: argparse.Namespace) -> None:
    """One config with one seed, and whether the model reads its query."""
    from glassrank.research.commands.experiment import as_plain
    from glassrank.research.train.experiment import experiment

    result = experiment([options.plan], [options.seed], options.m, device=options.device, say=say)
    found = {**as_plain(result), "with another query": compare_queries(options)}
    partial = options.out.with_suffix(".part")
    partial.write_text(json.dumps(found), "utf-8")
    partial.rename(options.out)


def compare_queries(options: argparse.Namespace) -> dict[str, float]:
    """Of 200 dev queries: RR@10 of all candidates re-ranked, the same with the next query in the
    place of each, and the correlation of both orders: 1 if the model does not read its query."""
    import numpy as np

    from glassrank.models.io.load import load_model
    from glassrank.research.train.batches import SplitTensors
    from glassrank.research.train.loop import validation_precision
    from glassrank.research.train.prepared_folders import load_prepared
    from glassrank.research.train.validate import measure_by_depth, score_candidates
    from glassrank.storage.mapped_arrays import Ragged

    config, home = read_config(options.plan), options.plan.parent
    model = load_model(home / config.out / f"seed-{options.seed}" / "best").model
    model = model.to(options.device)
    prepared = load_prepared(home / config.prepared, config)
    queries = np.arange(min(200, len(prepared.dev.queries)))
    split = prepared.dev.select(queries)
    others = Ragged.from_rows([split.queries[q] for q in np.roll(queries, 1).tolist()], np.int32)
    scores, values = [], []
    for asked in (split, replace(split, queries=others)):
        data = SplitTensors.read(asked, prepared.docs, config.lengths, options.device)
        scores.append(score_candidates(model, data, queries, validation_precision(config, model)))
        values.append(float(measure_by_depth(asked, queries, scores[-1], "RR@10")[0].mean[-1]))
    lists = zip(*(np.split(each, split.docs.offsets[1:-1]) for each in scores), strict=True)
    ranks = [[each.argsort().argsort() for each in both] for both in lists if len(both[0]) > 1]
    alike = [np.corrcoef(own, other)[0, 1] for own, other in ranks]
    return {"RR@10": values[0], "RR@10 with another": values[1], "alike": float(np.mean(alike))}


def say(line: str) -> None:
    """Print at once: the output may be cut off."""
    print(line, flush=True)


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["pack", "run", "one"])
    parser.add_argument("plan", type=Path, help="the plan; a config with `one`")
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=1600)
    parser.add_argument("--scale", type=float, default=1.0, help="of the plan's estimates")
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-m", action="append", default=[])
    options = parser.parse_args()
    {"pack": pack, "run": run, "one": one}[options.what](options)


if __name__ == "__main__":
    main()
