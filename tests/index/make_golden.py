"""Writes golden_first_stage.json with the slow version of every method.

Run: python tests/index/make_golden.py
"""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

from golden_texts import DOCS, QUERIES
from slow_first_stage import METHODS, Ranked, best_first

from glassrank.text import EnglishAnalyzer

PATH = Path(__file__).with_name("golden_first_stage.json")


def golden() -> dict[str, dict[str, Ranked]]:
    analyze = EnglishAnalyzer()
    docs = {doc_id: analyze(text) for doc_id, text in DOCS.items()}
    rankings: dict[str, dict[str, Ranked]] = {}
    for name, score in METHODS.items():
        rankings[name] = {}
        for query_id, text in QUERIES.items():
            query = Counter(analyze(text))
            ranked = best_first(score(docs, query))
            for (one, high), (other, low) in pairwise(ranked):
                # Else single precision may see another order, and the file would pin an accident.
                if 0 < high - low < 1e-5 * high:
                    raise SystemExit(f"{name} {query_id}: {one} and {other} are too close")
            rankings[name][query_id] = [(doc_id, round(value, 6)) for doc_id, value in ranked]
    return rankings


if __name__ == "__main__":
    note = "made by tests/index/make_golden.py; method -> query -> [document, score]"
    lines = [
        f"  {json.dumps(name)}: {{\n"
        + ",\n".join(f"   {json.dumps(q)}: {json.dumps(r)}" for q, r in rankings.items())
        + "\n  }"
        for name, rankings in golden().items()
    ]
    PATH.write_text(
        f'{{\n "note": {json.dumps(note)},\n "rankings": {{\n' + ",\n".join(lines) + "\n }\n}\n"
    )
