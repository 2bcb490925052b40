"""Colours that colour-blind people can tell apart, and a second cue beside each.

The colours are Okabe and Ito's. Every signal and every query word also has a letter or number of
its own, which is written behind the words it marks, and a line style below them: nothing is said by
colour alone.
"""

COLOURS = (
    *("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#999999"),
)
_LETTERS = "abcdefghijklmnoprstuvwxyz"
_RAISED = "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻ"
"""Letters as a terminal can raise them; there is no q."""
LINES = ("solid", "double", "dashed", "dotted", "wavy")


def letter(number: int) -> str:
    """
    >>> letter(0), letter(24), letter(25)
    ('a', 'z', 'aa')
    """
    name = ""
    while number >= 0:
        name = _LETTERS[number % len(_LETTERS)] + name
        number = number // len(_LETTERS) - 1
    return name


def raised(number: int) -> str:
    """
    >>> raised(1)
    'ᵇ'
    """
    return letter(number).translate(str.maketrans(_LETTERS, _RAISED))


def colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def line(number: int) -> str:
    return LINES[number % len(LINES)]
