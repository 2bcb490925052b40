"""Stores of an index that has changed: what they lack, and how it is encoded."""

import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from glassrank.errors import GlassrankError, InputError

if TYPE_CHECKING:
    from glassrank.models.checkpoint import SavedModel
    from glassrank.retrieve import Index
    from glassrank.store import Report
    from glassrank.store.manifest import Layout


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
    from glassrank.store import Store
    from glassrank.store.manifest import read_manifest, stores_of

    stores = []
    for folder in stores_of(index.path):
        with suppress(GlassrankError, OSError):
            layout = read_manifest(folder).layout
            store = Store.open(folder, layout.fingerprint, verify=False)
            if count := store.lacks(index.snapshot):
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
    from glassrank.cli.encode import encoded
    from glassrank.models.checkpoint import fingerprint
    from glassrank.store import DEFAULT_DTYPE, DTYPES

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
    from glassrank.store.manifest import read_manifest, stores_of

    return [(folder, read_manifest(folder).layout) for folder in stores_of(index)]
