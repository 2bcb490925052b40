"""The contract, as types and properties hold it; and models that are not of this package."""

import ast
import json
import math
import sys
from pathlib import Path

import pytest
import torch
from model_cases import SMALL, SMALL_PIECES, small_model
from model_folders import WORDS, edit_config, outcome, sealed, word_model
from outside_model import SoftTF, SoftTFConfig

import glassrank
from glassrank.errors import InputError
from glassrank.explanations import explain
from glassrank.models import (
    MODELS,
    EmbeddingTable,
    Ranker,
    TokenBatch,
    TokenEmbeddings,
    WordRanker,
    find_family,
    name_of,
)
from glassrank.models.io.load import load_model, load_named
from glassrank.models.io.model_folder import SavedModel, Usage, fingerprint
from glassrank.models.io.torch_files import save_model
from glassrank.models.seal import main, seal_model
from glassrank.rerank import Reranker
from glassrank.research.papers.ensemble import Ensemble, save_ensemble

PACKAGE = Path(glassrank.__file__).parent
NAME = "outside_model:SoftTF"
TEXT = "w1 w2 w3 w1 w9"


def soft_tf() -> SoftTF:
    torch.manual_seed(0)
    return SoftTF(
        SoftTFConfig(), EmbeddingTable(torch.randn(20, 12), torch.rand(20), trained=False)
    )


def outside_folder(folder: Path) -> Path:
    save_model(folder, soft_tf(), Usage(6, 14), WORDS, "# a card\n")
    return folder


# Properties, not classes


def test_nobody_asks_for_the_class_of_a_model_over_pieces() -> None:
    """Nor whether it is an ensemble, outside the files that make and save ensembles."""
    allowed = {"SubwordRanker": {"torch_models.py"}, "Ensemble": {"ensemble.py", "summands.py"}}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id in ("isinstance", "issubclass"):
                asked = ast.unparse(node.args[1])
                for name, files in allowed.items():
                    assert name not in asked or path.name in files, f"{path}: {ast.unparse(node)}"


@pytest.mark.parametrize("name", sorted(MODELS))
def test_only_models_on_words_have_words(name: str) -> None:
    model = small_model(name)
    on_words = name in SMALL
    assert isinstance(model, WordRanker) == hasattr(model, "query_words") == on_words
    assert hasattr(model, "doc_words") == on_words
    assert model.info.uses_subwords == (name in SMALL_PIECES) == (model.subword_text is not None)
    assert model.rankers() == [model]
    assert isinstance(model.config, MODELS[name].info.config_type)


def test_an_ensemble_answers_for_its_members() -> None:
    members = [small_model("bert"), small_model("mores")]
    both = Ensemble(members, [(6, 14), (6, 14)])
    assert not hasattr(both, "query_words") and list(both.rankers()) == members
    assert both.info.uses_subwords and both.subword_text == members[0].subword_text


@pytest.mark.parametrize("name", sorted(MODELS))
def test_encoders_are_modules_of_the_model(name: str) -> None:
    """A rate of their own that no weight learns at would go unseen."""
    model = small_model(name)
    has = {n.split(".")[0] for n, _ in model.named_parameters()}
    assert not model.info.uses_subwords or set(model.info.encoders) <= has


# A family is one file and a line in the registry


@pytest.mark.parametrize("name", MODELS)
def test_the_registry_names_a_family_as_it_names_itself(name: str) -> None:
    assert MODELS[name].info.name == name == name_of(MODELS[name])


def test_declared_summands_are_explained_without_a_line() -> None:
    """Sums are the model's own tensors; a word's share is what is lost with it masked."""
    own = Reranker(saved_soft_tf(), exact=True)
    found = explain(own, "w1 w2", TEXT)
    assert found.is_additive
    assert [part.name for part in found.parts.children] == ["soft tf", "length"]
    assert found.parts.value == pytest.approx(found.score, abs=1e-6)
    assert found.score == own.scores("w1 w2", [TEXT]).values[0]
    model, query, doc = own.model, own.encode_query("w1 w2"), batch_of(own, TEXT)
    out = model.interact(query, doc)
    values = [leaf.value for leaf in found.parts.children[0].children]
    assert values == pytest.approx(out.parts["soft tf"][0].tolist(), abs=1e-6)
    for place, mark in enumerate(found.marks):
        mask = doc.mask.clone()
        mask[0, place] = 0
        left = model.interact(query, doc._replace(mask=mask)).score.item()
        assert mark.share == pytest.approx(out.score.item() - left, abs=1e-6)
        assert math.fsum(mark.by_signal) == pytest.approx(mark.share, abs=1e-9)
    shares = [mark.share for mark in found.marks] + [part.value for part in found.rest]
    assert math.fsum(shares) == pytest.approx(found.score, abs=1e-6)
    assert len(explain(own, "w1 w2", "").marks) == 0
    (alone,) = explain(own, "w1", TEXT).terms  # which the length is no part of
    assert alone.value == pytest.approx(
        own.model.interact(own.encode_query("w1"), doc).parts["soft tf"].sum().item(), abs=1e-6
    )


