"""Ensembles: several models, the mean of their raw scores.

S. Hofstätter, M. Zlabinger, A. Hanbury, "TU Wien @ TREC Deep Learning '19", run TUW19-p3. Members
may be of any family and have word vectors of their own, but share one vocabulary. An ensemble is
used as any other model: its token embeddings are those of its members, side by side.
"""

import math
import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glassrank.errors import InputError
from glassrank.models.families import ENSEMBLE
from glassrank.models.io.model_folder import (
    CARD,
    CONFIG,
    FORMAT,
    VOCABULARY,
    WEIGHTS,
    ModelConfig,
    SavedModel,
    Usage,
    load_config,
    write_config,
)
from glassrank.models.io.torch_files import FILE_NAMES, load_files
from glassrank.models.model import ModelInfo, Output, SubwordText, TokenBatch, TokenEmbeddings
from glassrank.models.torch_models import Ranker
from glassrank.research.papers.pacrr import cut, lengthen
from glassrank.settings import from_plain, to_plain
from glassrank.storage.atomic_folders import (
    MANIFEST,
    open_checksummed_files,
    write_checksummed_folder,
)
from glassrank.storage.folders import Folder

_MOST_MEMBERS = 100


@dataclass(frozen=True)
class Member:
    """A member's family and settings, and how many tokens it reads."""

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
    """Of one member's encodings: the most tokens, and the axes of each token's vector."""

    longest: int
    axes: tuple[int, ...]


class Ensemble(Ranker):
    """`lengths` are each member's own query and document lengths. Parts carry the member's number,
    as in `0.log`; summands have the member's share in the mean, so that they still add up."""

    info = ModelInfo(ENSEMBLE, EnsembleConfig)

    def __init__(self, members: Sequence[Ranker], lengths: Sequence[tuple[int, int]]) -> None:
        if not members or any(list(member.rankers()) != [member] for member in members):
            raise InputError("an ensemble needs one model or more, and none that is an ensemble")
        described = zip(members, lengths, strict=True)
        super().__init__(EnsembleConfig(tuple(Member(m.name, m.config, *n) for m, n in described)))
        self.members = nn.ModuleList(members).eval()
        infos = [member.info for member in members]
        self.info = replace(
            self.info,
            uses_subwords=any(info.uses_subwords for info in infos),
            is_additive=all(info.is_additive for info in infos),
            stores_embeddings=all(info.stores_embeddings for info in infos),
            summands=tuple(f"{number}.{s}" for number, i in enumerate(infos) for s in i.summands),
        )
        weights = [member.first_stage_weight for member in members]
        if any(weight is not None for weight in weights):
            # The mean of w * s over members is that of w, times s.
            total = sum(weight.item() for weight in weights if weight is not None)
            super().mix_first_stage(total / len(members))
        with torch.no_grad():
            self._query_shapes = [
                _shape(member, member.encode_query, "query_length", length)
                for member, (length, _) in zip(members, lengths, strict=True)
            ]
            self._doc_shapes = [
                _shape(member, member.encode_doc, "doc_length", length)
                for member, (_, length) in zip(members, lengths, strict=True)
            ]

    def mix_first_stage(self, weight: float = 0.1) -> None:
        for member in self.rankers():
            member.mix_first_stage(weight)
        super().mix_first_stage(weight)

    def encode_query(self, batch: TokenBatch) -> TokenEmbeddings:
        described = zip(self.rankers(), self.config.members, strict=True)
        encoded = [m.encode_query(cut(batch, member.query_length)) for m, member in described]
        return _side_by_side(encoded, batch.mask)

    def encode_doc(self, batch: TokenBatch) -> TokenEmbeddings:
        described = zip(self.rankers(), self.config.members, strict=True)
        encoded = [m.encode_doc(cut(batch, member.doc_length)) for m, member in described]
        return _side_by_side(encoded, batch.mask)

    def interact(self, query: TokenEmbeddings, doc: TokenEmbeddings) -> Output:
        queries, docs = _apart(query, self._query_shapes), _apart(doc, self._doc_shapes)
        share = 1 / len(self.members)
        score = torch.zeros(len(query.mask), device=query.mask.device)  # (B,)
        parts: dict[str, Tensor] = {}
        for number, member in enumerate(self.rankers()):
            out = member.interact(queries[number], docs[number])
            score = score + share * out.score
            for name, part in out.parts.items():
                parts[f"{number}.{name}"] = share * part if name in member.info.summands else part
        return Output(score, parts)

    def rankers(self) -> Sequence[Ranker]:
        return [member for member in self.members if isinstance(member, Ranker)]

    @property
    def subword_text(self) -> SubwordText | None:
        """The same for all members."""
        texts = {member.subword_text for member in self.rankers()}
        if len(texts) > 1:
            raise InputError("an ensemble's members must read texts alike; these do not")
        (text,) = texts
        return text


