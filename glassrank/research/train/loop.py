"""The training loop: steps, validations, early stopping, the best checkpoint. A resumed run ends
with the same weights, on a CPU to the last bit.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassrank.backends.gpu import get_device
from glassrank.errors import InputError
from glassrank.models import Ranker
from glassrank.models.io.load import load_model
from glassrank.models.io.model_folder import Usage
from glassrank.models.io.torch_files import save_model
from glassrank.research.train.batches import Examples, Sampler, SplitTensors, Tokens
from glassrank.research.train.build import build_model, fit_model_statistics, load_vector_teacher
from glassrank.research.train.config import Say, TrainConfig
from glassrank.research.train.config_files import run_settings
from glassrank.research.train.cuda_graph_step import CudaGraphStep
from glassrank.research.train.distributed import ALONE, Team
from glassrank.research.train.prepared import Prepared
from glassrank.research.train.report import LOG, make_card, try_to_draw
from glassrank.research.train.state import RunProgress, load_state, save_state
from glassrank.research.train.step import Step, make_optimizers
from glassrank.research.train.validate import (
    Validation,
    add_calibration,
    quality_by_depth,
    validate,
)
from glassrank.storage.files import append_line, atomic_write


@dataclass(frozen=True)
class TrainingResult:
    """The best model of a run, and its quality."""

    model: Ranker
    progress: RunProgress
    final: Validation


def train(
    config: TrainConfig,
    prepared: Prepared,
    out: Path,
    device: str = "cpu",
    say: Say = lambda _: None,
    should_stop: Callable[[int], bool] | None = None,
    team: Team = ALONE,
    base: Path = Path(),
    track: Callable[[Mapping[str, float]], None] = lambda _: None,
) -> TrainingResult:
    """Train to the end, or resume where an earlier call stopped. In a team, every process calls
    this, and the first decides with `should_stop`. Paths in the config are relative to `base`.
    `track` receives the values of each validation."""
    if config.sampler.batch < team.size:
        raise InputError(
            f"a batch of {config.sampler.batch} is too small for {team.size} processes; raise "
            "sampler.batch or start fewer"
        )
    target = get_device(device)
    model = build_model(config, prepared, base).to(target)
    docs = Tokens.of(prepared.docs, config.doc_length, target)
    vector_teacher = load_vector_teacher(config, base)
    if vector_teacher is not None:
        vector_teacher.to(target)
    if config.start.model is None or (config.start.layers and vector_teacher is not None):
        fit_model_statistics(model, docs, vector_teacher)
    data = SplitTensors.of(prepared.train, docs, config.query_length, target)
    dev = SplitTensors.of(prepared.dev, docs, config.query_length, target)
    sampler = Sampler(prepared.train, config.sampler, config.seed)
    optimizers = make_optimizers(model, config.optimizer)
    settings = {**run_settings(config), "arrays": prepared.fingerprint}
    with team.leader_first():
        progress = load_state(out / "last", model, optimizers, settings) or RunProgress()
    if progress.step != team.broadcast(progress.step):
        raise InputError(f"{out} must be the same folder for all processes")
    if progress.step and team.is_leader:
        say(f"resuming at step {progress.step:,}")
    model.train()
    run = _TrainingRun(config, prepared, model, dev, out, say, progress.step)
    running = torch.zeros((), device=target)

    recorded = target.type == "cuda" and team.size == 1
    # torch.manual_seed records the stack for every kind of device, which takes milliseconds.
    seed = torch.default_generator.manual_seed if target.type == "cpu" else torch.manual_seed

    def make_batch(step: int) -> Examples:
        return data.examples(team.share(sampler.batch(step)), pad_to_max=recorded)

    def make_step() -> Step:
        """A CUDA graph if the model allows it: one from outside the package may synchronize."""
        if recorded:
            try:
                return CudaGraphStep(model, optimizers, config, examples, vector_teacher)
            except RuntimeError as error:
                say(f"training without CUDA graphs: {str(error).splitlines()[0]}")
        return Step(model, optimizers, config, team, vector_teacher)

    examples = make_batch(progress.step)
    step: Step | None = None
    while progress.step < config.optimizer.steps and not progress.finished:
        step = step or make_step()
        seed(team.seed(config.seed * 1_000_003 + progress.step))
        value = step.gradients(examples)
        # Here, because the update waits for the GPU: the next batch is ready before it ends.
        examples = make_batch(progress.step + 1)
        step.update(progress)
        running += value
        progress.step += 1
        last = progress.step == config.optimizer.steps
        if progress.step % config.validation.every == 0 or last:
            total = team.total(running)
            if team.is_leader:
                run.validate(progress, total)
                track(progress.history[-1])
                save_state(out / "last", model, optimizers, progress, settings)
            progress = team.broadcast(progress)
            running.zero_()
        if should_stop is not None and team.broadcast(
            team.is_leader and should_stop(progress.step)
        ):
            break
    with team.leader_first():
        if team.is_leader:
            return run.finish(progress)
    final = json.loads((out / "result.json").read_text("utf-8"))
    return TrainingResult(run.load_best(), progress, Validation(**final))


def is_stuck(history: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the last three losses are equal, though batches differ."""
    last = [row["loss"] for row in history[-3:] if row["loss"] is not None]  # None: was NaN
    return len(last) == 3 and max(last) - min(last) <= 1e-5 * abs(max(last))


