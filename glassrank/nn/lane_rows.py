# mypy: allow-untyped-calls
"""What rows need of lanes beyond `lanes`: sums across them, and bfloat16 in and out.

Functions here work inside functions compiled by numba, and nowhere else.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from glassrank.nn.lanes import FLOATS, INTS, LANES, intrinsic, lanes, named

_HALVES = ir.VectorType(ir.IntType(16), LANES)
_UPPER = 0xFFFF0000 - (1 << 32)


def _all(value: int) -> Any:
    return ir.Constant(INTS, [value] * LANES)


def _across(combine: Callable[[Any, Any, Any], Any]) -> Callable[..., Any]:
    """All lanes combined into one number, by halves."""

    @intrinsic
    def operation(typing: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            found, apart = args[0], LANES
            while apart > 1:
                apart //= 2
                turned = ir.Constant(INTS, [(i + apart) % LANES for i in range(LANES)])
                found = combine(builder, found, builder.shuffle_vector(found, found, turned))
            return builder.extract_element(found, ir.IntType(32)(0))

        return types.float32(lanes), generate

    made: Callable[..., Any] = operation
    return made


sum_across = _across(lambda builder, one, other: builder.fadd(one, other))
largest_across = _across(
    lambda builder, one, other: builder.select(builder.fcmp_ordered(">", one, other), one, other)
)


@intrinsic
def beyond(typing: Any, source: Any, by: Any) -> Any:
    """A pointer to an element further on."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.gep(args[0], [args[1]])

    return source(source, types.intp), generate


@intrinsic
def square_root(typing: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return named(builder, f"llvm.sqrt.v{LANES}f32", FLOATS, list(args))

    return lanes(lanes), generate


@intrinsic
def put(typing: Any, target: Any, at: Any, value: Any) -> Any:
    """Sixteen numbers into an array of float32, or rounded into one of bfloat16 as 16-bit patterns:
    to the nearest, and to the even one of two."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        place, value = builder.gep(args[0], [args[1]]), args[2]
        if target.dtype == types.uint16:
            found = builder.bitcast(value, INTS)
            odd = builder.and_(builder.lshr(found, _all(16)), _all(1))
            rounded = builder.add(found, builder.add(odd, _all(0x7FFF)))
            value = builder.trunc(builder.lshr(rounded, _all(16)), _HALVES)
        pointer = builder.bitcast(place, value.type.as_pointer())
        builder.store(value, pointer).align = target.dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(target, types.intp, lanes), generate


@intrinsic
def load_pairs(typing: Any, source: Any, at: Any) -> Any:
    """Of 32 bfloat16 those at even places and those at odd ones, each as sixteen float32."""
    both = types.UniTuple(lanes, 2)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        place = builder.bitcast(builder.gep(args[0], [args[1]]), INTS.as_pointer())
        found = builder.load(place)
        found.align = 2
        even = builder.bitcast(builder.shl(found, _all(16)), FLOATS)
        odd = builder.bitcast(builder.and_(found, _all(_UPPER)), FLOATS)
        return context.make_tuple(builder, both, (even, odd))

    return both(source, types.intp), generate
