"""A body before anybody reads it as JSON: whole, in time, and with a bound on what it can become.

Eight megabytes of `[],[],[]` are 200 megabytes of Python's lists, and a list of errors is larger
still. So values are counted where they stand, in the bytes, at the cost of looking at each once.
"""

import asyncio

import numpy as np
from starlette.types import Message, Receive

from glassrank.serve.refusals import RefusedError, bad

SECONDS = 20.0
"""For the whole of a body, from the end of the headers on."""
DEEPEST = 32
"""Lists in lists; nobody has a use for more, and Python ends at a thousand."""
UNCOUNTED = 64 << 10
"""Of each body: small ones are read however many large ones come in at the moment."""
MOST_HELD = 128 << 20

BYTES_PER_VALUE = 32
"""Outside of texts: digits, which are slow to read, and spaces."""


class GoneError(Exception):
    """The client went away before its body was there."""


class Bodies:
    """Reads the bodies of one process, and knows how much of them it holds unfinished."""

    def __init__(self) -> None:
        self._held = 0

    async def read(self, receive: Receive, most: int) -> bytes:
        """All of it, at most so many bytes."""
        try:
            async with asyncio.timeout(SECONDS):
                return await self._whole(receive, most)
        except TimeoutError:
            message = f"the body was not there after {SECONDS:g} seconds; send it at once"
            raise RefusedError(408, message) from None

    async def _whole(self, receive: Receive, most: int) -> bytes:
        body, counted = bytearray(), 0
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise GoneError
                body += message.get("body", b"")
                if len(body) > most:
                    raise too_large(most)
                more = max(0, len(body) - UNCOUNTED) - counted
                self._held, counted = self._held + more, counted + more
                if self._held > MOST_HELD:
                    raise RefusedError(503, "too many large bodies come in; come again later", 1e3)
                if not message.get("more_body", False):
                    return bytes(body)
        finally:
            self._held -= counted


def too_large(most: int) -> RefusedError:
    """The refusal of a body that is not read to its end."""
    return RefusedError(413, f"a request here may have at most {most:,} bytes; send less at a time")


def replayed(body: bytes, receive: Receive) -> Receive:
    """What the application receives: the body that was read, and then whatever comes."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receiving() -> Message:
        return waiting.pop() if waiting else await receive()

    return receiving


def check_shape(body: bytes, most: int) -> None:
    """At most so many values, not too deep, and nothing but JSON in UTF-8.

    >>> check_shape(b'{"query": "cats, [dogs]"}', most=3)
    >>> check_shape(b'{"query": ["cat", "dog"]}', most=3)
    Traceback (most recent call last):
    glassrank.serve.refusals.RefusedError: at most 3 values may be in a body here, not 5
    """
    if b"\0" in body:  # UTF-16 and UTF-32, which could hide anything, have these
        raise bad("the body is not JSON in UTF-8")
    if b"\\" in body:  # a quote behind a backslash ends no string
        body = body.replace(rb"\\", b"__").replace(rb"\"", b"__")
    plain = np.frombuffer(body, np.uint8)
    inside = np.bitwise_xor.accumulate(plain == ord('"'))
    outside = plain[~inside]
    # One comparison after another: a table of all counts would take eight times the body first.
    values = 1 + sum(int(np.count_nonzero(outside == sign)) for sign in b"[{,:")
    if values > most:
        raise bad(f"at most {most:,} values may be in a body here, not {values:,}")
    if len(outside) > BYTES_PER_VALUE * most:
        raise bad("the body has too many digits or spaces; send shorter numbers")
    if any((outside == letter).any() for letter in b"NI"):
        raise bad("the body is not JSON: NaN and Infinity are no numbers there")
    brackets = outside[np.isin(outside, list(b"[]{}"))]
    depth = np.cumsum(np.where(np.isin(brackets, list(b"[{")), 1, -1))
    if depth.max(initial=0) > DEEPEST:
        raise bad(f"lists and objects may be {DEEPEST} deep in each other, not more")
