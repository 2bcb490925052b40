"""`org/name`: a folder from the hub is fetched by its real client, and checked as a stranger's."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import Hub, serving
from model_folders import ensemble, piece_model, word_model

import glassrank as gr
from glassrank.errors import CorruptError, GlassrankError, InputError
from glassrank.models.hub import fetch, push
from glassrank.models.io.load import load_model, load_named
from glassrank.models.io.model_folder import fingerprint
from glassrank.models.pretrained import find_folder, read_pretrained

constants = pytest.importorskip("huggingface_hub.constants", reason="huggingface_hub is missing")

# The hub's client sends large files by a parameter that its HTTP library will drop.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

EVIL = b"import pathlib; pathlib.Path(__file__).with_name('ran').touch()\n"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # a storage that is not open
    with serving() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.address)
        template = f"{hub.address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield hub


def files_of(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


@pytest.mark.parametrize("make", [word_model, ensemble])
def test_what_is_pushed_is_loaded_again(make: object, hub: Hub, tmp_path: Path) -> None:
    folder = make(tmp_path / "model")  # type: ignore[operator]
    (folder / "notes.txt").write_text("not for others")
    address = push(folder, "me/model", private=True)
    assert address.startswith(f"{hub.address}/me/model/commit/")
    sent = hub.repositories["me/model"]
    (folder / "notes.txt").unlink()
    assert sent == {**files_of(folder), "README.md": (folder / "card.md").read_bytes()}
    assert fingerprint(load_named("me/model").model) == fingerprint(load_model(folder).model)
    assert "README.md" not in hub.downloads()


def test_a_fetched_model_ranks(hub: Hub, tmp_path: Path) -> None:
    push(word_model(tmp_path / "model"), "me/tk")
    shutil.rmtree(tmp_path / "model")
    ranking = gr.rank("w1 w2", ["w3 w4", "w1 w2 w5"], model="me/tk")
    assert len(ranking) == 2
    asked = len(hub.asked)
    assert gr.load("me/tk") is gr.load("me/tk") and len(hub.asked) == asked  # kept in memory


def test_a_folder_that_is_here_wins(hub: Hub, tmp_path: Path) -> None:
    push(word_model(tmp_path / "first", seed=1), "me/tk")
    here = word_model(tmp_path / "me" / "tk", seed=2)
    asked = len(hub.asked)
    assert fingerprint(load_named("me/tk").model) == fingerprint(load_model(here).model)
    with pytest.raises(InputError, match="not a model folder"):
        load_named(tmp_path / "me" / "none")  # a path is never looked for elsewhere
    with pytest.raises(InputError, match="not a model folder"):
        load_named(Path("me/none"))
    assert len(hub.asked) == asked


def test_a_new_version_is_seen_and_an_old_one_serves_without_the_hub(
    hub: Hub, tmp_path: Path
) -> None:
    first, second = (word_model(tmp_path / f"model{seed}", seed=seed) for seed in (1, 2))
    for folder in (first, second):
        push(folder, "me/tk")
        assert fingerprint(load_named("me/tk").model) == fingerprint(load_model(folder).model)
    hub.down = True
    assert fingerprint(load_named("me/tk").model) == fingerprint(load_model(second).model)


@pytest.mark.parametrize("name", ["me/none", "me/no--name"])
def test_a_name_that_is_neither_is_one_sentence(name: str, hub: Hub) -> None:
    with pytest.raises(InputError, match=f"{name} is not a folder here, and the hub did not"):
        gr.load(name)


def test_a_hub_that_does_not_answer_is_one_sentence(hub: Hub) -> None:
    hub.down = True
    with pytest.raises(InputError, match=r"the hub did not give it \(\w+\)") as error:
        load_named("me/tk")
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="not a model folder"):
        load_named("deflaut")  # no name of the hub's
    assert not any("deflaut" in asked for asked in hub.asked)


def test_code_and_pickles_are_not_even_fetched(hub: Hub, tmp_path: Path) -> None:
    push(word_model(tmp_path / "model"), "me/tk")
    strange = {
        "modeling_evil.py": EVIL,
        "pytorch_model.bin": b"\x80\x04.",
        "a/b/config.json": b"{}",
    }
    hub.repositories["me/tk"] |= strange
    fetched = fetch("me/tk")
    assert set(files_of(fetched)) == {"config.json", "weights.safetensors", "vocabulary.txt",
                                      "checksums.json", "card.md"}  # fmt: skip
    assert not any(path.is_symlink() for path in fetched.rglob("*"))
    assert not hub.downloads() & set(strange)


@pytest.mark.parametrize("name", ["config.json", "weights.safetensors", "vocabulary.txt"])
def test_a_damaged_one_is_refused(name: str, hub: Hub, tmp_path: Path) -> None:
    push(word_model(tmp_path / "model"), "me/tk")
    content = bytearray(hub.repositories["me/tk"][name])
    content[len(content) // 2] ^= 1
    hub.repositories["me/tk"][name] = bytes(content)
    with pytest.raises(CorruptError, match=rf"{name} is damaged"):
        load_named("me/tk")


def test_a_model_of_others_is_named_to_be_run(hub: Hub, tmp_path: Path) -> None:
    push(word_model(tmp_path / "model"), "me/tk")
    files = hub.repositories["me/tk"]
    del files["checksums.json"]
    with pytest.raises(InputError, match="not a model folder"):
        load_named("me/tk")  # without its manifest, it is nothing
    hub.repositories["me/pickled"] = {"config.json": b"{}", "pytorch_model.bin": b"\x80\x04."}
    with pytest.raises(GlassrankError) as error:
        load_named("me/pickled")
    assert "\n" not in str(error.value)


def test_only_whole_models_are_pushed(hub: Hub, tmp_path: Path) -> None:
    folder = word_model(tmp_path / "model")
    with pytest.raises(InputError, match="no name on the hub"):
        push(folder, "model")
    (folder / "checksums.json").unlink()
    with pytest.raises(InputError, match="nothing was sent"):
        push(folder, "me/model")
    assert not hub.asked
    hub.down = True
    with pytest.raises(InputError, match="the hub did not take me/tk") as error:
        push(word_model(tmp_path / "other"), "me/tk")
    assert "\n" not in str(error.value)


def test_a_card_that_is_a_link_is_not_sent(hub: Hub, tmp_path: Path) -> None:
    folder = word_model(tmp_path / "model")
    (folder / "card.md").unlink()
    (tmp_path / "secret").write_text("secret")
    (folder / "card.md").symlink_to(tmp_path / "secret")
    push(folder, "me/model")
    assert {"card.md", "README.md"}.isdisjoint(hub.repositories["me/model"])


def test_a_bert_to_begin_with_comes_from_the_hub_last(hub: Hub, tmp_path: Path) -> None:
    from test_pretrained import OURS, bert_weights, write

    hub.repositories["some/bert"] = files_of(write(tmp_path / "written", bert_weights()))
    assert read_pretrained("some/bert").config == OURS
    with pytest.raises(InputError, match="the hub did not give it"):
        find_folder("some/other")
    asked = len(hub.asked)
    (tmp_path / "some" / "bert").mkdir(parents=True)
    assert find_folder("some/bert") == Path("some/bert") and len(hub.asked) == asked


def test_the_command_speaks_to_the_hub_that_the_environment_names(hub: Hub, tmp_path: Path) -> None:
    folder = piece_model(tmp_path / "model", "kernel_bert")
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub.address,
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_DISABLE_XET": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "glassrank", "push", str(folder), "me/kernels"],
        capture_output=True, text=True, env=environment, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0 and "/me/kernels/commit/" in done.stderr, done.stderr
    assert set(hub.repositories["me/kernels"]) == {*files_of(folder), "README.md"}
