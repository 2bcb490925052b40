"""BERT[CLS] and MORES from the authors' weights, in every way that we compute a score."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from glassrank.backends.configs import EncoderConfig
from glassrank.models.model import TokenBatch
from glassrank.models.pretrained import Pretrained, fuse_weights, rename_weights
from glassrank.research.papers.bert import BERT, BERTConfig
from glassrank.research.papers.mores import MORES, MORESConfig
from tests.parity.authors import Description, Weights

Compared = Iterator[tuple[str, Tensor, Tensor]]
CLS = 101


def compare_bert(description: Description, seed: Weights) -> Compared:
    weights = _below(seed, "weights")
    ours = rename_weights(weights)
    pooler = {name: ours.pop(f"pooler.{name}") for name in ("weight", "bias")}
    model = BERT(BERTConfig(_encoder(description))).eval()
    model.encoder.load_state_dict(ours)
    model.pooler.load_state_dict(pooler)
    model.score.load_state_dict(_below(weights, "_classification_layer"))
    for case in _cases(seed):
        inputs, expected = _below(seed, f"{case}.in"), _below(seed, f"{case}.out")
        query, doc = _apart(inputs["input_ids"], inputs["token_type_ids"])
        encoded = model.encode_query(query), model.encode_doc(doc)
        yield f"{case}.score", model.interact(*encoded).score, expected["score"]
        yield f"{case}.score, every row", model.explain(query, doc).score, expected["score"]


def _apart(ids: Tensor, types: Tensor) -> tuple[TokenBatch, TokenBatch]:
    """Out of the authors' one row: [CLS] query [SEP] and [CLS] document [SEP], as we have them."""
    queries = [row[(kind == 0) & (row > 0)] for row, kind in zip(ids, types, strict=True)]
    docs = [row[(kind == 1) & (row > 0)] for row, kind in zip(ids, types, strict=True)]
    return _padded(queries), _padded([torch.cat([torch.tensor([CLS]), row]) for row in docs])


def _padded(rows: list[Tensor]) -> TokenBatch:
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return TokenBatch(ids, (ids > 0).float())


def compare_mores(description: Description, seed: Weights) -> Compared:
    """As two encoders with layers of their own, and tied where the authors' are."""
    weights = _below(seed, "weights")
    blocks = description["hyper"]["n_ibs"]
    config = MORESConfig.like(_encoder(description), blocks, two_logits=True)
    query = _without_pooler(rename_weights(_below(weights, "q_bert")))
    document = _without_pooler(rename_weights(_below(weights, "bert")))
    tied = all(torch.equal(query[n], document[n]) for n in query if n.startswith("layers."))
    for tie in (False, True) if tied else (False,):
        model = MORES(replace(config, tie_encoders=tie)).eval()
        model.document.load_state_dict(document)
        own = model.query.state_dict().keys()  # where encoders are tied, only embeddings
        model.query.load_state_dict({name: query[name] for name in own})
        model.interaction.load_state_dict(_interaction(weights))
        for case in _cases(seed):
            inputs, expected = _below(seed, f"{case}.in"), _below(seed, f"{case}.out")
            for name, ours in _every_way(model, inputs).items():
                yield f"{case}.{name}{', tied' * tie}", ours, expected[name.split(",")[0]]
    if "source_bert" in {name.split(".")[0] for name in seed}:
        source = rename_weights(_below(seed, "source_bert"))
        bert = Pretrained(_encoder(description), _without_pooler(source), [], True)
        started = MORES.start(bert, blocks, two_logits=True, tie_encoders=tied)
        theirs = {
            **{f"document.{name}": tensor for name, tensor in document.items()},
            **{f"interaction.{name}": tensor for name, tensor in _interaction(weights).items()},
        }
        for name, tensor in theirs.items():
            if ".head." not in name:  # drawn at random
                yield f"copied {name}", started.state_dict()[name], tensor


def _every_way(model: MORES, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The authors' outputs under their names; after a comma, how they were computed."""
    query, doc = (
        TokenBatch(inputs[f"{side}_input_ids"], inputs[f"{side}_attention_mask"].float())
        for side in ("query", "doc")
    )
    q, s1 = model.encode_query(query), model.encode_doc(doc)
    s2 = model.project(s1)
    found = {"query_hidden": q.vectors, "doc_hidden": s1.vectors}
    for way, stored in (("s1", s1), ("s2", s2)):
        found[f"logits, {way}"] = model.interact(q, stored).parts["logits"]
    found["positive_probability"] = model.interact(q, s1).score.sigmoid()
    with torch.enable_grad():  # as in training, where documents are projected
        found["logits, training"] = model.interact(q, s1).parts["logits"].detach()
    seen: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[..., None]:
        return lambda module, given, output: seen.__setitem__(name, output)

    for number, block in enumerate(model.interaction.stack()):
        block.register_forward_hook(keep(f"ib{number}"))
        block.cross.register_forward_hook(keep(f"ib{number}_cross"))
    found["logits, every row"] = model.explain(query, doc).parts["logits"]
    return found | seen


def _interaction(weights: Weights) -> Weights:
    """`interaction_module.0.attention` is BERT's, and `crossattention` too, under another name."""
    own = {
        f"encoder.layer.{name}": tensor
        for name, tensor in _below(weights, "interaction_module").items()
        if "crossattention" not in name
    }
    found = {
        re.sub(r"layers\.(\d)", r"blocks.\1.layer", n): t for n, t in rename_weights(own).items()
    }
    rules = ((r"self\.", ""), (r"output\.dense", "output"), (r"output\.LayerNorm", "norm"))
    cross = {}
    for name, tensor in _below(weights, "interaction_module").items():
        if "crossattention" in name:
            number, _, rest = name.split(".", 2)
            for theirs, ours in rules:
                rest = re.sub(theirs, ours, rest)
            cross[f"blocks.{number}.cross.{rest}"] = tensor
    found |= fuse_weights(cross, ("key", "value"), "key_value")
    return found | {f"head.{name}": tensor for name, tensor in _below(weights, "proj").items()}


def _encoder(description: Description) -> EncoderConfig:
    hyper = description["hyper"]
    return EncoderConfig(
        vocabulary=hyper["vocab_size"],
        size=hyper["hidden_size"],
        layers=hyper["num_hidden_layers"],
        heads=hyper["num_attention_heads"],
        feed_forward=hyper["intermediate_size"],
        positions=hyper["max_position_embeddings"],
    )


def _below(tensors: Weights, prefix: str) -> Weights:
    start = f"{prefix}."
    return {n.removeprefix(start): t for n, t in tensors.items() if n.startswith(start)}


def _without_pooler(weights: Weights) -> Weights:
    return {name: tensor for name, tensor in weights.items() if not name.startswith("pooler.")}


def _cases(seed: Weights) -> list[str]:
    return sorted({name.split(".")[0] for name in seed} - {"weights", "source_bert"})


COMPARE: dict[str, Callable[[Description, Weights], Compared]] = {
    "bert_cls": compare_bert,
    "mores": compare_mores,
}
