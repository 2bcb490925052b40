"""Words and terms as real Lucene gives them, on the shared reference."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassrank.corpus import read_docs
from glassrank.index.scoring import quantize_lengths
from glassrank.text import EnglishAnalyzer
from glassrank.text.analysis import split_unicode_words

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
LUCENE = SHARED / "reference" / "lucene"

pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(not LUCENE.is_dir(), reason="shared/reference/lucene is not there"),
]


def samples() -> list[Any]:
    path = LUCENE / "analyzer_samples.json"
    return json.loads(path.read_bytes()) if path.exists() else []


def rows(path: Path) -> list[list[str]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [line.rstrip("\n").split("\t") for line in file]


def test_there_are_57_samples() -> None:
    assert len(samples()) == 57


@pytest.mark.parametrize("sample", samples(), ids=lambda sample: sample["id"])
def test_words_and_terms_of_a_sample(sample: dict[str, Any]) -> None:
    expected = [token.rpartition("|")[0] for token in sample["standard_tokenizer"]]
    assert split_unicode_words(sample["text"]) == expected
    assert EnglishAnalyzer()(sample["text"]) == sample["tokens"]


@pytest.mark.parametrize("name", ["cacm", "cranfield"])
def test_every_term_and_every_length_of_a_collection(name: str) -> None:
    analyze = EnglishAnalyzer()
    docs = {
        doc.doc_id: Counter(analyze(doc.text))
        for doc in read_docs(SHARED / "data" / name / "collection.tsv.gz")
    }
    frequency = Counter(term for counts in docs.values() for term in counts)
    total: Counter[str] = Counter()
    for counts in docs.values():
        total.update(counts)
    assert {term: (frequency[term], total[term]) for term in total} == {
        term: (int(df), int(cf)) for term, df, cf in rows(LUCENE / name / "vocab.tsv.gz")
    }
    lengths = {doc_id: counts.total() for doc_id, counts in docs.items()}
    rounded = quantize_lengths(np.array(list(lengths.values()))).tolist()
    found = {
        doc_id: (length, short)
        for (doc_id, length), short in zip(lengths.items(), rounded, strict=True)
    }
    assert found == {
        doc_id: (int(length), int(short))
        for doc_id, length, short in rows(LUCENE / name / "doclens.tsv.gz")
    }
