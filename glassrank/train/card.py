"""The card of a trained model: what it learnt from, what it can do."""

import json

from glassrank.models import Ranker
from glassrank.settings import to_plain
from glassrank.train.config import TrainConfig
from glassrank.train.prepared import Prepared
from glassrank.train.state import RunProgress
from glassrank.train.validate import Validation


def _beginning(config: TrainConfig, count: int, numbers: int) -> str:
    start = config.start
    if start.model is not None:
        return f"- Began as the trained model {start.model}; trained since: {start.parts}"
    if start.bert is not None:
        return f"- Began with the weights of {start.bert}; interaction: {start.interaction}"
    trained = "trained" if config.vectors.train else "as they were"
    return (
        f"- Word vectors: {count:,} words, {numbers:,} numbers, from "
        f"{config.vectors.source}, {trained}"
    )


def card(
    config: TrainConfig,
    prepared: Prepared,
    model: Ranker,
    progress: RunProgress,
    final: Validation | None = None,
) -> str:
    """What the model is, what it was trained on, and how good it is, in Markdown."""
    words = sum(p.numel() for n, p in model.named_parameters() if n.startswith("words."))
    rest = sum(p.numel() for n, p in model.named_parameters() if not n.startswith("words."))
    lines = [
        f"# {config.model}",
        "",
        f"Trained on {', '.join(c.name for c in config.collections)} "
        f"({len(prepared.train.queries):,} queries, {len(prepared.docs):,} documents) "
        f"for {progress.step:,} steps of {config.sampler.batch} queries.",
        "",
        f"- Loss: {config.loss.kind}; negatives: {config.sampler.negatives}, {config.sampler.kind}",
        _beginning(config, len(prepared.words), words),
        f"- Other parameters: {rest:,}",
        f"- Teacher: {config.candidates.teacher or 'none'}",
        f"- Best at step {progress.best_step:,}: {config.validation.measure} {progress.best:.4f} "
        f"on up to {config.validation.queries:,} dev queries",
    ]
    if final is not None:
        lines.append(
            f"- On all dev queries: {final.value:.4f} re-ranking {final.depth}, {final.at_all:.4f} "
            f"re-ranking all; the first stage alone {final.first_stage:.4f}"
        )
        if final.test is not None:
            lines.append(
                f"- On test queries: {final.test:.4f} at that depth; the first stage "
                f"alone {final.test_first_stage:.4f}"
            )
    settings = json.dumps(to_plain(config), indent=2)
    return "\n".join([*lines, "", "```json", settings, "```", ""])
