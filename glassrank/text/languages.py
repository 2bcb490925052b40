"""Analyzers of languages other than English, as Lucene's.

| languages | rules |
|---|---|
| all | words by UAX #29, lower case, Lucene's stop words, a stemmer |
| ca, fr, ga, it | elision: *l'avion* is *avion* (`ElisionFilter`) |
| de | ä, ae → a, ö, oe → o, ü, ue → u, ß → ss (`GermanNormalizationFilter`) |
| es, fr, it, pt | stems without accents, as the light stemmers leave them |
| el | no accents, one sigma (`GreekLowerCaseFilter`) |
| tr | dotless I stays dotless; words end at an apostrophe (`ApostropheFilter`) |
| cjk | bigrams of Han, Hiragana, Katakana and Hangul, widths folded (`CJKAnalyzer`) |

Stemmers are Snowball's; docs/decisions/0031-languages.md says where Lucene uses another.
"""

import difflib
import threading
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise

import regex

from glassrank.errors import InputError
from glassrank.text.analysis import Analyzer, WordAnalyzer, lower_case, word_spans
from glassrank.text.detection import detect_language, stop_words
from glassrank.text.english import EnglishAnalyzer

SNOWBALL = {
    "ar": "arabic", "ca": "catalan", "cs": "czech", "da": "danish", "de": "german", "el": "greek",
    "eo": "esperanto", "es": "spanish", "et": "estonian", "eu": "basque", "fa": "persian",
    "fi": "finnish", "fr": "french", "ga": "irish", "hi": "hindi", "hu": "hungarian",
    "hy": "armenian", "id": "indonesian", "it": "italian", "lt": "lithuanian", "ne": "nepali",
    "nl": "dutch", "no": "norwegian", "pl": "polish", "pt": "portuguese", "ro": "romanian",
    "ru": "russian", "sr": "serbian", "st": "sesotho", "sv": "swedish", "ta": "tamil",
    "tr": "turkish", "yi": "yiddish",
}  # fmt: skip
LANGUAGES = ("en", *SNOWBALL, "cjk")
_ALIASES = {
    **{name: code for code, name in SNOWBALL.items()},
    **dict.fromkeys(("zh", "ja", "ko", "chinese", "japanese", "korean"), "cjk"),
    **dict.fromkeys(("nb", "nn"), "no"),
    "english": "en",
}
_DETECTED = ("en", "zh", "ja", "ko", *(code for code in SNOWBALL if code != "yi"))
"""The languages that are detected."""

_APOSTROPHES = "'\u2019"
_ELISIONS = {
    "ca": "d l m n s t",
    "fr": "l m t qu n s j d c jusqu quoiqu lorsqu puisqu",
    "ga": "d m b",
    "it": "c l all dall dell nell sull coll pell gl agl dagl degl negl sugl un m t s v d",
}
_WITHOUT_ACCENTS = str.maketrans(
    "àáâäãèéêëìíîïòóôöõùúûüç",
    "aaaaaeeeeiiiiooooouuuuc",
)
_GREEK = str.maketrans("άέήίόύώϊϋΐΰς", "αεηιουωιυιυσ")
# An e after a or o; or after a u that follows no vowel and no q.
_GERMAN_E = regex.compile("(?<=[ao]|(?<![aeiouyqäöü])u)e")
_GERMAN = str.maketrans({"ä": "a", "ö": "o", "ü": "u", "ß": "ss"})


class SnowballAnalyzer(WordAnalyzer):
    """
    >>> SnowballAnalyzer("de")("Die Preise der alten Häuser")
    ['preis', 'alt', 'haus']
    >>> SnowballAnalyzer("fr")("L'évolution des chevaux")
    ['evolu', 'cheval']
    """

    def __init__(self, language: str) -> None:
        super().__init__()
        import Stemmer

        self.language = language
        self.name = f"lucene-{language}-1-snowball-{_snowball_version()}"
        self._stemmer = Stemmer.Stemmer(SNOWBALL[language], 0)
        self._lock = threading.Lock()  # a stemmer uses a buffer of its own
        self._stop_words = stop_words().get(language, frozenset())
        self._elisions = frozenset(_ELISIONS.get(language, "").split())

    def lower_case(self, text: str) -> str:
        """Follows Lucene's filters for Turkish and Greek."""
        if self.language == "tr":
            text = text.replace("I", "\u0131")  # without a dot
        text = lower_case(text)
        return text.translate(_GREEK) if self.language == "el" else text

    def _make_term(self, word: str) -> str:
        word = unicodedata.normalize("NFC", word)
        for apostrophe in _APOSTROPHES:
            article, cut, rest = word.partition(apostrophe)
            if cut and article in self._elisions:
                word = rest
            elif cut and self.language == "tr":
                word = article
        if word in self._stop_words:
            return ""
        if self.language == "de":
            word = _GERMAN_E.sub("", word).translate(_GERMAN)
        with self._lock:
            stem: str = self._stemmer.stemWord(word)
        return (
            stem.translate(_WITHOUT_ACCENTS) if self.language in ("es", "fr", "it", "pt") else stem
        )


