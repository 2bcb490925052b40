"""Trains `strong`: kernels over the twelve layers of answerai-colbert-small-v1, which are those of
bge-small after ColBERT's training, taught by four models; then six of its layers, to give its
vectors.

    python configs/default/strong_data.py FOLDER           # arrays: texts, candidates, weights
    python configs/default/strong.py FOLDER                # one GPU; torch and numpy alone
    python configs/default/strong_data.py FOLDER --save runs/default/strong

`glassrank train` has no teacher that is MaxSim over an encoder's states, no first steps with the
encoder frozen, and no way back towards the beginning. Texts stand behind one another without
padding; products are in bfloat16, weights and their updates in float32.
"""

import argparse
import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

Weights = dict[str, Tensor]
Ints = NDArray[np.int64]
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
HALF = torch.bfloat16 if DEVICE.type == "cuda" else torch.float32
HEAD_SIZE, WIDTH, FLOOR, EPSILON = 32, 0.1, 1e-10, 1e-12
CENTERS = tuple(1 - k / 10 for k in range(11))
TOKENS_AT_ONCE, PAIRS_AT_ONCE, BATCH, FROZEN = 400_000, 1024, 64, 100
TEACHERS = {"ce": 1.0, "mpnet": 2.0, "bge": 1.0, "colbert": 1.0}
TEMPERATURE, POSITIVE_BONUS, VECTORS = 1.5, 2.0, 8.0
DEV = ("scifact", "nfcorpus", "insuranceqa", "wikiqa-selqa")
FIRST_STAGE = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6)
LAYER = [
    f"{part}.{kind}"
    for part in (
        "attention.output",
        "attention.norm",
        "feed_forward.inner",
        "feed_forward.outer",
        "feed_forward.norm",
    )
    for kind in ("weight", "bias")
]


class Texts:
    """All texts' ids in one row on the device, and where each begins."""

    def __init__(self, ids: NDArray[Any], lengths: NDArray[Any]) -> None:
        self.ids = torch.from_numpy(ids.astype(np.int32)).to(DEVICE)
        self.lengths: Ints = lengths.astype(np.int64)
        self.starts: Ints = np.cumsum(self.lengths) - self.lengths

    def __len__(self) -> int:
        return len(self.lengths)


class Packed(NamedTuple):
    """Texts behind one another."""

    tokens: Tensor  # (T,) places in the row of ids
    positions: Tensor  # (T,)
    types: Tensor | None  # (T,) which segment of its text a token is of
    ends: Tensor  # (N + 1,) where texts begin and end
    lengths: Ints  # (N,)


def pack(starts: Ints, lengths: Ints, segments: int = 1) -> Packed:
    """Texts of so many segments each; a segment begins at its place in the row of ids."""
    total = int(lengths.sum())
    sizes, begin = (torch.from_numpy(values).to(DEVICE) for values in (lengths, starts))
    place = torch.arange(total, device=DEVICE)
    offset = begin - sizes.cumsum(0) + sizes
    index = torch.repeat_interleave(offset, sizes, output_size=total) + place
    whole = lengths.reshape(-1, segments).sum(1)
    ends = torch.from_numpy(np.concatenate([[0], np.cumsum(whole)])).to(DEVICE)
    per_text = torch.from_numpy(whole).to(DEVICE)
    positions = place - torch.repeat_interleave(ends[:-1], per_text, output_size=total)
    types = None
    if segments > 1:
        kinds = torch.arange(segments, device=DEVICE).repeat(len(whole))
        types = torch.repeat_interleave(kinds, sizes, output_size=total)
    return Packed(index, positions, types, ends.int(), whole)


