"""Schemas of requests, and checks of their sizes."""

from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qsl

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from glassrank.index.filters import MAX_CONDITIONS, parse_filter
from glassrank.index.methods import parse_method
from glassrank.index.search import RM3
from glassrank.serve.error_responses import bad_request
from glassrank.serve.limits import Limits

Item = TypeVar("Item")

_MOST = Limits()
"""Default limits. Pydantic stops at the first error of a list, or when it is too long. The other
limits are only documented in the schema; `check` enforces those of the service."""
_LARGEST_SCORE = 1e6

_SHARE = r"0(\.[0-9]{1,9})?"
_BASE = rf"bm25(\(k1=[0-9]{{1,3}}(\.[0-9]{{1,9}})?(,b={_SHARE})?\))?|ql(\(mu=[1-9][0-9]{{0,8}}\))?"
_FEEDBACK = rf"\+rm3(\(terms=[1-9][0-9]?(,docs=[1-9][0-9]?)?(,weight={_SHARE})?\))?"
_METHOD = f"^({_BASE})({_FEEDBACK})?$"
"""The canonical spelling; `parse_method` accepts others."""


def _documented(**schema: Any) -> Any:
    return Field(json_schema_extra=schema)


def _list(most: int, **schema: Any) -> Any:
    return Field(fail_fast=True, max_length=most, json_schema_extra=schema)


Budget = Annotated[float, Field(gt=0, allow_inf_nan=False), _documented(maximum=_MOST.budget_ms)]
Count = Annotated[int, Field(ge=1), _documented(maximum=_MOST.k)]
DocId = Annotated[str, _documented(maxLength=_MOST.id_characters)]
Method = Annotated[str, _documented(maxLength=_MOST.name_characters, pattern=_METHOD)]
Name = Annotated[str, _documented(maxLength=_MOST.name_characters)]
QueryText = Annotated[str, _documented(maxLength=_MOST.query_characters, pattern=r"\S")]
QueryTexts = Annotated[list[QueryText], _list(_MOST.queries, minItems=1)]
Score = Annotated[float, Field(ge=-_LARGEST_SCORE, le=_LARGEST_SCORE)]
DocText = Annotated[str, _documented(maxLength=_MOST.text_characters)]
DocTexts = Annotated[list[DocText], _list(_MOST.changed_documents, minItems=1)]
DocFields = Annotated[
    dict[str, Any], _documented(properties={"text": {"type": "string"}}, required=["text"])
]
Documents = Annotated[list[DocText | DocFields], _list(_MOST.documents, minItems=1)]
Fields = Annotated[list[Name], _list(_MOST.rank_fields)]
Ids = Annotated[list[DocId], _list(_MOST.changed_documents, minItems=1, maxItems=2)]
Models = Annotated[list[Name], _list(_MOST.changed_documents, minItems=1, maxItems=2)]
Where = Annotated[dict[str, Any], _documented(maxProperties=MAX_CONDITIONS)]
Conditions = Annotated[list[Name], _list(MAX_CONDITIONS)]
Scores = Annotated[list[Score], _list(_MOST.changed_documents, minItems=1)]

_REPEATABLE = frozenset(("query", "where"))
"""Parameters that a URL may repeat."""
_STRICT = ConfigDict(extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)
_LENIENT = ConfigDict(extra="ignore", use_attribute_docstrings=True, allow_inf_nan=False)


class SearchRequest(BaseModel):
    """One query, or several that share one budget."""

    model_config = _STRICT

    query: QueryText | QueryTexts
    k: Count = 10
    """The number of hits."""
    budget_ms: Budget | None = None
    """For the whole request, from its arrival; the service has a default."""
    method: Method | None = None
    """The first stage: bm25, ql, bm25+rm3 or ql+rm3, with parameters as in bm25(k1=1.2)."""
    model: Name | None = None
    """A name from /info; `none` for the first stage alone."""
    where: Where | Conditions | None = None
    """Filters documents by their metadata: {"year": {">=": 2019}, "lang": ["en"]}, or
    ["year>=2019", "lang in en,de"]."""
    snippets: bool = True
    """False leaves out titles, sources and snippets, and saves their time."""
    stream: bool = False
    """Two lines of JSON for each query: the first stage's hits at once, then the final hits."""

    @property
    def queries(self) -> list[str]:
        """All queries, as a list."""
        return _as_list(self.query)

    def check(self, limits: Limits) -> None:
        """Raises if something is too large, or fields do not go together."""
        if not self.queries:
            raise bad_request("query: expected a query, or a list of them that is not empty")
        _at_most("query: the list", len(self.queries), limits.queries, "queries")
        for query in self.queries:
            check_query(query, limits)
        _at_most("k", self.k, limits.k, "results")
        total = self.k * len(self.queries)
        _at_most("k times the number of queries", total, limits.results, "results")
        _at_most("budget_ms", self.budget_ms or 0, limits.budget_ms, "milliseconds")
        check_names(limits, method=self.method, model=self.model)
        if self.where is not None:
            parse_filter(self.where)


