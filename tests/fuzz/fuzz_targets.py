"""Everything that opens a stranger's file, what a sound file looks like, and how to spoil it.

A target is read as it is, then spoilt: the only allowed ends are a result and one sentence.
`test_fuzz.py` tries a few of each, `benchmarks/fuzz.py` as many as there is time for.
"""

import gzip
import json
import shutil
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from glassrank.corpus import read_docs, read_folds, read_qrels, read_queries, read_run
from glassrank.embeddings import Store, encode_index
from glassrank.errors import GlassrankError
from glassrank.index import Index
from glassrank.models import MODELS, EmbeddingTable
from glassrank.models.io.load import load_model
from glassrank.models.io.model_folder import Usage
from glassrank.models.io.torch_files import save_model
from glassrank.models.published_files import check_folder
from glassrank.rerank import Reranker
from glassrank.research.train.config_files import make_example, read_config
from glassrank.research.train.vector_files import read_subwords, read_vectors
from glassrank.settings import from_plain
from glassrank.text import EnglishAnalyzer, Vocabulary, split_words
from glassrank.types import Doc

WORDS = ["<pad>", "<unk>", "cat", "mat", "naïve"]
VOCABULARY = Vocabulary(WORDS[2:])
MOST_SECONDS = 2.0
"""Of processor time, for a file of a few hundred bytes."""

TOKENS = (
    *(b"<DOC>", b"</DOC>", b"<DOCNO>", b"</DOCNO>", b"<TITLE>", b"</TITLE>", b"<!--", b"-->", b"<"),
    *(
        b"<top>",
        b"</top>",
        b"<num>",
        b"Number:",
        b"<title>",
        b"<desc>",
        b">",
        b"&#",
        b"&amp;",
        b"# ",
    ),
    *(b'"', b'""', b"'", b"{", b"}", b"[", b"]", b":", b",", b"\\", b"\\ud800", b"null", b"1e999"),
    *(b"NaN", b"-1", b"9223372036854775808", b"9" * 5000, b"\0", b"\t", b"\n", b"\r\n", b" ", b""),
    *(
        b"\xff",
        b"\xef\xbb\xbf",
        b"\xe2\x80\xaf",
        b"\xcc\x81",
        b"..",
        b"/",
        b"../../x",
        b"/dev/zero",
    ),
    *(
        b"extends",
        b"= ",
        b"inf",
        b"[[",
        b"]]",
        b"a.b.c",
        b"true",
        b"_id",
        b"text",
        b"Q0",
        b"enwiki:",
    ),
    *(
        b"WARC/1.0\n",
        b"WARC-Type: response",
        b"Content-Length: ",
        b"HTTP/1.1 200\r\n\r\n",
        b"\x1f\x8b",
    ),
    *(b"\x9f", b"\x7f", b"\x81", b"\x9b", b"\xd8", b"\xf9", b"charset=utf-16"),
    *(struct.pack("<i", n) for n in (-1, 0, 2**31 - 1)),
    *(struct.pack("<q", n) for n in (-1, 2**62, 2**63 - 1)),
)


def spoilt(sound: bytes, chance: Random) -> bytes:
    """One to a few changes: bytes flipped, cut out, doubled, moved, or tokens put in."""
    data = bytearray(sound)
    for _ in range(chance.choice((1, 1, 2, 3, 6))):
        start = chance.randrange(len(data) + 1)
        stop = min(len(data), start + chance.choice((1, 1, 2, 8, 40)))
        kind = chance.randrange(6)
        if kind == 0 and start < len(data):
            data[start] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del data[start:stop]
        elif kind == 2:
            data[start:start] = data[start:stop] * chance.choice((1, 2, 50))
        elif kind == 3:
            data[start:start] = chance.choice(TOKENS) * chance.choice((1, 1, 3, 300))
        elif kind == 4:
            data[start:stop] = chance.choice(TOKENS)
        else:
            del data[start:]
    return bytes(data)


@dataclass(frozen=True)
class File:
    """One file by its name, and what reads it."""

    name: str
    sound: bytes
    read: Callable[[Path], object]

    def attempt(self, folder: Path, content: bytes) -> str:
        path = folder / self.name
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
        return outcome(lambda: self.read(path))


