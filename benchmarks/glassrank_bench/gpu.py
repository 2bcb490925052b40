"""What a GPU takes to re-rank: stored words, a whole query, and texts encoded live.

1,000 documents of 200 words, vectors of 300 numbers, queries of 30 words, eleven kernels; and for
kernels over a pretrained encoder, vectors of 128 and queries of 12 pieces. Times are medians of
replayed CUDA graphs, taking turns among eight sets of documents, which are more than the cache
holds. Needs torch, triton, numpy and safetensors alone.
"""

import statistics
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from glassrank.backends.configs import EncoderConfig
from glassrank.models import EmbeddingTable, TokenBatch, TokenEmbeddings
from glassrank.models.bi_encoders import KernelBERT
from glassrank.models.late_interaction import KernelBERTConfig, TKConfig
from glassrank.rerank.torch_backend import Replayed
from glassrank.research.papers.gpu_contextual import ContextualOnGPU
from glassrank.research.papers.tk import TK
from glassrank_bench.measuring import Case, MissingError, Result
from glassrank_bench.workloads import OUR_FORM

_DEVICE = "cuda"
_DOCS, _LENGTH, _SIZE, _STRIDE, _QUERY, _SETS, _WORDS = 1000, 200, 300, 320, 30, 8, 30_000
_PIECES, _PIECE_SIZE = 12, 128
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "int8": torch.int8}


def cases() -> list[Case]:
    return [
        Case("gpu-stored", lambda: _here(stored_words)),
        Case("gpu-query", lambda: _here(second_stage)),
        Case("gpu-live", lambda: _here(live_texts)),
        Case("gpu-pieces", lambda: _here(stored_pieces)),
    ]


def _here(measure: Callable[[], Sequence[Result]]) -> Sequence[Result]:
    if not torch.cuda.is_available():
        raise MissingError("there is no GPU that torch can use")
    torch.manual_seed(0)
    with torch.no_grad():
        return measure()


def replay_ms(calls: Sequence[Callable[[], object]], repeats: int = 30) -> float:
    """Median milliseconds of one call, all of them recorded in one graph."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())  # what is read may still be on its way
    with torch.cuda.stream(stream):
        for call in calls[:2]:
            call()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for call in calls:
                call()
    torch.cuda.synchronize()
    times: list[float] = []
    for _ in range(repeats + 5):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / len(calls))
    return statistics.median(times[5:])


class Stored:
    """Unit vectors of all sets in one tensor; documents stand in another order than they come."""

    def __init__(self, dtype: torch.dtype, size: int = _SIZE, stride: int = _STRIDE) -> None:
        rows = _SETS * _DOCS * _LENGTH
        self.vectors = torch.zeros(rows, stride, dtype=dtype, device=_DEVICE)  # (T, S)
        self.scales = torch.ones(rows, device=_DEVICE) if dtype == torch.int8 else None
        for part in torch.split(torch.arange(rows, device=_DEVICE), 200_000):
            made = functional.normalize(torch.randn(len(part), size, device=_DEVICE))
            if self.scales is not None:
                self.scales[part] = made.abs().amax(1) / 127
                made = (made / self.scales[part, None]).round()
            self.vectors[part, :size] = made.to(dtype)
        starts = torch.randperm(_SETS * _DOCS) * _LENGTH
        self.starts = torch.split(starts.to(_DEVICE), _DOCS)
        self.lengths = torch.full((_DOCS,), _LENGTH, dtype=torch.int32, device=_DEVICE)

    def scores(self, pooling: "Pooling", query: TokenEmbeddings, starts: Tensor) -> Tensor:
        return pooling.scores(query, self.vectors, self.scales, starts, self.lengths)


class Pooling:
    """A model's kernels and weights, which are the same for every query."""

    def __init__(self, model: TK | KernelBERT) -> None:
        self._readout, self._kernels = model.scoring_heads()[0], model.config.kernels

    def scores(
        self,
        query: TokenEmbeddings,
        vectors: Tensor,
        scales: Tensor | None,
        starts: Tensor,
        lengths: Tensor,
    ) -> Tensor:
        from glassrank.backends.gpu.kernels import pool_triton

        return pool_triton(
            query.vectors[0], query.idf[0], vectors, scales, starts, lengths,
            self._kernels, self._readout.log, self._readout.length,
        )  # fmt: skip


def _model() -> TK:
    table = EmbeddingTable(torch.randn(_WORDS, _SIZE, device=_DEVICE), trained=False)
    return TK(TKConfig(contextual=OUR_FORM, term_weights=True), table).to(_DEVICE).eval()


