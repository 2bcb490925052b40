"""Lucene's English analysis for the first stage, and English function words.

The stemmer is M. F. Porter, "An algorithm for suffix stripping", 1980, as its author distributes it
and Lucene uses it: with `bli` for `abli` and `logi` in step 2, and words of one or two letters
unchanged. Snowball's `porter` gives other stems for *possibly*, *technology* and *us*.
"""

from collections.abc import Iterable

from glassrank.text.analysis import WordAnalyzer

_STEP_2 = (
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"),
    ("bli", "ble"), ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"),
    ("ization", "ize"), ("ation", "ate"), ("ator", "ate"), ("alism", "al"), ("iveness", "ive"),
    ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"), ("iviti", "ive"), ("biliti", "ble"),
    ("logi", "log"),
)  # fmt: skip
_STEP_3 = (
    ("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"),
    ("ful", ""), ("ness", ""),
)  # fmt: skip
_STEP_4 = (
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion",
    "ou", "ism", "ate", "iti", "ous", "ive", "ize",
)  # fmt: skip


def stem(word: str) -> str:
    """The stem of a lower-cased word.

    >>> [stem(w) for w in ("relational", "possibly", "technology", "dying", "skies", "us")]
    ['relat', 'possibl', 'technolog', 'dy', 'ski', 'us']
    """
    if len(word) <= 2:
        return word
    word = _plurals_and_participles(word)
    if word.endswith("y") and "v" in _shape(word[:-1]):
        word = word[:-1] + "i"
    word = _replace_suffix(word, _STEP_2)
    word = _replace_suffix(word, _STEP_3)
    for suffix in _STEP_4:
        if word.endswith(suffix):
            rest = word[: -len(suffix)]
            if _measure(rest) > 1 and (suffix != "ion" or rest.endswith(("s", "t"))):
                word = rest
            break
    return _final_e_and_l(word)


def _plurals_and_participles(word: str) -> str:
    if word.endswith("s"):
        if word.endswith(("sses", "ies")):
            word = word[:-2]
        elif not word.endswith("ss"):
            word = word[:-1]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for suffix in ("ed", "ing"):
        if word.endswith(suffix):
            rest = word[: -len(suffix)]
            if "v" not in _shape(rest):
                return word
            if rest.endswith(("at", "bl", "iz")):
                return rest + "e"
            if _ends_in_double_consonant(rest) and rest[-1] not in "lsz":
                return rest[:-1]
            if _measure(rest) == 1 and _ends_in_short_syllable(rest):
                return rest + "e"
            return rest
    return word


def _replace_suffix(word: str, rules: tuple[tuple[str, str], ...]) -> str:
    for suffix, replacement in rules:
        if word.endswith(suffix):
            rest = word[: -len(suffix)]
            return rest + replacement if _measure(rest) > 0 else word
    return word


def _final_e_and_l(word: str) -> str:
    measure = _measure(word)
    if word.endswith("e") and (
        measure > 1 or (measure == 1 and not _ends_in_short_syllable(word[:-1]))
    ):
        word = word[:-1]
    if word.endswith("ll") and measure > 1:
        word = word[:-1]
    return word


def _shape(word: str) -> str:
    """`c` or `v` for each letter; y is a vowel after a consonant, else a consonant."""
    shape = ""
    for letter in word:
        vowel = letter in "aeiou" or (letter == "y" and shape.endswith("c"))
        shape += "v" if vowel else "c"
    return shape


def _measure(word: str) -> int:
    """The number of consonants after a vowel: m in the article's [C](VC)^m[V]."""
    return _shape(word).count("vc")


def _ends_in_double_consonant(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and _shape(word)[-1] == "c"


def _ends_in_short_syllable(word: str) -> bool:
    """Consonant, vowel, consonant other than w, x, y: *hop*, but not *snow*."""
    return _shape(word)[-3:] == "cvc" and word[-1] not in "wxy"


STOP_WORDS = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such "
    "that the their then there these they this to was will with".split()
)
_POSSESSIVE = ("'s", "\u2019s", "\uff07s")


class EnglishAnalyzer(WordAnalyzer):
    """
    >>> EnglishAnalyzer()("The patient's plasma contains unneeded antibodies")
    ['patient', 'plasma', 'contain', 'unneed', 'antibodi']
    """

    language = "en"
    name = "lucene-english-1"
    stems_are_prefixes = True

    def _make_term(self, word: str) -> str:
        bare = word[:-2] if word.endswith(_POSSESSIVE) else word
        return "" if bare in STOP_WORDS else stem(bare)


# Explanations show these together and do not color them.
FUNCTION_WORDS = STOP_WORDS | frozenset(
    "about after all also am any been before being between both can could did do does doing done "
    "during each few from further get had has have having he her here hers him his how i its just "
    "let many may me might more most much must my nor now off once only other our ours out over "
    "own per same shall she should so some than them themselves those through too under until up "
    "upon us very via want we were what when where whether which while who whom whose why would "
    "you your yours ll re ve".split()
)
"""They include Lucene's stop words, which the first stage ignores."""
MARKERS = ("[CLS]", "[SEP]")
"""Special tokens at the start and end of a text; their embeddings represent the whole text."""


def is_function_word(word: str) -> bool:
    """
    >>> [is_function_word(word) for word in ("the", "?", "csv", "[CLS]", "c++", "don't")]
    [True, True, False, True, False, False]
    """
    return word in MARKERS or word in FUNCTION_WORDS or not any(map(str.isalnum, word))


def remove_function_words(words: Iterable[str]) -> list[str]:
    """
    >>> remove_function_words(["how", "to", "read", "a", "file", "?"])
    ['read', 'file']
    """
    return [word for word in words if not is_function_word(word)]


def fold_function_words(words: list[str]) -> list[bool]:
    """Which words of a query are shown together as function words; none if all of them are.

    >>> fold_function_words(["read", "a", "file", "?"]), fold_function_words(["to", "be"])
    ([False, True, False, True], [False, False])
    """
    small = [is_function_word(word) for word in words]
    return [False] * len(words) if all(small) else small