def parse_search(query_string: bytes) -> SearchRequest:
    """The parameters of a URL; FastAPI's own parsing takes longer than a first stage."""
    pairs = parse_qsl(query_string.decode("latin-1"), keep_blank_values=True)
    values: dict[str, Any] = dict(pairs)
    for field in _REPEATABLE & values.keys():
        listed = [value for name, value in pairs if name == field]
        if len(listed) > 1 or field == "where":
            values[field] = listed
    try:
        return SearchRequest.model_validate(values)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        raise RequestValidationError(
            [{**each, "loc": ("query", *each["loc"])} for each in errors]
        ) from None


def describe_search_parameters() -> list[dict[str, Any]]:
    """The parameters of `GET /search` in the form of OpenAPI."""
    schema = SearchRequest.model_json_schema()
    _, several = schema["properties"]["query"]["anyOf"]
    schema["properties"]["query"] = {"description": "May be repeated.", **several}
    conditions = schema["properties"]["where"]["anyOf"][1]
    about = "Such as year>=2019; all must hold."
    schema["properties"]["where"] = {"description": about, **conditions}
    return [
        {"name": name, "in": "query", "required": name in schema["required"], "schema": field}
        for name, field in schema["properties"].items()
    ]


class Change(BaseModel):
    """Replaces or removes a word."""

    model_config = _STRICT

    side: Literal["query", "document"]
    word: Annotated[int, Field(ge=0)] | Name
    """Its number, or the word itself wherever it occurs."""
    by: Annotated[str, _documented(maxLength=_MOST.query_characters)] = ""
    """The replacement; empty to remove the word."""


class ExplainRequest(BaseModel):
    """A document of the index by its id, or any text; two of them; or one with two models."""

    model_config = ConfigDict(
        **_STRICT,
        json_schema_extra={"oneOf": [{"required": ["doc_id"]}, {"required": ["text"]}]},
    )

    query: QueryText
    doc_id: DocId | Ids = []
    text: DocText | DocTexts = []
    model: Name | Models = []
    """Names from /info; by default the service's first. Two models explain one document, or one of
    two documents each."""
    method: Method | None = None
    """The first stage whose score the model adds, as in /search."""
    first_score: Score | Scores | None = None
    """The first stage's score of each document, as /search returned it: saves computing it."""
    regularization: Score | Scores | None = None
    """What similar documents add to each document's score, as /search returned it."""
    change: Change | None = None
    """How a change of a word moves the first document among the first stage's hits, or among all
    of `text`."""

    @property
    def doc_ids(self) -> list[str]:
        """All ids, as a list."""
        return _as_list(self.doc_id)

    @property
    def texts(self) -> list[str]:
        """All texts, as a list."""
        return _as_list(self.text)

    @property
    def models(self) -> list[str]:
        """All names, as a list."""
        return _as_list(self.model)

    @property
    def first_scores(self) -> list[float] | None:
        """All scores, as a list; None if the service must compute them."""
        return None if self.first_score is None else _as_list(self.first_score)

    @property
    def regularizations(self) -> list[float] | None:
        """All values, as a list; None if the service must compute them."""
        return None if self.regularization is None else _as_list(self.regularization)

    def check(self, limits: Limits) -> None:
        """Raises if something is too large, or fields do not go together."""
        check_query(self.query, limits)
        if bool(self.doc_ids) == bool(self.texts):
            raise bad_request("expected one of doc_id and text")
        count = len(self.doc_ids or self.texts)
        if count > 2 and (self.change is None or self.doc_ids):
            raise bad_request(
                f"{'doc_id' if self.doc_ids else 'text'}: expected one or two, not {count}"
            )
        one_each = len(self.doc_ids) == len(self.models) == 2
        if len(self.models) > 1 and (
            (count > 1 and not one_each) or self.change or len(self.models) > 2
        ):
            raise bad_request(
                "model: two models explain one document, or one of two each, without a change"
            )
        for field in ("first_score", "regularization"):
            given = getattr(self, field)
            if given is not None and len(_as_list(given)) != count:
                raise bad_request(f"{field}: expected {count}, one for each document")
        if self.change is not None:
            _at_most("change.by", len(self.change.by), limits.query_characters, "characters")
            if isinstance(self.change.word, str):
                check_names(limits, word=self.change.word)
        check_names(limits, model=self.model, method=self.method)
        _at_most("text", len(self.texts), limits.documents, "documents")
        for number, text in enumerate(self.texts):
            _at_most(f"text.{number}", len(text), limits.text_characters, "characters")


