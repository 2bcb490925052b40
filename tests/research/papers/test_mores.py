"""MORES: three modules, and one score however much of it was computed beforehand."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import strategies as st
from models.model_cases import piece_batch, small_model
from models.model_folders import PIECES
from torch.utils.flop_counter import FlopCounterMode

from glassrank.backends.configs import EncoderConfig
from glassrank.backends.transformer import Encoder
from glassrank.errors import InputError
from glassrank.models import TokenBatch
from glassrank.models.io.load import load_model
from glassrank.models.io.model_folder import Usage
from glassrank.models.io.torch_files import save_model
from glassrank.models.pretrained import Pretrained
from glassrank.research.papers.ensemble import Ensemble
from glassrank.research.papers.mores import MORES, MORESConfig

lengths = st.integers(2, 9)
BERT = EncoderConfig(
    vocabulary=40, size=12, layers=4, heads=3, feed_forward=16, positions=24, dropout=0.0
)


def mores(**changes: object) -> MORES:
    model = small_model("mores", **changes)
    assert isinstance(model, MORES)
    return model


def pretrained(config: EncoderConfig = BERT) -> Pretrained:
    torch.manual_seed(3)
    weights = {
        name: tensor + 0.3 * torch.randn_like(tensor)
        for name, tensor in Encoder(config).state_dict().items()
    }
    return Pretrained(config, weights, [], lowercase=False)


def scores(model: MORES, query: TokenBatch, doc: TokenBatch) -> torch.Tensor:
    with torch.no_grad():
        return model(query, doc)


@pytest.mark.parametrize("blocks", [1, 2, 3, 4])
@pytest.mark.parametrize("two_logits", [False, True])
def test_live_s1_and_s2_give_one_score(blocks: int, two_logits: bool) -> None:
    model = mores(blocks=blocks, two_logits=two_logits)
    # Short enough to look at documents that are not projected.
    query, doc = piece_batch([3, 3, 2]), piece_batch([9, 5, 2], seed=1)
    with torch.enable_grad():  # as in training: documents are projected
        live = model(query, doc).detach()
    with torch.no_grad():
        encoded, s1 = model.encode_query(query), model.encode_doc(doc)
        model.config = replace(model.config, reuse="s2")
        s2 = model.encode_doc(doc)
        assert s1.vectors.shape == (3, 9, 9)
        assert s2.vectors.shape == (3, 9, blocks, 2, 12)
        for stored in (s1, s2, model.project(s1)):
            found = model.interact(encoded, stored).score
            torch.testing.assert_close(found, live, rtol=1e-5, atol=1e-5)


def test_two_logits_are_one_score() -> None:
    model = mores(two_logits=True)
    out = model.explain(piece_batch([4, 3]), piece_batch([7, 5]))
    for_it, against_it = out.parts["logits"][:, 1], out.parts["logits"][:, 0]
    assert torch.equal(out.score, for_it - against_it)


def test_documents_and_queries_are_encoded_by_modules_of_their_own() -> None:
    model = mores()
    query, doc = piece_batch([4]), piece_batch([6])
    before = model.encode_query(query).vectors, model.encode_doc(doc).vectors
    with torch.no_grad():
        for parameter in model.document.parameters():
            parameter.add_(1.0)
    assert torch.equal(model.encode_query(query).vectors, before[0])
    assert not torch.equal(model.encode_doc(doc).vectors, before[1])


def multiplications(blocks: int, docs: int, length: int) -> int:
    """Of S2's interaction, without attention itself, which PyTorch does not count on a CPU."""
    model = MORES(MORESConfig.like(BERT, blocks)).eval()
    with torch.no_grad():
        query = model.encode_query(piece_batch([5]))
        doc = model.project(model.encode_doc(piece_batch([length] * docs)))
        with FlopCounterMode(display=False) as counter:
            model.interact(query, doc)
    return counter.get_total_flops() // 2


@pytest.mark.parametrize("blocks", [1, 2])
def test_s2_multiplies_nothing_as_large_as_a_document(blocks: int) -> None:
    assert multiplications(blocks, docs=3, length=20) == multiplications(blocks, docs=3, length=4)


def test_s2_multiplies_as_little_as_it_can() -> None:
    """One projection of the query for all documents; after the block's cross-attention, [CLS]'s row
    alone, which looks at the others without keys and values of theirs."""
    docs, query, size, heads, inner = 3, 5, BERT.size, BERT.heads, BERT.feed_forward
    once = query * size**2
    cross_output = query * size**2
    asking = 2 * size**2 + heads * query * size  # its query, brought to the rows, and there
    found = heads * query * size + 2 * size**2  # their mean, its value, and the output
    feed_forward = 2 * size * inner
    each = cross_output + asking + found + feed_forward + size
    assert multiplications(1, docs, length=9) == once + docs * each


def test_an_explanation_has_all_attention() -> None:
    model = mores()
    query, doc = piece_batch([5, 3]), piece_batch([9, 4])
    with torch.no_grad():
        out = model.explain(query, doc)
        stored = model.project(model.encode_doc(doc))
        plain = model.interact(model.encode_query(query), stored)
        asked = model.interact(model.encode_query(query), stored, explain=True)
    torch.testing.assert_close(out.score, plain.score, rtol=1e-5, atol=1e-5)
    shapes = {name: tuple(part.shape) for name, part in out.parts.items()}
    assert shapes == {
        "logits": (2, 1),
        "cross_attention": (2, 2, 3, 5, 9),
        "interaction_attention": (2, 2, 3, 5, 5),
        "query_attention": (2, 1, 3, 5, 5),
        "doc_attention": (2, 2, 3, 9, 9),
    }
    for name in shapes.keys() - {"logits"}:
        torch.testing.assert_close(out.parts[name].sum(-1), torch.ones(shapes[name][:-1]))
    assert not out.parts["cross_attention"][1, ..., 4:].any()  # padding
    assert plain.parts.keys() == {"logits"}  # at no cost where nobody asked
    torch.testing.assert_close(asked.parts["cross_attention"], out.parts["cross_attention"])


