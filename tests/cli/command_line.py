"""What a command gives back, and documents to call it on."""

from collections.abc import Callable
from typing import NamedTuple


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Call = Callable[..., Done]

DOCS = {
    "cats": "Cats chase mice, and sleep in the sun.",
    "dogs": "Dogs chase cats. A dog barks at the postman.",
    "mice": "Mice eat cheese while the cat is away.",
    "fish": "Fish swim in the cold sea.",
}
