"""Compares our models with what the authors' own code computes.

    python -m tests.parity FOLDER

FOLDER has a `<model>.safetensors` and a `<model>.json` for each model: weights under the authors'
names, inputs, and outputs. Prints the largest relative difference of each file, |ours - theirs| /
(|theirs| + 0.1), and ends with status 1 if one is above 1e-4.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from glassrank.models.model import Output, TokenEmbeddings
from glassrank.models.torch_models import Ranker
from tests.parity import authors, convolutional, pacrr, pieces
from tests.parity.authors import OUTPUTS

BUILDERS = authors.BUILDERS | pacrr.BUILDERS | convolutional.BUILDERS

LIMIT = 1e-4
SOFTENING = 0.1  # with LIMIT this allows an absolute difference of 1e-5 around zero


def differences(path: Path) -> Iterator[tuple[str, float]]:
    """(seed, case and output, difference) of everything that the file holds."""
    tensors = load_file(path)
    description = json.loads(path.with_suffix(".json").read_text("utf-8"))
    for seed in sorted({name.split(".")[0] for name in tensors}):
        mine = {
            name.removeprefix(f"{seed}."): tensor
            for name, tensor in tensors.items()
            if name.startswith(f"{seed}.")
        }
        if _kind(path) in pieces.COMPARE:
            with torch.no_grad():
                for name, ours, theirs in pieces.COMPARE[_kind(path)](description, mine):
                    yield f"{seed}.{name}", relative(ours, theirs)
            continue
        weights = {
            n.removeprefix("weights."): t for n, t in mine.items() if n.startswith("weights.")
        }
        model = BUILDERS[_kind(path)](description, weights).eval()
        for case in sorted({name.split(".")[0] for name in mine} - {"weights", "const"}):
            inputs = {n.split(".")[-1]: t for n, t in mine.items() if n.startswith(f"{case}.in.")}
            expected = {
                n.split(".")[-1]: t for n, t in mine.items() if n.startswith(f"{case}.out.")
            }
            with torch.no_grad():
                query, doc, output = run(model, inputs)
            for name, theirs in expected.items():
                if name in OUTPUTS:
                    ours = OUTPUTS[name](query, doc, output).reshape(theirs.shape)
                    yield f"{seed}.{case}.{name}", relative(ours, theirs)


def run(
    model: Ranker, inputs: dict[str, Tensor]
) -> tuple[TokenEmbeddings, TokenEmbeddings, Output]:
    def words(side: str) -> TokenEmbeddings:
        mask = inputs[f"{side}_mask"]
        idf = inputs.get(f"{side}_idfs", mask[..., None]).squeeze(-1)
        return TokenEmbeddings(inputs[f"{side}_embeddings"], mask, idf)

    query, doc = model.query_words(words("query")), model.doc_words(words("document"))
    return query, doc, model.interact(query, doc)


def relative(ours: Tensor, theirs: Tensor) -> float:
    return float(((ours - theirs).abs() / (theirs.abs() + SOFTENING)).max())


def _kind(path: Path) -> str:
    """`tk` for `tk_2layer.safetensors`: the longest known name that the file's begins with."""
    known = [name for name in (*BUILDERS, *pieces.COMPARE) if path.stem.startswith(name)]
    return max(known, key=len, default="")


def main(folder: Path) -> int:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        print(f"{folder} has no *.safetensors", file=sys.stderr)
        return 2
    worst = 0.0
    for path in files:
        if not _kind(path):
            print(f"{path.stem:20} no model of ours yet: not compared")
            continue
        found = dict(differences(path))
        name, value = max(found.items(), key=lambda item: item[1])
        verdict = "ok" if value <= LIMIT else "TOO FAR"
        print(f"{path.stem:20} {value:.1e}  {verdict}  ({len(found)} outputs, largest at {name})")
        worst = max(worst, value)
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])) if len(sys.argv) == 2 else __doc__)
