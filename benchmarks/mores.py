"""What encoding documents beforehand saves: the MORES paper's Table 4 for this machine.

    python benchmarks/mores.py                    # the CPU
    python benchmarks/mores.py --device cuda

One query of 16 pieces and 1,000 documents of 128 and of 512, models of BERT-base's size with random
weights: the time to rank, from the query's ids to all scores, with the BERT ranker, with MORES
encoding documents live, and with what a store keeps of them (S1, S2), which is in memory here. The
query is encoded in every figure, and this BERT ranker leaves out what nobody reads of its last
layer. All rankers take turns, and figures are medians of rounds after a warm-up. The BERT ranker
and live documents take long on a CPU: they are timed on `--part` documents and scaled up, which the
table says. On a GPU, S1 and S2 are replayed as one CUDA graph, as a server would that has its batch
shapes ready; beside that stands the time without; and S2 stands there in Triton's form
(`gpu_mores.py`), and in the plain form. Needs torch, numpy and safetensors. The last line is
JSON.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from glassrank_bench.measuring import processor
from torch import Tensor

from glassrank.backends.configs import EncoderConfig
from glassrank.models import TokenBatch, TokenEmbeddings
from glassrank.research.papers.bert import BERT, BERTConfig
from glassrank.research.papers.mores import MORES, MORESConfig

QUERY = 16
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass(frozen=True)
class Row:
    """One line of the table: what it ranks with, and what `rank` must be scaled by."""

    name: str
    rank: Callable[[], object]
    scale: float = 1.0
    bytes_per_doc: int = 0
    graph: bool = False


def random_ids(count: int, length: int, device: torch.device, seed: int = 0) -> TokenBatch:
    """No text is padded, and the mask, on the CPU, can say so without a wait for the GPU."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1000, 30_000, (count, length), generator=generator)
    return TokenBatch(ids.to(device), torch.ones(count, length))


