"""`glassrank encode`: make or update a model's document store."""

import shlex
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from glassrank import console
from glassrank.cli import on_cluster
from glassrank.errors import GlassrankError, InputError
from glassrank.storage.folders import is_plain_name

if TYPE_CHECKING:
    from glassrank.embeddings import Estimate, Report
    from glassrank.embeddings.manifest import Layout
    from glassrank.index import Index
    from glassrank.models.io.model_folder import SavedModel


def encode(
    index: Annotated[Path, typer.Argument(help="The index folder.")],
    model: Annotated[
        str,
        typer.Option(help="A folder, or 'strong', 'default', 'fast' or 'tiny' from the package."),
    ] = "default",
    dtype: Annotated[
        str,
        typer.Option(
            help="int8, int3 (40% of its size), bf16 (twice its size, more precise), float16 or "
            "float32."
        ),
    ] = "int8",
    reuse: Annotated[
        str,
        typer.Option(
            help="MORES only: s1 stores the document representation, s2 each block's keys and "
            "values, which is larger and faster."
        ),
    ] = "s2",
    leave_out: Annotated[
        str,
        typer.Option(
            help="Tokens that are not stored: punctuation, or function-words and punctuation."
        ),
    ] = "",
    graph: Annotated[
        bool | None,
        typer.Option(
            help="Also one vector and 16 neighbours of each document, to find what terms miss; "
            "default: where the model is made for it."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="The store's name; default: model and dtype.")
    ] = None,
    device: console.Device = "cpu",
    ray: on_cluster.Address = None,
    quiet: console.Quiet = False,
    json: console.AsJson = False,
) -> None:
    """Encode an index's documents with a model; run it again after the index has changed."""
    from glassrank.embeddings import store_folder
    from glassrank.index import Index
    from glassrank.models.io.load import load_for_inference

    if name is not None and not is_plain_name(name):
        raise InputError(f"--name must be a plain folder name, found {name!r}")
    path = None if name is None else store_folder(index, name)
    opened, saved = Index(index), load_for_inference(model, device)
    if ray is None:
        options = {"dtype": dtype, "reuse": reuse, "leave_out": leave_out}
        report = encode_with_progress(
            opened, saved, model, path, quiet=quiet, device=device, graph=graph, **options
        )
    else:
        from glassrank.cluster.building import Encoding

        encoding = Encoding(model, dtype, device, reuse, leave_out, graph)
        report = on_cluster.encode(opened, saved, encoding, ray, path, quiet=quiet)
    if json:
        console.print_json(to_json(report))
    else:
        console.say(describe(report), quiet=quiet)


def encode_with_progress(
    index: "Index",
    saved: "SavedModel",
    name: str,
    path: Path | None = None,
    *,
    quiet: bool,
    **options: Any,
) -> "Report":
    """Encode with the model of this name and show progress; options are those of
    `encode_index`."""
    from glassrank.embeddings import encode_index

    def say_size(size: "Estimate") -> None:
        passages = f" in {size.passages:,} passages" if size.passages > size.documents else ""
        console.say(
            f"{size.path} will take about {_format_bytes(size.bytes)} for {size.documents:,} "
            f"documents{passages} ({size.dtype})",
            quiet=quiet,
        )

    try:
        with console.show_encoding(quiet) as show:
            return encode_index(index, saved, path, progress=show, begins=say_size, **options)
    except Exception:
        raise
    except BaseException:  # Ctrl-C, under whatever name
        command = shlex.join(["glassrank", "encode", str(index.path), "--model", name])
        console.error(f"interrupted; to continue: {command}")
        raise typer.Exit(130) from None


def to_json(report: "Report") -> dict[str, object]:
    """A report for `--json`."""
    return {**asdict(report), "path": str(report.path)}