def outcome(read: Callable[[], object]) -> str:
    """`read` or `refused`; everything else is an error of ours, and so is taking long."""
    began = time.process_time()
    try:
        read()
        ended = "read"
    except GlassrankError as error:
        assert "\n" not in str(error), f"more than one line: {error}"
        assert 0 < len(str(error)) < 2200, "no sentence"
        ended = "refused"
    took = time.process_time() - began
    assert took < MOST_SECONDS, f"took {took:.1f} s"
    return ended


def listed(read: Callable[..., Any], *more: Any) -> Callable[[Path], object]:
    return lambda path: list(read(path, *more))


def analysed(path: Path) -> object:
    """All documents, through both views of a text."""
    analyzer = EnglishAnalyzer()
    return [(analyzer(doc.text), split_words(doc.text + doc.title)) for doc in read_docs(path)]


def fasttext() -> bytes:
    words = (b"cat", b"mat", "naïve".encode())
    return b"".join(
        [
            struct.pack("<ii12id", 793712314, 12, 3, 5, 5, 1, 5, 1, 2, 1, 4, 3, 6, 100, 1e-4),
            struct.pack("<iiiqq", 3, 3, 0, 100, -1),
            *(word + b"\0" + struct.pack("<qb", 7, 0) for word in words),
            struct.pack("<?qq", False, 7, 3),
            np.arange(21, dtype="<f4").tobytes(),
        ]
    )


TREC = (
    b"<DOC>\n<DOCNO> d1 </DOCNO>\n<!-- note --><TITLE>Cats &amp; mats</TITLE>\n<TEXT>\nThe cat "
    b"<B>sat</B>.\n</TEXT>\n</DOC>\n<DOC><DOCNO>d2</DOCNO><SCRIPT>x</SCRIPT>A dog.</DOC>\n"
)
PAGE = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n<title>Cats</title><p>Sat."
)
WARC = (
    b"WARC/0.18\nWARC-Type: warcinfo\nContent-Length: 4\n\na: b\n\n"
    b"WARC/1.0\r\nWARC-Type: response\r\n"
    b"WARC-TREC-ID: c1\r\nWARC-Target-URI: http://a\r\nContent-Type: application/http\r\n"
    b"Content-Length: %d\r\n\r\n%b\r\n\r\nWARC/1.0\nWARC-Type: conversion\nWARC-TREC-ID: c2\n"
    b"Content-Type: text/plain\nContent-Length: 6\n\nA dog.\n\n"
) % (len(PAGE), PAGE)
CAR = (
    b"\x83\x63CAR\x81\x02\x80\x9f\x83\x00\x42p1\x82\x82\x00\x64The "
    b"\x82\x01\x85\x00\x63Cat\x80\x41i\x64cats"
    b"\x9f\x00\x42p2\x9f\x82\x00\x7f\x62A \x64dog.\xff\xff\xff\xff"
)
TOPICS = (
    b"<top>\n<num> Number: 301\n<title> Organized Crime\n<desc> Description:\nFind it.\n<narr> "
    b"Narrative:\nAll.\n</top>\n<topic number='2'><query>cats</query><description>x</description>"
    b"</topic>\n"
)
VECTORS = b"cat 1 2 3\nmat 4 5 6\nthe 7 8 9\n"
ROWS = b"".join(w + b" " + np.arange(3, dtype="<f4").tobytes() for w in (b"cat", b"mat"))
JSONL = (
    b'{"_id": "1", "title": "Cats", "text": "The cat.", "year": 3, "metadata": {"a": [1]}}\n'
    b'{"id": 2, "text": "\\u00e9t\\u00e9"}\n'
)


def vectors_of(path: Path) -> object:
    return read_vectors(path, VOCABULARY)


