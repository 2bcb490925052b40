"""What requests look like, and how large they may be."""

from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qsl

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from glassrank.index.filters import MOST_CONDITIONS, parse_where
from glassrank.index.methods import RM3, parse_method
from glassrank.serve.error_responses import bad_request
from glassrank.serve.limits import Limits

Item = TypeVar("Item")

_MOST = Limits()
"""Of any service. A list that is longer, or has one thing wrong in it, is not read to its end. All
other limits are told to programs here, and checked, with sentences, when a form has been read."""
_LARGEST_SCORE = 1e6

_SHARE = r"0(\.[0-9]{1,9})?"
_BASE = rf"bm25(\(k1=[0-9]{{1,3}}(\.[0-9]{{1,9}})?(,b={_SHARE})?\))?|ql(\(mu=[1-9][0-9]{{0,8}}\))?"
_FEEDBACK = rf"\+rm3(\(terms=[1-9][0-9]?(,docs=[1-9][0-9]?)?(,weight={_SHARE})?\))?"
_METHOD = f"^({_BASE})({_FEEDBACK})?$"
"""One way to write methods; `parse_method` knows others."""


def _told(**schema: Any) -> Any:
    return Field(json_schema_extra=schema)


def _list(most: int, **schema: Any) -> Any:
    return Field(fail_fast=True, max_length=most, json_schema_extra=schema)


Budget = Annotated[float, Field(gt=0, allow_inf_nan=False), _told(maximum=_MOST.budget_ms)]
Count = Annotated[int, Field(ge=1), _told(maximum=_MOST.k)]
DocId = Annotated[str, _told(maxLength=_MOST.id_characters)]
Method = Annotated[str, _told(maxLength=_MOST.name_characters, pattern=_METHOD)]
Name = Annotated[str, _told(maxLength=_MOST.name_characters)]
QueryText = Annotated[str, _told(maxLength=_MOST.query_characters, pattern=r"\S")]
QueryTexts = Annotated[list[QueryText], _list(_MOST.queries, minItems=1)]
Score = Annotated[float, Field(ge=-_LARGEST_SCORE, le=_LARGEST_SCORE)]
DocText = Annotated[str, _told(maxLength=_MOST.text_characters)]
DocTexts = Annotated[list[DocText], _list(_MOST.changed_documents, minItems=1)]
Fielded = Annotated[
    dict[str, Any], _told(properties={"text": {"type": "string"}}, required=["text"])
]
Documents = Annotated[list[DocText | Fielded], _list(_MOST.documents, minItems=1)]
Fields = Annotated[list[Name], _list(_MOST.rank_fields)]
Ids = Annotated[list[DocId], _list(_MOST.changed_documents, minItems=1, maxItems=2)]
Models = Annotated[list[Name], _list(_MOST.changed_documents, minItems=1, maxItems=2)]
Where = Annotated[dict[str, Any], _told(maxProperties=MOST_CONDITIONS)]
Conditions = Annotated[list[Name], _list(MOST_CONDITIONS)]
Scores = Annotated[list[Score], _list(_MOST.changed_documents, minItems=1)]

_SEVERAL = ("query", "where")
"""What an address may have more than once."""
_DOCUMENTED = ConfigDict(extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)
_FOREIGN = ConfigDict(extra="ignore", use_attribute_docstrings=True, allow_inf_nan=False)


class SearchRequest(BaseModel):
    """One query, or several that share one budget."""

    model_config = _DOCUMENTED

    query: QueryText | QueryTexts
    k: Count = 10
    """How many results."""
    budget_ms: Budget | None = None
    """For the whole request, from its arrival on; the service has one for those that give none."""
    method: Method | None = None
    """The first stage: bm25, ql, bm25+rm3 or ql+rm3, with parameters as in bm25(k1=1.2)."""
    model: Name | None = None
    """A name of /info; `none` for the first stage alone."""
    where: Where | Conditions | None = None
    """Which documents may be found, by their metadata: {"year": {">=": 2019}, "lang": ["en"]}, or
    ["year>=2019", "lang in en,de"]."""
    snippets: bool = True
    """False leaves out titles, sources and snippets, and their time."""
    stream: bool = False
    """Two lines of JSON for each query: the first stage's hits at once, then the final ones."""

    @property
    def queries(self) -> list[str]:
        """One query is a list, too."""
        return _listed(self.query)

    def check(self, limits: Limits) -> None:
        """Refuses what is too large or makes no sense together, in one sentence."""
        if not self.queries:
            raise bad_request("query: expected a query, or a list of them that is not empty")
        _at_most("query: the list", len(self.queries), limits.queries, "queries")
        for query in self.queries:
            check_query(query, limits)
        _at_most("k", self.k, limits.k, "results")
        total = self.k * len(self.queries)
        _at_most("k times the number of queries", total, limits.results, "results")
        check_budget(self.budget_ms, limits)
        check_names(limits, method=self.method, model=self.model)
        if self.where is not None:
            parse_where(self.where)


