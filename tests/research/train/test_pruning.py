"""A smaller model out of a trained one: how it begins, and that it learns what the whole one
gives."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from glassrank.backends.onnx_encoders import Weights
from glassrank.errors import InputError
from glassrank.models import TokenBatch
from glassrank.models.bi_encoders import LateInteraction
from glassrank.models.io.load import load_model
from glassrank.models.io.torch_files import save_model
from glassrank.models.onnx_models import OnnxKernelBERT
from glassrank.models.pretrained import read_pretrained
from glassrank.research.train.batches import Sampler, SplitTensors, Tokens
from glassrank.research.train.build import build_model, fit_model_statistics, load_vector_teacher
from glassrank.research.train.config import LossConfig, StartConfig
from glassrank.research.train.cuda_graph_step import CudaGraphStep
from glassrank.research.train.distillation import fit_projection, freeze_teacher, vector_loss
from glassrank.research.train.loop import train
from glassrank.research.train.pruning import prune
from glassrank.research.train.step import Step, make_optimizers
from glassrank.settings import from_plain
from tests.research.train.tiny_bert import (
    HEADS,
    INNER,
    LAYERS,
    config,
    prepared_for,
    write_collection_and_bert,
)

TEACHER = "teacher/best"
KL = {"kind": "kl", "standardized": True, "temperature": 1.5}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With kernels over the small BERT, trained for a moment."""
    folder = write_collection_and_bert(tmp_path_factory.mktemp("smaller"))
    for model, settings in (("kernel_bert", {"size": 8}), ("bert", {})):
        run = config(model, config=settings, optimizer={"steps": 2}, validation={"every": 2})
        train(run, prepared_for(run, folder), folder / model, base=folder)
    (folder / "kernel_bert").rename(folder / "teacher")
    return folder


@pytest.fixture(scope="module")
def teacher(base: Path) -> LateInteraction:
    model = load_model(base / TEACHER).model
    assert isinstance(model, LateInteraction)
    return model.eval()


@pytest.fixture
def batch() -> TokenBatch:
    ids = torch.randint(4, 40, (6, 9), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(9) < torch.tensor([9, 9, 5, 7, 1, 3])[:, None]).float()
    return TokenBatch(ids, mask)


def test_all_of_its_layers_are_the_whole_model(teacher: LateInteraction, batch: TokenBatch) -> None:
    same = prune(teacher, StartConfig(model="m", layers=tuple(range(LAYERS)))).eval()
    for encode in ("encode_query", "encode_doc"):
        got, expected = getattr(same, encode)(batch), getattr(teacher, encode)(batch)
        assert torch.equal(got.vectors, expected.vectors) and torch.equal(got.idf, expected.idf)
    assert vector_loss((got, got), (expected, expected)).item() == pytest.approx(0, abs=1e-5)


def test_an_encoder_begins_anew_beside_what_was_learned(
    base: Path, teacher: LateInteraction
) -> None:
    """So that a mean of both runs makes sense: projection, kernels and weights go on."""
    start = {"model": TEACHER, "bert": "bert"}
    run = config("kernel_bert", start=start)
    prepared = prepared_for(run, base)
    begun = build_model(run, prepared, base).state_dict()
    bert = read_pretrained("bert", base).encoder_weights()
    for name, weight in teacher.state_dict().items():
        of_bert = bert.get(name.removeprefix("encoder."))
        assert torch.equal(begun[name], weight if of_bert is None else of_bert), name
    assert not all(
        torch.equal(begun[name], weight) for name, weight in teacher.state_dict().items()
    )
    with pytest.raises(InputError, match="needs a kernel_bert or maxsim, found bert"):
        other = config("bert", start={"model": "bert/best", "bert": "bert"})
        build_model(other, prepared, base)
    small = prune(teacher, StartConfig(model="m", layers=(0,)))
    saved = load_model(base / TEACHER)
    save_model(base / "one-layer", small, saved.usage, list(saved.vocabulary), "small")
    with pytest.raises(InputError, match="another size than the encoder"):
        build_model(config("kernel_bert", start={**start, "model": "one-layer"}), prepared, base)