def parts(count: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def rows_of(length: int, options: argparse.Namespace, device: torch.device) -> list[Row]:
    dtype = DTYPES[options.dtype]
    encoder = EncoderConfig(layers=options.layers)
    query, docs = random_ids(1, QUERY, device), random_ids(options.part, length, device, seed=1)
    some = parts(options.part, max(1, options.pieces_at_once // length))
    every = parts(options.documents, options.documents_at_once)
    scale = options.documents / options.part
    bert = BERT(BERTConfig(encoder)).to(device, dtype).eval()

    def live(model: BERT | MORES) -> Tensor:
        encoded = model.encode_query(query)
        return torch.cat(
            [
                model.interact(
                    encoded, model.encode_doc(TokenBatch(docs.ids[p], docs.mask[p]))
                ).score
                for p in some
            ]
        )

    def stored(model: MORES, kept: TokenEmbeddings) -> Tensor:
        encoded = model.encode_query(query)
        return torch.cat([model.interact(encoded, kept.rows(p)).score for p in every])

    def projected(model: MORES, kept: TokenEmbeddings) -> Callable[[], Tensor]:
        """S2 as a GPU takes it: rows as a store has them, and a query that may be padded."""
        from glassrank.research.papers.gpu_mores import StoredMORES

        fast, rows = StoredMORES(model), kept.vectors.flatten(0, 1).flatten(1)  # (T, S)
        starts = length * torch.arange(options.documents, device=device)
        lengths = torch.full_like(starts, length, dtype=torch.int32)
        own = TokenBatch(query.ids, query.mask.to(device))

        def rank() -> Tensor:
            return fast.scores(fast.encode_query(own).vectors, rows, None, starts, lengths)

        agree(rank(), stored(model, kept), dtype)
        return rank

    rows = [Row("BERT ranker", lambda: live(bert), scale)]
    for blocks in options.blocks:
        model = MORES(MORESConfig.like(encoder, blocks)).to(device, dtype).eval()
        few = model.encode_doc(TokenBatch(docs.ids[:8], docs.mask[:8]))
        s1 = repeated(few, options.documents)
        s2 = repeated(model.project(few), options.documents)
        check(model, query, few)
        rows.append(Row(f"MORES {blocks} x IB, live", partial(live, model), scale))
        for name, kept in (("S1", s1), ("S2", s2)):
            size = kept.vectors[0].numel() * kept.vectors.element_size()
            rank: Callable[[], Tensor] = partial(stored, model, kept)
            if name == "S2" and device.type == "cuda":
                rows.append(Row(f"MORES {blocks} x IB, S2 plain", rank, 1.0, size, graph=True))
                rank = projected(model, kept)
            rows.append(Row(f"MORES {blocks} x IB, {name}", rank, 1.0, size, graph=True))
    return rows


def repeated(few: TokenEmbeddings, count: int) -> TokenEmbeddings:
    """Real encodings, as often as needed: what is in them takes no more or less time."""
    which = torch.arange(count) % len(few.mask)
    mask = few.mask[which]
    return TokenEmbeddings(few.vectors[which.to(few.vectors.device)], mask, mask)


def check(model: MORES, query: TokenBatch, doc: TokenEmbeddings) -> None:
    """Reuse changes no score, beyond this dtype's rounding."""
    encoded = model.encode_query(query)
    s1, s2 = model.interact(encoded, doc).score, model.interact(encoded, model.project(doc)).score
    agree(s1, s2, doc.vectors.dtype)


def agree(one: Tensor, other: Tensor, dtype: torch.dtype) -> None:
    limit = 1e-5 if dtype == torch.float32 else 5e-2
    assert float((one - other).abs().max()) <= limit, (one, other)


def replayed(rank: Callable[[], object]) -> Callable[[], object]:
    """The same work recorded once: a GPU then does not wait for Python between its small steps."""
    torch.cuda.synchronize()
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(side):
        rank()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        rank()
    return graph.replay


def seconds(
    jobs: dict[str, Callable[[], object]], rounds: int, device: torch.device
) -> dict[str, float]:
    """Medians, in turns: a noisy neighbour of this machine disturbs all alike."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(rounds + 1):
        for name, job in jobs.items():
            start = now(device)
            job()
            if turn:  # the first is the warm-up
                times[name].append(now(device) - start)
    return {name: statistics.median(found) for name, found in times.items()}


def now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{processor()}, {torch.get_num_threads()} threads"


def table(
    length: int, options: argparse.Namespace, device: torch.device
) -> list[dict[str, object]]:
    rows = rows_of(length, options, device)
    jobs = {row.name: row.rank for row in rows}
    if device.type == "cuda":
        jobs |= {f"{row.name}, graph": replayed(row.rank) for row in rows if row.graph}
    found = seconds(jobs, options.rounds, device)
    bert = found["BERT ranker"] * rows[0].scale
    results = []
    for row in rows:
        plain = found[row.name] * row.scale
        best = found.get(f"{row.name}, graph", plain)
        result = {
            "documents of": length,
            "ranker": row.name,
            "seconds": best,
            "ratio": bert / best,
            "seconds without graph": plain,
            "bytes for each document": row.bytes_per_doc,
            "timed documents": options.documents if row.scale == 1 else options.part,
        }
        scaled = "" if row.scale == 1 else f"  scaled from {options.part} documents"
        eager = f"  {plain:9.5f} s without graph" if best != plain else ""
        print(
            f"{length:>5}  {row.name:20} {best:9.4f} s  {bert / best:7.1f}x  "
            f"{row.bytes_per_doc / 1e6:7.2f} MB{eager}{scaled}",
            flush=True,
        )
        results.append(result)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu", help="cpu, cuda, or cuda:1")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--part", type=int, help="timed with BERT; 32 on the CPU, all on a GPU")
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--blocks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument(
        "--pieces-at-once", type=int, help="live; 4,096 on the CPU, 131,072 on a GPU"
    )
    parser.add_argument("--documents-at-once", type=int, help="stored; 32 on the CPU, all on a GPU")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    device = torch.device(options.device)
    large = device.type == "cuda"
    options.part = options.part or (options.documents if large else 32)
    options.pieces_at_once = options.pieces_at_once or (131_072 if large else 4096)
    options.documents_at_once = options.documents_at_once or (options.documents if large else 32)
    print(f"{device_name(device)}, torch {torch.__version__}, {options.dtype}")
    print(f"{options.documents:,} documents, a query of {QUERY} pieces")
    torch.manual_seed(0)
    with torch.inference_mode():
        found = [row for length in options.lengths for row in table(length, options, device)]
    print(json.dumps({"device": device_name(device), "dtype": options.dtype, "rows": found}))


if __name__ == "__main__":
    main()
