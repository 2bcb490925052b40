"""Training runs where only torch, numpy and safetensors are installed."""

import os
import subprocess
import sys
from pathlib import Path

import glassrank
from glassrank.models.vocabularies import SPECIAL_PIECES, SPECIAL_WORDS
from glassrank.text import Vocabulary, wordpieces

PACKAGES = (
    *("regex", "numba", "tokenizers", "transformers", "scipy", "pydantic", "typer"),
    *("rich", "gensim", "matplotlib", "fastapi"),
)
CODE = f"""
import sys
for name in {PACKAGES}:
    sys.modules[name] = None  # an import of it fails
import glassrank.train.__main__, glassrank.train.select
from glassrank.models.checkpoint import PACKAGED, load_model
load_model(PACKAGED["default"])
assert "torch._dynamo" not in sys.modules, "loading a model loads torch's compiler: slow"
"""


def test_it_needs_nothing_else_and_loads_models_without_torchs_compiler() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(glassrank.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", CODE], env=environment, check=True, timeout=120)


def test_special_words_are_those_of_the_encoders() -> None:
    assert Vocabulary([]).words == SPECIAL_WORDS
    assert wordpieces._SPECIAL == SPECIAL_PIECES
