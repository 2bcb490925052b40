"""Published models by their ONNX graphs. The outputs of the graph decide the kind of model:

- one or two logits for a text: a cross-encoder (R. Nogueira, K. Cho, 2019);
- one vector for a text, or vectors of tokens that are pooled: a bi-encoder (Sentence-BERT, 2019);
- vectors of tokens that the folder says are compared one by one: late interaction (ColBERT, 2020).
"""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from glassrank.deadline import NEVER, Deadline
from glassrank.errors import InputError, wrap_file_errors, wrap_os_errors
from glassrank.models.io.model_folder import SavedModel, Usage
from glassrank.models.model import (
    Model,
    ModelInfo,
    Output,
    SubwordText,
    TokenBatch,
    TokenEmbeddings,
    check_score,
)
from glassrank.models.onnx_models import OnnxSession, find_best_matches
from glassrank.models.published_files import GRAPHS, read_bytes, read_json, read_pooling

if TYPE_CHECKING:
    from glassrank.text.subwords import PublishedTokenizer

TOKENIZER = "tokenizer.json"
_GRAPH_BYTES = 1 << 31
_LONGEST, _LONGEST_QUERY = 512, 64
_SCALE = np.float32(20.0)  # the scale of cosines, as in the training of sentence-transformers
_EPSILON = np.float32(1e-12)

Array = NDArray[Any]
Kind = Literal["cross-encoder", "bi-encoder", "late interaction"]
Pooled = Literal["mean", "cls", "none"]


@dataclass(frozen=True)
class PublishedConfig:
    """The settings in a folder's files."""

    graph: str
    output: str
    kind: Kind
    longest: int = _LONGEST
    """The longest input, in tokens."""
    pooling: Pooled = "none"
    query_prompt: str = ""
    doc_prompt: str = ""
    expanded_to: int = 0
    """The length of a query with mask tokens behind it, which take part in the score; 0 for
    none."""
    text: SubwordText = field(default_factory=SubwordText)


class PublishedRanker(Model):
    """Computes one text at a time, in the calling thread."""

    config: PublishedConfig
    words = None
    first_stage_weight = None

    def __init__(
        self,
        config: PublishedConfig,
        graph: bytes,
        session: OnnxSession,
        tokenizer: "PublishedTokenizer",
    ) -> None:
        self.config = config
        self.tokenizer = tokenizer
        self._graph = graph
        self._session = session
        self._prompts = {
            side: tokenizer.prompt(text) if text else []
            for side, text in (("query", config.query_prompt), ("doc", config.doc_prompt))
        }

    @property
    def device(self) -> None:
        return None

    def weight_chunks(self) -> Iterator[tuple[str, Iterator[NDArray[np.generic]]]]:
        """The graph, as its file has it."""
        yield "graph", iter([np.frombuffer(self._graph, np.uint8)])

    def rank(
        self, query: TokenEmbeddings, doc: TokenEmbeddings, first_stage: Array | None = None
    ) -> Output:
        """Published models have no first-stage weight."""
        return self.interact(query, doc)

    def compute(self, ids: Array, types: Array | None = None, attended: int | None = None) -> Array:
        """The graph's output for one text (L,)."""
        length = len(ids)
        mask = np.ones(length, np.int64)
        mask[length if attended is None else attended :] = 0
        given = {
            "input_ids": ids,
            "attention_mask": mask,
            "token_type_ids": np.zeros(length, np.int64) if types is None else types,
            "position_ids": np.arange(length),
        }
        inputs = {
            name: np.ascontiguousarray(given[name][None], _INTEGERS[value.type])
            for name, value in self._session.inputs.items()
        }
        (made,) = self._session.run(inputs, [self.config.output])
        return np.asarray(made[0], np.float32)


_INTEGERS = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")


class PublishedCrossEncoder(PublishedRanker):
    """Query and document as one text, and one score."""

    info = ModelInfo("cross_encoder", PublishedConfig, uses_subwords=True, is_cross_encoder=True)

    def encode_query(self, batch: TokenBatch) -> TokenEmbeddings:
        return TokenEmbeddings(batch.ids[..., None], batch.mask, batch.mask)

    def encode_doc(self, batch: TokenBatch, deadline: Deadline = NEVER) -> TokenEmbeddings:
        return self.encode_query(batch)

    def interact(self, query: TokenEmbeddings, doc: TokenEmbeddings) -> Output:
        """The logit, or the difference of two; one document at a time."""
        lengths = [values.mask.sum(1).astype(int).tolist() for values in (query, doc)]
        scores = np.zeros(len(doc.mask), np.float32)
        cut = np.zeros(len(doc.mask), np.int64)
        for row, length in enumerate(lengths[1]):
            asked = row if len(lengths[0]) > 1 else 0
            ids = query.vectors[asked, : lengths[0][asked], 0], doc.vectors[row, :length, 0]
            pair = self.tokenizer.joined(*ids, self.config.longest)
            whole = sum(len(self.tokenizer.content(text)) for text in ids)
            cut[row] = max(0, whole + self.tokenizer.around_pair - len(pair.ids))
            logits = self.compute(pair.ids, pair.types).reshape(-1)
            scores[row] = logits[-1] if len(logits) == 1 else logits[1] - logits[0]
        return Output(scores, {"cut": cut})


