"""Trains the last layers of an encoder, its projection and its head on lists with clicks.

The layers below stay as they are. Their states of a document are computed once and kept, so that
two cores can train in minutes.
"""

import copy
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from glassrank.backends.gpu import get_device
from glassrank.backends.onnx_encoders import Quantized
from glassrank.backends.transformer import run_layers
from glassrank.errors import InputError
from glassrank.index import Index
from glassrank.models.bi_encoders import KernelBERT
from glassrank.models.io.model_folder import Usage
from glassrank.models.io.torch_files import save_model
from glassrank.models.model import TokenEmbeddings, make_batch, to_array
from glassrank.models.text_batches import batch_by_length
from glassrank.rerank import Reranker
from glassrank.research.learn.examples import Example

_RATE, _RATE_OF_HEAD = 5e-5, 1.5e-4
_BATCH, _EPOCHS, _WARM_UP = 16, 1, 10
"""Queries of a step, passes over all queries, steps of warm-up."""
_DISTILLATION = 0.3
"""What the old model's scores count in the loss, beside a click."""
_DOCS, _NOT_SHOWN = 6, 1
"""Documents of a query in a step, and how many of them were not shown."""
_EVERY = 20
"""Steps between lines of progress."""
_TOKENS_AT_ONCE, _MOST_KEPT = 2_048, 2_000_000
"""Tokens of a padded batch, and those whose states are kept: 1.5 GB of `default`."""


