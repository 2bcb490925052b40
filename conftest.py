"""Doctests are looked for in every module; those for a GPU can only be read where Triton is."""

from importlib.util import find_spec

# A conftest is read before the tests beside it; as one module among others it would be read twice.
collect_ignore_glob = ["tests/*/conftest.py"]
if find_spec("triton") is None:
    collect_ignore_glob.append("glassrank/nn/*_triton.py")
