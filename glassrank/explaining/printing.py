"""How numbers and colours are printed: one way, so that terminal, HTML and page never differ.

Printed values are rounded; they add up before rounding, and JSON has them in full. The colours are
Okabe and Ito's, which colour-blind people can tell apart. Every signal and every query word also
has a letter or number of its own, which is written behind the words it marks, and a line style
below them: nothing is said by colour alone.
"""

DECIMALS = 4
WORDS_ADD = "What a word of the document adds: the score less that without it"
"""What "adds" means, wherever it is said."""


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


COLOURS = (
    *("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#999999"),
)
_LETTERS = "abcdefghijklmnoprstuvwxyz"
_RAISED = "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻ"
"""Letters as a terminal can raise them; there is no q."""
LINES = ("solid", "double", "dashed", "dotted", "wavy")


def letter(place: int) -> str:
    """
    >>> letter(0), letter(24), letter(25)
    ('a', 'z', 'aa')
    """
    name = ""
    while place >= 0:
        name = _LETTERS[place % len(_LETTERS)] + name
        place = place // len(_LETTERS) - 1
    return name


def raised(place: int) -> str:
    """
    >>> raised(1)
    'ᵇ'
    """
    return letter(place).translate(str.maketrans(_LETTERS, _RAISED))


def raised_number(place: int) -> str:
    """Of a query word, counted from 1.

    >>> raised_number(0), raised_number(11)
    ('¹', '¹²')
    """
    return str(place + 1).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def colour(place: int) -> str:
    """Of a signal or a query word, by its number."""
    return COLOURS[place % len(COLOURS)]


def line(place: int) -> str:
    """The style of the line below it."""
    return LINES[place % len(LINES)]
