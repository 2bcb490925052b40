"""Intel's matrix tiles (AMX) in functions compiled by numba, where alone these work.

There are eight tiles of sixteen rows of 64 bytes. One instruction multiplies a tile of sixteen
tokens (32 bfloat16 or 64 int8 of each) with a tile of sixteen query tokens and adds the 256
products to a third tile, in 16 cycles. Tile numbers are constants.
"""

import ctypes
import platform
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from glassrank.backends.cpu import architecture, has
from glassrank.backends.cpu.simd import intrinsic, named

ROW_BYTES = 64

_ARCH_PRCTL = 158
_REQUEST_PERMISSION = 0x1023
_TILE_DATA = 18

_BYTE = ir.IntType(8)
_BYTES = _BYTE.as_pointer()
_VOID = ir.VoidType()


@cache
def usable() -> bool:
    """Whether compiled code may use tiles: the processor has them, the compiler knows them, and
    Linux, which saves tiles only for processes that ask, permits it."""
    if platform.system() != "Linux" or architecture() != "x86_64":
        return False
    if not has("amx-tile", "amx-bf16", "amx-int8"):
        return False
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0)


def tile_configs() -> NDArray[np.uint8]:
    """For `configure`, by the number of document words (0 to 16) in a tile: tiles 0 to 5 (sums and
    document words) have that many rows, 6 and 7 (query words) sixteen."""
    configs = np.zeros((17, 64), np.uint8)
    configs[:, 0] = 1  # the only layout there is
    configs[:, 16:32:2] = ROW_BYTES
    configs[:, 48:54] = np.arange(17)[:, None]
    configs[:, 54:56] = 16
    return configs


@intrinsic
def configure(typing: Any, configs: Any, rows: Any) -> Any:
    """Sets the sizes of the tiles, and zeros in them."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        start = builder.mul(args[1], ir.Constant(ir.IntType(64), 64))
        config = builder.bitcast(builder.gep(args[0], [start]), _BYTES)
        named(builder, "llvm.x86.ldtilecfg", _VOID, [config])
        return context.get_dummy_value()

    return types.void(configs, types.intp), generate


@intrinsic
def release(typing: Any) -> Any:
    """Gives the tiles back, so that the system need not save them."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        named(builder, "llvm.x86.tilerelease", _VOID, [])
        return context.get_dummy_value()

    return types.void(), generate


def _on_tiles(name: str, count: int) -> Callable[..., Any]:
    """An instruction whose operands are `count` tiles."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        numbers = [ir.Constant(_BYTE, kind.literal_value) for kind in sig.args]
        named(builder, name, _VOID, numbers)
        return context.get_dummy_value()

    by_operands: dict[int, Callable[..., Any]] = {  # numba reads how many there are
        1: lambda typing, tile: (types.void(tile), generate),
        3: lambda typing, sums, words, query: (types.void(sums, words, query), generate),
    }
    made: Callable[..., Any] = intrinsic(prefer_literal=True)(by_operands[count])
    return made


def _to_memory(name: str) -> Callable[..., Any]:
    """An instruction between a tile and an array of rows that lie `stride` bytes apart."""

    @intrinsic(prefer_literal=True)
    def operation(typing: Any, tile: Any, memory: Any, at: Any, stride: Any) -> Any:
        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            pointer = builder.bitcast(builder.gep(args[1], [args[2]]), _BYTES)
            number = ir.Constant(_BYTE, tile.literal_value)
            named(builder, name, _VOID, [number, pointer, args[3]])
            return context.get_dummy_value()

        return types.void(tile, memory, types.intp, types.intp), generate

    made: Callable[..., Any] = operation
    return made


zero = _on_tiles("llvm.x86.tilezero", 1)
add_bf16_products = _on_tiles("llvm.x86.tdpbf16ps", 3)
add_int8_products = _on_tiles("llvm.x86.tdpbssd", 3)
load_tile = _to_memory("llvm.x86.tileloadd64")
store_tile = _to_memory("llvm.x86.tilestored64")