class FeedbackRequest(BaseModel):
    """What a user did with a hit."""

    model_config = _STRICT

    query_id: Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
    """The search's, from its response."""
    doc_id: DocId
    action: Literal["click", "up", "down"]
    """It was opened, or rated with a thumb."""


class RerankRequest(BaseModel):
    """The format of Cohere and Jina. Fields that only their own models use are ignored."""

    model_config = _LENIENT

    query: QueryText
    documents: Documents
    """Texts, or objects with a `text`."""
    model: Name | None = None
    """A name from /info; any other name means the service's first model, with a warning."""
    top_n: Annotated[int, Field(ge=1)] | None = None
    rank_fields: Fields | None = None
    """The fields of an object that make up its text, in this order."""
    return_documents: bool | None = None
    max_chunks_per_doc: int | None = None
    """Ignored, as is max_tokens_per_doc: /info says how many words a model reads."""
    max_tokens_per_doc: int | None = None
    budget_ms: Budget | None = None
    """Documents that there is no time for follow below the others, ordered by BM25."""

    def check(self, limits: Limits) -> None:
        """Raises if something is too large, or fields do not go together."""
        check_query(self.query, limits)
        if not self.documents:
            raise bad_request("documents: expected at least one document")
        _at_most("documents", len(self.documents), limits.documents, "documents")
        _at_most("budget_ms", self.budget_ms or 0, limits.budget_ms, "milliseconds")
        check_names(limits, model=self.model, rank_fields=self.rank_fields)

    def texts(self, limits: Limits) -> list[str]:
        """The text of each document, or its `rank_fields`."""
        # Each field once: the text is never longer than the document.
        fields = list(dict.fromkeys(self.rank_fields or ["text"]))
        texts = []
        for number, document in enumerate(self.documents):
            if isinstance(document, str):
                text = document
            else:
                values = [document[field] for field in fields if document.get(field) is not None]
                if not values:
                    wanted = f"expected a text, or an object with {' or '.join(fields)}"
                    raise bad_request(f"documents.{number}: {wanted}")
                text = " ".join(map(str, values))
            _at_most(f"documents.{number}", len(text), limits.text_characters, "characters")
            texts.append(text)
        return texts


def _as_list(value: Item | list[Item]) -> list[Item]:
    return value if isinstance(value, list) else [value]


def check_query(query: str, limits: Limits) -> None:
    """Raises if a query has no words, or is too long."""
    if not query.strip():
        raise bad_request("query: it is empty; expected some words")
    _at_most("query", len(query), limits.query_characters, "characters")


def check_names(limits: Limits, **names: str | list[str] | None) -> None:
    """Raises if a name is too long, before it is looked up or quoted."""
    for field, given in names.items():
        for name in _as_list(given or []):
            _at_most(field, len(name), limits.name_characters, "characters")


def check_method(method: str | None, limits: Limits) -> None:
    """Raises if a method is unknown, or reads too many documents or terms."""
    parsed = parse_method(method or "bm25")
    if isinstance(parsed, RM3):
        _at_most("method: docs", parsed.docs, limits.feedback, "documents")
        _at_most("method: terms", parsed.terms, limits.feedback, "terms")


def _at_most(name: str, value: float, most: float, unit: str) -> None:
    if value > most:
        raise bad_request(f"{name}: at most {most:,} {unit} are allowed, not {value:,}")
