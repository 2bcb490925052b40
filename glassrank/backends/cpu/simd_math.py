# mypy: allow-untyped-calls
"""Operations on vectors of sixteen float32 (see `simd`), in compiled functions: the larger of two,
sums, exponentials, logarithms."""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types

from glassrank.backends.cpu.simd import (
    FLOATS,
    INTS,
    LANES,
    broadcast,
    integers,
    intrinsic,
    named,
    vector,
)

Operation = Callable[..., Any]


def on_vectors(emit: Callable[..., Any], operands: int) -> Operation:
    """An operation from so many vectors to one."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return emit(builder, *args)

    code = vector(*(vector,) * operands), generate
    by_operands: dict[int, Operation] = {  # numba reads how many there are
        1: lambda typing, first: code,
        2: lambda typing, first, second: code,
        3: lambda typing, first, second, third: code,
        4: lambda typing, first, second, third, fourth: code,
    }
    made: Operation = intrinsic(by_operands[operands])
    return made


def _select(comparison: str) -> Callable[..., Any]:
    return lambda builder, first, second: builder.select(
        builder.fcmp_ordered(comparison, first, second), first, second
    )


# Of each pair; the second where the first is not a number.
maximum, minimum = on_vectors(_select(">"), 2), on_vectors(_select("<"), 2)
# Of value, border, there and below: `there` where the value has reached the border, else `below`.
select_from = on_vectors(
    lambda builder, value, border, there, below: builder.select(
        builder.fcmp_ordered(">=", value, border), there, below
    ),
    4,
)
multiply_add = on_vectors(
    lambda builder, *args: named(builder, f"llvm.fmuladd.v{LANES}f32", FLOATS, list(args)), 3
)

# Added to a float32 of less than 2^22, this leaves the nearest integer in the lowest bits.
_TO_INTEGER = 1.5 * 2**23


def _integer_bits(builder: Any, value: Any) -> Any:
    return builder.fadd(value, ir.Constant(FLOATS, [_TO_INTEGER] * LANES))


def _scaled(builder: Any, instruction: str, value: Any, power: Any) -> Any:
    """Multiplies (add) or divides (sub) by 2 to the power of the integer nearest to `power`:
    the exponent of a float32 begins at its 23rd bit."""
    whole = builder.bitcast(_integer_bits(builder, power), INTS)
    shifted = builder.shl(whole, integers(23))
    scaled = getattr(builder, instruction)(builder.bitcast(value, INTS), shifted)
    return builder.bitcast(scaled, FLOATS)


_nearest = on_vectors(
    lambda builder, value: builder.fsub(
        _integer_bits(builder, value), ir.Constant(FLOATS, [_TO_INTEGER] * LANES)
    ),
    1,
)
_times_power = on_vectors(lambda builder, *args: _scaled(builder, "add", *args), 2)
_over_power = on_vectors(lambda builder, *args: _scaled(builder, "sub", *args), 2)


@intrinsic
def _split(typing: Any, value: Any) -> Any:
    """(m, e): the value is m times 2 to the power of e, with m between the roots of 1/2 and 2."""
    pair = types.UniTuple(vector, 2)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        root_half = int(np.float32(0.5**0.5).view(np.int32))
        places = integers(23)
        bits = builder.bitcast(args[0], INTS)
        above = builder.sub(bits, integers(root_half))
        power = builder.ashr(above, places)
        fraction = builder.bitcast(builder.sub(bits, builder.shl(power, places)), FLOATS)
        return context.make_tuple(builder, pair, (fraction, builder.sitofp(power, FLOATS)))

    return pair(vector), generate


# 2^x for |x| <= 1/2 as a polynomial through its values at Chebyshev's points, which is about as
# good as six terms can be: relative error 1.6e-7.
_POWERS = np.polynomial.Chebyshev.interpolate(np.exp2, 5, [-0.5, 0.5]).convert(
    kind=np.polynomial.Polynomial
)
_P0, _P1, _P2, _P3, _P4, _P5 = (np.float32(p) for p in _POWERS.coef)
_ONE, _TWO, _THIRD, _FIFTH, _SEVENTH, _NINTH = (
    np.float32(x) for x in (1, 2, 1 / 3, 1 / 5, 1 / 7, 1 / 9)
)
_LN2 = np.float32(np.log(2))


@njit
def exp2(x: Any) -> Any:
    """2^x for -126 <= x <= 127; outside, anything."""
    f = x - _nearest(x)
    p = multiply_add(broadcast(_P5), f, broadcast(_P4))
    p = multiply_add(p, f, broadcast(_P3))
    p = multiply_add(p, f, broadcast(_P2))
    p = multiply_add(p, f, broadcast(_P1))
    return _times_power(multiply_add(p, f, broadcast(_P0)), x)


@njit
def exp2_both(x: Any) -> Any:
    """2^x and 2^-x, which share the even and the odd half of one polynomial."""
    f = x - _nearest(x)
    s = f * f
    even = multiply_add(multiply_add(broadcast(_P4), s, broadcast(_P2)), s, broadcast(_P0))
    odd = multiply_add(multiply_add(broadcast(_P5), s, broadcast(_P3)), s, broadcast(_P1))
    return _times_power(multiply_add(odd, f, even), x), _over_power(even - odd * f, x)


@njit
def log(x: Any) -> Any:
    """The natural logarithm of positive, normal numbers, from the series of artanh."""
    fraction, power = _split(x)
    r = (fraction - broadcast(_ONE)) / (fraction + broadcast(_ONE))  # at most 0.172
    s = r * r
    p = multiply_add(broadcast(_NINTH), s, broadcast(_SEVENTH))
    p = multiply_add(p, s, broadcast(_FIFTH))
    p = multiply_add(p, s, broadcast(_THIRD))
    p = multiply_add(p, s, broadcast(_ONE))
    return multiply_add(power, broadcast(_LN2), broadcast(_TWO) * r * p)