def validation_precision(config: TrainConfig, model: Ranker) -> str:
    """Transformers are validated in their training precision, which is faster."""
    return config.optimizer.precision if model.info.uses_subwords else "float32"


@dataclass(frozen=True)
class _TrainingRun:
    """What validations and the end of a run need."""

    config: TrainConfig
    prepared: Prepared
    model: Ranker
    dev: SplitTensors
    out: Path
    say: Say
    first_step: int
    started: float = field(default_factory=time.perf_counter)

    def validate(self, progress: RunProgress, loss: Tensor) -> None:
        """Log a validation; save the model if it is the best, else lower rates or stop."""
        config, wanted = self.config, self.config.validation
        precision = validation_precision(config, self.model)
        validation = validate(
            self.model, self.dev, wanted.measure, wanted.queries, precision, wanted.depth
        )
        rate = (progress.step - self.first_step) / (time.perf_counter() - self.started)
        steps = (progress.step - 1) % wanted.every + 1  # the last interval may be shorter
        names = ("value", "depth", "at_all", "compared", "first_stage")
        row = {
            "step": progress.step,
            "loss": float(loss) / steps,
            **{name: getattr(validation, name) for name in names},
        }
        progress.history.append(row)
        append_line(self.out, LOG, json.dumps({**row, "steps_per_second": round(rate, 3)}))
        self.say(
            f"step {progress.step:,}: loss {row['loss']:.4f}, {wanted.measure} "
            f"{validation.at_all:.4f} re-ranking all, {validation.value:.4f} at depth "
            f"{validation.depth} (first stage {validation.first_stage:.4f}), {rate:.1f} steps/s"
        )
        if is_stuck(progress.history) and not is_stuck(progress.history[:-1]):
            since = progress.history[-3]["step"]
            self.say(
                f"the loss is stuck at {row['loss']:.4f} since step {since:,}: all scores may be "
                "equal, for example after a dead ReLU; start again with lower rates in "
                "[optimizer], or another seed"
            )
        if validation.compared > progress.best or not np.isfinite(progress.best):
            progress.best, progress.best_step = validation.compared, progress.step
            progress.best_depth, progress.without_gain, progress.plateau = validation.depth, 0, 0
            card = make_card(config, self.prepared, self.model, progress)
            usage = self._make_usage(validation)
            save_model(self.out / "best", self.model, usage, self.prepared.words, card)
            return
        progress.without_gain += 1
        progress.plateau += 1
        if progress.plateau > config.optimizer.plateau_patience:
            progress.rate_factor *= config.optimizer.plateau_factor
            progress.plateau = 0
        progress.finished = progress.without_gain >= wanted.patience

    def load_best(self) -> Ranker:
        """The best weights so far."""
        best: Ranker = load_model(self.out / "best", trusted=[self.config.model]).model
        return best.to(self.model.device)

    def finish(self, progress: RunProgress) -> TrainingResult:
        """Evaluate the best weights on all dev queries, choose their depth, and save them."""
        config, prepared, dev, say = self.config, self.prepared, self.dev, self.say
        measure, best = config.validation.measure, self.load_best()
        if config.fixed_first_stage_weight is not None:
            best.mix_first_stage(config.fixed_first_stage_weight)
        precision = validation_precision(config, best)
        final = validate(best, dev, measure, None, precision)
        if prepared.test is not None:  # once, with the depth chosen on dev queries
            test = SplitTensors.of(prepared.test, dev.docs, config.query_length, dev.grades.device)
            curve, first_stage = quality_by_depth(best, test, measure, None, precision)
            final = replace(final, test=curve.at(final.depth), test_first_stage=first_stage)
        usage, paragraph = add_calibration(self._make_usage(final), best, dev, precision)
        text = make_card(config, prepared, best, progress, final) + paragraph
        save_model(self.out / "best", best, usage, prepared.words, text, config.vectors.saved)
        with atomic_write(self.out / "result.json") as file:
            json.dump(asdict(final), file, indent=1)
        say(
            f"best at step {progress.best_step:,}: on all dev queries {measure} "
            f"{final.value:.4f} at depth {final.depth} (first stage {final.first_stage:.4f})"
        )
        if final.test is not None:
            say(f"on test queries {final.test:.4f} (first stage {final.test_first_stage:.4f})")
        try_to_draw(self.out, measure, say)
        return TrainingResult(best, progress, final)

    def _make_usage(self, validation: Validation) -> Usage:
        """A best depth near the deepest one tried sets no limit: deeper may be better still."""
        config, depth = self.config, validation.depth
        return Usage(
            config.query_length,
            config.doc_length,
            depth if depth < 0.9 * config.candidates.dev_depth else None,
            config.candidates.method,
            passages=config.passages,
            remove_stop_words=config.remove_stop_words,
        )
