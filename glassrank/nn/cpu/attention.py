"""Attention within texts on a CPU with matrix tiles, compiled: for short rows of many heads.

A head of 32 channels is as wide as a tile, so one instruction compares sixteen words with sixteen
others. Similarities stand with one word's sixteen askers side by side: the softmax of all sixteen
goes down the rows, and its result is what the next product takes, two rows interleaved. What has to
be turned for that grows with a document's length, and not with its square.

Documents come as rows of bfloat16 (`attend_within`), a text of a pass through few rows as float32
(`attend_head`, which `row_steps.py` calls).
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from glassrank.compiled import compiled
from glassrank.nn import cpu
from glassrank.nn.cpu import amx, simd, simd_math
from glassrank.nn.cpu.simd import (
    INTS,
    LANES,
    aligned_zeros,
    broadcast,
    integers,
    intrinsic,
    load,
    offset,
    pointer,
    rounded,
    store,
    store_one,
    vector,
    written,
)
from glassrank.nn.cpu.simd_math import exp2, maximum

if TYPE_CHECKING:
    import torch
    from torch import Tensor

CHANNELS = 32
"""Of a head: what tiles take."""
_PAIRS = CHANNELS // 2
TILE_PAIRS = LANES * _PAIRS
"""Pairs of bfloat16 in a tile."""
_CONFIGS = amx.tile_configs().reshape(-1)
_LOWEST, _ZERO = np.float32(-126), np.float32(0)


@intrinsic
def store_pairs(typing: Any, target: Any, at: Any, low: Any, high: Any) -> Any:
    """Two vectors as bfloat16, interleaved: sixteen integers of 32 bits."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        first = builder.lshr(rounded(builder, args[2]), integers(16))
        upper = integers(0xFFFF0000 - (1 << 32))
        second = builder.and_(rounded(builder, args[3]), upper)
        place = builder.bitcast(builder.gep(args[0], [args[1]]), INTS.as_pointer())
        builder.store(builder.or_(first, second), place).align = 4
        return context.get_dummy_value()

    return types.void(target, types.intp, vector, vector), generate


@njit
def _turn_keys_and_values(
    projected: Any, first: int, words: int, key: int, value: int, keys: Any, values: Any
) -> None:
    """Keys one after another; values with all words of a channel side by side. Places up to the
    next whole tile hold zeros."""
    steps = (words + 31) // 32
    keys[words * _PAIRS : (words + LANES) * _PAIRS] = 0
    for word in range(words):
        for pair in range(_PAIRS):
            keys[word * _PAIRS + pair] = projected[first + word, key + pair]
    upper = np.uint32(0xFFFF0000)
    for two in range(steps * LANES):
        word = 2 * two
        for pair in range(_PAIRS):
            low = projected[first + word, value + pair] if word < words else np.uint32(0)
            high = projected[first + word + 1, value + pair] if word + 1 < words else np.uint32(0)
            at = 2 * pair * steps * LANES + two
            values[at] = (low & np.uint32(0xFFFF)) | (high << np.uint32(16))
            values[at + steps * LANES] = (low >> np.uint32(16)) | (high & upper)


