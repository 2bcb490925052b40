"""Compiled code for a CPU, and the features of the processor that it is compiled for.

Every compiled function has a form that runs on any processor; those with AMX tiles have another.
`NUMBA_CPU_NAME=generic NUMBA_CPU_FEATURES=` compiles for the least of its kind.
"""

import os
from functools import cache


@cache
def architecture() -> str:
    """`x86_64`, `aarch64` and so on."""
    return _names()[0].partition("-")[0]


@cache
def has(*features: str) -> bool:
    """Whether the processor has all of these, by the compiler's names."""
    return {f"+{feature}" for feature in features} <= set(_names()[2].split(","))


@cache
def has_vnni() -> bool:
    """Whether sums of int8 products are exact, and as fast as they can be, on an x86 processor.
    Numba is not asked, since texts are ranked without it, and it takes long to import."""
    features = os.environ.get("NUMBA_CPU_FEATURES")
    if features is None:
        from llvmlite import binding

        features = binding.get_host_cpu_features().flatten()
    return not {"+avx512vnni", "+avxvnni"}.isdisjoint(features.split(","))


def rows_at_once() -> int:
    """How many sums of sixteen float32 (see `simd`) stay in registers, beside what is added to
    them: eight, so that none waits for the one before it, where each is one register; where it
    takes several, four do not wait, and eight would not fit."""
    return 8 if has("avx512f") else 4  # which has 32 registers of sixteen float32


def _names() -> tuple[str, str, str]:
    from numba.core.registry import cpu_target  # not where PyTorch alone computes

    names: tuple[str, str, str] = cpu_target.target_context.codegen().magic_tuple()
    return names
