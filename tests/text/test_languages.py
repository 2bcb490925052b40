"""Other languages than English, by the rules of Lucene's analyzers."""

# ruff: noqa: RUF001

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassrank.errors import InputError
from glassrank.text import EnglishAnalyzer
from glassrank.text.analysis import WordAnalyzer
from glassrank.text.detection import looks_foreign, stop_words
from glassrank.text.languages import (
    LANGUAGES,
    MixedAnalyzer,
    get_analyzer,
    get_analyzer_by_name,
)

GOLDEN = [
    line.split("\t")
    for line in (Path(__file__).parent / "golden_languages.tsv").read_text("utf-8").splitlines()
]
OTHER_STEMMERS = {"de", "el", "es", "fr", "it", "nl", "pt"}
"""Lucene's analyzers of these languages have stemmers that are not, or no longer, Snowball's."""


def words_of(language: str) -> WordAnalyzer:
    analyzer = get_analyzer(language)
    assert isinstance(analyzer, WordAnalyzer)
    return analyzer


@pytest.mark.parametrize(("language", "text", "tokens"), GOLDEN)
def test_terms_are_those_of_lucene(language: str, text: str, tokens: str) -> None:
    terms, expected = get_analyzer(language)(text), tokens.split()
    if language not in OTHER_STEMMERS:
        assert terms == expected
    else:  # the same words are stop words
        assert len(terms) == len(expected)


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("de", "Haus Häuser Haeuser Hauses"),
        ("de", "Straße Strassen STRASSE"),
        ("fr", "cheval chevaux l'cheval L’CHEVAL"),
        ("fr", "évaluer evaluer"),
        ("es", "niño niños"),
        ("es", "rápido rapido"),
        ("it", "isola dell'isola isole"),
        ("pt", "ações acoes"),
        ("ru", "книга книги книгу КНИГОЙ"),
        ("el", "άνθρωπος ΑΝΘΡΩΠΟΣ ανθρωποι"),
        ("tr", "ışık IŞIK IŞIK'ta"),
        ("fr", "e\u0301valuer évaluer"),  # letters with their marks apart
    ],
)
def test_forms_of_a_word_have_one_term(language: str, words: str) -> None:
    assert len({*get_analyzer(language)(words)}) == 1


def test_an_article_is_cut_off_only_where_the_language_has_it() -> None:
    assert get_analyzer("fr")("l'avion o'avion") == ["avion", "o'avion"]
    assert get_analyzer("ru")("l'avion") == ["l'avion"]


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("水", ["水"]),
        ("多くの", ["多く", "くの"]),
        ("한국어", ["한국", "국어"]),
        ("한국 어", ["한국", "어"]),
        ("3월", ["3월"]),
        ("ｶﾞﾗｽ ガラス", ["ガラ", "ラス", "ガラ", "ラス"]),
        ("ＡＢＣ", ["abc"]),
        ("Xシャツ", ["x", "シャ", "ャツ"]),
        ("水を the 水", ["水を", "水"]),
        ("𠮷野家", ["𠮷野", "野家"]),
    ],
)
def test_two_characters_are_a_term_in_chinese_japanese_and_korean(
    text: str, terms: list[str]
) -> None:
    assert get_analyzer("cjk")(text) == terms


@given(st.text(alphabet="東京のカｶﾞー한국 aB3.,'𠮷\u0301\u200d", max_size=30))
def test_bigrams_stand_where_their_spans_say(text: str) -> None:
    analyzer = words_of("cjk")
    lowered = analyzer.lower_case(text)
    assert analyzer.words(text) == [lowered[start:stop] for start, stop in analyzer.spans(lowered)]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_terms_and_keeps_positions(language: str) -> None:
    analyzer = words_of(language)
    everything = "".join(map(chr, (*range(0x20, 0xD800, 7), *range(0x10000, 0x20000, 97))))
    assert len(analyzer.lower_case(everything)) == len(everything)
    assert analyzer("GPL 2024")[-1] == "2024"
    for word in sorted(stop_words().get(language, ()))[:20]:
        assert analyzer.term(word) == ""
    assert get_analyzer_by_name(analyzer.name).name == analyzer.name


def test_a_language_goes_by_code_or_name() -> None:
    assert [get_analyzer(name).language for name in ("DE", "German", "zh", "nb", "en")] == [
        *("de", "de", "cjk", "no", "en")
    ]
    with pytest.raises(InputError, match="did you mean german"):
        get_analyzer("germn")


def test_english_is_what_it_was() -> None:
    assert get_analyzer("en").name == EnglishAnalyzer.name == "lucene-english-1"
    assert isinstance(get_analyzer_by_name("of another version"), EnglishAnalyzer)


def test_a_query_of_a_mixed_index_is_analysed_in_each_of_its_languages() -> None:
    mixed = MixedAnalyzer().with_languages(["de"]).with_languages(["en", "de"])
    assert mixed.languages == ("de", "en")
    assert sorted(mixed("Häuser houses Python Python")) == [
        *("haus", "hous", "häuser", "python", "python")
    ]
    assert get_analyzer_by_name(mixed.name).languages == mixed.languages


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("de", "Die Preise der alten Häuser sind in den letzten Jahren gestiegen."),
        ("en", "Prices of old houses have risen in recent years."),
        ("fr", "Les prix des vieilles maisons ont augmenté ces dernières années."),
        ("cjk", "近年来，旧房子的价格上涨了。"),
        ("cjk", "古い家の価格は近年上がっています。"),
        ("cjk", "최근 몇 년 동안 오래된 집값이 올랐다."),
        ("ru", "Цены на старые дома выросли за последние годы."),
        ("en", "42 / 17"),
    ],
)
def test_a_document_of_a_mixed_collection_has_its_own_language(language: str, text: str) -> None:
    assert get_analyzer("auto").for_text(text).language == language


@pytest.mark.parametrize(("language", "text", "tokens"), GOLDEN)
def test_texts_in_another_language_are_seen(language: str, text: str, tokens: str) -> None:
    # One sentence of these has fewer function words than it takes.
    assert looks_foreign([text]) == (language not in ("fi", "tr"))


def test_names_code_and_english_are_not_foreign() -> None:
    assert not looks_foreign([])
    assert not looks_foreign(["", "42", "def f(a, *, b=None): return a"])
    assert not looks_foreign(["Zürich, São Paulo, München, Kraków, Åre, Reykjavík"])
    assert not looks_foreign(["The café in which he is to be seen."])


def test_threads_share_an_analyzer() -> None:
    analyzer = words_of("de")
    words = [f"{stem}{ending}" for stem in ("haus", "preis", "frau") for ending in ("", "es", "en")]
    words = [f"{word}{number}" for number in range(300) for word in words]
    expected = [type(analyzer)("de").term(word) for word in words]  # type: ignore[call-arg]
    with ThreadPoolExecutor(4) as pool:
        assert all(
            terms == expected
            for terms in pool.map(lambda _: list(map(analyzer.term, words)), range(4))
        )
