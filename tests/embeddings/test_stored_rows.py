"""Words as they are stored: how near they stay to what was encoded, and how much room they take."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassrank.backends.quantization import pack_codes, unpack_codes
from glassrank.embeddings import rows as plain
from glassrank.embeddings.manifest import DTYPES, Layout, stride
from glassrank.embeddings.rows import pack_tensor as pack
from glassrank.embeddings.rows import row_bytes
from glassrank.embeddings.rows import unpack_tensor as unpack
from glassrank.errors import InputError
from glassrank.storage.mapped_arrays import concat_ranges

CPU = torch.device("cpu")
values = st.one_of(
    st.floats(-1, 1, width=32),
    st.floats(-60000, 60000, width=32),
    st.sampled_from([0.0, -0.0, 1e-45, -3e-44, 1.5e-41, 1e-30, 2.49e-43]),
)
vectors = st.integers(1, 40).flatmap(
    lambda width: st.lists(st.lists(values, min_size=width, max_size=width), max_size=5).map(
        lambda rows: torch.tensor(rows, dtype=torch.float32).reshape(-1, width)
    )
)


def layout(dtype: str, width: int) -> Layout:
    return Layout("tk", "", "", 200, dtype, (width,), (), stride(width, dtype))


def stored(vectors: torch.Tensor, dtype: str) -> torch.Tensor:
    shape = layout(dtype, vectors.shape[1])
    return unpack(pack(vectors, shape), shape, CPU)


@settings(max_examples=60, deadline=None)
@given(vectors=vectors, dtype=st.sampled_from(DTYPES))
def test_arrays_are_stored_as_tensors_are(vectors: torch.Tensor, dtype: str) -> None:
    shape = layout(dtype, vectors.shape[1])
    expected, found = pack(vectors, shape), plain.pack(vectors.numpy(), shape)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
    read = plain.unpack(found, shape)
    np.testing.assert_array_equal(read, unpack(expected, shape, CPU).numpy())


@settings(max_examples=40, deadline=None)
@given(vectors=vectors, dtype=st.sampled_from(DTYPES))
def test_rows_are_padded_with_zeros_to_what_tiles_take(vectors: torch.Tensor, dtype: str) -> None:
    width, multiple = vectors.shape[1], {"int8": 64, "int3": 16}.get(dtype, 32)
    rows = pack(vectors, layout(dtype, width))["vectors"]
    rows = unpack_codes(rows) if dtype == "int3" else rows
    assert rows.shape == (len(vectors), -(-width // multiple) * multiple)
    assert not rows[:, width:].any()


@settings(max_examples=40, deadline=None)
@given(vectors=vectors)
def test_float32_is_exact(vectors: torch.Tensor) -> None:
    assert torch.equal(stored(vectors, "float32"), vectors)


@settings(max_examples=40, deadline=None)
@given(vectors=vectors)
def test_float16_is_the_nearest(vectors: torch.Tensor) -> None:
    assert torch.equal(stored(vectors, "float16"), vectors.half().float())


@settings(max_examples=40, deadline=None)
@given(vectors=vectors)
def test_bf16_is_the_nearest_and_even_between_two(vectors: torch.Tensor) -> None:
    """Written out in integers: half of what is cut off is added, less one where the last bit that
    stays is even already."""
    bits = vectors.numpy().view(np.uint32).astype(np.uint64)
    expected = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    width = vectors.shape[1]
    assert np.array_equal(pack(vectors, layout("bf16", width))["vectors"][:, :width], expected)
    error = (stored(vectors, "bf16") - vectors).abs()
    assert (error <= vectors.abs() * 2.0**-8 + 2.0**-133).all()


@settings(max_examples=40, deadline=None)
@given(vectors=vectors)
def test_int8_is_within_half_a_step(vectors: torch.Tensor) -> None:
    largest = vectors.double().abs().amax(1, keepdim=True) if len(vectors) else vectors.double()
    error = (stored(vectors, "int8").double() - vectors.double()).abs()
    # Scales have 24 bits, and where they are the smallest numbers there are, fewer.
    assert (error <= largest / 254 * (1 + 1e-5) + 127 * 2.0**-149).all()


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 4).flatmap(
        lambda groups: st.lists(
            st.lists(st.integers(0, 7), min_size=16 * groups, max_size=16 * groups), max_size=4
        ).map(lambda rows: np.array(rows, np.uint8).reshape(-1, 16 * groups))
    )
)
def test_codes_of_three_bits_are_packed_and_unpacked(codes: np.ndarray) -> None:
    packed = pack_codes(codes)
    assert packed.shape == (len(codes), codes.shape[1] * 3 // 8)
    assert np.array_equal(unpack_codes(packed), codes)


def test_int3_keeps_a_words_cosine_with_itself_and_nearly_those_with_others() -> None:
    generator = torch.Generator().manual_seed(0)
    words, others = (
        torch.nn.functional.normalize(torch.randn(200, 256, generator=generator)) for _ in range(2)
    )
    rounded = stored(words, "int3")
    torch.testing.assert_close((rounded * words).sum(1), torch.ones(200), rtol=1e-5, atol=0)
    near = torch.nn.functional.normalize(words + 0.7 * others)
    # An eighth of a kernel's width, which is 0.1.
    assert ((rounded - words) * near).sum(1).abs().mean() < 0.0125


def test_a_row_of_zeros_stays_zero() -> None:
    zeros = torch.zeros(2, 7)
    for dtype in DTYPES:
        assert torch.equal(stored(zeros, dtype), zeros)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_is_refused(dtype: str, bad: float) -> None:
    with pytest.raises(InputError, match=f"the tk gives vectors that {dtype} cannot hold"):
        pack(torch.tensor([[0.5, bad]]), layout(dtype, 2))


def test_what_is_too_large_for_float16_is_refused() -> None:
    with pytest.raises(InputError, match="float16 cannot hold"):
        pack(torch.tensor([[7e4]]), layout("float16", 1))


def test_int8_takes_at_most_28_hundredths_of_float32() -> None:
    assert row_bytes(layout("int8", 300)) / (4 * 300) <= 0.28
    assert row_bytes(layout("bf16", 300)) == 2 * 320


def test_int3_takes_at_most_12_hundredths_of_float32() -> None:
    for width in (64, 128, 256, 300, 384):
        assert row_bytes(layout("int3", width)) / (4 * width) <= 0.12
    assert row_bytes(layout("int3", 300)) == 304 * 3 // 8 + 4


@given(runs=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5))))
def test_places_of_consecutive_runs(runs: list[tuple[int, int]]) -> None:
    starts, lengths = np.array(runs, np.int64).reshape(-1, 2).T
    expected = [place for start, length in runs for place in range(start, start + length)]
    assert concat_ranges(starts, lengths).tolist() == expected