def attend(query: Tensor, key: Tensor, value: Tensor, texts: Packed) -> Tensor:
    """Within each text: (T, heads, A). On a CPU, texts are padded."""
    longest = int(texts.lengths.max())
    if query.is_cuda:
        from torch.nn.attention.varlen import varlen_attn

        result = varlen_attn(query, key, value, texts.ends, texts.ends, longest, longest)
        assert isinstance(result, Tensor)
        return result
    lengths = torch.from_numpy(texts.lengths)
    mask = torch.arange(longest) < lengths[:, None]  # (N, L)

    def padded(rows: Tensor) -> Tensor:
        room = rows.new_zeros(*mask.shape, *rows.shape[1:])
        room[mask] = rows
        return room.transpose(1, 2)

    attended = functional.scaled_dot_product_attention(
        padded(query), padded(key), padded(value), attn_mask=mask[:, None, None]
    )
    return attended.transpose(1, 2)[mask]


def norm(x: Tensor, weight: Tensor, bias: Tensor, epsilon: float = EPSILON) -> Tensor:
    """A layer norm."""
    return functional.layer_norm(x, x.shape[-1:], weight, bias, epsilon)


def after_attention(
    x: Tensor, attended: Tensor, *weights: Tensor, epsilon: float = EPSILON
) -> Tensor:
    """What a layer does with it; weights as in `LAYER`."""
    out, out_bias, gain, shift, inner, inner_bias, outer, outer_bias, gain_2, shift_2 = weights
    x = norm(x + functional.linear(attended, out, out_bias), gain, shift, epsilon)
    inside = functional.gelu(functional.linear(x, inner, inner_bias))
    return norm(x + functional.linear(inside, outer, outer_bias), gain_2, shift_2, epsilon)


def kernel_scores(weights: Weights, similarity: Tensor, query: Tensor, mask: Tensor) -> Tensor:
    """Similarities (B, Q, C, D), weights of query tokens (B, Q), document masks (B, C, D) to scores
    (B, C), as glassrank's KernelBERT has them."""
    real = mask[:, None].to(similarity.dtype)  # (B, 1, C, D)
    length = mask.sum(-1).to(similarity.dtype)[:, None] + 1  # (B, 1, C)
    by_log = functional.softplus(weights["log_weights"])
    by_length = functional.softplus(weights["length_weights"])
    total = torch.zeros_like(similarity[..., 0])  # (B, Q, C)
    for k, center in enumerate(CENTERS):
        below = (similarity - center).clamp(max=0) / WIDTH
        counts = (torch.exp(-0.5 * below**2) * real).sum(-1)  # (B, Q, C)
        total = total + by_log[k] * counts.clamp(min=FLOOR).log() + by_length[k] * counts / length
    return (total * query[..., None]).sum(1)


_compiled: dict[str, Any] = {}


def compiled(function: Any, **settings: Any) -> Any:
    """Fused on a GPU while training: a step takes 63 ms in the place of 79."""
    if DEVICE.type != "cuda" or not torch.is_grad_enabled():
        return function
    return _compiled.setdefault(function.__name__, torch.compile(function, **settings))


def layer_numbers(weights: Weights) -> list[int]:
    """Those that are there."""
    return sorted({int(n.split(".")[2]) for n in weights if n.startswith("encoder.layers.")})


def encode(weights: Weights, ids: Tensor, texts: Packed, layers: Sequence[int]) -> Tensor:
    """States (T, H)."""
    table = "encoder.embeddings."
    kinds = weights[table + "types.weight"]
    x = functional.embedding(ids, weights[table + "pieces.weight"])
    x = x + functional.embedding(texts.positions, weights[table + "positions.weight"])
    x = x + (kinds[0] if texts.types is None else functional.embedding(texts.types, kinds))
    x = norm(x, weights[table + "norm.weight"], weights[table + "norm.bias"])
    for number in layers:
        layer = f"encoder.layers.{number}."
        both = (weights[f"{layer}attention.query_key_value.{kind}"] for kind in ("weight", "bias"))
        three = functional.linear(x, *both).view(len(x), 3, -1, HEAD_SIZE)
        query, key, value = three.unbind(1)
        attended = attend(query, key, value, texts).reshape(len(x), -1)
        rest = [weights[layer + name] for name in LAYER]
        x = compiled(after_attention, dynamic=True)(x, attended, *rest)
    return x