def _shape(
    member: Ranker, encode: Callable[[TokenBatch], TokenEmbeddings], limit: str, length: int
) -> _Shape:
    """As a text of one token shows. Some members cut texts at a limit of their own."""
    ids = torch.ones(1, 1, dtype=torch.long, device=member.device)
    axes = encode(TokenBatch(ids, ids.float())).vectors.shape[2:]
    return _Shape(min(length, getattr(member.config, limit, length)), tuple(axes))


def _side_by_side(encoded: Sequence[TokenEmbeddings], mask: Tensor) -> TokenEmbeddings:
    """Vectors (B, L, sum of all members' sizes) and idf (B, L, members); zeros where a member
    reads no further."""
    padded = [lengthen(words, mask.shape[1]) for words in encoded]
    vectors = torch.cat([words.vectors.flatten(2) for words in padded], 2)
    return TokenEmbeddings(vectors, mask, torch.stack([words.idf for words in padded], 2))


def _apart(words: TokenEmbeddings, shapes: Sequence[_Shape]) -> list[TokenEmbeddings]:
    """Splits them into each member's own again."""
    encodings = []
    vectors = torch.split(words.vectors, [math.prod(shape.axes) for shape in shapes], 2)
    for flat, idf, shape in zip(vectors, words.idf.unbind(2), shapes, strict=True):
        encoded = TokenEmbeddings(torch.unflatten(flat, 2, shape.axes), words.mask, idf)
        encodings.append(cut(encoded, shape.longest))  # (B, L', ...)
    return encodings


def load_ensemble(folder: Folder, stored: ModelConfig, trusted: Collection[str] = ()) -> SavedModel:
    """Loads an ensemble's members, each from the folder of its name."""
    names = stored.members
    if not 1 <= len(names) <= _MOST_MEMBERS or len(set(names)) < len(names):
        raise InputError(f"{folder.path}: an ensemble has 1 to {_MOST_MEMBERS} different members")
    members = [_load_member(folder, name, trusted) for name in names]
    first = members[0]
    if any(
        (member.vocabulary, member.unknown_buckets) != (first.vocabulary, first.unknown_buckets)
        for member in members
    ):
        raise InputError(f"{folder.path}: an ensemble's members must have one vocabulary")
    lengths = [(member.usage.query_length, member.usage.doc_length) for member in members]
    model = Ensemble([member.model for member in members], lengths)
    return SavedModel(model.eval(), stored.usage, first.vocabulary)


def _load_member(folder: Folder, name: str, trusted: Collection[str]) -> SavedModel:
    with folder.child(name) as inner:
        files = open_checksummed_files(inner, "model", "make the ensemble again")
        if load_config(files).model == ENSEMBLE:
            raise InputError(f"{inner.path} is an ensemble, and no ensemble has one in it")
        return load_files(files, trusted)


def save_ensemble(
    folder: Path,
    members: Sequence[Path],
    usage: Usage,
    card: str,
    *,
    trusted: Collection[str] = (),
) -> None:
    """Saves an ensemble: copies the members' folders as 0, 1, and so on."""
    names = [str(number) for number in range(len(members))]
    config = {"format": FORMAT, "model": ENSEMBLE, "members": names, "usage": to_plain(usage)}
    with write_checksummed_folder(folder, "model", FILE_NAMES, beside=CARD) as part:
        for name, member in zip(names, members, strict=True):
            _copy(member, part / name)
        write_config(part, config)
        (part / CARD).write_text(card, "utf-8")
        with Folder.open(part) as written:  # what cannot be opened is not written
            load_ensemble(written, from_plain(ModelConfig, config), trusted)


def _copy(member: Path, target: Path) -> None:
    """Copies the files of a model folder, and no others."""
    target.mkdir()
    with Folder.open(member) as source, Folder.open(target) as copy:
        for name in (CONFIG, WEIGHTS, VOCABULARY, CARD, MANIFEST):
            if source.kind(name):
                with source.open_file(name) as file, copy.create(name) as new:
                    shutil.copyfileobj(file, new)