_CJK = regex.compile(
    r"(?:[\p{Han}\p{Hiragana}\p{WB=Katakana}\p{Hangul}][\p{WB=Format}\p{WB=Extend}\p{WB=ZWJ}]*+)++"
)
_CJK_CHARACTER = regex.compile(r".[\p{WB=Format}\p{WB=Extend}\p{WB=ZWJ}]*+", regex.DOTALL)
_ODD_WIDTHS = regex.compile(r"[\uFF01-\uFF5E\uFF65-\uFF9F]+")


class CJKAnalyzer(WordAnalyzer):
    """Chinese, Japanese and Korean: bigrams of characters, or a single character. Words of other
    scripts are terms without stemming, except stop words.

    >>> CJKAnalyzer()("東京の家, カメラ and 水")
    ['東京', '京の', 'の家', 'カメ', 'メラ', '水']
    """

    language = "cjk"
    name = "lucene-cjk-1"

    def __init__(self) -> None:
        super().__init__()
        self._stop_words = stop_words()["cjk"]

    def words(self, text: str) -> list[str]:
        """Bigrams, and words of other scripts."""
        lowered = self.lower_case(text)
        return [lowered[start:stop] for start, stop in self.spans(lowered)]

    def spans(self, lowered: str) -> Iterator[tuple[int, int]]:
        """(start, stop) of bigrams, which overlap, and of words between them."""
        run_start = run_stop = -1
        for start, stop in word_spans(lowered):
            is_cjk = _CJK.fullmatch(lowered, start, stop) is not None
            if run_start >= 0 and not (is_cjk and start == run_stop):
                yield from _bigrams(lowered, run_start, run_stop)
                run_start = -1
            if not is_cjk:
                yield start, stop
            elif run_start < 0:
                run_start = start
            run_stop = stop
        if run_start >= 0:
            yield from _bigrams(lowered, run_start, run_stop)

    def _make_term(self, word: str) -> str:
        folded = _ODD_WIDTHS.sub(lambda match: unicodedata.normalize("NFKC", match.group()), word)
        return "" if folded in self._stop_words else folded


def _bigrams(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    characters = [match.span() for match in _CJK_CHARACTER.finditer(text, start, stop)]
    if len(characters) == 1:
        yield characters[0]
    for (first, _), (_, last) in pairwise(characters):
        yield first, last


class MixedAnalyzer(Analyzer):
    """Analyzes a document in its detected language, and a query in all languages of the index,
    since a few words do not show their language. A term that several languages give counts once.

    >>> mixed = MixedAnalyzer().with_languages(["de", "en"])
    >>> mixed("Haus Preise")
    ['haus', 'preis', 'hau']
    """

    language = "auto"

    def __init__(self, languages: Iterable[str] = ()) -> None:
        self._languages = tuple(sorted(languages))
        self.name = f"auto-1-snowball-{_snowball_version()}:{'+'.join(self._languages)}"

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of the documents, by code."""
        return self._languages

    def __call__(self, text: str) -> list[str]:
        """The terms of a text."""
        counts: Counter[str] = Counter()
        for language in self.languages:
            counts |= Counter(_word_analyzer(language)(text))
        return list(counts.elements())

    def for_text(self, text: str) -> WordAnalyzer:
        """The analyzer of the detected language."""
        return _word_analyzer(_code(detect_language(text, _DETECTED)))

    def with_languages(self, languages: Iterable[str]) -> "MixedAnalyzer":
        """The same analyzer with further languages."""
        return MixedAnalyzer({*self.languages, *languages})


def get_analyzer(language: str) -> Analyzer:
    """The analyzer of a language, by its code (`de`) or name (`german`); `auto` detects the
    language of each document.

    >>> get_analyzer("German").language, get_analyzer("ja").language, get_analyzer("auto").language
    ('de', 'cjk', 'auto')
    """
    code = _code(language.lower())
    if code == MixedAnalyzer.language:
        return MixedAnalyzer()
    if code not in LANGUAGES:
        near = difflib.get_close_matches(code, [*LANGUAGES, *_ALIASES], n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(LANGUAGES)} and auto"
        raise InputError(f"there is no analyzer for the language {language!r}; {hint}")
    return _word_analyzer(code)


def get_analyzer_by_name(name: str) -> Analyzer:
    """The analyzer of a stored name; its own name differs if its rules have changed."""
    if name.startswith("auto-"):
        return MixedAnalyzer(set(name.partition(":")[2].split("+")) & {*LANGUAGES})
    code = name.partition("-")[2].partition("-")[0]
    return get_analyzer(code if code in (*LANGUAGES, "english") else "en")


def _code(language: str) -> str:
    return _ALIASES.get(language, language)


@cache
def _word_analyzer(language: str) -> WordAnalyzer:
    if language == "en":
        return EnglishAnalyzer()
    return CJKAnalyzer() if language == "cjk" else SnowballAnalyzer(language)


@cache
def _snowball_version() -> str:
    """Stems differ between versions of Snowball."""
    import Stemmer

    return ".".join(Stemmer.version().split(".")[:2])
