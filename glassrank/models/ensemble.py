"""Ensembles: several models, the mean of their raw scores.

S. Hofstätter, M. Zlabinger, A. Hanbury, "TU Wien @ TREC Deep Learning '19", run TUW19-p3. Members
may be of any family and have word vectors of their own, but share one vocabulary. An ensemble is
used as any other model: what it encodes is its members' encodings, side by side in one `Words`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from glassrank.errors import InputError
from glassrank.models.contract import Output, PieceText, Ranker, TokenBatch, Words


@dataclass(frozen=True)
class Member:
    """What one model of an ensemble is, and how many words it reads."""

    model: str
    config: Any
    query_length: int
    doc_length: int


@dataclass(frozen=True)
class EnsembleConfig:
    """Its members, in order."""

    members: tuple[Member, ...]


@dataclass(frozen=True)
class _Shape:
    """Of one member's encodings: words at most, and the axes of what it has for each word."""

    longest: int
    axes: tuple[int, ...]


class Ensemble(Ranker):
    """`lengths` are each member's own query and document lengths. Parts carry the member's number,
    as in `0.log`; summands have the member's share in the mean, so that they still add up."""

    name = "ensemble"
    config_type = EnsembleConfig

    def __init__(self, members: Sequence[Ranker], lengths: Sequence[tuple[int, int]]) -> None:
        if not members or any(list(member.rankers()) != [member] for member in members):
            raise InputError("an ensemble needs one model or more, and none that is an ensemble")
        described = zip(members, lengths, strict=True)
        super().__init__(EnsembleConfig(tuple(Member(m.name, m.config, *n) for m, n in described)))
        self.members = nn.ModuleList(members).eval()
        self.reads_pieces = any(member.reads_pieces for member in members)
        self.exact = all(member.exact for member in members)
        self.stores_words = all(member.stores_words for member in members)
        self.summands = tuple(
            f"{number}.{name}" for number, member in enumerate(members) for name in member.summands
        )
        weights = [member.first_stage_weight for member in members]
        if any(weight is not None for weight in weights):
            # The mean of w * s over members is that of w, times s.
            total = sum(weight.item() for weight in weights if weight is not None)
            super().mix_first_stage(total / len(members))
        with torch.no_grad():
            self._query_shapes = [
                _shape(member.encode_query(_any_text(member)), member, "query_length", length)
                for member, (length, _) in zip(members, lengths, strict=True)
            ]
            self._doc_shapes = [
                _shape(member.encode_doc(_any_text(member)), member, "doc_length", length)
                for member, (_, length) in zip(members, lengths, strict=True)
            ]

    def mix_first_stage(self, weight: float = 0.1) -> None:
        for member in self.rankers():
            member.mix_first_stage(weight)
        super().mix_first_stage(weight)

    def encode_query(self, batch: TokenBatch) -> Words:
        described = zip(self.rankers(), self.config.members, strict=True)
        encoded = [m.encode_query(_cut(batch, member.query_length)) for m, member in described]
        return _side_by_side(encoded, batch.mask)

    def encode_doc(self, batch: TokenBatch) -> Words:
        described = zip(self.rankers(), self.config.members, strict=True)
        encoded = [m.encode_doc(_cut(batch, member.doc_length)) for m, member in described]
        return _side_by_side(encoded, batch.mask)

    def interact(self, query: Words, doc: Words) -> Output:
        queries, docs = _apart(query, self._query_shapes), _apart(doc, self._doc_shapes)
        share = 1 / len(self.members)
        score = torch.zeros(len(query.mask), device=query.mask.device)  # (B,)
        parts: dict[str, Tensor] = {}
        for number, member in enumerate(self.rankers()):
            out = member.interact(queries[number], docs[number])
            score = score + share * out.score
            for name, part in out.parts.items():
                parts[f"{number}.{name}"] = share * part if name in member.summands else part
        return Output(score, parts)

    def rankers(self) -> Sequence[Ranker]:
        return [member for member in self.members if isinstance(member, Ranker)]

    @property
    def piece_text(self) -> PieceText | None:
        """Its members must read texts alike."""
        texts = {member.piece_text for member in self.rankers()}
        if len(texts) > 1:
            raise InputError("an ensemble's members must read texts alike; these do not")
        (text,) = texts
        return text


def _any_text(member: Ranker) -> TokenBatch:
    """To see what a member makes of it: stored encodings come back without their shape."""
    ids = torch.ones(1, 1, dtype=torch.long, device=next(member.parameters()).device)
    return TokenBatch(ids, ids.float())


def _shape(words: Words, member: Ranker, limit: str, length: int) -> _Shape:
    """Some members cut texts themselves, at a limit of their own."""
    longest = min(length, getattr(member.config, limit, length))
    return _Shape(longest, tuple(words.vectors.shape[2:]))


def _cut(batch: TokenBatch, length: int) -> TokenBatch:
    return TokenBatch(batch.ids[:, :length], batch.mask[:, :length])


def _side_by_side(encoded: Sequence[Words], mask: Tensor) -> Words:
    """Vectors (B, L, sum of all members' sizes) and idf (B, L, members); zeros where a member
    reads no further."""
    vectors, idf = [], []
    for words in encoded:
        missing = mask.shape[1] - words.mask.shape[1]
        vectors.append(functional.pad(words.vectors.flatten(2), (0, 0, 0, missing)))
        idf.append(functional.pad(words.idf, (0, missing)))
    return Words(torch.cat(vectors, 2), mask, torch.stack(idf, 2))


def _apart(words: Words, shapes: Sequence[_Shape]) -> list[Words]:
    """Each member's own again."""
    sizes = [math.prod(shape.axes) for shape in shapes]
    encodings = []
    for number, vectors in enumerate(torch.split(words.vectors, sizes, 2)):
        read = slice(shapes[number].longest)
        encoded = torch.unflatten(vectors[:, read], 2, shapes[number].axes)  # (B, L', ...)
        encodings.append(Words(encoded, words.mask[:, read], words.idf[:, read, number]))
    return encodings
