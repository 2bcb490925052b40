"""How numbers are printed: one way, so that terminal, HTML and page never differ.

Printed values are rounded; they add up before rounding, and JSON has them in full.
"""

DECIMALS = 4


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
