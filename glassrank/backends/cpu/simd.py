# mypy: allow-untyped-calls
"""Vectors of sixteen float32 in functions compiled by numba, where alone these work: its compiler
finds SIMD instructions for simple loops only, and has no exponential of vectors (see `simd_math`).

Functions take pointers, since numba counts who uses an array, which costs more than a few
instructions on vectors. Positions are not checked.
"""

import operator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic as typed_intrinsic
from numba.extending import models, register_model

from glassrank.backends.cpu import architecture

LANES = 16
"""Numbers in a vector."""
LINE = 64
"""Bytes in a line of the cache."""

intrinsic: Any = typed_intrinsic
"""Its own types would describe the functions that write code, not those that call it."""


class Vector(types.Type):
    """Numba's type of sixteen float32."""

    def __init__(self) -> None:
        super().__init__(name="Vector")


vector = Vector()

INT = ir.IntType(32)
FLOATS = ir.VectorType(ir.FloatType(), LANES)
INTS = ir.VectorType(INT, LANES)
_VOID, _BYTES = ir.VoidType(), ir.IntType(8).as_pointer()


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, FLOATS)


def _operator(function: Any, instruction: str) -> None:
    @infer_global(function)
    class _Template(ConcreteTemplate):
        cases = [signature(vector, vector, vector)]  # noqa: RUF012

    @lower_builtin(function, vector, vector)
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return getattr(builder, instruction)(*args, flags=("contract",))


_operator(operator.add, "fadd")
_operator(operator.sub, "fsub")
_operator(operator.mul, "fmul")
_operator(operator.truediv, "fdiv")


def written(*modules: ModuleType) -> tuple[float, ...]:
    """When these files were last changed. Numba keeps compiled code on disk until the file with the
    outermost function changes. What that function captures is part of the name it is kept under:
    where it captures this, a change of the files compiled into it counts, too."""
    return tuple(Path(str(module.__file__)).stat().st_mtime for module in modules)


def named(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    """A call of one of the compiler's own functions."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    known = builder.module.globals.get(name)
    return builder.call(known or ir.Function(builder.module, kind, name), arguments)


def integers(value: int) -> Any:
    """One integer in all lanes."""
    return ir.Constant(INTS, [value] * LANES)


@njit
def aligned_zeros(count: int, like: Any) -> Any:
    """Zeros that begin at a line of the cache, of the type of another array."""
    spare = LINE // like.itemsize
    zeros = np.zeros(count + spare, like.dtype)
    return zeros[-zeros.ctypes.data % LINE // like.itemsize :][:count]


@intrinsic
def pointer(typing: Any, array: Any) -> Any:
    """To an array's first element. The array must outlive it."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return context.make_array(array)(context, builder, args[0]).data

    return types.CPointer(array.dtype)(array), generate


def element(builder: Any, start: Any, at: Any, target: Any) -> Any:
    """The address of an element, as a pointer to another type."""
    return builder.bitcast(builder.gep(start, [at]), target.as_pointer())


def _group_place(builder: Any, at: Any) -> Any:
    """Of the six bytes that a value of three bits is in."""
    return builder.mul(builder.lshr(at, at.type(4)), at.type(6))


def _three_bits(builder: Any, start: Any, at: Any) -> Any:
    """Sixteen values of three bits from six bytes (see `backends.quantization`), without scale."""
    place = builder.gep(start, [_group_place(builder, at)])
    lower = builder.load(builder.bitcast(place, INT.as_pointer()))
    half = ir.IntType(16)
    last = builder.gep(place, [at.type(4)])
    upper = builder.load(builder.bitcast(last, half.as_pointer()))
    lower.align = upper.align = 1
    lanes = []
    for word, bits, mask in ((lower, 2, 3), (builder.zext(upper, INT), 1, 1)):
        shifts = ir.Constant(INTS, [bits * lane for lane in range(LANES)])
        lanes.append(builder.and_(builder.lshr(spread(builder, word), shifts), integers(mask)))
    codes = builder.or_(lanes[0], builder.shl(lanes[1], integers(2)))
    middle = ir.Constant(FLOATS, [3.5] * LANES)
    return builder.fsub(builder.sitofp(codes, FLOATS), middle)


def _floats(builder: Any, kind: Any, elements: Any) -> Any:
    """Sixteen elements of an array of `kind` as float32; 16-bit ones are bfloat16's bits, which
    are the upper half of float32's."""
    if kind == types.uint16:
        return builder.bitcast(builder.shl(builder.zext(elements, INTS), integers(16)), FLOATS)
    return elements if kind == types.float32 else builder.sitofp(elements, FLOATS)


@intrinsic
def load(typing: Any, source: Any, at: Any) -> Any:
    """Sixteen elements: float32, integers, bfloat16 as 16-bit patterns, or values of three bits as
    bytes, which begin where a multiple of sixteen does."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if source.dtype == types.uint8:
            return _three_bits(builder, args[0], args[1])
        kind = ir.VectorType(context.get_value_type(source.dtype), LANES)
        elements = builder.load(element(builder, args[0], args[1], kind))
        elements.align = source.dtype.bitwidth // 8
        return _floats(builder, source.dtype, elements)

    return vector(source, types.intp), generate


@intrinsic
def load_one(typing: Any, source: Any, at: Any) -> Any:
    """One element, as `load` would give it, as a float32."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if source.dtype == types.uint8:
            group = _three_bits(builder, args[0], args[1])
            lane = builder.and_(args[1], args[1].type(LANES - 1))
            return builder.extract_element(group, builder.trunc(lane, INT))
        item = context.get_value_type(source.dtype)
        found = builder.load(element(builder, args[0], args[1], item))
        empty = ir.Constant(ir.VectorType(item, LANES), None)
        first = builder.insert_element(empty, found, INT(0))
        return builder.extract_element(_floats(builder, source.dtype, first), INT(0))

    return types.float32(source, types.intp), generate


@intrinsic
def store(typing: Any, target: Any, at: Any, value: Any) -> Any:
    """Sixteen numbers into an array of float32."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        place = element(builder, args[0], args[1], FLOATS)
        builder.store(args[2], place).align = target.dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(target, types.intp, vector), generate


@intrinsic
def store_one(typing: Any, target: Any, at: Any, value: Any) -> Any:
    """One element."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store(args[2], builder.gep(args[0], [args[1]]))
        return context.get_dummy_value()

    return types.void(target, types.intp, target.dtype), generate


def spread(builder: Any, value: Any) -> Any:
    """One value in all lanes."""
    empty = ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined)
    first = builder.insert_element(empty, value, INT(0))
    return builder.shuffle_vector(first, empty, integers(0))


