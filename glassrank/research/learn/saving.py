"""Saves a learned model, without PyTorch; and the report of how it came about."""

from collections.abc import Callable
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from glassrank.backends.onnx_encoders import Quantized
from glassrank.models.io.model_folder import CARD, MODEL_FILES, WEIGHTS, write_texts
from glassrank.rerank import Reranker
from glassrank.research.learn.learn import Outcome
from glassrank.storage.atomic_folders import write_checksummed_folder
from glassrank.types import Doc

_TITLE_CHARS = 70
_STYLE = (
    "body{font:16px/1.5 system-ui;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "td,th{vertical-align:top;text-align:left;padding:.3rem 1rem .3rem 0;border-top:1px solid #ccc}"
)


def save_learned(folder: Path, reranker: Reranker, outcome: Outcome, report: str) -> None:
    """Writes a model folder that appears whole or not at all."""
    model, weights = reranker.model, outcome.weights
    arrays: dict[str, Any] = dict(model.weights.arrays)
    size, states = model.config.size, model.config.encoder.size
    projection = weights.projection @ model.weights.floats("projection.weight", size, states)
    arrays |= {
        "projection.weight": projection,
        "log_weights": _invert_softplus(weights.log),
        "length_weights": _invert_softplus(weights.length),
    }
    if model.first_stage_weight is not None:
        arrays["first_stage_weight"] = np.array(weights.first_stage, np.float32)
    plain = {}
    for name, array in arrays.items():
        if isinstance(array, Quantized):
            plain[name] = np.ascontiguousarray(array.values)
            plain[name.removesuffix(".weight") + ".scales"] = array.scales
        else:
            plain[name] = np.array(array, np.float32, order="C")
    usage = replace(reranker.usage, calibration=outcome.calibration)
    card = f"# {folder.name}\n\n```text\n{report}\n```\n"
    with write_checksummed_folder(folder, "model", MODEL_FILES, beside=CARD) as part:
        save_file(plain, part / WEIGHTS)
        write_texts(part, model.name, model, usage, reranker.saved.vocabulary, card)


def _invert_softplus(weights: Any) -> Any:
    return np.log(np.expm1(np.maximum(weights, 1e-6))).astype(np.float32)


def describe(outcome: Outcome, find_doc: Callable[[int], Doc]) -> str:
    """The report as text."""
    lines = [_headline(outcome), ""]
    for change in outcome.changes:
        lines.append(f"{change.text[:_TITLE_CHARS]}  (nDCG@10 {change.gain:+.3f})")
        for before, after in zip(change.before, change.after, strict=False):
            titles = [_title(find_doc(number)) for number in (before, after)]
            lines.append(f"    {titles[0]:{_TITLE_CHARS}}  {titles[1]}")
    return "\n".join(lines)


def render(outcome: Outcome, find_doc: Callable[[int], Doc]) -> str:
    """The report as an HTML page."""
    rows = []
    for change in outcome.changes:
        cells = [
            "<ol>" + "".join(f"<li>{escape(_title(find_doc(n)))}</li>" for n in numbers) + "</ol>"
            for numbers in (change.before, change.after)
        ]
        rows.append(
            f"<tr><th scope=row>{escape(change.text)}<br><small>{change.gain:+.3f}</small></th>"
            f"<td>{cells[0]}</td><td>{cells[1]}</td></tr>"
        )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>glassrank learn</title>'
        f"<style>{_STYLE}</style></head><body><h1>What was learned</h1>"
        f"<p>{escape(_headline(outcome)).replace(chr(10), '<br>')}</p>"
        "<table><thead><tr><th>query<th>before<th>after</thead><tbody>"
        f"{''.join(rows)}</tbody></table></body></html>\n"
    )


def _headline(outcome: Outcome) -> str:
    low, high = outcome.interval
    verdict = (
        "It helps: the interval is above 0."
        if outcome.helps
        else "It does not help for certain: the interval is not above 0. Nothing is changed."
    )
    return (
        f"Learned from {outcome.queries:,} queries; {outcome.held_out:,} others decide.\n"
        f"nDCG@10 before {outcome.before:.4f}, after {outcome.after:.4f}: "
        f"{outcome.after - outcome.before:+.4f}, 95% interval {low:+.4f} to {high:+.4f}.\n"
        f"{outcome.share:.0%} of the way from the old weights to the new ones. {verdict}"
    )


def _title(doc: Doc) -> str:
    text = " ".join((doc.title or doc.text[: 4 * _TITLE_CHARS]).split())
    return text if len(text) <= _TITLE_CHARS else f"{text[: _TITLE_CHARS - 2]} …"