class _Encoder(PublishedRanker):
    """Encodes query and document apart, so that documents can be encoded before."""

    def encode_query(self, batch: TokenBatch) -> TokenEmbeddings:
        return self._encode(batch, "query", NEVER)

    def encode_doc(self, batch: TokenBatch, deadline: Deadline = NEVER) -> TokenEmbeddings:
        return self._encode(batch, "doc", deadline)

    def _encode(self, batch: TokenBatch, side: str, deadline: Deadline) -> TokenEmbeddings:
        made = []
        for row, length in enumerate(batch.mask.sum(1).astype(int).tolist()):
            deadline.check("these texts")
            made.append(self._rows(batch.ids[row, :length], side))
        longest = max(map(len, made), default=1)
        size = made[0].shape[1] if made else 1
        vectors = np.zeros((len(made), longest, size), np.float32)
        mask = np.zeros((len(made), longest), np.float32)
        for number, rows in enumerate(made):
            vectors[number, : len(rows)], mask[number, : len(rows)] = rows, 1
        return TokenEmbeddings(vectors, mask, mask)

    @abstractmethod
    def _rows(self, ids: Array, side: str) -> Array:
        """One text's unit vectors, (R, E)."""


class PublishedBiEncoder(_Encoder):
    """The cosine of two vectors, scaled."""

    info = ModelInfo(
        "bi_encoder",
        PublishedConfig,
        uses_subwords=True,
        stores_embeddings=True,
        single_vector=True,
    )

    def _rows(self, ids: Array, side: str) -> Array:
        states = self.compute(self.tokenizer.with_prompt(self._prompts[side], ids))
        pooling = self.config.pooling
        pooled = states if pooling == "none" else states[0] if pooling == "cls" else states.mean(0)
        return _unit(pooled.reshape(1, -1))

    def interact(self, query: TokenEmbeddings, doc: TokenEmbeddings) -> Output:
        cosine = np.einsum("bre,bre->b", *np.broadcast_arrays(query.vectors, doc.vectors))
        return Output(_SCALE * cosine, {"similarity": cosine[:, None, None]})


class PublishedLateInteraction(_Encoder):
    """Each query token counts as much as the document token most like it."""

    info = ModelInfo(
        "late_interaction", PublishedConfig, uses_subwords=True, stores_embeddings=True
    )

    def _rows(self, ids: Array, side: str) -> Array:
        ids = self.tokenizer.with_prompt(self._prompts[side], ids)
        attended = len(ids)
        if side == "query" and self.config.expanded_to > attended:
            mask = next(n for n in map(self.tokenizer.number, _MASKS) if n is not None)
            ids = np.concatenate([ids, np.full(self.config.expanded_to - attended, mask)])
        return _unit(self.compute(ids, attended=attended))

    def interact(self, query: TokenEmbeddings, doc: TokenEmbeddings) -> Output:
        similarity, best = find_best_matches(query, doc)  # (B, Q, D), (B, Q)
        return Output((best * query.mask).sum(1), {"similarity": similarity})


_MASKS = ("[MASK]", "<mask>")
_KINDS: dict[Kind, type[PublishedRanker]] = {
    "cross-encoder": PublishedCrossEncoder,
    "bi-encoder": PublishedBiEncoder,
    "late interaction": PublishedLateInteraction,
}


def _unit(rows: Array) -> Array:
    made: Array = rows / (np.linalg.norm(rows, axis=-1, keepdims=True) + _EPSILON)
    return made


def find_graph(folder: Path) -> str | None:
    """The graph of a published model, where the folder has one and a tokenizer beside it."""
    if not (folder / TOKENIZER).exists():
        return None
    return next((name for name in GRAPHS if (folder / name).exists()), None)