@intrinsic
def broadcast(typing: Any, value: Any) -> Any:
    """One value in all lanes."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return spread(builder, args[0])

    return vector(types.float32), generate


@intrinsic
def broadcast_at(typing: Any, source: Any, at: Any) -> Any:
    """One element of an array of float32 in all lanes."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        place = element(builder, args[0], args[1], ir.FloatType())
        return spread(builder, builder.load(place))

    return vector(source, types.intp), generate


@intrinsic
def prefetch(typing: Any, target: Any, at: Any) -> Any:
    """Fetches the cache line of an element, which may lie outside of the array, to level 2."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        at = _group_place(builder, args[1]) if target.dtype == types.uint8 else args[1]
        place = element(builder, args[0], at, ir.IntType(8))
        kind = ir.FunctionType(_VOID, [place.type, INT, INT, INT])
        function = builder.module.declare_intrinsic("llvm.prefetch", [place.type], kind)
        read, level, data = INT(0), INT(2), INT(1)
        builder.call(function, [place, read, level, data])
        return context.get_dummy_value()

    return types.void(target, types.intp), generate


_DENORMALS = 0x8040
"""Two bits in the control register of x86: tiny results, and tiny operands, are taken as zero."""


@intrinsic
def flush_denormals(typing: Any) -> Any:
    """Numbers below 1e-38 become zero, since x86 takes a hundred times as long to compute with
    them; gives what `restore_denormals` is to be told in the end."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if architecture() != "x86_64":
            return INT(0)
        place = builder.alloca(INT)
        control = builder.bitcast(place, _BYTES)
        named(builder, "llvm.x86.sse.stmxcsr", _VOID, [control])
        before = builder.load(place)
        builder.store(builder.or_(before, INT(_DENORMALS)), place)
        named(builder, "llvm.x86.sse.ldmxcsr", _VOID, [control])
        return before

    return types.int32(), generate


@intrinsic
def restore_denormals(typing: Any, before: Any) -> Any:
    """The control register as it was before `flush_denormals`."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if architecture() == "x86_64":
            place = builder.alloca(INT)
            builder.store(args[0], place)
            named(builder, "llvm.x86.sse.ldmxcsr", _VOID, [builder.bitcast(place, _BYTES)])
        return context.get_dummy_value()

    return types.void(types.int32), generate
