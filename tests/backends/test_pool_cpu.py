"""Compiled pooling over stored words beside the plain form, for every way to store and multiply."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from glassrank.backends.configs import FLOOR, Kernels, kernel_runs
from glassrank.backends.cpu import amx
from glassrank.backends.cpu.kernels import StoredRows, pool_cpu
from glassrank.backends.match import KernelBank, kernel_pool, match_matrix, unit
from glassrank.backends.quantization import pack_codes, quantize_int3
from glassrank.errors import InputError
from glassrank.models import MODELS, TokenEmbeddings
from glassrank.settings import from_plain

needs_tiles = pytest.mark.skipif(not amx.usable(), reason="this processor has no AMX tiles")
TILES = pytest.param(True, marks=needs_tiles, id="tiles")
LANES = pytest.param(False, id="lanes")
every_way = pytest.mark.parametrize(
    ("dtype", "tiles"),
    [
        pytest.param("float32", False, id="float32-lanes"),
        *(
            pytest.param(dtype, *way.values, marks=way.marks, id=f"{dtype}-{way.id}")
            for dtype in ("bf16", "int8")
            for way in (LANES, TILES)
        ),
    ],
)

# Of narrower kernels, float32 loses more than 1e-4 in the cosine itself.
wide_enough = st.floats(0.05, 0.6)
centers = st.floats(-1, 1)


@st.composite
def evenly_spaced(draw: st.DrawFn) -> Kernels:
    count = draw(st.integers(1, 24))
    step = draw(st.floats(0.05, 0.5))
    highest = draw(st.floats(-0.2, 1.2))
    some = [highest - step * k for k in range(count)]
    if draw(st.booleans()):
        some.insert(0, highest + step / 2)
    return Kernels(tuple(some), (draw(wide_enough),) * len(some))


uneven = st.lists(st.tuples(centers, wide_enough), min_size=1, max_size=8).map(
    lambda pairs: Kernels(tuple(c for c, _ in pairs), tuple(w for _, w in pairs))
)
around_centers = st.one_of(st.just(Kernels.eleven()), evenly_spaced(), uneven)
any_kernels = st.one_of(
    around_centers,
    st.just(Kernels.rising()),
    around_centers.map(lambda kernels: replace(kernels, at_least=True)),
)


def store(vectors: Tensor, dtype: str) -> tuple[StoredRows, Tensor]:
    """Rows as they are stored, and the same values in float32."""
    if dtype == "bf16":
        rounded = vectors.bfloat16()
        return StoredRows(rounded.view(torch.uint16).numpy()), rounded.float()
    if dtype == "int8":
        scales = vectors.abs().amax(1).clamp(min=1e-9) / 127  # (T,)
        whole = (vectors / scales[:, None]).round()
        stored = StoredRows(whole.to(torch.int8).numpy(), scales.numpy())
        return stored, whole * scales[:, None]
    return StoredRows(vectors.numpy()), vectors


@pytest.mark.parametrize("first_column", [0, 16])
@pytest.mark.parametrize("size", [1, 16, 30, 128, 300])
def test_three_bits_agree_with_the_plain_form(size: int, first_column: int) -> None:
    generator = torch.Generator().manual_seed(size)
    query = unit(torch.randn(20, size, generator=generator))
    rows = unit(torch.randn(400, first_column + -(-size // 16) * 16, generator=generator))
    codes, scales = quantize_int3(rows.numpy())
    values = torch.from_numpy(codes.astype(np.float32) - 3.5) * torch.from_numpy(scales)[:, None]
    case = Case(query, rows, [257, 0, 16, 1, 33], Kernels.eleven())
    scores = case.pooled(StoredRows(pack_codes(codes), scales), first_column=first_column)
    expected, _, sizes = case.plain(values, first_column)
    assert ((torch.from_numpy(scores) - expected).abs() <= 1e-4 * sizes).all()


class Case:
    """Documents of these lengths, out of order and with gaps between them, and a random readout."""

    def __init__(self, query: Tensor, rows: Tensor, lengths: list[int], kernels: Kernels) -> None:
        generator = torch.Generator().manual_seed(len(rows))
        order = torch.randperm(len(lengths), generator=generator)
        ends = torch.tensor([*lengths, 0]).cumsum(0)[:-1] + torch.arange(len(lengths))
        self.lengths = torch.tensor(lengths, dtype=torch.int64)[order]  # (n,)
        self.starts = ends[order] - self.lengths  # (n,)
        self.query, self.rows, self.kernels = query, rows, kernels
        self.weights = torch.rand(len(query), generator=generator)  # (Q,)
        self.log, self.length = torch.randn(2, len(kernels), generator=generator)  # (K,) each

    def plain(self, values: Tensor, first_column: int) -> tuple[Tensor, Tensor, Tensor]:
        """Scores and counts, one document after another, and the sizes of what scores add up."""
        bank, ones = KernelBank(self.kernels), torch.ones(1, len(self.query))
        found = [torch.zeros(0, len(self.query), len(self.kernels))]
        for start, words in zip(self.starts.tolist(), self.lengths.tolist(), strict=True):
            doc = values[start : start + words, first_column:][:, : self.query.shape[1]]
            mask = torch.ones(1, words)
            similarity = match_matrix(self.query[None], doc[None], ones, mask)
            found.append(kernel_pool(similarity, ones, mask, bank))
        counts = torch.cat(found)  # (n, Q, K)
        shares = counts / (self.lengths[:, None, None] + 1)
        logs = counts.clamp(min=FLOOR).log()
        parts = self.log * logs + self.length * shares
        sizes = self.log.abs() * logs.abs().clamp(min=1) + self.length.abs() * shares
        weights = self.weights[:, None]
        return (parts * weights).sum((1, 2)), counts, (sizes * weights).sum((1, 2))

    def pooled(self, rows: StoredRows, **options: Any) -> Any:
        return pool_cpu(
            self.query.numpy(), self.weights.numpy(), rows, self.starts.numpy(),
            self.lengths.numpy(), self.kernels, self.log.numpy(), self.length.numpy(), **options,
        )  # fmt: skip

    def counts(self, rows: StoredRows, words: list[int], **options: Any) -> Tensor:
        """Soft counts (n, words, K): a readout of one word's and one kernel's share alone."""
        lengths = self.lengths.numpy()
        found = torch.empty(len(lengths), len(words), len(self.kernels))
        one_word = np.eye(len(self.query), dtype=np.float32)
        one_kernel = np.eye(len(self.kernels), dtype=np.float32)
        for place, word in enumerate(words):
            for kernel in range(len(self.kernels)):
                shares = pool_cpu(
                    self.query.numpy(), one_word[word], rows, self.starts.numpy(), lengths,
                    self.kernels, 0 * one_kernel[0], one_kernel[kernel], **options,
                )  # fmt: skip
                found[:, place, kernel] = torch.from_numpy(shares * (lengths + 1))
        return found

    def check(self, dtype: str, tiles: bool | None, first_column: int = 0) -> None:
        rows, values = store(self.rows, dtype)
        scores = self.pooled(rows, first_column=first_column, tiles=tiles)
        expected, soft, sizes = self.plain(values, first_column)
        last = len(self.query) - 1
        some = sorted({0, last // 2, last}) if last >= 0 else []
        counts = self.counts(rows, some, first_column=first_column, tiles=tiles)
        torch.testing.assert_close(counts, soft[:, some], rtol=1e-4, atol=1e-4 * FLOOR)
        assert ((torch.from_numpy(scores) - expected).abs() <= 1e-4 * sizes).all()
        assert np.isfinite(scores).all()


@every_way
@settings(max_examples=30, deadline=None)
@given(
    words=st.integers(1, 70),
    size=st.integers(1, 150),
    lengths=st.lists(st.one_of(st.integers(0, 3), st.integers(0, 80)), max_size=6),
    kernels=any_kernels,
    first_column=st.integers(0, 40),
    seed=st.integers(0, 99),
)
@example(30, 300, [600, 257, 256, 16, 15, 17, 33], Kernels.eleven(), 0, 0)
@example(30, 128, [600, 257, 256, 16, 15, 17, 33], Kernels.rising(), 0, 0)
def test_agrees_with_the_plain_form(
    dtype: str,
    tiles: bool,
    words: int,
    size: int,
    lengths: list[int],
    kernels: Kernels,
    first_column: int,
    seed: int,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    query = unit(torch.randn(words, size, generator=generator))
    stride = first_column + -(-size // 64) * 64
    vectors = torch.randn(sum(lengths) + len(lengths) + 1, stride, generator=generator) / 10
    own = vectors[:, first_column : first_column + size]
    own[:] = unit(own)
    own[::3] = query[seed % words]  # exact matches
    Case(query, vectors, lengths, kernels).check(dtype, tiles, first_column)


@every_way
@settings(max_examples=15, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=4),
    kernels=st.lists(
        st.tuples(st.integers(-128, 128), st.sampled_from([1e-4, 1e-3, 0.01, 0.03])),
        min_size=1,
        max_size=6,
    ),
    steps=st.integers(0, 12),
    seed=st.integers(0, 99),
)
def test_narrow_kernels_agree_where_cosines_are_exact(
    dtype: str,
    tiles: bool,
    lengths: list[int],
    kernels: list[tuple[int, float]],
    steps: int,
    seed: int,
) -> None:
    """Each query word has a single value, so every cosine is one of the document word's values:
    multiples of 1/128, which all types can store."""
    generator = torch.Generator().manual_seed(seed)
    query = torch.eye(20, 64)
    vectors = torch.randint(-127, 128, (sum(lengths) + len(lengths), 64), generator=generator)
    vectors[:, -1] = 127  # so that int8 stores multiples of 1/128, too
    centers = tuple(center / 128 for center, _ in kernels)
    widths = tuple(width for _, width in kernels)
    evenly = tuple(-0.5 + step / 16 for step in range(steps))
    every = Kernels(centers + evenly, widths + (0.03,) * steps)
    Case(query, vectors / 128, lengths, every).check(dtype, tiles)


def random_case(docs: int = 90, words: int = 60, size: int = 100) -> Case:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(0, 2 * words, (docs,), generator=generator).tolist()
    rows = torch.zeros(sum(lengths) + docs, 128)
    rows[:, :size] = unit(torch.randn(len(rows), size, generator=generator))
    return Case(unit(rows[:37, :size] + 0.3), rows, lengths, Kernels.eleven())


@every_way
def test_threads_change_nothing(dtype: str, tiles: bool) -> None:
    case = random_case()
    rows, _ = store(case.rows, dtype)
    one = case.pooled(rows, tiles=tiles, threads=1)
    assert np.array_equal(case.pooled(rows, tiles=tiles, threads=2), one)
    assert np.array_equal(case.pooled(rows, tiles=tiles, threads=5), one)


@every_way
def test_a_document_scores_the_same_alone(dtype: str, tiles: bool) -> None:
    case = random_case(docs=20)
    rows, _ = store(case.rows, dtype)
    together = case.pooled(rows, tiles=tiles)
    starts, lengths = case.starts, case.lengths
    for doc in range(len(starts)):
        case.starts, case.lengths = starts[doc : doc + 1], lengths[doc : doc + 1]
        assert case.pooled(rows, tiles=tiles)[0] == together[doc]


@every_way
def test_nothing_to_score(dtype: str, tiles: bool) -> None:
    case = Case(torch.eye(3, 64), torch.zeros(4, 64), [], Kernels.eleven())
    rows, _ = store(case.rows, dtype)
    assert case.pooled(rows, tiles=tiles).shape == (0,)
    Case(torch.zeros(0, 64), torch.zeros(6, 64), [2, 0], Kernels.eleven()).check(dtype, tiles)
    Case(torch.zeros(2, 64), torch.zeros(6, 64), [2, 0], Kernels.eleven()).check(dtype, tiles)


def test_rows_in_a_file_are_read_where_they_are(tmp_path: Path) -> None:
    case = random_case(docs=9)
    rows, _ = store(case.rows, "bf16")
    np.save(tmp_path / "rows.npy", rows.vectors)
    mapped = StoredRows(np.load(tmp_path / "rows.npy", mmap_mode="r"))
    assert np.array_equal(case.pooled(mapped), case.pooled(rows))


def test_rows_without_padding_do_without_tiles() -> None:
    case = random_case(docs=9)
    case.query, case.rows = case.query[:, :99], case.rows[:, :99]
    case.rows = case.rows.contiguous()
    case.check("bf16", tiles=None)
    case.check("int8", tiles=None)
    with pytest.raises(InputError, match="tiles need"):
        case.check("bf16", tiles=True)


def test_tiny_numbers_are_as_before_for_everyone_else() -> None:
    case = random_case(docs=9)
    case.pooled(store(case.rows, "bf16")[0], threads=1)
    assert np.float32(1e-30) * np.float32(1e-10) > 0


def random_words(lengths: list[int]) -> TokenEmbeddings:
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).float()
    vectors = torch.randn(*mask.shape, 12) * mask[..., None]
    return TokenEmbeddings(vectors, mask, torch.rand(mask.shape) * mask)


@pytest.mark.parametrize("name", ["tk", "knrm", "conv_knrm"])
def test_readouts_of_models_score_as_the_models_do(name: str) -> None:
    torch.manual_seed(1)
    small = {"tk": {"contextual": {"heads": 2, "attention_size": 4}}, "conv_knrm": {"channels": 6}}
    family = MODELS[name]
    model = family(from_plain(family.info.config_type, {"size": 12, **small.get(name, {})})).eval()
    with torch.no_grad():
        query, docs = model.query_words(random_words([5])), model.doc_words(random_words([9, 1, 4]))
        every = query.rows(torch.zeros(3, dtype=torch.long))
        expected = model.interact(every, docs).score
        lengths = docs.mask.sum(1).long()  # (B,)
        vectors = docs.vectors.flatten(2)  # (B, D, N * C)
        rows = StoredRows(vectors.flatten(0, 1).contiguous().numpy())
        starts = torch.arange(3) * 9
        weights = (query.idf if model.info.has_term_weights else query.mask)[0]
        scores = sum(
            pool_cpu(
                query.vectors.flatten(2)[0, :, readout.query_columns].contiguous().numpy(),
                weights.numpy(), rows, starts.numpy(), lengths.numpy(), model.config.kernels,
                readout.log.numpy(), readout.length.numpy(),
                first_column=readout.doc_columns.start or 0,
            )
            for readout in model.scoring_heads()
        )  # fmt: skip
    torch.testing.assert_close(torch.from_numpy(np.asarray(scores)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("rows", "starts", "lengths", "first_column", "problem"),
    [
        (StoredRows(np.zeros((4, 8))), [0], [1], 0, "stored embeddings must be"),
        (StoredRows(np.zeros((8, 8), np.float32)[:, :6]), [0], [1], 0, "stored embeddings must be"),
        (StoredRows(np.zeros((4, 8), np.int8)), [0], [1], 0, "need a scale for each row"),
        (StoredRows(np.zeros((4, 8), np.int8), np.ones(3)), [0], [1], 0, "as many scales"),
        (StoredRows(np.zeros((4, 6), np.uint8)), [0], [1], 0, "need a scale for each row"),
        (StoredRows(np.zeros((4, 6), np.uint8), np.ones(4)), [0], [1], 13, "does not fit"),
        (StoredRows(np.zeros((4, 12), np.uint8), np.ones(4)), [0], [1], 8, "does not fit"),
        (StoredRows(np.zeros((4, 8), np.float32)), [0], [1], 5, "does not fit"),
        (StoredRows(np.zeros((4, 8), np.float32)), [2], [3], 0, "outside of the 4 rows"),
        (StoredRows(np.zeros((4, 8), np.float32)), [-1], [3], 0, "outside of the 4 rows"),
        (StoredRows(np.zeros((4, 8), np.float32)), [0, 1], [3], 0, "a start and a length"),
    ],
)
def test_what_cannot_be_read_is_refused(
    rows: StoredRows, starts: list[int], lengths: list[int], first_column: int, problem: str
) -> None:
    kernels, ones = Kernels((0.5,), (0.1,)), np.ones(1, np.float32)
    with pytest.raises(InputError, match=problem):
        pool_cpu(
            np.ones((1, 4), np.float32), ones, rows, np.array(starts), np.array(lengths),
            kernels, ones, ones, first_column=first_column,
        )  # fmt: skip


def test_eleven_kernels_are_one_run() -> None:
    runs = kernel_runs(Kernels.eleven())
    assert len(runs.curves) == 4
    assert sorted(runs.kernels) == list(range(11))
    assert len(kernel_runs(Kernels.eleven(exact_width=1e-3)).curves) == 8


@given(any_kernels)
def test_every_kernel_is_in_one_run(kernels: Kernels) -> None:
    runs = kernel_runs(kernels)
    assert sorted(runs.kernels) == list(range(len(kernels)))
    assert len(runs.steps) * 4 == len(runs.curves) * 3
    assert runs.steps.sum() + len(runs.steps) // 3 == len(kernels)
