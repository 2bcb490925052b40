"""`glassrank index`: build or change an index."""

import time
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glassrank import console
from glassrank.cli import on_cluster
from glassrank.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glassrank.corpus import DocReader
    from glassrank.embeddings import Report
    from glassrank.models.io.model_folder import SavedModel
    from glassrank.types import Doc

_NUM_SAMPLED = 20  # documents whose language is checked


def index(
    out: Annotated[Path, typer.Option(help="The index folder.")],
    docs: Annotated[
        str | None,
        typer.Argument(
            help="A JSONL, TSV, CSV or TREC file (or its .gz), a folder, or an ir_datasets name."
        ),
    ] = None,
    add: Annotated[bool, typer.Option("--add", help="Add to an existing index.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="With --add: replace documents with the same id.")
    ] = False,
    delete: Annotated[
        list[str] | None, typer.Option(help="Delete the document with this id; repeatable.")
    ] = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="Merge all segments into one: smaller and faster.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing index.")
    ] = False,
    language: Annotated[
        str | None,
        typer.Option(
            help="Language of the documents: en (default), de, fr, es, ru, zh, ja, …; "
            "auto detects it for each document."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Also encode the documents for this model: a folder, or 'default'."),
    ] = None,
    encode: Annotated[
        bool,
        typer.Option("--encode", help="Also update the index's stores, or make one for 'default'."),
    ] = False,
    format: Annotated[  # noqa: A002
        str | None,
        typer.Option(
            help="jsonl, tsv, csv, trec, warc, car, text or irds; default: by the file's name."
        ),
    ] = None,
    encoding: Annotated[str, typer.Option(help="Character encoding of the files.")] = "utf-8",
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Skip and count empty or malformed documents.")
    ] = False,
    ray: on_cluster.Address = None,
    shards: on_cluster.ShardCount = None,
    quiet: console.Quiet = False,
    json: console.AsJson = False,
) -> None:
    """Build an index of documents, or change one."""
    from glassrank.cli.encode import (
        advise,
        check_model_has_store,
        describe,
        find_incomplete_stores,
        to_json,
        update_stores,
    )
    from glassrank.corpus import count_skipped_files, read_docs
    from glassrank.index import Index
    from glassrank.text.detection import looks_foreign
    from glassrank.text.languages import get_analyzer

    if docs is None and not delete and not merge:
        raise InputError("nothing to do; give documents to index, --delete or --merge")
    if replace and not add:
        raise InputError("--replace needs --add")
    if overwrite and (add or delete):
        raise InputError("--overwrite builds a new index; leave out --add and --delete")
    if docs is not None and delete and not add:
        raise InputError("--delete with documents needs --add")
    if ray is not None and (add or delete or merge or model or encode):
        raise InputError(
            "--ray builds a new index only; encode it with `glassrank encode --ray`, and change it "
            "without --ray"
        )
    on_cluster.check_shards(shards, ray)
    models: dict[str, SavedModel] = {}
    if model is not None or encode:  # a wrong name is an error before the work begins
        from glassrank.models.io.load import load_for_inference

        models = {model or "default": load_for_inference(model or "default")}
        if model is None:
            check_model_has_store(out, models["default"])
    if skip_bad and docs is None:
        raise InputError("--skip-bad needs documents to read")
    started = time.perf_counter()
    added = deleted = 0
    counted = reader = None
    if docs is not None:
        reader = read_docs(docs, format=format, encoding=encoding, skip_bad=skip_bad)
        counted = _Counted(reader, quiet=quiet)
    if docs is None or counted is None or add:
        changed = Index(out)
        if language is not None and get_analyzer(language).language != changed.language:
            raise InputError(
                f"{out} has language {changed.language!r}, not {language!r}; leave out --language, "
                "or build another index"
            )
        alone = merge and counted is None  # with documents, their progress bar is shown
        with console.working("Merging segments", quiet=quiet) if alone else nullcontext():
            added, deleted = changed.change(
                delete=delete or (), add=counted, replace=replace, merge=merge
            )
    elif ray is not None:
        from glassrank.cluster.building import build_shards
        from glassrank.cluster.cluster import connect, processors, run_tasks

        with connect(ray):
            count = shards or processors()
            changed = build_shards(
                *(counted, out, count, run_tasks),
                source=on_cluster.identify_source(docs, format, encoding, skip_bad),
                overwrite=overwrite,
                language=language or "en",
                finished=lambda done: console.say(
                    f"built {done:,} of {count:,} shards", quiet=quiet
                ),
            )
        added = len(changed)
    else:
        changed = Index.build(counted, out, overwrite=overwrite, language=language or "en")
        added = len(changed)
    seconds = time.perf_counter() - started

    def encode_all() -> "Iterator[Report]":
        for name, saved in models.items():
            yield from update_stores(changed, saved, name, quiet=quiet)

    if json:
        report: dict[str, object] = {
            "index": str(out),
            "docs": len(changed),
            "language": changed.language,
            "added": added,
            "deleted": deleted,
            "skipped": reader.skipped if reader else 0,
            "segments": len(changed.snapshot.segments),
            "seconds": round(seconds, 3),
        }
        if stores := [to_json(store) for store in encode_all()]:
            report |= {"store": stores[0], "stores": stores}
        report["lacking"] = {
            str(store.folder): store.num_missing for store in find_incomplete_stores(changed)
        }
        console.print_json(report)
    else:
        changes = ", ".join(
            f"{n:,} {what}" for n, what in ((added, "added"), (deleted, "deleted")) if n
        )
        console.say(
            f"{out}: {len(changed):,} documents{f' ({changes})' if changes else ''} "
            f"in {seconds:.1f} s",
            quiet=quiet,
        )
        is_english = language is None and changed.language == "en"
        if counted is not None and is_english and looks_foreign(counted.first_texts):
            console.say(
                "the documents do not look English; --language de (fr, ja, …, auto) also matches "
                "other forms of their words",
                quiet=quiet,
            )
        if reader is not None and reader.skipped:
            bad = "1 bad document" if reader.skipped == 1 else f"{reader.skipped:,} bad documents"
            console.say(f"skipped {bad}; the first: {reader.first_skipped}", quiet=quiet)
        if docs is not None and (skipped := count_skipped_files(docs, format)):
            kinds = ", ".join(f"{count:,} {suffix}" for suffix, count in skipped.most_common(5))
            console.say(
                f"skipped {skipped.total():,} files of unknown formats ({kinds}); to index them, "
                "convert them to text files named .txt",
                quiet=quiet,
            )
        for updated in encode_all():
            console.say(describe(updated), quiet=quiet)
        for store in find_incomplete_stores(changed) if not quiet else ():
            console.say(advise(store, models))


class _Counted:
    """Documents with a progress bar; errors can still name their file and line."""

    def __init__(self, reader: "DocReader", *, quiet: bool) -> None:
        self._reader = reader
        self._quiet = quiet
        self.locate = reader.locate
        self.first_texts: list[str] = []

    def __iter__(self) -> "Iterator[Doc]":
        docs = console.track(self._reader, "Indexing", quiet=self._quiet)
        for doc in islice(docs, _NUM_SAMPLED):
            self.first_texts.append(doc.text)
            yield doc
        yield from docs