def test_a_start_is_two_copies_of_a_bert() -> None:
    """Section 3.3 of the paper."""
    bert = pretrained()
    model = MORES.start(bert, blocks=2)
    assert len(model.document.layers) == 4
    assert len(model.query.layers) == 2
    assert not model.config.text.lowercase
    for module in (model.document, model.query):
        for name, tensor in module.state_dict().items():
            assert torch.equal(tensor, bert.weights[name]), name
    for number, block in enumerate(model.interaction.stack()):
        own, source = block.state_dict(), f"layers.{2 + number}"
        for name, tensor in block.layer.state_dict().items():
            assert torch.equal(tensor, bert.weights[f"{source}.{name}"])
        for kind in ("weight", "bias"):
            joint = torch.cat([own[f"cross.query.{kind}"], own[f"cross.key_value.{kind}"]])
            assert torch.equal(joint, bert.weights[f"{source}.attention.query_key_value.{kind}"])
            for part in ("output", "norm"):
                copied = bert.weights[f"{source}.attention.{part}.{kind}"]
                assert torch.equal(own[f"cross.{part}.{kind}"], copied)


def test_parts_of_a_start_may_be_random() -> None:
    bert = pretrained()
    last = bert.weights["layers.3.feed_forward.inner.weight"]
    attention = bert.weights["layers.3.attention.output.weight"]
    found = {}
    for interaction in ("copied", "random_cross", "random"):
        block = MORES.start(bert, 1, interaction).interaction.stack()[0]  # type: ignore[arg-type]
        found[interaction] = (
            torch.equal(block.layer.feed_forward.inner.weight, last),
            torch.equal(block.cross.output.weight, attention),
        )
    assert found == {
        "copied": (True, True),
        "random_cross": (True, False),
        "random": (False, False),
    }


def test_tied_encoders_are_one(tmp_path: Path) -> None:
    """As in the authors' code: layers are shared, embeddings are not."""
    tied = MORES.start(pretrained(), 2, tie_encoders=True).eval()
    apart = MORES.start(pretrained(), 2).eval()
    apart.interaction.load_state_dict(tied.interaction.state_dict())
    query, doc = piece_batch([4]), piece_batch([7])
    assert torch.equal(scores(tied, query, doc), scores(apart, query, doc))
    with torch.no_grad():
        tied.document.stack()[0].feed_forward.inner.weight.mul_(2.0)
    assert not torch.equal(scores(tied, query, doc), scores(apart, query, doc))
    sizes = [sum(p.numel() for p in m.parameters()) for m in (tied, apart)]
    layers = sum(p.numel() for layer in apart.query.stack() for p in layer.parameters())
    assert sizes[1] - sizes[0] == layers
    save_model(tmp_path / "model", tied, Usage(), PIECES, "")
    assert torch.equal(load_model(tmp_path / "model").model(query, doc), scores(tied, query, doc))


def test_short_floats_change_a_score_a_little() -> None:
    model = MORES.start(pretrained(), 2).eval()
    query, doc = piece_batch([5]), piece_batch([9, 4, 7, 3])
    with torch.no_grad():
        exact = model.interact(model.encode_query(query), model.encode_doc(doc)).score
        short = model.bfloat16()
        encoded, s1 = short.encode_query(query), short.encode_doc(doc)
        for stored in (s1, short.project(s1)):
            found = short.interact(encoded, stored).score
            assert found.dtype == torch.float32
            assert (found - exact).abs().max() < 0.05


def test_a_store_of_other_floats_is_read() -> None:
    model = mores()
    with torch.no_grad():
        query, doc = model.encode_query(piece_batch([5])), model.encode_doc(piece_batch([9, 4]))
        stored = doc._replace(vectors=doc.vectors.bfloat16())
        found, wanted = model.interact(query, stored).score, model.interact(query, doc).score
    assert found.dtype == wanted.dtype
    assert (found - wanted).abs().max() < 0.1


def test_members_of_an_ensemble_may_be_transformers() -> None:
    members = [mores(reuse="s2"), small_model("bert")]
    ensemble = Ensemble(members, [(6, 9), (6, 9)])
    query, doc = piece_batch([6, 4]), piece_batch([9, 5])
    with torch.no_grad():
        wanted = sum(member(query, doc) for member in members) / 2
        torch.testing.assert_close(ensemble(query, doc), wanted, rtol=1e-5, atol=1e-5)


def test_mistakes_are_one_sentence() -> None:
    model = mores()
    with torch.no_grad():
        query, doc = model.encode_query(piece_batch([5])), model.encode_doc(piece_batch([9]))
        other = mores(blocks=3).project(doc)
    with pytest.raises(InputError, match="projected for 2 blocks of size 12 were expected"):
        model.interact(query, other)
    with pytest.raises(InputError, match="expected 1 to 4, found 5"):
        MORESConfig.like(BERT, 5)
    with pytest.raises(InputError, match="must be as the document module"):
        MORESConfig(BERT, replace(BERT, size=24), tie_encoders=True)
    with pytest.raises(InputError, match="expected 1 to 4, found 0"):
        mores(blocks=0)