def test_what_a_narrower_layer_leaves_out_is_the_shortest(
    teacher: LateInteraction, batch: TokenBatch
) -> None:
    """Values that nothing comes out of can be left out without any change."""
    useless = torch.arange(INNER) % 4 == 1
    cut = prune(teacher, StartConfig(model="m", layers=tuple(range(LAYERS))))
    for layer in cut.encoder.stack():
        layer.feed_forward.outer.weight.data[:, useless] = 0
    start = StartConfig(
        model="m", layers=tuple(range(LAYERS)), feed_forward=INNER - int(useless.sum())
    )
    narrow = prune(cut.eval(), start).eval()
    assert narrow.config.encoder.feed_forward == 12
    torch.testing.assert_close(narrow.encode_doc(batch).vectors, cut.encode_doc(batch).vectors)


def test_what_fewer_heads_leave_out_is_the_shortest(
    teacher: LateInteraction, batch: TokenBatch
) -> None:
    """A head that nothing comes out of can be left out without any change."""
    layers = tuple(range(LAYERS))
    cut = prune(teacher, StartConfig(model="m", layers=layers))
    size = cut.config.encoder.attention // HEADS
    for number, layer in enumerate(cut.encoder.stack()):
        useless = slice(number % HEADS * size, (number % HEADS + 1) * size)
        layer.attention.output.weight.data[:, useless] = 0
    fewer = prune(cut.eval(), StartConfig(model="m", layers=layers, heads=HEADS - 1)).eval()
    encoder = fewer.config.encoder
    assert (encoder.heads, encoder.head_size) == (HEADS - 1, size)
    torch.testing.assert_close(fewer.encode_doc(batch).vectors, cut.encode_doc(batch).vectors)
    weights = {name: weight.numpy() for name, weight in fewer.state_dict().items()}
    served = OnnxKernelBERT(fewer.config, Weights(weights))
    plain = TokenBatch(batch.ids.numpy(), batch.mask.numpy())
    got, expected = served.encode_doc(plain).vectors, fewer.encode_doc(batch).vectors.detach()
    real = plain.mask > 0
    np.testing.assert_allclose(got[real], expected[real], atol=0.03)  # bfloat16 has 8 bits


def test_it_begins_as_near_as_its_states_allow(teacher: LateInteraction, batch: TokenBatch) -> None:
    small = prune(teacher, StartConfig(model="m", layers=(1,))).eval()
    whole = teacher.encode_query(batch), teacher.encode_doc(batch)
    before = vector_loss((small.encode_query(batch), small.encode_doc(batch)), whole).item()
    fit_projection(small, teacher, [batch])
    after = vector_loss((small.encode_query(batch), small.encode_doc(batch)), whole).item()
    assert after < before


def test_padding_does_not_count(teacher: LateInteraction, batch: TokenBatch) -> None:
    """What stands where the mask is 0 is not learned."""
    words = teacher.encode_doc(batch)
    noise = torch.where(batch.mask[..., None] > 0, words.vectors, torch.randn(words.vectors.shape))
    other = words._replace(vectors=noise)
    assert vector_loss((other, other), (words, words)).item() == pytest.approx(0, abs=1e-5)


@pytest.mark.long
def test_a_run_learns_the_vectors(base: Path, tmp_path: Path) -> None:
    run = config(
        "kernel_bert",
        start={"model": TEACHER, "layers": [0], "feed_forward": 8},
        loss={**KL, "vectors": 8.0},
        candidates={"teacher": TEACHER},
        optimizer={"steps": 80, "contextual": 0.01, "rest": 0.01, "schedule": "linear"},
        validation={"every": 20},
    )
    prepared = prepared_for(run, base)
    whole = load_vector_teacher(run, base)
    assert whole is not None
    docs = Tokens.of(prepared.docs, run.doc_length, torch.device("cpu"))
    fresh = build_model(run, prepared, base)
    fit_model_statistics(fresh, docs, whole)
    trained = train(run, prepared, tmp_path / "out", base=base).model
    shown = docs.batch(np.arange(30))
    expected = whole.encode_query(shown), whole.encode_doc(shown)
    assert isinstance(trained, LateInteraction)
    assert trained.config.encoder.layers == 1 and trained.config.encoder.feed_forward == 8
    assert trained.first_stage_weight is None
    distances = [
        vector_loss((model.encode_query(shown), model.encode_doc(shown)), expected).item()
        for model in (fresh.eval(), trained.eval())
    ]
    assert distances[1] < 0.7 * distances[0]
    # The whole model is as it was.
    again = load_model(base / TEACHER).model.encode_doc(shown)
    assert torch.equal(again.vectors, expected[1].vectors)