def rounded(weights: Weights) -> Weights:
    """Encoders in half precision, heads as they are."""
    return {
        name: tensor.to(HALF) if name.startswith("encoder.") else tensor
        for name, tensor in weights.items()
    }


def vectors(weights: Weights, states: Tensor) -> Tensor:
    """Unit vectors (T, 128)."""
    projected = functional.linear(states.float(), weights["projection.weight"])
    lengths: Tensor = projected.norm(dim=-1, keepdim=True)
    return projected / (lengths + 1e-13)


def term_weights(weights: Weights, states: Tensor) -> Tensor:
    """Of query tokens: (T,)."""
    linear = weights["term_weight.weight"], weights["term_weight.bias"]
    return 2 * torch.sigmoid(functional.linear(states.float(), *linear)).squeeze(-1)


def slices(lengths: Ints) -> Iterator[slice]:
    """Runs of texts that are encoded together."""
    ends, start = np.cumsum(lengths), 0
    while start < len(lengths):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + TOKENS_AT_ONCE, "right")))
        yield slice(start, stop)
        start = stop


def states(weights: Weights, texts: Texts, layers: Sequence[int] | None = None) -> Iterator[Tensor]:
    """Of all texts, some at a time."""
    half = rounded(weights)
    for part in slices(texts.lengths):
        packed = pack(texts.starts[part], texts.lengths[part])
        yield encode(half, texts.ids[packed.tokens], packed, layers or layer_numbers(weights))


@torch.no_grad()
def token_vectors(weights: Weights, texts: Texts, layers: Sequence[int] | None = None) -> Tensor:
    """(T, 128) of all texts."""
    return torch.cat([vectors(weights, x) for x in states(weights, texts, layers)])


def pad(rows: Tensor, starts: Ints, lengths: Ints) -> tuple[Tensor, Tensor]:
    """(T, …) to (N, L, …), and a mask (N, L)."""
    begin, sizes = (torch.from_numpy(values).to(DEVICE) for values in (starts, lengths))
    place = torch.arange(int(lengths.max()), device=DEVICE)
    mask = place < sizes[:, None]
    found = rows[(begin[:, None] + place).clamp(max=len(rows) - 1)]
    return found * mask.view(*mask.shape, *[1] * (rows.ndim - 1)), mask


# Teachers


@torch.no_grad()
def cross_encoder(weights: Weights, queries: Texts, docs: Texts, q: Ints, d: Ints) -> Tensor:
    """Scores of pairs (n,), by numbers of queries and documents."""
    half, ids = rounded(weights), torch.cat([queries.ids, docs.ids])
    lengths = np.stack([queries.lengths[q], docs.lengths[d] - 1], 1)  # one [CLS]
    starts = np.stack([queries.starts[q], docs.starts[d] + 1 + len(queries.ids)], 1)
    scores = []
    for part in slices(lengths.sum(1)):
        packed = pack(starts[part].ravel(), lengths[part].ravel(), 2)
        x = encode(half, ids[packed.tokens], packed, layer_numbers(weights))
        first = x[packed.ends[:-1].long()].float()
        first = functional.linear(first, weights["pooler.weight"], weights["pooler.bias"]).tanh()
        head = weights["classifier.weight"], weights["classifier.bias"]
        scores.append(functional.linear(first, *head).squeeze(1))
    return torch.cat(scores)


@torch.no_grad()
def first_vectors(weights: Weights, texts: Texts, prefix: Sequence[int] = ()) -> Tensor:
    """bge's: the state of [CLS]; `prefix` stands between it and a query."""
    half, before = rounded(weights), torch.tensor([101, *prefix], device=DEVICE).int()
    ids, found = torch.cat([texts.ids, before]), []
    for part in slices(texts.lengths):
        starts, lengths = texts.starts[part], texts.lengths[part]
        marks = np.full(len(starts), len(texts.ids))
        both = np.stack([marks, starts + 1], 1), np.stack([marks * 0 + len(before), lengths - 1], 1)
        packed = pack(both[0].ravel(), both[1].ravel(), 2)._replace(types=None)
        x = encode(half, ids[packed.tokens], packed, layer_numbers(weights))
        found.append(functional.normalize(x[packed.ends[:-1].long()].float(), dim=1))
    return torch.cat(found)