def parse_search(address: bytes) -> SearchRequest:
    """What stands behind the question mark; of values that are given twice the last, but all
    queries and conditions. The framework would take longer for it than a first stage does."""
    given = parse_qsl(address.decode("latin-1"), keep_blank_values=True)
    values: dict[str, Any] = {
        name: value for name, value in given if name in SearchRequest.model_fields
    }
    several = {field: [value for name, value in given if name == field] for field in _SEVERAL}
    values |= {field: listed for field, listed in several.items() if len(listed) > 1}
    if "where" in values:
        values["where"] = several["where"]
    try:
        return SearchRequest.model_validate(values)
    except ValidationError as error:
        mistakes = error.errors(include_url=False)
        raise RequestValidationError(
            [{**mistake, "loc": ("query", *mistake["loc"])} for mistake in mistakes]
        ) from None


def describe_search_parameters() -> list[dict[str, Any]]:
    """How programs are told of them."""
    schema = SearchRequest.model_json_schema()
    _, several = schema["properties"]["query"]["anyOf"]
    schema["properties"]["query"] = {"description": "Several may be given.", **several}
    conditions = schema["properties"]["where"]["anyOf"][1]
    schema["properties"]["where"] = {"description": "Such as year>=2019; all hold.", **conditions}
    return [
        {"name": name, "in": "query", "required": name in schema["required"], "schema": form}
        for name, form in schema["properties"].items()
    ]


class Change(BaseModel):
    """What if a word were another, or not there?"""

    model_config = _DOCUMENTED

    side: Literal["query", "document"]
    word: Annotated[int, Field(ge=0)] | Name
    """Its number, or the word itself wherever it stands."""
    by: Annotated[str, _told(maxLength=_MOST.query_characters)] = ""
    """What takes its place; nothing if not given."""


class ExplainRequest(BaseModel):
    """A document of the index by its id, or any text; two of them; or one under two models."""

    model_config = ConfigDict(
        **_DOCUMENTED,
        json_schema_extra={"oneOf": [{"required": ["doc_id"]}, {"required": ["text"]}]},
    )

    query: QueryText
    doc_id: DocId | Ids = []
    text: DocText | DocTexts = []
    model: Name | Models = []
    """Names of /info; the service's first if not given. Two explain one document, or one of two
    documents each."""
    method: Method | None = None
    """The first stage whose score the model mixes in, as in /search."""
    first_score: Score | Scores | None = None
    """The first stage's score of each document, as /search gave it: saves looking it up."""
    change: Change | None = None
    """What would change: scores and ranks of the first document among the first stage's results,
    or among all of `text`."""

    @property
    def doc_ids(self) -> list[str]:
        """One id is a list, too; none is an empty one."""
        return _listed(self.doc_id)

    @property
    def texts(self) -> list[str]:
        """One text is a list, too; none is an empty one."""
        return _listed(self.text)

    @property
    def models(self) -> list[str]:
        """One name is a list, too; none is an empty one."""
        return _listed(self.model)

    @property
    def first_scores(self) -> list[float] | None:
        """One score is a list, too; none at all means that the first stage is asked."""
        return None if self.first_score is None else _listed(self.first_score)

    def check(self, limits: Limits) -> None:
        """Refuses what is too large or makes no sense together, in one sentence."""
        check_query(self.query, limits)
        if bool(self.doc_ids) == bool(self.texts):
            raise bad_request("expected one of doc_id and text")
        count = len(self.doc_ids or self.texts)
        if count > 2 and (self.change is None or self.doc_ids):
            raise bad_request(
                f"{'doc_id' if self.doc_ids else 'text'}: expected one or two, not {count}"
            )
        each_its_own = len(self.doc_ids) == len(self.models) == 2
        if len(self.models) > 1 and (
            (count > 1 and not each_its_own) or self.change or len(self.models) > 2
        ):
            raise bad_request(
                "model: two models can explain one document, or one of two each, without a change"
            )
        if self.first_scores is not None and len(self.first_scores) != count:
            raise bad_request(f"first_score: expected {count}, one for each document")
        if self.change is not None:
            _at_most("change.by", len(self.change.by), limits.query_characters, "characters")
            if isinstance(self.change.word, str):
                check_names(limits, word=self.change.word)
        for model in self.models:
            check_names(limits, model=model)
        check_names(limits, method=self.method)
        check_texts(self.texts, limits, "text")


