"""Training runs where only torch, numpy and safetensors are installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import glassrank
from glassrank.models.io.model_folder import SPECIAL_SUBWORDS, SPECIAL_WORDS
from glassrank.text import Vocabulary, subwords

PACKAGES = (
    *("regex", "numba", "tokenizers", "transformers", "scipy", "pydantic", "typer"),
    *("rich", "gensim", "matplotlib", "fastapi"),
)
CODE = f"""
import sys
for name in {PACKAGES}:
    sys.modules[name] = None  # an import of it fails
import torch  # whatever that loads by itself

class NoCompiler:
    def find_spec(self, name, *_):
        assert name != "torch._dynamo", "loading a model loads torch's compiler: slow"

sys.meta_path.insert(0, NoCompiler())  # the traceback says who asks for it
import glassrank.research.train.__main__, glassrank.research.train.combine
from glassrank.models.io.load import PACKAGED, load_model
load_model(PACKAGED["default"])
"""


@pytest.mark.long
def test_it_needs_nothing_else_and_loads_models_without_torchs_compiler() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(glassrank.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", CODE], env=environment, check=True, timeout=120)


def test_special_words_are_those_of_the_encoders() -> None:
    assert Vocabulary([]).words == SPECIAL_WORDS
    assert subwords._SPECIAL_TOKENS == SPECIAL_SUBWORDS