@torch.no_grad()
def mean_vectors(weights: Weights, kinds: Ints, texts: Texts) -> Tensor:
    """mpnet's: texts of equal length together, since its heads add a number for each distance."""
    half, bias = rounded(weights), weights["encoder.distances.bias.weight"].to(HALF)
    table, longest = "encoder.embeddings.", (len(kinds) + 1) // 2
    found = torch.empty(len(texts), 768, device=DEVICE)
    order = np.argsort(texts.lengths, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(texts.lengths[order])) + 1):
        length = int(texts.lengths[group[0]])
        place = torch.arange(length, device=DEVICE)
        after = (place - place[:, None] + longest - 1).cpu().numpy()
        by_distance = bias[torch.from_numpy(kinds[after]).to(DEVICE)].permute(2, 0, 1)[None]
        for some in np.array_split(group, len(group) * length // 150_000 + 1):
            index = torch.from_numpy(texts.starts[some]).to(DEVICE)[:, None] + place
            x = functional.embedding(texts.ids[index], half[table + "pieces.weight"])
            x = x + half[table + "positions.weight"][:length]
            x = norm(x, half[table + "norm.weight"], half[table + "norm.bias"], 1e-5)
            for number in layer_numbers(weights):
                layer = f"encoder.layers.{number}."
                name = f"{layer}attention.query_key_value."
                three = functional.linear(x, half[name + "weight"], half[name + "bias"])
                three = three.view(len(some), length, 3, bias.shape[1], -1).permute(2, 0, 3, 1, 4)
                query, key, value = three
                mask = by_distance.expand(len(some), -1, -1, -1)
                y = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
                w = [half[layer + part] for part in LAYER]
                x = after_attention(x, y.transpose(1, 2).flatten(2), *w, epsilon=1e-5)
            found[torch.from_numpy(some).to(DEVICE)] = functional.normalize(
                x.float().mean(1), dim=1
            )
    return found


@torch.no_grad()
def maxsim(weights: Weights, queries: Texts, docs: Texts, q: Ints, d: Ints) -> Tensor:
    """Over the encoder's own states, whose projection did not come with it."""
    unit = [
        torch.cat([functional.normalize(x.float(), dim=1).half() for x in states(weights, texts)])
        for texts in (queries, docs)
    ]
    scores = []
    for start in range(0, len(q), PAIRS_AT_ONCE):
        some = slice(start, start + PAIRS_AT_ONCE)
        x, real = pad(unit[0], queries.starts[q[some]], queries.lengths[q[some]])
        y, mask = pad(unit[1], docs.starts[d[some]], docs.lengths[d[some]])
        best = (x @ y.transpose(1, 2)).masked_fill(~mask[:, None], -1).amax(2).float()
        scores.append((best * real).sum(1))
    return torch.cat(scores)


@torch.no_grad()
def pair_scores(weights: Weights, queries: Texts, docs: Texts, q: Ints, d: Ints) -> Tensor:
    """Of a model of this family."""
    doc = torch.cat([vectors(weights, x).half() for x in states(weights, docs)])
    asked = list(states(weights, queries))
    query = torch.cat([vectors(weights, x) for x in asked])
    importance = torch.cat([term_weights(weights, x) for x in asked])
    scores = []
    for start in range(0, len(q), PAIRS_AT_ONCE):
        some = slice(start, start + PAIRS_AT_ONCE)
        where = queries.starts[q[some]], queries.lengths[q[some]]
        x, y = pad(query, *where)[0], pad(importance, *where)[0]
        z, mask = pad(doc, docs.starts[d[some]], docs.lengths[d[some]])
        similarity = (x @ z.float().transpose(1, 2))[:, :, None]
        scores.append(kernel_scores(weights, similarity, y, mask[:, None])[:, 0])
    return torch.cat(scores)


def standardized(scores: Tensor) -> Tensor:
    """Mean 0 and deviation 1 in each row."""
    centred = scores - scores.mean(1, keepdim=True)
    return centred / (centred.pow(2).mean(1, keepdim=True).sqrt() + 1e-6)


class Data:
    """What is learned from: queries with lists of documents, the first of which is relevant."""

    def __init__(
        self,
        folder: Path,
        teachers: Mapping[str, float] = TEACHERS,
        *,
        models: Mapping[str, Weights] = MappingProxyType({}),
        scaled: Callable[[Tensor], Tensor] = standardized,
        bonus: float = POSITIVE_BONUS,
    ) -> None:
        """`models` are teachers of this family."""
        arrays = np.load(folder / "data.npz")
        self.docs = Texts(arrays["doc_ids"], arrays["doc_lengths"])
        self.queries = Texts(arrays["query_ids"], arrays["query_lengths"])
        self.ids = torch.cat([self.queries.ids, self.docs.ids])
        self.query: Ints = arrays["query"].astype(np.int64)  # (n,)
        self.lists: Ints = arrays["lists"].astype(np.int64)  # (n, 12)
        self.judged = torch.from_numpy(arrays["judged"].astype(np.float32)).to(DEVICE)  # (n,)
        total = torch.zeros(self.lists.shape, device=DEVICE)
        for name, weight in teachers.items():
            scores = self._scores(folder, name, models, arrays["prefix"].tolist())
            total += weight * scaled(scores.view(total.shape))
            print(f"{name}: scores of {total.numel():,} pairs", flush=True)
        self.target = TEMPERATURE * scaled(total)  # (n, 12) but for a constant of each list
        self.target[:, 0] += bonus * self.judged

    def _scores(
        self, folder: Path, name: str, models: Mapping[str, Weights], prefix: list[int]
    ) -> Tensor:
        """What a teacher says of all pairs."""
        q, d = np.repeat(self.query, self.lists.shape[1]), self.lists.ravel()
        pairs = self.queries, self.docs, q, d
        if name in models:
            return pair_scores(models[name], *pairs)
        arrays = np.load(folder / f"{name}.npz")
        teacher = read_weights(arrays)
        if name == "ce":
            return cross_encoder(teacher, *pairs)
        if name == "colbert":
            return maxsim(teacher, *pairs)
        if name == "bge":
            x, y = first_vectors(teacher, self.queries, prefix), first_vectors(teacher, self.docs)
        else:
            x, y = (mean_vectors(teacher, arrays["kinds"], texts) for texts in pairs[:2])
        numbers = (torch.split(torch.from_numpy(n).to(DEVICE), 1 << 18) for n in (q, d))
        return torch.cat([(x[i] * y[j]).sum(1) for i, j in zip(*numbers, strict=True)])


def read_weights(arrays: Any) -> Weights:
    """Of an .npz."""
    floats = (name for name in arrays.files if name != "kinds")
    return {name: torch.from_numpy(arrays[name].astype(np.float32)).to(DEVICE) for name in floats}


# Quality


class Judged:
    """Queries, BM25's first 100 documents, in passages, and their grades."""

    def __init__(self, arrays: Any, name: str, split: str) -> None:
        part = {
            key.split("/")[-1]: arrays[key] for key in arrays.files if f"{name}/{split}/" in key
        }
        self.name = f"{name}/{split}"
        self.docs = Texts(arrays[f"{name}/passage_ids"], arrays[f"{name}/passage_lengths"])
        self.queries = Texts(part["query_ids"], part["query_lengths"])
        self.bm25, self.grades, self.ideal = part["bm25"], part["grades"], part["ideal"]
        self.ends: Ints = np.concatenate([[0], np.cumsum(part["counts"].astype(np.int64))])
        owner = arrays[f"{name}/owner"]  # the document of each passage
        first = np.searchsorted(owner, np.arange(owner.max() + 2))
        self.candidates: Ints = part["candidates"].astype(np.int64)
        count = np.diff(first)[self.candidates]
        self.pair = np.repeat(np.arange(len(count)), count)
        within = np.arange(len(self.pair)) - np.repeat(np.cumsum(count) - count, count)
        self.passage: Ints = first[self.candidates][self.pair] + within
        self.query: Ints = np.repeat(np.arange(len(self.queries)), np.diff(self.ends))[self.pair]
        self.is_first = within == 0

    def scores(self, weights: Weights) -> NDArray[np.float64]:
        """Half the first passage's, half the best one's."""
        found = pair_scores(weights, self.queries, self.docs, self.query, self.passage)
        values = found.double().cpu().numpy()
        best = np.full(len(self.bm25), -np.inf)
        np.maximum.at(best, self.pair, values)
        result: NDArray[np.float64] = (values[self.is_first] + best) / 2
        return result

    def ndcg(self, scores: NDArray[np.float64]) -> float:
        """nDCG@10."""
        discount, values = 1 / np.log2(np.arange(2, 12)), []
        for number, (start, stop) in enumerate(zip(self.ends[:-1], self.ends[1:], strict=True)):
            top = np.argsort(-scores[start:stop], kind="stable")[:10]
            gain = (self.grades[start:stop][top].clip(0) * discount[: len(top)]).sum()
            values.append(gain / max((self.ideal[number] * discount).sum(), 1e-9))
        return float(np.mean(values))


def measure(weights: Weights, sets: Sequence[Judged], label: str) -> float:
    """Prints nDCG@10 by the weight of BM25's score, and returns what runs are chosen by."""
    rows = {}
    for judged in sets:
        scores = judged.scores(weights)
        rows[judged.name] = [judged.ndcg(scores + w * judged.bm25) for w in (0.0, *FIRST_STAGE)]
    alone, *added = np.mean(list(rows.values()), axis=0).round(4).tolist()
    print(json.dumps({"run": label, "alone": alone, "added": added, "sets": rows}), flush=True)
    return float(0.2 * alone + 0.8 * max(added))


# Training


def begin(encoder: Weights, docs: Texts) -> Weights:
    """The projection begins with the directions in which most of the states' length lies."""
    weights = {name: tensor for name, tensor in encoder.items() if name.startswith("encoder.")}
    sample = np.random.default_rng(0).permutation(len(docs))[:4000]
    size = weights["encoder.embeddings.norm.weight"].shape[0]
    moment = torch.zeros(size, size, dtype=torch.float64, device=DEVICE)
    ids = [
        docs.ids[a : a + n].cpu()
        for a, n in zip(docs.starts[sample], docs.lengths[sample], strict=True)
    ]
    with torch.no_grad():
        for x in states(weights, Texts(torch.cat(ids).numpy(), docs.lengths[sample])):
            unit = functional.normalize(x.float(), dim=1)
            moment += (unit.T @ unit).double()
    directions = torch.linalg.eigh(moment.cpu()).eigenvectors.T.flip(0)[:128]
    return weights | {
        "projection.weight": directions.float().to(DEVICE).contiguous(),
        "term_weight.weight": torch.zeros(1, size, device=DEVICE),
        "term_weight.bias": torch.zeros(1, device=DEVICE),
        "log_weights": torch.full((len(CENTERS),), -5.0, device=DEVICE),
        "length_weights": torch.full((len(CENTERS),), -3.0, device=DEVICE),
    }


class Scored(NamedTuple):
    """A batch: scores of each query's list, and what its tokens became."""

    scores: Tensor  # (B, C)
    vectors: Tensor  # (T, 128)
    term_weights: Tensor  # (T of queries,)
    tokens: Tensor  # (T,) places in `Data.ids`


def score_lists(
    head: Weights, encoder: Weights, data: Data, pick: Ints, layers: Sequence[int]
) -> Scored:
    """One pass for queries and documents."""
    queries, docs, lists = data.query[pick], data.lists[pick].ravel(), data.lists[pick]
    lengths = np.concatenate([data.queries.lengths[queries], data.docs.lengths[docs]])
    shifted = data.docs.starts[docs] + len(data.queries.ids)
    packed = pack(np.concatenate([data.queries.starts[queries], shifted]), lengths)
    x = encode(encoder, data.ids[packed.tokens], packed, layers)
    y = vectors(head, x)
    asked = len(pick)
    starts = np.cumsum(lengths) - lengths
    weight = term_weights(head, x[: int(lengths[:asked].sum())])
    query, _ = pad(y, starts[:asked], lengths[:asked])
    importance, _ = pad(weight, starts[:asked], lengths[:asked])
    doc, mask = pad(y, starts[asked:], lengths[asked:])
    shape = asked, lists.shape[1], mask.shape[1]
    similarity = torch.bmm(query, doc.view(asked, -1, doc.shape[-1]).transpose(1, 2))
    similarity = similarity.view(asked, query.shape[1], *shape[1:])
    pool = compiled(kernel_scores, dynamic=True)
    return Scored(pool(head, similarity, importance, mask.view(shape)), y, weight, packed.tokens)


def train(
    start: Weights,
    data: Data,
    label: str,
    steps: int,
    rate: float,
    *,
    head_rate: float = 2e-3,
    frozen: int = FROZEN,
    seed: int = 0,
    whole: tuple[Tensor, Tensor] | None = None,
    vectors_weights: tuple[float, float] = (VECTORS, VECTORS),
    table_rate: float | None = None,
    kept: Collection[str] = (),
    mean_from: float = 0.7,
) -> Weights:
    """The mean of the weights over the last steps. All margins of a list shall be the target's;
    with `whole`, another model's vectors and query weights of all tokens, those are learned too,
    with a weight that goes from the first to the second of two. What is `kept` does not change."""
    layers = layer_numbers(start)
    master = {name: tensor.detach().clone() for name, tensor in start.items()}
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in rounded(master).items()}
    heads = {name for name in master if not name.startswith("encoder.")}
    tables = {n for n, t in master.items() if n not in heads and "embeddings" in n and t.ndim == 2}
    decaying = {n for n, t in master.items() if t.ndim == 2} - heads - tables
    for name in kept:
        leaves[name].requires_grad_(False)
    groups = [
        {"params": [master[name] for name in names], "lr": lr, "weight_decay": decay}
        for names, lr, decay in (
            (sorted(heads), head_rate, 0),
            (sorted(tables), table_rate or rate, 0),
            (sorted(decaying), rate, 0.01),
            (sorted(master.keys() - heads - tables - decaying), rate, 0),
        )
        if names
    ]
    optimizer = torch.optim.AdamW(groups, fused=DEVICE.type == "cuda")
    warmup = max(20, min(300, steps // 20))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda n: max(0.0, min((n + 1) / warmup, (steps - n) / max(1, steps - warmup)))
    )
    rng, order = np.random.default_rng(seed), np.empty(0, np.int64)
    mean, count = dict[str, Tensor](), 0
    for step in range(steps):
        if len(order) < BATCH:
            order = rng.permutation(len(data.query))
        pick, order = order[:BATCH], order[BATCH:]
        is_frozen = step < frozen  # the encoder, while its head is still anyhow
        encoder = {n: t.detach() for n, t in leaves.items()} if is_frozen else leaves
        batch = score_lists(leaves, encoder, data, pick, layers)
        apart = batch.scores - data.target[torch.from_numpy(pick).to(DEVICE)]
        loss = 0.5 * (apart - apart.mean(1, keepdim=True)).pow(2).mean()
        if whole is not None:
            asked = len(batch.term_weights)
            away = 1 - (batch.vectors * whole[0][batch.tokens].float()).sum(-1)  # (T,)
            weights_away = (batch.term_weights - whole[1][batch.tokens[:asked]]).pow(2).mean()
            first, last = vectors_weights
            weight = first * (last / first) ** (step / steps)
            loss = loss + weight * (away[:asked].mean() + away[asked:].mean() + weights_away)
        loss.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            for name, tensor in master.items():
                grad = leaves[name].grad
                tensor.grad = None if grad is None else grad.float()
                leaves[name].grad = None
            torch.nn.utils.clip_grad_norm_(master.values(), 1.0)
            optimizer.step()
            schedule.step()
            for name, tensor in master.items():
                leaves[name].copy_(tensor)
            if step >= mean_from * steps and step % 5 == 0:
                count += 1
                for name, tensor in master.items():
                    mean[name] = tensor.lerp(mean.get(name, tensor), 1 - 1 / count)
        if step % 500 == 0:
            print(f"{label}: step {step}, loss {loss.item():.4f}", flush=True)
    return mean or {name: tensor.detach() for name, tensor in master.items()}


@torch.no_grad()
def read_all(weights: Weights, data: Data) -> tuple[Tensor, Tensor]:
    """Vectors of all tokens, (T, 128), those of queries first, and these ones' weights."""
    asked = list(states(weights, data.queries))
    rows = [vectors(weights, x).half() for x in asked]
    rows += [vectors(weights, x).half() for x in states(weights, data.docs)]
    return torch.cat(rows), torch.cat([term_weights(weights, x) for x in asked])


def six_layers(strong: Weights, data: Data, steps: int) -> Weights:
    """Layers leave one by one, the one first that is missed least, while the rest learn what all
    twelve make of each token."""
    some = Texts(data.docs.ids[:40_000].cpu().numpy(), np.full(200, 200))  # any texts will do
    whole, wanted = read_all(strong, data), token_vectors(strong, some)
    weights = strong
    settings: dict[str, Any] = {"head_rate": 1e-3, "frozen": 0, "whole": whole}
    while len(layers := layer_numbers(weights)) > 6:
        near = {}
        for number in layers:
            kept = [other for other in layers if other != number]
            near[number] = float((token_vectors(weights, some, kept) * wanted).sum(1).mean())
        least = max(near, key=near.__getitem__)
        fewer = {n: t for n, t in weights.items() if f"encoder.layers.{least}." not in n}
        weights = train(fewer, data, f"without {least}", 250, 1e-4, mean_from=1, **settings)
    return train(weights, data, "six", steps, 1.5e-4, mean_from=0.85, seed=30, **settings)


def back(trained: Weights, start: Weights, share: float) -> Weights:
    """The encoder so much of the way from where it began; the head as trained."""
    return {
        name: start[name].lerp(tensor, share) if name.startswith("encoder.") else tensor
        for name, tensor in trained.items()
    }


def mix(first: Weights, second: Weights, share: float) -> Weights:
    """So much of the first, the rest of the second."""
    return {name: second[name].lerp(tensor, share) for name, tensor in first.items()}


def main() -> None:
    """Two runs, their mean, some of the way back, and six layers of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=4100, help="of each of the two runs")
    parser.add_argument("--six", type=int, default=7100, help="steps of six layers; 0: none")
    asked = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    begun, data = time.monotonic(), Data(asked.folder)
    arrays = np.load(asked.folder / "eval.npz")
    dev = [Judged(arrays, name, "dev") for name in DEV]
    start = begin(read_weights(np.load(asked.folder / "colbert.npz")), data.docs)
    runs = [
        train(start, data, f"rate {rate}", asked.steps, rate, seed=seed)
        for seed, rate in ((11, 6e-5), (12, 4e-5))
    ]
    mean = mix(runs[0], runs[1], 0.5)
    tried = {f"run {number}": run for number, run in enumerate(runs)}
    tried |= {f"{share} of the way": back(mean, start, share) for share in (1.0, 0.85, 0.7, 0.5)}
    worth = {label: measure(weights, dev, label) for label, weights in tried.items()}
    strong = tried[max(worth, key=worth.__getitem__)]
    found = {"strong": strong}
    if asked.six:
        found["six"] = six_layers(strong, data, asked.six)
    for name, weights in found.items():
        tests = sorted({key.rsplit("/", 1)[0] for key in arrays.files if key.count("/") == 2})
        splits = [place.split("/") for place in tests if not place.endswith("/dev")]
        measure(weights, [Judged(arrays, *place) for place in splits], f"{name}, test queries")
        halves: dict[str, Any] = {n: t.half().cpu().numpy() for n, t in weights.items()}
        np.savez(asked.folder / f"trained-{name}.npz", **halves)
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