class RerankRequest(BaseModel):
    """Cohere's and Jina's form. Fields that only their own models have a use for are ignored."""

    model_config = _FOREIGN

    query: QueryText
    documents: Documents
    """Texts, or objects with a `text`."""
    model: Name | None = None
    """A name of /info; any other name means the service's first model, and the answer says so."""
    top_n: Annotated[int, Field(ge=1)] | None = None
    rank_fields: Fields | None = None
    """The fields of objects that make up the text, in this order."""
    return_documents: bool | None = None
    max_chunks_per_doc: int | None = None
    """Taken and not used, as max_tokens_per_doc: a model reads as many words as /info says."""
    max_tokens_per_doc: int | None = None
    budget_ms: Budget | None = None
    """Ours: documents that it does not suffice for keep their order below the rest."""

    def check(self, limits: Limits) -> None:
        """Refuses what is too large or makes no sense together, in one sentence."""
        check_query(self.query, limits)
        if not self.documents:
            raise bad_request("documents: expected at least one document")
        _at_most("documents", len(self.documents), limits.documents, "documents")
        check_budget(self.budget_ms, limits)
        check_names(limits, model=self.model)
        for name in self.rank_fields or ():
            check_names(limits, rank_fields=name)

    def texts(self, limits: Limits) -> list[str]:
        """What is read of each document: its text, or the fields that were asked for."""
        # Each field once: a document's text is never longer than the document.
        fields = list(dict.fromkeys(self.rank_fields or ["text"]))
        texts = []
        for number in range(len(self.documents)):
            texts.append(self._text(number, fields))
            _at_most(f"documents.{number}", len(texts[-1]), limits.text_characters, "characters")
        return texts

    def _text(self, number: int, fields: list[str]) -> str:
        document = self.documents[number]
        if isinstance(document, str):
            return document
        values = [document[field] for field in fields if document.get(field) is not None]
        if not values:
            raise bad_request(
                f"documents.{number}: expected a text, or an object with {' or '.join(fields)}"
            )
        return " ".join(map(str, values))


def _listed(value: Item | list[Item]) -> list[Item]:
    return value if isinstance(value, list) else [value]


def check_query(query: str, limits: Limits) -> None:
    """Refuses a query without words, or one that is too long."""
    if not query.strip():
        raise bad_request("query: expected some words, it is empty")
    _at_most("query", len(query), limits.query_characters, "characters")


def check_texts(texts: list[str], limits: Limits, name: str) -> None:
    """Refuses too many texts, or one that is too long, by its place."""
    _at_most(name, len(texts), limits.documents, "documents")
    for number, text in enumerate(texts):
        _at_most(f"{name}.{number}", len(text), limits.text_characters, "characters")


def check_budget(budget_ms: float | None, limits: Limits) -> None:
    """Refuses more time than a request may ask for."""
    if budget_ms is not None:
        _at_most("budget_ms", budget_ms, limits.budget_ms, "milliseconds")


def check_names(limits: Limits, **names: str | None) -> None:
    """Refuses names that are too long, before they are looked up or quoted."""
    for field, name in names.items():
        _at_most(field, len(name or ""), limits.name_characters, "characters")


def check_method(method: str | None, limits: Limits) -> None:
    """Refuses a method that is not known, or one that would look at too much."""
    parsed = parse_method(method or "bm25")
    if isinstance(parsed, RM3):
        _at_most("method: docs", parsed.docs, limits.feedback, "documents")
        _at_most("method: terms", parsed.terms, limits.feedback, "terms")


def _at_most(name: str, value: float, most: float, unit: str) -> None:
    if value > most:
        raise bad_request(f"{name}: at most {most:,} {unit} are allowed, not {value:,}")