FILES = {
    "documents, JSONL": File("d.jsonl", JSONL, analysed),
    "documents, TSV": File("d.tsv", b"1\tThe cat sat.\n2\tA dog.\n", analysed),
    "documents, CSV": File("d.csv", b'id,title,text\n1,a,"b ""c""\nd"\n2,x,y\n', analysed),
    "documents, TREC": File("d.trec", TREC, analysed),
    "documents, WARC": File("d.warc", WARC, analysed),
    "documents, WARC, gzip": File("d.warc.gz", WARC, analysed),
    "documents, TREC CAR": File("d.cbor", CAR, analysed),
    "documents, Markdown": File("d.md", "# Cats ##\n\nThe naïve cat.\n".encode(), analysed),
    "documents, gzip": File("d.jsonl.gz", JSONL, analysed),
    "queries, TSV": File("q.tsv", b"1\twhat is a cat\n2\tdogs\n", listed(read_queries)),
    "queries, JSONL": File("q.txt", b'{"_id": "1", "text": "cats"}\n', listed(read_queries)),
    "queries, TREC": File("q.topics", TOPICS, listed(read_queries, "desc")),
    "queries, CAR": File("q.car", b"enwiki:Cats/Food%20x\n", listed(read_queries, "title", "car")),
    "judgments": File("qrels.txt", b"1 0 d1 1\n1 0 d2 -2\n2 0 d1 0\n", read_qrels),
    "run, TREC": File("r.run", b"1 Q0 d1 1 2.5 tag\n1 Q0 d2 2 1e-3 tag\n", read_run),
    "run, MS MARCO": File("m.run", b"1\td1\t1\n1\td2\t2\n", read_run),
    "folds": File("f.json", b'[["1", "2"], ["3"], [4]]', read_folds),
    "folds, Robust04": File("f.json", b'{"s1": {"predict": {"test": ["1"]}}}', read_folds),
    "config": File("c.toml", make_example("tk").encode(), read_config),
    "vectors, text": File("v.txt", VECTORS, vectors_of),
    "vectors, word2vec text": File("w.vec", b"3 3\n" + VECTORS, vectors_of),
    "vectors, word2vec": File("w.bin", b"2 3\n" + ROWS, vectors_of),
    "vectors, fastText": File("f.bin", fasttext(), vectors_of),
    "subwords, fastText": File("f.bin", fasttext(), read_subwords),
    "sentence transformer": File(
        "modules.json",
        json.dumps([{"type": "sentence_transformers.models.Pooling", "path": ""}]).encode(),
        lambda path: check_folder(path.parent),
    ),
}


@dataclass(frozen=True)
class Folder:
    """A folder of which one file is spoilt; all of it is used afterwards."""

    make: Callable[[Path], None]
    use: Callable[[Path], object]

    def files(self, made: Path) -> Sequence[Path]:
        return sorted(path.relative_to(made) for path in made.rglob("*") if path.is_file())

    def attempt(self, made: Path, work: Path, name: Path, content: bytes) -> str:
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(made, work)
        (work / name).write_bytes(content)
        return outcome(lambda: self.use(work))


def make_index(folder: Path) -> None:
    docs = [Doc(str(n), f"The naïve cat {'sat ' * n}on mat {n}.", f"title {n}") for n in range(12)]
    Index.build(docs, folder / "index")


def use_index(folder: Path) -> None:
    index = Index(folder / "index")
    for method in ("bm25", "ql+rm3"):
        for hit in index.search("naïve cats sat", 5, method):
            index.doc(hit.doc_id)
            index.snippets("cat")(hit.text)
    list(index.docs())


def make_model(folder: Path) -> None:
    torch.manual_seed(0)
    family = MODELS["tk"]
    small = {"layers": 1, "heads": 2, "attention_size": 4, "feed_forward": 8}
    config = from_plain(family.info.config_type, {"size": 12, "contextual": small})
    model = family(config, EmbeddingTable(torch.randn(len(WORDS), 12), trained=False))
    save_model(folder / "model", model, Usage(depth=5), WORDS, "# card\n")


def use_model(folder: Path) -> None:
    found = Reranker(load_model(folder / "model")).scores("naïve cat", ["the cat sat", "mat", ""])
    assert np.isfinite(found.values).all(), "scores that are not finite"


def make_store(folder: Path) -> None:
    make_index(folder)
    make_model(folder)
    index, saved = Index(folder / "index"), load_model(folder / "model")
    encode_index(index, saved, folder / "store", "bf16")


def use_store(folder: Path) -> None:
    index, saved = Index(folder / "index"), load_model(folder / "model")
    store = Store.open(folder / "store", saved.model, index.snapshot)
    for found in store.locate(index.snapshot, np.arange(len(index))):
        store.read_embeddings(found.part, *found.part.passage_rows(found.first))


FOLDERS = {
    "index": Folder(make_index, use_index),
    "model": Folder(make_model, use_model),
    "store": Folder(make_store, use_store),
}