def test_a_recorded_step_learns_them_too(base: Path) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    run = config(
        "kernel_bert",
        start={"model": TEACHER, "layers": [1]},
        loss={"kind": "softmax", "vectors": 8},
    )
    prepared = prepared_for(run, base)
    docs = Tokens.of(prepared.docs, run.doc_length, device)
    data = SplitTensors.of(prepared.train, docs, run.query_length, device)
    batch = data.examples(Sampler(prepared.train, run.sampler, run.seed).batch(0), pad_to_max=True)
    whole = load_vector_teacher(run, base)
    assert whole is not None
    losses = []
    for kind in (Step, CudaGraphStep):
        model = build_model(run, prepared, base).to(device)
        given = (batch,) if kind is CudaGraphStep else ()
        step = kind(
            model,
            make_optimizers(model, run.optimizer),
            run,
            *given,
            vector_teacher=whole.to(device),
        )
        losses.append(step.gradients(batch).item())
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    alone = Step(model, make_optimizers(model, run.optimizer), run).gradients(batch).item()
    assert losses[0] > alone


def test_another_model_may_give_the_vectors(base: Path, teacher: LateInteraction) -> None:
    run = config(
        "kernel_bert",
        start={"model": TEACHER, "layers": [0]},
        loss={"kind": "softmax", "vectors": 8, "vectors_of": "other"},
    )
    smaller = prune(teacher, StartConfig(model="m", layers=(1,)))
    saved = load_model(base / TEACHER)
    save_model(base / "other", smaller, saved.usage, list(saved.vocabulary), "another")
    whole = load_vector_teacher(run, base)
    assert isinstance(whole, LateInteraction) and whole.config.encoder.layers == 1
    narrow = type(teacher)(replace(teacher.config, size=4))
    save_model(base / "narrow", narrow, saved.usage, list(saved.vocabulary), "narrow")
    with pytest.raises(InputError, match="the vector size of start"):
        load_vector_teacher(replace(run, loss=replace(run.loss, vectors_of="narrow")), base)
    with pytest.raises(InputError, match=r"loss\.vectors_of needs loss\.vectors"):
        LossConfig(vectors_of="other")


def test_what_does_not_fit_is_refused(base: Path, teacher: LateInteraction) -> None:
    with pytest.raises(InputError, match=r"start\.layers needs start\.model"):
        StartConfig(layers=(0,))
    for name in ("feed_forward", "heads"):
        with pytest.raises(InputError, match=rf"start\.{name} needs start\.layers"):
            from_plain(StartConfig, {"model": "m", name: 8}, "start")
    with pytest.raises(InputError, match=r"layers 0 to 1, found \[0, 2\]"):
        prune(teacher, StartConfig(model="m", layers=(0, 2)))
    for inner in (0, 17):
        with pytest.raises(InputError, match=rf"start\.model has 16, found {inner}"):
            prune(teacher, StartConfig(model="m", layers=(0,), feed_forward=inner))
    for heads in (0, 4):
        with pytest.raises(InputError, match=rf"start\.heads: start\.model has 3, found {heads}"):
            prune(teacher, StartConfig(model="m", layers=(0,), heads=heads))
    with pytest.raises(InputError, match=r"loss\.vectors needs start\.model"):
        replace(config("kernel_bert"), loss=LossConfig(vectors=1.0))
    bert = load_model(base / "bert" / "best").model
    with pytest.raises(InputError, match="expected a kernel_bert or maxsim model, found bert"):
        prune(bert, StartConfig(model="m", layers=(0,)))
    with pytest.raises(InputError, match="must be a kernel_bert or maxsim, found bert"):
        freeze_teacher(bert)
