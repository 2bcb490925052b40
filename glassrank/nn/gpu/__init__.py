"""Fast forms for a GPU, in Triton: each file names the plain form it must equal."""

from importlib.util import find_spec


def usable() -> bool:
    """Whether Triton is here. Where it is not, the plain forms serve, on a GPU too."""
    return find_spec("triton") is not None