def _format_bytes(count: float) -> str:
    """
    >>> _format_bytes(1_500), _format_bytes(1_460_000_000)
    ('2 kB', '1.5 GB')
    """
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def describe(report: "Report") -> str:
    """One line: how many documents, how fast, and how many bytes each takes."""
    counts = ((report.encoded, "encoded"), (report.reused, "copied"))
    done = " and ".join(f"{n:,} {what}" for n, what in counts if n)
    speed = f"{done} in {report.seconds:.1f} s, {report.per_second:,.0f} a second"
    work = speed if done else "nothing to do"
    divided = f" in {report.passages:,} passages" if report.passages > report.documents else ""
    share = "" if report.of_float32 is None else f", {report.of_float32:.2f} of float32's"
    cut = (
        f"; {report.cut:,} of those encoded are longer than all their passages and were cut"
        if report.cut
        else ""
    )
    return (
        f"{report.path}: {report.documents:,} documents{divided} ({work}), "
        f"{report.bytes_per_document:,.0f} bytes for each{share}{cut}"
    )


class IncompleteStore(NamedTuple):
    """A store that lacks documents of its index."""

    folder: Path
    layout: "Layout"
    num_missing: int

    def command(self, model: str) -> str:
        """The command that encodes them."""
        layout = self.layout
        words = ["glassrank", "encode", str(self.folder.parent.parent), "--model", model]
        if self.folder.name != layout.name:
            words += ["--name", self.folder.name]
        if layout.dtype not in ("int8", "ids"):
            words += ["--dtype", layout.dtype]
        if layout.left_out:
            words += ["--leave-out", layout.left_out]
        if layout.reuse == "s1":
            words += ["--reuse", "s1"]
        return shlex.join(words)

    def advise(self, model: str) -> str:
        """The same as a sentence."""
        documents = f"{self.num_missing:,} document{'s' if self.num_missing != 1 else ''}"
        return f"{self.folder} lacks {documents}; store them with: {self.command(model)}"


def find_incomplete_stores(index: "Index") -> list[IncompleteStore]:
    """Stores that lack documents. A store that cannot be read is skipped: the index is fine."""
    if not (index.path / "stores").is_dir():  # saves the imports below
        return []
    from glassrank.embeddings import Store
    from glassrank.embeddings.manifest import list_stores, read_manifest

    stores = []
    for folder in list_stores(index.path):
        with suppress(GlassrankError, OSError):
            layout = read_manifest(folder).layout
            store = Store.open(folder, layout.fingerprint, verify=False)
            if count := store.count_missing(index.snapshot):
                stores.append(IncompleteStore(folder, layout, count))
    return stores


def advise(store: IncompleteStore, known: "dict[str, SavedModel]") -> str:
    """How to complete a store, with its model's name if it is one of these or `default`."""
    from glassrank.models.io.load import load_for_inference
    from glassrank.models.io.model_folder import fingerprint

    models = known if "default" in known else {**known, "default": load_for_inference("default")}
    wanted = store.layout.fingerprint
    names = [name for name, saved in models.items() if fingerprint(saved.model) == wanted]
    return store.advise(names[0] if names else "MODEL")


def check_model_has_store(index: Path, saved: "SavedModel") -> None:
    """Raise an error if an index has stores of other models but none of this one."""
    from glassrank.models.io.model_folder import fingerprint

    stores = _read_layouts(index) if (index / "stores").is_dir() else []
    wanted = fingerprint(saved.model)
    if stores and all(layout.fingerprint != wanted for _, layout in stores):
        raise InputError(
            f"the stores of {index} are of other models than 'default'; name the model with --model"
        )


def update_stores(index: "Index", saved: "SavedModel", name: str, *, quiet: bool) -> "list[Report]":
    """Update every store of the model of this name, or make its first one."""
    from glassrank.embeddings import DEFAULT_DTYPE, DTYPES
    from glassrank.models.io.model_folder import fingerprint

    wanted = fingerprint(saved.model)
    reports = [
        encode_with_progress(
            index,
            saved,
            name,
            folder,
            dtype=layout.dtype if layout.dtype in DTYPES else DEFAULT_DTYPE,
            reuse=layout.reuse or "s2",
            leave_out=layout.left_out,
            quiet=quiet,
        )
        for folder, layout in _read_layouts(index.path)
        if layout.fingerprint == wanted
    ]
    return reports or [encode_with_progress(index, saved, name, quiet=quiet)]


def _read_layouts(index: Path) -> "list[tuple[Path, Layout]]":
    from glassrank.embeddings.manifest import list_stores, read_manifest

    return [(folder, read_manifest(folder).layout) for folder in list_stores(index)]
