"""One model from several training runs that began alike: the mean of their weights.

python -m glassrank.models.average OUT FOLDER FOLDER [FOLDER ...] [--vectors int8]

It costs no more than one of them and is usually better than each (M. Wortsman et al., "Model
soups", ICML 2022), if they began with the same weights.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from glassrank.errors import GlassrankError, InputError
from glassrank.models.checkpoint import SavedModel, load_named
from glassrank.models.trained import save_model


def average(runs: Sequence[SavedModel]) -> SavedModel:
    """The first of them, with the mean of all weights."""
    first = runs[0]
    for run in runs[1:]:
        alike = type(run.model) is type(first.model) and run.model.config == first.model.config
        if not alike or run.vocabulary != first.vocabulary:
            raise InputError("only models of one family, config and vocabulary have a mean")
    states = [run.model.state_dict() for run in runs]
    with torch.no_grad():
        for name, weights in first.model.state_dict().items():
            if weights.is_floating_point():
                weights.copy_(torch.stack([state[name] for state in states]).mean(0))
    return first


def main(arguments: Sequence[str] | None = None) -> None:
    """As a command."""
    parser = argparse.ArgumentParser(
        prog="python -m glassrank.models.average", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("out", type=Path, help="the folder of the new model")
    parser.add_argument("models", nargs="+", help="model folders")
    parser.add_argument("--vectors", default="float32", choices=["float32", "float16", "int8"])
    parser.add_argument("--layers", default="float32", choices=["float32", "float16"])
    given = parser.parse_args(arguments)
    try:
        mean = average([load_named(name) for name in given.models])
        card = f"The mean of the weights of {', '.join(given.models)}.\n"
        save_model(
            given.out, mean.model, mean.usage, mean.vocabulary, card, given.vectors, given.layers
        )
    except GlassrankError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()
