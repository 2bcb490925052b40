# mypy: allow-untyped-calls
"""Sixteen float32 side by side, in compiled functions.

Numba leaves it to its compiler to find vector instructions, which it does for simple loops only,
and it has no exponential or logarithm of vectors. A value of type `Lanes` is one vector register
where the processor has registers that wide, and two or four elsewhere; the code is the same.

Functions here work inside functions compiled by numba, and nowhere else. They take pointers to
the elements of arrays: numba counts who uses an array, which costs more than a few instructions
on vectors do. Positions are not checked.
"""

import operator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic as typed_intrinsic
from numba.extending import models, register_model

LANES = 16

LINE = 64
"""Bytes in a line of the cache."""

intrinsic: Any = typed_intrinsic
"""Its own types would describe the functions that write code, not those that call it."""


class Lanes(types.Type):
    def __init__(self) -> None:
        super().__init__(name="Lanes")


lanes = Lanes()

INT = ir.IntType(32)
FLOATS = ir.VectorType(ir.FloatType(), LANES)
INTS = ir.VectorType(INT, LANES)


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, FLOATS)


def _operator(function: Any, instruction: str) -> None:
    @infer_global(function)
    class _Template(ConcreteTemplate):
        cases = [signature(lanes, lanes, lanes)]  # noqa: RUF012

    @lower_builtin(function, lanes, lanes)
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return getattr(builder, instruction)(*args, flags=("contract",))


for _function, _instruction in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _operator(_function, _instruction)


@njit
def room(count: int, like: Any) -> Any:
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


def _element(builder: Any, start: Any, at: Any, target: Any) -> Any:
    """The address of an element, as a pointer to another type."""
    return builder.bitcast(builder.gep(start, [at]), target.as_pointer())


def named(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    """A call of one of the compiler's own functions."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    known = builder.module.globals.get(name)
    return builder.call(known or ir.Function(builder.module, kind, name), arguments)


def _floats(builder: Any, kind: Any, vector: Any) -> Any:
    """Sixteen elements of an array of `kind` as float32; 16-bit ones are bfloat16's bits, which
    are the upper half of float32's."""
    if kind == types.uint16:
        wide = builder.shl(builder.zext(vector, INTS), ir.Constant(INTS, [16] * LANES))
        return builder.bitcast(wide, FLOATS)
    return vector if kind == types.float32 else builder.sitofp(vector, FLOATS)


@intrinsic
def load(typing: Any, source: Any, at: Any) -> Any:
    """Sixteen elements: float32, integers, or bfloat16 as 16-bit patterns."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        vector = ir.VectorType(context.get_value_type(source.dtype), LANES)
        found = builder.load(_element(builder, args[0], args[1], vector))
        found.align = source.dtype.bitwidth // 8
        return _floats(builder, source.dtype, found)

    return lanes(source, types.intp), generate


@intrinsic
def load_one(typing: Any, source: Any, at: Any) -> Any:
    """One element, as `load` would give it, as a float32."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        item = context.get_value_type(source.dtype)
        found = builder.load(_element(builder, args[0], args[1], item))
        first = builder.insert_element(ir.Constant(ir.VectorType(item, LANES), None), found, INT(0))
        return builder.extract_element(_floats(builder, source.dtype, first), INT(0))

    return types.float32(source, types.intp), generate


@intrinsic
def store(typing: Any, target: Any, at: Any, value: Any) -> Any:
    """Sixteen elements of an array of float32."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = _element(builder, args[0], args[1], FLOATS)
        builder.store(args[2], pointer).align = 4
        return context.get_dummy_value()

    return types.void(target, types.intp, lanes), generate


@intrinsic
def store_one(typing: Any, target: Any, at: Any, value: Any) -> Any:
    """One element."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store(args[2], builder.gep(args[0], [args[1]]))
        return context.get_dummy_value()

    return types.void(target, types.intp, target.dtype), generate


@intrinsic
def bits(typing: Any, value: Any) -> Any:
    """Of one float32, as an integer."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.zext(builder.bitcast(args[0], INT), ir.IntType(64))

    return types.int64(types.float32), generate


@intrinsic
def from_bits(typing: Any, value: Any) -> Any:
    """The float32 with these bits."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(builder.trunc(args[0], INT), ir.FloatType())

    return types.float32(types.int64), generate


def _spread(builder: Any, value: Any, vector: Any) -> Any:
    empty = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(empty, value, INT(0))
    return builder.shuffle_vector(first, empty, ir.Constant(INTS, [0] * LANES))


@intrinsic
def spread(typing: Any, value: Any) -> Any:
    """One value in all lanes."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _spread(builder, args[0], FLOATS)

    return lanes(types.float32), generate


@intrinsic
def spread_at(typing: Any, source: Any, at: Any) -> Any:
    """One element of an array of float32 in all lanes."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = _element(builder, args[0], args[1], ir.FloatType())
        return _spread(builder, builder.load(pointer), FLOATS)

    return lanes(source, types.intp), generate


@intrinsic
def multiply_add(typing: Any, first: Any, second: Any, summand: Any) -> Any:
    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return named(builder, f"llvm.fmuladd.v{LANES}f32", FLOATS, list(args))

    return lanes(lanes, lanes, lanes), generate


@intrinsic
def larger(typing: Any, first: Any, second: Any) -> Any:
    """Of each pair; the second where the first is not a number."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *args), *args)

    return lanes(lanes, lanes), generate


@intrinsic
def smaller(typing: Any, first: Any, second: Any) -> Any:
    """Of each pair; the second where the first is not a number."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<", *args), *args)

    return lanes(lanes, lanes), generate


@intrinsic
def from_on(typing: Any, value: Any, border: Any, there: Any, below: Any) -> Any:
    """`there` where the value has reached the border, `below` elsewhere."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">=", *args[:2]), *args[2:])

    return lanes(lanes, lanes, lanes, lanes), generate


@intrinsic
def fetch_soon(typing: Any, target: Any, at: Any) -> Any:
    """Asks for the cache line of an element that will be read; it may lie outside of the array."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = _element(builder, args[0], args[1], ir.IntType(8))
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, INT, INT, INT])
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer.type], kind)
        read, second_level, data = INT(0), INT(2), INT(1)
        builder.call(function, [pointer, read, second_level, data])
        return context.get_dummy_value()

    return types.void(target, types.intp), generate


_TINY = 0x8040
"""Two bits in the control register of x86: tiny results, and tiny operands, are taken as zero."""


def _on_x86(context: Any) -> bool:
    return bool(context.codegen().magic_tuple()[0].startswith("x86_64"))


@intrinsic
def flush_tiny(typing: Any) -> Any:
    """Numbers below 1e-38 become zero, since they take a hundred times as long to compute with;
    gives what `restore` is to be told in the end."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if not _on_x86(context):
            return INT(0)
        place = builder.alloca(INT)
        control = builder.bitcast(place, ir.IntType(8).as_pointer())
        named(builder, "llvm.x86.sse.stmxcsr", ir.VoidType(), [control])
        before = builder.load(place)
        builder.store(builder.or_(before, INT(_TINY)), place)
        named(builder, "llvm.x86.sse.ldmxcsr", ir.VoidType(), [control])
        return before

    return types.int32(), generate


@intrinsic
def restore(typing: Any, before: Any) -> Any:
    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if _on_x86(context):
            place = builder.alloca(INT)
            builder.store(args[0], place)
            control = builder.bitcast(place, ir.IntType(8).as_pointer())
            named(builder, "llvm.x86.sse.ldmxcsr", ir.VoidType(), [control])
        return context.get_dummy_value()

    return types.void(types.int32), generate