class EncoderLearner:
    """A copy of a kernel model whose last layers learn. Documents are their first passages."""

    def __init__(
        self, index: Index, reranker: Reranker, layers: int | None = None, device: str = "cpu"
    ) -> None:
        """By default the last two layers learn on a CPU, and all on a GPU."""
        target = get_device(device)
        load = reranker.saved.load_trained
        assert load is not None  # ONNX Runtime computes it
        model = load().model.to(target).eval()  # without dropout
        assert isinstance(model, KernelBERT)
        stack = model.encoder.stack()
        if layers is None:
            layers = 2 if target.type == "cpu" else len(stack)
        if not 1 <= layers <= len(stack):
            raise InputError(f"{reranker.name} has {len(stack)} layers; {layers} cannot learn")
        self._model, self._device = model.requires_grad_(requires_grad=False), target
        self._old_model = copy.deepcopy(model)
        self._frozen, self._layers = stack[:-layers], layers
        self._in_layers = [each for layer in stack[-layers:] for each in layer.parameters()]
        named = model.named_parameters()
        self._in_head = [each for name, each in named if not name.startswith("encoder.")]
        self._old = [each.detach().clone() for each in self._weights]
        self._new, self._share = self._old, 0.0
        self._index, self._reranker = index, reranker
        self._states: dict[int, Tensor] = {}
        self._kept = 0

    @property
    def _weights(self) -> list[nn.Parameter]:
        return [*self._in_layers, *self._in_head]

    def learn(
        self,
        examples: Sequence[Example],
        ending: float,
        rng: np.random.Generator,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """AdamW (I. Loshchilov, F. Hutter, ICLR 2019), until the time or the passes are over."""
        rates = (self._in_layers, _RATE), (self._in_head, _RATE_OF_HEAD)
        groups = [{"params": weights, "lr": rate, "base": rate} for weights, rate in rates]
        optimizer = torch.optim.AdamW(groups, weight_decay=0.0)
        scale = float(np.mean([example.gains.sum() for example in examples]))
        began, steps = time.monotonic(), max(1, _EPOCHS * len(examples) // _BATCH)
        order: list[int] = []
        for weight in self._weights:
            weight.requires_grad = True
        for step in range(steps):
            past = max(step / steps, (time.monotonic() - began) / max(ending - began, 1e-9))
            if past >= 1:
                break
            for group in optimizer.param_groups:
                group["lr"] = group["base"] * min((step + 1) / _WARM_UP, 1 - past)
            while len(order) < _BATCH:
                order = [*order, *rng.permutation(len(examples)).tolist()]
            batch, order = order[:_BATCH], order[_BATCH:]
            self._step(optimizer, [_sample(examples[place], rng) for place in batch], scale)
            if (step + 1) % _EVERY == 0:
                say(f"step {step + 1:,} of at most {steps:,}")
        for weight in self._weights:
            weight.requires_grad = False
        self._new, self._share = [each.detach().clone() for each in self._weights], 1.0

    def _step(
        self, optimizer: torch.optim.Optimizer, batch: Sequence[Example], scale: float
    ) -> None:
        """By the cross-entropy of the softmax over each list with its gains, and with the softmax
        of the old model's scores: clicks are few and noisy, and what the model knew is to stay."""
        optimizer.zero_grad()
        lengths = [len(example.docs) for example in batch]
        with torch.no_grad():
            old_scores = torch.split(self._score(batch, self._old_model), lengths)
        scores = torch.split(self._score(batch, self._model), lengths)
        loss = torch.zeros((), device=self._device)
        for example, own, old in zip(batch, scores, old_scores, strict=True):
            target = torch.from_numpy(example.gains / scale).to(own) + _DISTILLATION * old.softmax(
                0
            )
            loss = loss - (target * own.log_softmax(0)).sum() / len(batch)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self._weights, 1.0)
        optimizer.step()

    @torch.no_grad()
    def score(self, example: Example, share: float) -> NDArray[np.float32]:
        """Scores (n,) of all candidates, a share of the way from the old weights to the new."""
        self._set_share(share)
        return to_array(self._score([example], self._model)).astype(np.float32)

    def _set_share(self, share: float) -> None:
        if share == self._share:
            return
        self._share = share
        for weight, old, new in zip(self._weights, self._old, self._new, strict=True):
            weight.data = torch.lerp(old, new, share)

    def _score(self, examples: Sequence[Example], model: KernelBERT) -> Tensor:
        """Scores of all candidates of all examples, one after another."""
        texts = [self._reranker.read_query(example.text).ids for example in examples]
        queries = self._encode(self._run_frozen(texts), model)
        which = np.repeat(np.arange(len(examples)), [len(example.docs) for example in examples])
        first_scores = np.concatenate([example.first_scores for example in examples])
        states = self._doc_states(np.concatenate([example.docs for example in examples]).tolist())
        scores, places = [], []
        lengths = np.array([len(own) for own in states])
        for part in batch_by_length(lengths, _TOKENS_AT_ONCE):
            docs = self._encode([states[place] for place in part], model)
            first = torch.from_numpy(first_scores[part]).to(self._device)
            scores.append(model.rank(queries.rows(which[part]), docs, first).score)
            places.append(part)
        return torch.cat(scores)[np.argsort(np.concatenate(places))]

    def _encode(self, states: Sequence[Tensor], model: KernelBERT) -> TokenEmbeddings:
        """Texts from what the frozen layers made of them."""
        x = nn.utils.rnn.pad_sequence(list(states), batch_first=True).float()  # (B, L, H)
        lengths = torch.tensor([len(own) for own in states])
        mask = (torch.arange(x.shape[1]) < lengths[:, None]).float().to(self._device)  # (B, L)
        layers = model.encoder.stack()[-self._layers :]
        x = run_layers(layers, x, model.encoder.bias(mask, x))
        return TokenEmbeddings(model.vectors(x), mask, model.weights(x) * mask)

    @torch.no_grad()
    def _run_frozen(self, ids: Sequence[NDArray[np.int32]]) -> list[Tensor]:
        """What the frozen layers make of each text, (L, H)."""
        batch, encoder = make_batch(ids, self._device), self._model.encoder
        x = encoder(batch.ids, batch.mask, layers=self._frozen)
        return [own[: len(text)].half() for own, text in zip(x, ids, strict=True)]

    def _doc_states(self, numbers: Sequence[int]) -> list[Tensor]:
        if self._kept > _MOST_KEPT:
            self._states, self._kept = {}, 0
        missing = [number for number in dict.fromkeys(numbers) if number not in self._states]
        docs = [self._index.snapshot.doc(number) for number in missing]
        texts = [read.passages[0].ids for read in self._reranker.read(docs)]
        lengths = np.array([len(text) for text in texts])
        for part in batch_by_length(lengths, _TOKENS_AT_ONCE):
            frozen = self._run_frozen([texts[place] for place in part])
            self._states |= {missing[p]: own for p, own in zip(part, frozen, strict=True)}
        self._kept += int(lengths.sum())
        return [self._states[number] for number in numbers]

    def save(self, folder: Path, share: float, usage: Usage, card: str) -> None:
        """Writes a model folder that appears whole or not at all, in the dtypes of the old one."""
        self._set_share(share)
        arrays = self._reranker.model.weights.arrays.values()
        bits = "int8" if any(isinstance(array, Quantized) for array in arrays) else "float32"
        vocabulary = self._reranker.saved.vocabulary
        save_model(folder, self._model, usage, vocabulary, card, vectors=bits, layers=bits)


def _sample(example: Example, rng: np.random.Generator) -> Example:
    """What was clicked, some of what was shown, and one that was not."""
    is_good = example.gains > 0
    is_shown = np.arange(len(example.docs)) < example.shown
    good = np.flatnonzero(is_good)
    shown = rng.permutation(np.flatnonzero(is_shown & ~is_good))
    other = rng.permutation(np.flatnonzero(~is_shown & ~is_good))
    count = max(1, _DOCS - _NOT_SHOWN - len(good))
    return example.choose(np.concatenate([good, shown[:count], other[:_NOT_SHOWN]]))
