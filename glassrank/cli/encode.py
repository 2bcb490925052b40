"""`glassrank encode`: the document store of one model, and stores of an index that has changed:
what they lack."""

import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.console import Console

from glassrank.cli import console, on_cluster
from glassrank.errors import GlassrankError, InputError
from glassrank.storage.folders import is_plain_name

if TYPE_CHECKING:
    from glassrank.embeddings import Estimate, Progress, Report
    from glassrank.embeddings.manifest import Layout
    from glassrank.index import Index
    from glassrank.models.checkpoint import SavedModel

_PLAIN_LINE_SECONDS = 10.0


def encode(
    index: Annotated[Path, typer.Argument(help="The index folder.")],
    model: Annotated[
        str, typer.Option(help="A folder, or 'default' or 'fast', which come with the package.")
    ] = "default",
    dtype: Annotated[
        str,
        typer.Option(
            help="int8, int3 (two fifths of it), bf16 (twice as large, a little closer), "
            "float16 or float32."
        ),
    ] = "int8",
    reuse: Annotated[
        str,
        typer.Option(
            help="MORES only: s1 keeps what the document module gives, s2 each block's keys and "
            "values, which takes more room and ranks faster."
        ),
    ] = "s2",
    leave_out: Annotated[
        str,
        typer.Option(
            help="Words that are not stored: punctuation, or function-words and punctuation."
        ),
    ] = "",
    name: Annotated[
        str | None, typer.Option(help="The store's name; model and dtype unless given.")
    ] = None,
    device: console.Device = "cpu",
    ray: on_cluster.Address = None,
    quiet: console.Quiet = False,
    json: console.AsJson = False,
) -> None:
    """Encode an index's documents with a model; run it again when the index has changed."""
    from glassrank.embeddings import store_folder
    from glassrank.index import Index
    from glassrank.models.checkpoint import load_served

    if name is not None and not is_plain_name(name):
        raise InputError(f"a store's name is one folder inside the index, which {name!r} is not")
    path = None if name is None else store_folder(index, name)
    opened, saved = Index(index), load_served(model, device)
    if ray is None:
        report = encoded(opened, saved, path, dtype, device, reuse, leave_out, quiet=quiet)
    else:
        from glassrank.cluster.building import Encoding

        encoding = Encoding(model, dtype, device, reuse, leave_out)
        report = on_cluster.encode(opened, saved, encoding, ray, path, quiet=quiet)
    if json:
        console.print_json(plain(report))
    else:
        console.say(summary(report), quiet=quiet)


def encoded(
    index: "Index",
    saved: "SavedModel",
    path: Path | None = None,
    dtype: str = "int8",
    device: str = "cpu",
    reuse: str = "s2",
    leave_out: str = "",
    *,
    quiet: bool,
) -> "Report":
    """Encodes, and shows how far it is."""
    from glassrank.embeddings import encode_index

    def begins(size: "Estimate") -> None:
        console.say(expected(size), quiet=quiet)

    try:
        with shown(quiet) as show:
            return encode_index(index, saved, path, dtype, show, device, reuse, leave_out, begins)
    except Exception:
        raise
    except BaseException:  # Ctrl-C, under whatever name
        console.error(
            "interrupted; what was encoded is kept, and glassrank encode goes on from there"
        )
        raise typer.Exit(130) from None


def plain(report: "Report") -> dict[str, object]:
    """For `--json`."""
    return {**asdict(report), "path": str(report.path)}


def expected(size: "Estimate") -> str:
    """One line before the work begins: how much room it will take."""
    passages = f" in {size.passages:,} passages" if size.passages > size.documents else ""
    return (
        f"{size.path} will take about {_bytes(size.bytes)} for {size.documents:,} documents"
        f"{passages} ({size.dtype})"
    )


def _bytes(count: float) -> str:
    """
    >>> _bytes(1_500), _bytes(1_460_000_000)
    ('2 kB', '1.5 GB')
    """
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def summary(report: "Report") -> str:
    """One line: how many documents, how fast, and how much space each takes."""
    counts = ((report.encoded, "encoded"), (report.reused, "copied"))
    done = " and ".join(f"{n:,} {what}" for n, what in counts if n)
    speed = f"{done} in {report.seconds:.1f} s, {report.per_second:,.0f} a second"
    work = speed if done else "all there already"
    divided = f" in {report.passages:,} passages" if report.passages > report.documents else ""
    share = "" if report.of_float32 is None else f", {report.of_float32:.2f} of float32's"
    cut = (
        f"; {report.cut:,} of those encoded are longer than all their passages"
        if report.cut
        else ""
    )
    return (
        f"{report.path}: {report.documents:,} documents{divided} ({work}), "
        f"{report.bytes_per_document:,.0f} bytes for each{share}{cut}"
    )


