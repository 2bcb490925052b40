"""What the steps of few rows share on a GPU: reading what belongs to some outputs, and sums that
several programs add up.

Needs Triton: nothing imports this file unless the rows are on a GPU.
"""

import triton
import triton.language as tl


@triton.jit
def of_outputs(values: tl.tensor, output: tl.tensor, outputs: tl.constexpr) -> tl.tensor:
    return tl.load(values + output, mask=output < outputs, other=0.0).to(tl.float32)[None, :]


@triton.jit
def of_norm(
    rows: tl.tensor, spread: tl.tensor, row: tl.tensor, output: tl.tensor, words: tl.tensor,
    outputs: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Some columns of rows, without mean and deviation."""
    inside = (row < words)[:, None] & (output < outputs)[None, :]
    values = tl.load(rows + row[:, None] * outputs + output[None, :], mask=inside, other=0.0)
    mean = tl.load(spread + 2 * row, mask=row < words, other=0.0)
    inverse = tl.load(spread + 2 * row + 1, mask=row < words, other=0.0)
    return (values - mean[:, None]) * inverse[:, None]


@triton.jit
def last_to_arrive(
    total: tl.tensor, row: tl.tensor, output: tl.tensor, words: tl.tensor, partial: tl.tensor,
    arrived: tl.tensor, tile: tl.tensor, part: tl.tensor, outputs: tl.constexpr,
    parts: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Leaves this program's sums where the others find them; says whether all are there now."""
    inside = (row < words)[:, None] & (output < outputs)[None, :]
    places = (part * words + row)[:, None] * outputs + output[None, :]
    tl.store(partial + places, total, mask=inside)
    tl.debug_barrier()
    return tl.atomic_add(arrived + tile, 1, sem="acq_rel") == parts - 1


@triton.jit
def sum_of_parts(
    row: tl.tensor, output: tl.tensor, words: tl.tensor, partial: tl.tensor, arrived: tl.tensor,
    tile: tl.tensor, outputs: tl.constexpr, parts: tl.constexpr, rows: tl.constexpr,
    columns: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Always in the same order, whichever program came last."""
    inside = (row < words)[:, None] & (output < outputs)[None, :]
    total = tl.zeros((rows, columns), tl.float32)
    for part in tl.static_range(parts):
        places = (part * words + row)[:, None] * outputs + output[None, :]
        total += tl.load(partial + places, mask=inside, other=0.0, cache_modifier=".cg")
    tl.store(arrived + tile, 0)
    return total
