"""Training where only torch, numpy and safetensors are installed.

python -m glassrank.train CONFIG.toml [DEVICE]
"""

import sys
from pathlib import Path

import torch

from glassrank.train.config import read_config
from glassrank.train.loop import train
from glassrank.train.prepared import load_prepared


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    path = Path(sys.argv[1])
    device = sys.argv[2] if len(sys.argv) == 3 else "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    config = read_config(path)
    prepared = load_prepared(path.parent / config.prepared)
    train(
        config, prepared, path.parent / config.out, device, say=lambda line: print(line, flush=True)
    )


if __name__ == "__main__":
    main()