@njit
def shares_of(scores: Any, shares: Any, words: int, scale: Any) -> Any:
    """The softmax of sixteen askers over all words, not yet divided by its sum, which it gives."""
    best = load(scores, 0)
    for word in range(1, words):
        best = maximum(load(scores, word * LANES), best)
    times, lowest = broadcast(scale), broadcast(_LOWEST)
    base = best * times
    total = broadcast(_ZERO)
    for word in range(0, words - 1, 2):
        even = exp2(maximum(load(scores, word * LANES) * times - base, lowest))
        odd = exp2(maximum(load(scores, (word + 1) * LANES) * times - base, lowest))
        total = total + even + odd
        store_pairs(shares, word // 2 * LANES, even, odd)
    if words % 2:
        even = exp2(maximum(load(scores, (words - 1) * LANES) * times - base, lowest))
        total = total + even
        store_pairs(shares, words // 2 * LANES, even, broadcast(_ZERO))
    for two in range((words + 1) // 2, (words + 31) // 32 * LANES):
        store_pairs(shares, two * LANES, broadcast(_ZERO), broadcast(_ZERO))
    return total


@njit
def _attend_head(
    projected: Any, out: Any, first: int, words: int, head: int, heads: int, scale: Any,
    keys: Any, values: Any, asked: Any, scores: Any, shares: Any, sums: Any,
) -> None:  # fmt: skip
    query, steps = head * _PAIRS, (words + 31) // 32
    key = query + heads * _PAIRS
    _turn_keys_and_values(projected, first, words, key, key + heads * _PAIRS, keys, values)
    ones = broadcast(np.float32(1))
    for begin in range(0, words, LANES):
        here = min(LANES, words - begin)
        for pair in range(_PAIRS):
            for word in range(here):
                asked[pair * LANES + word] = projected[first + begin + word, query + pair]
            for word in range(here, LANES):
                asked[pair * LANES + word] = 0
        amx.load_tile(6, pointer(asked), 0, amx.ROW_BYTES)
        for other in range(0, words, 2 * LANES):
            amx.zero(0)
            amx.load_tile(4, pointer(keys), other * _PAIRS, amx.ROW_BYTES)
            amx.add_bf16_products(0, 4, 6)
            if other + LANES < words:
                amx.zero(1)
                amx.load_tile(5, pointer(keys), (other + LANES) * _PAIRS, amx.ROW_BYTES)
                amx.add_bf16_products(1, 5, 6)
                amx.store_tile(1, pointer(scores), (other + LANES) * LANES, amx.ROW_BYTES)
            amx.store_tile(0, pointer(scores), other * LANES, amx.ROW_BYTES)
        total = ones / shares_of(pointer(scores), pointer(shares), words, scale)
        amx.zero(0)
        amx.zero(1)
        row = 4 * steps * LANES  # bytes
        for step in range(steps):
            amx.load_tile(7, pointer(shares), step * TILE_PAIRS, amx.ROW_BYTES)
            amx.load_tile(4, pointer(values), step * LANES, row)
            amx.add_bf16_products(0, 4, 7)
            amx.load_tile(5, pointer(values), (LANES * steps + step) * LANES, row)
            amx.add_bf16_products(1, 5, 7)
        amx.store_tile(0, pointer(sums), 0, amx.ROW_BYTES)
        amx.store_tile(1, pointer(sums), TILE_PAIRS, amx.ROW_BYTES)
        for pair in range(_PAIRS):
            low = load(pointer(sums), 2 * pair * LANES) * total
            high = load(pointer(sums), (2 * pair + 1) * LANES) * total
            store_pairs(pointer(asked), pair * LANES, low, high)
        for word in range(here):
            for pair in range(_PAIRS):
                out[first + begin + word, query + pair] = asked[pair * LANES + word]


@njit
def _lay_out_rows(
    source: Any, count: int, key: int, value: int, stride: int, keys: Any, values: Any, row: Any
) -> None:
    """Keys one after another; values with all words of a channel side by side. Places up to the
    next whole tile hold zeros."""
    most = (count + 31) // 32 * 32
    zeros = broadcast(np.float32(0))
    for word in range(count):
        at = word * stride
        store(keys, word * CHANNELS, load(source, at + key))
        store(keys, word * CHANNELS + LANES, load(source, at + key + LANES))
        store(row, 0, load(source, at + value))
        store(row, LANES, load(source, at + value + LANES))
        for channel in range(CHANNELS):
            store_one(values, channel * most + word, row[channel])
    for word in range(count, count + LANES):
        store(keys, word * CHANNELS, zeros)
        store(keys, word * CHANNELS + LANES, zeros)
    for channel in range(CHANNELS):
        for word in range(count, most):
            store_one(values, channel * most + word, np.uint16(0))


@njit
def attend_head(
    source: Any, count: int, head: int, heads: int, scale: Any, words: Any, pairs: Any,
    floats: Any, target: Any,
) -> None:  # fmt: skip
    """One head of one text whose queries, keys and values are float32, side by side in `source`
    (count, heads * 3 * CHANNELS): they are rounded as they are laid out. `words`, `pairs` and
    `floats` are room to work in (see `row_steps.TileRoom`)."""
    stride, query = heads * 3 * CHANNELS, head * 3 * CHANNELS
    steps = (count + 31) // 32
    row = words
    keys = offset(words, CHANNELS)
    values = offset(keys, (count + LANES) * CHANNELS)
    asked, shares = pairs, offset(pairs, TILE_PAIRS)
    sums, scores = floats, offset(floats, 2 * TILE_PAIRS)
    _lay_out_rows(source, count, query + CHANNELS, query + 2 * CHANNELS, stride, keys, values, row)
    ones = broadcast(np.float32(1))
    for begin in range(0, count, LANES):
        here = min(LANES, count - begin)
        for word in range(LANES):
            at = query + min(begin + word, count - 1) * stride
            store(row, 0, load(source, at))
            store(row, LANES, load(source, at + LANES))
            for pair in range(CHANNELS // 2):
                low, high = np.uint32(row[2 * pair]), np.uint32(row[2 * pair + 1])
                store_one(asked, pair * LANES + word, low | (high << np.uint32(16)))
        amx.load_tile(6, asked, 0, amx.ROW_BYTES)
        for other in range(0, count, LANES):
            amx.zero(0)
            amx.load_tile(4, keys, other * CHANNELS, amx.ROW_BYTES)
            amx.add_bf16_products(0, 4, 6)
            amx.store_tile(0, scores, other * LANES, amx.ROW_BYTES)
        total = ones / shares_of(scores, shares, count, scale)
        amx.zero(0)
        amx.zero(1)
        for step in range(steps):
            amx.load_tile(7, shares, step * TILE_PAIRS, amx.ROW_BYTES)
            amx.load_tile(4, values, step * 32, 64 * steps)
            amx.add_bf16_products(0, 4, 7)
            amx.load_tile(5, values, (LANES * steps + step) * 32, 64 * steps)
            amx.add_bf16_products(1, 5, 7)
        amx.store_tile(0, sums, 0, amx.ROW_BYTES)
        amx.store_tile(1, sums, TILE_PAIRS, amx.ROW_BYTES)
        for pair in range(CHANNELS // 2):
            low_sum = load(sums, 2 * pair * LANES) * total
            high_sum = load(sums, (2 * pair + 1) * LANES) * total
            store_pairs(asked, pair * LANES, low_sum, high_sum)
        for word in range(here):
            to = ((begin + word) * heads + head) * CHANNELS
            for pair in range(CHANNELS // 2):
                both = asked[pair * LANES + word]
                store_one(target, to + 2 * pair, np.uint16(both & np.uint32(0xFFFF)))
                store_one(target, to + 2 * pair + 1, np.uint16(both >> np.uint32(16)))


def _compiled(*sources: float) -> Any:
    @compiled
    def attend_documents(projected: Any, out: Any, lengths: Any, heads: int, scale: Any) -> None:
        """Documents stand one after another."""
        _ = sources
        longest = (lengths.max() + 31) // 32 * 32
        keys = aligned_zeros((longest + LANES) * _PAIRS, out)
        values = aligned_zeros(CHANNELS * longest // 2, out)
        asked = aligned_zeros(TILE_PAIRS, out)
        shares = aligned_zeros(longest * LANES // 2, out)
        floats = np.empty(0, np.float32)
        scores = aligned_zeros(longest * LANES, floats)
        sums = aligned_zeros(2 * TILE_PAIRS, floats)
        amx.configure(pointer(_CONFIGS), LANES)
        first = 0
        for words in lengths:
            for head in range(heads if words else 0):
                _attend_head(projected, out, first, words, head, heads, scale,
                             keys, values, asked, scores, shares, sums)  # fmt: skip
            first += words
        amx.release()

    return attend_documents


_attend_documents = _compiled(*written(amx, cpu, simd, simd_math))


def usable(dtype: "torch.dtype", channels: int) -> bool:
    """Whether tiles take heads like these, and there are tiles."""
    import torch

    return dtype == torch.bfloat16 and channels == CHANNELS and amx.usable()


def attend_within(
    projected: "Tensor", lengths: NDArray[np.int64], heads: int, scale: float
) -> "Tensor":
    """Queries, keys and values (T, 3 * H * 32) in bfloat16 of documents that stand one after
    another, with so many words each, to what their words attend to: (T, H * 32)."""
    out = projected.new_empty(len(projected), projected.shape[1] // 3)
    if len(projected):
        given, made = (_as_pairs(tensor) for tensor in (projected.contiguous(), out))
        _attend_documents(given, made, lengths, heads, np.float32(scale * np.log2(np.e)))
    return out


def _as_pairs(tensor: "Tensor") -> NDArray[np.uint32]:
    import torch

    pairs: NDArray[np.uint32] = tensor.view(torch.int32).numpy().view(np.uint32)
    return pairs