def load_published(folder: Path, graph: str) -> SavedModel:
    """Loads the model of a folder. Nothing of it is run but the graph."""
    # A machine that only trains may not have the tokenizer's packages.
    from glassrank.text.subwords import PublishedTokenizer

    with (
        wrap_os_errors(f"read {folder}"),
        wrap_file_errors(folder, "it does not hold a model that can be used"),
    ):
        content = read_bytes(folder / graph, _GRAPH_BYTES)
        tokenizer = PublishedTokenizer(read_bytes(folder / TOKENIZER))
        session = OnnxSession(content)
        config = _config(folder, graph, session)
        model = _KINDS[config.kind](config, content, session, tokenizer)
        usage = _usage(model)
        check_score(model, *(text.ids for text in tokenizer.encode(["a", "a"], 8)))
        return SavedModel(model, usage, tokenizer.vocabulary, tokenizer=tokenizer)


def _config(folder: Path, graph: str, session: OnnxSession) -> PublishedConfig:
    unknown = [name for name in session.inputs if name not in _INPUTS]
    if unknown or "input_ids" not in session.inputs:
        raise InputError(
            f"its graph takes {', '.join(unknown or session.inputs)[:80]}; expected input_ids, and "
            "of attention_mask, token_type_ids and position_ids what it needs"
        )
    theirs = read_json(folder / "config.json", optional=True)
    sentence = read_json(folder / "config_sentence_transformers.json", optional=True)
    longest = _longest(folder, theirs)
    shapes = {name: list(value.shape) for name, value in session.outputs.items()}
    if "logits" in shapes and len(shapes["logits"]) == 2:
        if shapes["logits"][1] not in (1, 2):
            raise InputError(
                f"its graph tells {shapes['logits'][1]} classes apart; expected 1 or 2"
            )
        return PublishedConfig(graph, "logits", "cross-encoder", longest)
    tokens = [name for name, shape in shapes.items() if len(shape) == 3]
    artifact = read_json(folder / "artifact.metadata", optional=True)
    query, doc = _prompts(sentence, artifact)
    if tokens and (artifact or sentence.get("similarity_fn_name") == "MaxSim"):
        expanded = sentence.get("query_length", artifact.get("query_maxlen", 0))
        fits = type(expanded) is int and 0 < expanded <= longest
        return PublishedConfig(
            graph,
            tokens[0],
            "late interaction",
            longest,
            query_prompt=query,
            doc_prompt=doc,
            expanded_to=expanded if fits and sentence.get("do_query_expansion", True) else 0,
        )
    if len(shapes.get("sentence_embedding", ())) == 2:
        return PublishedConfig(
            graph, "sentence_embedding", "bi-encoder", longest, "none", query, doc
        )
    if tokens:
        pooling = read_pooling(folder / "1_Pooling" / "config.json") or "mean"
        return PublishedConfig(graph, tokens[0], "bi-encoder", longest, pooling, query, doc)
    raise InputError(
        f"its graph gives {', '.join(shapes)[:80]}; expected logits, sentence_embedding, or a "
        "vector for each token"
    )


def _prompts(sentence: dict[str, Any], artifact: dict[str, Any]) -> tuple[str, str]:
    if artifact:
        query = artifact.get("query_token_id", "[unused0]")
        return str(query), str(artifact.get("doc_token_id", "[unused1]"))
    prompts = sentence.get("prompts") or {}
    doc = prompts.get("document", prompts.get("passage", sentence.get("document_prefix", "")))
    return str(prompts.get("query", sentence.get("query_prefix", ""))), str(doc)


def _longest(folder: Path, config: dict[str, Any]) -> int:
    """The longest input, from the first file that has it."""
    settings = (
        read_json(folder / "sentence_bert_config.json", optional=True).get("max_seq_length"),
        read_json(folder / "tokenizer_config.json", optional=True).get("model_max_length"),
        config.get("max_position_embeddings"),
    )
    known = [value for value in settings if type(value) is int and 8 <= value <= 10_000]
    return known[0] if known else _LONGEST


def _usage(model: PublishedRanker) -> Usage:
    longest = model.config.longest
    query = min(_LONGEST_QUERY, longest // 2)
    if model.info.is_cross_encoder:
        tokenizer = model.tokenizer
        # Each text is counted with what stands around it alone.
        room = longest - tokenizer.around_pair + 2 * sum(tokenizer.around)
        return Usage(query_length=query, doc_length=room - query)
    prompts = max(map(len, model._prompts.values()))
    query = model.config.expanded_to or query
    return Usage(query_length=query - prompts, doc_length=longest - prompts)
