"""The training loop: steps, validations, the best model kept.

A step depends on its number and the seed alone (its batch, its dropout), so a run that was killed
and goes on ends with the same weights, on a CPU to the last bit.
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer, SparseAdam

from glassrank.models import MODELS, Ranker, WordTable
from glassrank.models.checkpoint import Usage, save_model
from glassrank.settings import from_plain
from glassrank.train.card import card
from glassrank.train.config import OptimizerConfig, TrainConfig
from glassrank.train.losses import loss
from glassrank.train.prepared import Prepared
from glassrank.train.sampler import Sampler
from glassrank.train.state import Progress, load_state, save_state
from glassrank.train.tensors import Examples, SplitTensors, Tokens
from glassrank.train.validate import Validation, quality_by_depth, validate

Say = Callable[[str], None]


@dataclass(frozen=True)
class Trained:
    model: Ranker
    progress: Progress
    final: Validation


def build_model(config: TrainConfig, prepared: Prepared) -> Ranker:
    family = MODELS[config.model]
    torch.manual_seed(config.seed)
    settings = {"size": prepared.vectors.shape[1], **config.config}
    table = WordTable(
        torch.from_numpy(prepared.vectors.copy()),
        torch.from_numpy(prepared.idf),
        trained=config.vectors.train,
    )
    model = family.model(from_plain(family.config, settings, "config"), table)
    if config.first_stage_weight:
        model.mix_first_stage()
    return model


def make_optimizers(model: Ranker, config: OptimizerConfig) -> dict[str, Optimizer]:
    """Adam with one rate for contextual layers and one for the rest; sparse updates for words."""
    contextual: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    words: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        group = (
            words if name.startswith("words.") else contextual if "contextual." in name else rest
        )
        group.append(parameter)
    groups = [
        {"params": parameters, "lr": rate, "base": rate}
        for parameters, rate in ((contextual, config.contextual), (rest, config.rest))
        if parameters
    ]
    optimizers: dict[str, Optimizer] = {"dense": Adam(groups)}
    if words:
        sparse = [{"params": words, "lr": config.vectors, "base": config.vectors}]
        optimizers["words"] = SparseAdam(sparse)
    return optimizers


def scores_of(model: Ranker, examples: Examples) -> Tensor:
    """(B, N): each query is encoded once for its N documents."""
    batch, width = examples.grades.shape
    query = model.encode_query(examples.query)
    repeated = query.rows(torch.arange(batch, device=query.mask.device).repeat_interleave(width))
    doc = model.encode_doc(examples.doc)
    return model.rank(repeated, doc, examples.first_stage.flatten()).score.view(batch, width)


def train(
    config: TrainConfig,
    prepared: Prepared,
    out: Path,
    device: str = "cpu",
    say: Say = lambda _: None,
    should_stop: Callable[[int], bool] = lambda step: False,
) -> Trained:
    """Runs to the end, or goes on from where an earlier call was stopped."""
    target = torch.device(device)
    model = build_model(config, prepared).to(target)
    docs = Tokens.of(prepared.docs, config.doc_length, target)
    data = SplitTensors.of(prepared, prepared.train, docs, config.query_length, target)
    dev = SplitTensors.of(prepared, prepared.dev, docs, config.query_length, target)
    sampler = Sampler(prepared.train, config.sampler, config.seed)
    optimizers = make_optimizers(model, config.optimizer)
    progress = load_state(out / "last", model, optimizers) or Progress()
    if progress.step:
        say(f"going on from step {progress.step:,}")
    model.train()
    started, first_step = time.perf_counter(), progress.step
    running = torch.zeros((), device=target)
    while progress.step < config.optimizer.steps and not progress.finished:
        examples = data.examples(sampler.batch(progress.step))
        torch.manual_seed(config.seed * 1_000_003 + progress.step)
        scores = scores_of(model, examples)
        value = loss(config.loss, scores, examples.grades, examples.teacher)
        _update(model, optimizers, value, config.optimizer, progress)
        running += value.detach()
        progress.step += 1
        last = progress.step == config.optimizer.steps
        if progress.step % config.validation.every == 0 or last:
            found = validate(model, dev, config.validation.measure, config.validation.queries)
            rate = (progress.step - first_step) / (time.perf_counter() - started)
            _record(config, prepared, model, found, running, progress, rate, out, say)
            running.zero_()
            save_state(out / "last", model, optimizers, progress)
        if should_stop(progress.step):
            break
    return _finish(config, prepared, model, dev, progress, out, say)


def _update(
    model: nn.Module,
    optimizers: dict[str, Optimizer],
    value: Tensor,
    config: OptimizerConfig,
    progress: Progress,
) -> None:
    warm = min(1.0, (progress.step + 1) / config.warmup) if config.warmup else 1.0
    for name, optimizer in optimizers.items():
        for group in optimizer.param_groups:
            # As in the authors' code, only the dense rates fall when dev stops improving.
            factor = progress.rate_factor if name == "dense" else 1.0
            group["lr"] = group["base"] * warm * factor
        optimizer.zero_grad(set_to_none=True)
    torch.autograd.backward(value)
    if config.clip is not None:
        dense = [p for p in model.parameters() if p.grad is not None and not p.grad.is_sparse]
        nn.utils.clip_grad_norm_(dense, config.clip)
    for optimizer in optimizers.values():
        optimizer.step()


def _record(
    config: TrainConfig,
    prepared: Prepared,
    model: Ranker,
    found: Validation,
    running: Tensor,
    progress: Progress,
    rate: float,
    out: Path,
    say: Say,
) -> None:
    """One validation: log it; keep the model if it is the best, else lower rates or stop."""
    row = {
        "step": progress.step,
        "loss": float(running) / config.validation.every,
        "value": found.value,
        "depth": found.depth,
        "at_all": found.at_all,
        "first_stage": found.first_stage,
        "steps_per_second": round(rate, 3),
    }
    progress.history.append({name: row[name] for name in row if name != "steps_per_second"})
    out.mkdir(parents=True, exist_ok=True)
    with (out / "log.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    say(
        f"step {progress.step:,}: loss {row['loss']:.4f}, {config.validation.measure} "
        f"{found.value:.4f} at depth {found.depth} (first stage {found.first_stage:.4f}), "
        f"{rate:.1f} steps/s"
    )
    if found.value > progress.best or not np.isfinite(progress.best):
        progress.best, progress.best_step = found.value, progress.step
        progress.best_depth, progress.without_gain, progress.plateau = found.depth, 0, 0
        usage = Usage(config.query_length, config.doc_length, found.depth, config.candidates.method)
        save_model(
            out / "best", model, usage, prepared.words, card(config, prepared, model, progress)
        )
        return
    progress.without_gain += 1
    progress.plateau += 1
    if progress.plateau > config.optimizer.plateau_patience:
        progress.rate_factor *= config.optimizer.plateau_factor
        progress.plateau = 0
    progress.finished = progress.without_gain >= config.validation.patience


def _finish(
    config: TrainConfig,
    prepared: Prepared,
    model: Ranker,
    dev: SplitTensors,
    progress: Progress,
    out: Path,
    say: Say,
) -> Trained:
    """The best weights, measured on all dev queries, with the depth that suits them."""
    from glassrank.models.checkpoint import load_model

    best = load_model(out / "best").model.to(next(model.parameters()).device)
    final = validate(best, dev, config.validation.measure)
    if prepared.test is not None:  # looked at once, with the depth that dev chose
        device = dev.grades.device
        test = SplitTensors.of(prepared, prepared.test, dev.docs, config.query_length, device)
        by_depth, first_stage = quality_by_depth(best, test, config.validation.measure)
        value = by_depth[min(final.depth, max(by_depth))]
        final = replace(final, test=value, test_first_stage=first_stage)
    usage = Usage(config.query_length, config.doc_length, final.depth, config.candidates.method)
    text = card(config, prepared, best, progress, final)
    save_model(out / "best", best, usage, prepared.words, text)
    (out / "result.json").write_text(json.dumps(asdict(final), indent=1), "utf-8")
    say(
        f"best at step {progress.best_step:,}: on all dev queries {config.validation.measure} "
        f"{final.value:.4f} at depth {final.depth} (first stage {final.first_stage:.4f})"
    )
    if final.test is not None:
        say(f"on test queries {final.test:.4f} (first stage {final.test_first_stage:.4f})")
    return Trained(best, progress, final)
