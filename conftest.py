"""Doctests are looked for in every module; those for a GPU can only be read where Triton is."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("triton") else ["glassrank/nn/*_triton.py"]
