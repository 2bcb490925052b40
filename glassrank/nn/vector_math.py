# mypy: allow-untyped-calls
"""Exponentials and logarithms of sixteen float32 at once (see `lanes`), in compiled functions."""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types

from glassrank.nn.lanes import FLOATS, INTS, LANES, intrinsic, lanes, multiply_add, spread

# Added to a float32 of less than 2^22, this leaves the nearest integer in the lowest bits.
_TO_INTEGER = 1.5 * 2**23


def _integer_bits(builder: Any, value: Any) -> Any:
    return builder.fadd(value, ir.Constant(FLOATS, [_TO_INTEGER] * LANES))


@intrinsic
def _nearest(typing: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        bits = _integer_bits(builder, args[0])
        return builder.fsub(bits, ir.Constant(FLOATS, [_TO_INTEGER] * LANES))

    return lanes(lanes), generate


def _scaling(instruction: str) -> Callable[..., Any]:
    """Multiplies (add) or divides (sub) by 2 to the power of the integer nearest to `power`:
    the exponent of a float32 begins at its 23rd bit."""

    @intrinsic
    def scale(typing: Any, value: Any, power: Any) -> Any:
        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            bits = builder.bitcast(_integer_bits(builder, args[1]), INTS)
            power = builder.shl(bits, ir.Constant(INTS, [23] * LANES))
            value = builder.bitcast(args[0], INTS)
            return builder.bitcast(getattr(builder, instruction)(value, power), FLOATS)

        return lanes(lanes, lanes), generate

    found: Callable[..., Any] = scale
    return found


_times_power = _scaling("add")
_over_power = _scaling("sub")


@intrinsic
def _split(typing: Any, value: Any) -> Any:
    """(m, e): the value is m times 2 to the power of e, and m lies around 1, between the square
    roots of 1/2 and 2."""
    pair = types.UniTuple(lanes, 2)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        root_half = int(np.float32(0.5**0.5).view(np.int32))
        places = ir.Constant(INTS, [23] * LANES)
        bits = builder.bitcast(args[0], INTS)
        above = builder.sub(bits, ir.Constant(INTS, [root_half] * LANES))
        power = builder.ashr(above, places)
        fraction = builder.bitcast(builder.sub(bits, builder.shl(power, places)), FLOATS)
        return context.make_tuple(builder, pair, (fraction, builder.sitofp(power, FLOATS)))

    return pair(lanes), generate


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
    p = multiply_add(spread(_P5), f, spread(_P4))
    p = multiply_add(p, f, spread(_P3))
    p = multiply_add(p, f, spread(_P2))
    p = multiply_add(p, f, spread(_P1))
    return _times_power(multiply_add(p, f, spread(_P0)), x)


@njit
def exp2_both(x: Any) -> Any:
    """2^x and 2^-x, which share the even and the odd half of one polynomial."""
    f = x - _nearest(x)
    s = f * f
    even = multiply_add(multiply_add(spread(_P4), s, spread(_P2)), s, spread(_P0))
    odd = multiply_add(multiply_add(spread(_P5), s, spread(_P3)), s, spread(_P1))
    return _times_power(multiply_add(odd, f, even), x), _over_power(even - odd * f, x)


@njit
def log(x: Any) -> Any:
    """The natural logarithm of positive, normal numbers, from the series of artanh."""
    fraction, power = _split(x)
    r = (fraction - spread(_ONE)) / (fraction + spread(_ONE))  # at most 0.172
    s = r * r
    p = multiply_add(spread(_NINTH), s, spread(_SEVENTH))
    p = multiply_add(p, s, spread(_FIFTH))
    p = multiply_add(p, s, spread(_THIRD))
    p = multiply_add(p, s, spread(_ONE))
    return multiply_add(power, spread(_LN2), spread(_TWO) * r * p)