@contextmanager
def shown(quiet: bool) -> "Iterator[Callable[[Progress], None] | None]":
    """A bar on a terminal, a line now and then elsewhere."""
    err = Console(stderr=True, highlight=False)
    if quiet:
        yield None
    elif err.is_terminal:
        with _bar(err) as show:
            yield show
    else:
        yield _Lines()


@contextmanager
def _bar(err: Console) -> "Iterator[Callable[[Progress], None]]":
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("Encoding"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}"),
    )
    with Bar(*columns, console=err, transient=True) as bar:
        task = bar.add_task("", total=None, speed="")

        def show(progress: "Progress") -> None:
            bar.update(
                task, total=progress.total, completed=progress.documents, speed=_speed(progress)
            )

        yield show


class _Lines:
    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, progress: "Progress") -> None:
        if (now := time.monotonic()) - self._last >= _PLAIN_LINE_SECONDS:
            self._last = now
            console.say(
                f"Encoding: {progress.documents:,} of {progress.total:,}, {_speed(progress)}"
            )


def _speed(progress: "Progress") -> str:
    minutes, seconds = divmod(round(progress.seconds_left), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"{progress.per_second:,.0f} a second, {progress.bytes_per_document:,.0f} bytes each, "
        f"{hours}:{minutes:02}:{seconds:02} left"
    )


class Lacking(NamedTuple):
    """A store, and how many documents of its index it has not."""

    folder: Path
    layout: "Layout"
    documents: int

    def command(self, model: str) -> str:
        """What a person types to encode them."""
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

    def advice(self, model: str) -> str:
        """The same as a sentence."""
        documents = f"{self.documents:,} document{'s' if self.documents != 1 else ''}"
        return f"{self.folder} lacks {documents}; store them with: {self.command(model)}"


def lacking(index: "Index") -> list[Lacking]:
    """The stores of an index that lack documents. One that cannot be read is left to whoever needs
    it: the index itself is fine."""
    if not (index.path / "stores").is_dir():  # before all that models need is imported
        return []
    from glassrank.embeddings import Store
    from glassrank.embeddings.manifest import read_manifest, stores_of

    stores = []
    for folder in stores_of(index.path):
        with suppress(GlassrankError, OSError):
            layout = read_manifest(folder).layout
            store = Store.open(folder, layout.fingerprint, verify=False)
            if count := store.count_missing(index.snapshot):
                stores.append(Lacking(folder, layout, count))
    return stores


def hint(store: Lacking, known: "dict[str, SavedModel]") -> str:
    """Who lacks what, and what to do, in one sentence; the model's name if it can be known."""
    from glassrank.models.checkpoint import fingerprint, load_served

    models = known if "default" in known else {**known, "default": load_served("default")}
    wanted = store.layout.fingerprint
    names = [name for name, saved in models.items() if fingerprint(saved.model) == wanted]
    return store.advice(names[0] if names else "MODEL")


def check_known(index: Path, saved: "SavedModel") -> None:
    """Refuses to encode for a model that nobody named, where there are stores of others."""
    from glassrank.models.checkpoint import fingerprint

    stores = _stores(index) if (index / "stores").is_dir() else []
    wanted = fingerprint(saved.model)
    if stores and all(layout.fingerprint != wanted for _, layout in stores):
        raise InputError(
            f"the stores of {index} were encoded by other models than the one in the package; say "
            "by which with --model"
        )


def follow(index: "Index", saved: "SavedModel", *, quiet: bool) -> "list[Report]":
    """Brings every store of a model up to date, or makes its first one."""
    from glassrank.embeddings import DEFAULT_DTYPE, DTYPES
    from glassrank.models.checkpoint import fingerprint

    wanted = fingerprint(saved.model)
    reports = [
        encoded(
            index,
            saved,
            folder,
            layout.dtype if layout.dtype in DTYPES else DEFAULT_DTYPE,
            reuse=layout.reuse or "s2",
            leave_out=layout.left_out,
            quiet=quiet,
        )
        for folder, layout in _stores(index.path)
        if layout.fingerprint == wanted
    ]
    return reports or [encoded(index, saved, quiet=quiet)]


def _stores(index: Path) -> "list[tuple[Path, Layout]]":
    from glassrank.embeddings.manifest import read_manifest, stores_of

    return [(folder, read_manifest(folder).layout) for folder in stores_of(index)]