def saved_soft_tf() -> SavedModel:
    return SavedModel(soft_tf().eval(), Usage(6, 14), WORDS)


def batch_of(own: Reranker, text: str) -> TokenEmbeddings:
    ids = torch.tensor([[WORDS.index(word) for word in text.split()]])
    return own.encode_doc(TokenBatch(ids, torch.ones(ids.shape)))


# Models of other people


def test_a_model_outside_the_package_is_saved_by_its_module(tmp_path: Path) -> None:
    folder = outside_folder(tmp_path / "model")
    assert json.loads((folder / "config.json").read_text())["model"] == NAME
    saved = load_named(f"{NAME}@{folder}")
    assert isinstance(saved.model, SoftTF) and name_of(type(saved.model)) == NAME
    assert fingerprint(saved.model) == fingerprint(soft_tf())
    assert fingerprint(load_model(folder, trusted=[NAME]).model) == fingerprint(soft_tf())
    assert Reranker.load(f"{NAME}@{folder}").scores("w1", [TEXT]).values[0] != 0


@pytest.mark.tried("Files", "a model folder that names code to run", "not imported")
@pytest.mark.parametrize("trusted", [(), ("outside_model",), ("outside_model:Other",)])
def test_a_folder_cannot_say_by_itself_that_code_is_run(
    trusted: tuple[str, ...], tmp_path: Path
) -> None:
    folder = outside_folder(tmp_path / "model")
    with pytest.raises(InputError, match="not run unless you ask for it"):
        load_model(folder, trusted=trusted)
    for named in (folder, str(folder), f"outside_model:Other@{folder}"):
        with pytest.raises(InputError):
            load_named(named)
    assert "not run unless you ask for it" in outcome(folder)


@pytest.mark.tried("Files", "a model folder that names code to run", "not imported")
@pytest.mark.parametrize("inside", [False, True])
def test_a_strangers_module_is_not_even_imported(
    inside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by loading, not by sealing, not as a member of an ensemble."""
    proof = tmp_path / "it ran"
    (tmp_path / "harm.py").write_text(f"open({str(proof)!r}, 'w')\n")
    monkeypatch.syspath_prepend(tmp_path)
    folder = word_model(tmp_path / "model")
    edit_config(folder, lambda stored: stored.update(model="harm:Model"))
    refused = pytest.raises(InputError, match="not run unless you ask for it")
    with refused:
        seal_model(folder)
    sealed(folder)
    with refused:
        if inside:
            save_ensemble(tmp_path / "both", [folder], Usage(6, 14), "# both\n")
        else:
            load_model(folder)
    assert not proof.exists()


def test_its_folder_is_sealed_by_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = outside_folder(tmp_path / "model")
    (folder / "checksums.json").unlink()
    monkeypatch.setattr(sys, "argv", ["seal", f"{NAME}@{folder}"])
    main()
    assert "its checksums are in checksums.json" in capsys.readouterr().out
    assert fingerprint(load_named(f"{NAME}@{folder}").model) == fingerprint(soft_tf())


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("no_such_module:Model", "cannot be imported: ModuleNotFoundError"),
        ("outside_model:Nothing", "cannot be imported: AttributeError"),
        ("outside_model:SoftTFConfig", "is not a whole subclass"),
        ("glassrank.models:WordRanker", "is not a whole subclass"),
        ("glassrank.research.papers.tk:TK", "needs a name that is not taken"),
        ("os:path", "is not a whole subclass"),
        ("SoftTF", "is not known"),
        ("../outside_model:SoftTF", "is not known"),
    ],
)
def test_names_that_are_no_models(name: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        find_family(name, trusted=[name])


def test_it_is_a_member_of_an_ensemble_like_any_other(tmp_path: Path) -> None:
    members = [outside_folder(tmp_path / "outside"), word_model(tmp_path / "tk")]
    save_ensemble(tmp_path / "both", members, Usage(6, 14), "# both\n", trusted=[NAME])
    assert isinstance(load_named(f"{NAME}@{tmp_path / 'both'}").model, Ensemble)
    with pytest.raises(InputError, match="not run unless you ask for it"):
        load_model(tmp_path / "both")


def test_a_part_that_is_missing_is_a_type_error_when_it_is_made() -> None:
    class Half(Ranker):
        name = "half"

    with pytest.raises(TypeError, match="abstract"):
        Half(None)  # type: ignore[abstract]
