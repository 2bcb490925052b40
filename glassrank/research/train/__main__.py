"""Train with only torch, numpy and safetensors installed.

python -m glassrank.research.train CONFIG.toml [DEVICE]
torchrun --nproc-per-node N -m glassrank.research.train CONFIG.toml [DEVICE]
"""

import os
import sys
from functools import partial
from pathlib import Path

import torch

from glassrank.errors import GlassrankError, disk_error
from glassrank.research.train.config_files import read_config
from glassrank.research.train.distributed import join_team
from glassrank.research.train.loop import train
from glassrank.research.train.prepared_folders import load_prepared


def main() -> None:
    """Train with the config named on the command line."""
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    path = Path(sys.argv[1])
    device = sys.argv[2] if len(sys.argv) == 3 else "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.set_float32_matmul_precision("high")
        config = read_config(path)
        prepared = load_prepared(path.parent / config.prepared, config)
        with join_team(device) as team:
            out, say = path.parent / config.out, partial(print, flush=True)
            train(config, prepared, out, team.device, say, team=team, base=path.parent)
    except GlassrankError as error:
        if os.environ.get("RANK", "0") == "0":  # all processes raise the same error
            print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
    except OSError as error:
        sys.exit(f"error: {disk_error(error, 'go on')}")


if __name__ == "__main__":
    main()
