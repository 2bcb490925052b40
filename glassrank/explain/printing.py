"""How numbers and texts are printed: one way, so that terminal, HTML and page never differ.

Printed values are rounded; they add up before rounding, and JSON has them in full.
"""

import re

DECIMALS = 4
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters with which a document could steer a terminal, or turn text around."""


def number(value: float) -> str:
    """
    >>> number(-11.93124), number(-0.00001)
    ('-11.9312', '0.0000')
    """
    text = f"{value:.{DECIMALS}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def signed(value: float) -> str:
    """
    >>> signed(0.25), signed(-2), signed(0)
    ('+0.2500', '-2.0000', '0.0000')
    """
    text = number(value)
    return text if text.startswith("-") or float(text) == 0 else f"+{text}"


def safe(text: str) -> str:
    """As long as the text, so that places in it stay true."""
    return _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", text)