def _ids(docs: int, length: int) -> TokenBatch:
    ids = torch.randint(2, _WORDS, (docs, length), device=_DEVICE)
    return TokenBatch(ids, torch.ones(docs, length, device=_DEVICE))


def stored_words() -> Sequence[Result]:
    model = _model()
    pooling, query = Pooling(model), model.encode_query(_ids(1, _QUERY))
    results = []
    for name, dtype in _DTYPES.items():
        stored = Stored(dtype)
        calls = [lambda s=s, d=stored: d.scores(pooling, query, s) for s in stored.starts]
        target = None if name == "int8" else 0.06
        text = f"fused scoring of 1,000 documents, {name}"
        results.append(Result(text, replay_ms(calls), "ms", target, at_most=True))
    return results


def second_stage() -> Sequence[Result]:
    model = _model()
    model.contextual = ContextualOnGPU(model.contextual)  # type: ignore[assignment]
    seen = whole_ms(model.encode_query, Pooling(model), Stored(torch.bfloat16), 32)
    return [Result("whole second stage, query encoding included", seen, "ms", 0.3, at_most=True)]


def whole_ms(
    encode: Callable[[TokenBatch], TokenEmbeddings], pooling: Pooling, stored: Stored, length: int
) -> float:
    """From a query's ids on the host to a sorted list on the host, as a caller sees it."""

    def whole(ids: Tensor, mask: Tensor, starts: Tensor) -> Tensor:
        return stored.scores(pooling, encode(TokenBatch(ids, mask)), starts)

    stage = Replayed(whole, _DEVICE)
    inputs = [
        [tensor.cpu().pin_memory() for tensor in (*_ids(1, length), starts)]
        for starts in stored.starts
    ]
    walls = []
    for turn in range(220):
        begin = time.perf_counter()
        stage(*inputs[turn % _SETS]).sort(descending=True).indices.cpu()
        walls.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(walls[20:])


def stored_pieces() -> Sequence[Result]:
    """Of the sizes of `default` and `strong`."""
    return [*_pieces("default", layers=6, at_most=0.25), *_pieces("strong", layers=12, at_most=0.4)]


def _pieces(name: str, layers: int, at_most: float) -> Sequence[Result]:
    encoder = EncoderConfig(_WORDS, size=384, layers=layers, heads=12, feed_forward=1536)
    model = KernelBERT(KernelBERTConfig(encoder, size=_PIECE_SIZE)).to(_DEVICE).eval()
    pooling, stored = Pooling(model), Stored(torch.bfloat16, _PIECE_SIZE, _PIECE_SIZE)
    fast = model.bfloat16().gpu_query_encoder()
    assert fast is not None
    query = fast(_ids(1, _PIECES))
    calls = [lambda s=s: stored.scores(pooling, query, s) for s in stored.starts]
    whole = whole_ms(fast, pooling, stored, 16)  # queries are padded to so many
    return [
        Result(f"fused scoring, size of {name}", replay_ms(calls), "ms", 0.035, at_most=True),
        Result(f"whole second stage, size of {name}", whole, "ms", at_most, at_most=True),
    ]


def live_texts() -> Sequence[Result]:
    model = _model()
    batches = [_ids(_DOCS, _LENGTH) for _ in range(4)]
    pooling, query = Pooling(model), model.encode_query(_ids(1, _QUERY))
    starts = torch.arange(_DOCS, device=_DEVICE) * _LENGTH
    lengths = torch.full((_DOCS,), _LENGTH, dtype=torch.int32, device=_DEVICE)

    def plain(batch: TokenBatch) -> Tensor:
        scores: Tensor = model.interact(model.expand(query, _DOCS), model.encode_doc(batch)).score
        return scores

    def fast(batch: TokenBatch) -> Tensor:
        doc = model.encode_doc(batch)
        return pooling.scores(query, doc.vectors.flatten(0, 1), None, starts, lengths)

    slow = replay_ms([lambda: plain(batches[0])], 10)
    assert model.words is not None
    model.words.bfloat16()
    model.contextual = ContextualOnGPU(model.contextual)  # type: ignore[assignment]
    quick = replay_ms([lambda b=b: fast(b) for b in batches], 10)  # type: ignore[misc]
    details: dict[str, float | str] = {"plain_float32_ms": slow}
    return [Result("live TK, nothing stored", quick, "ms", 5.0, at_most=True, details=details)]
