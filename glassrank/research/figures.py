"""Writes figures of Matplotlib to files."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassrank.storage.files import replace_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save_figure(
    draw: Callable[[], "Figure"], path: Path, *, font_size: float = 10, dpi: float = 100
) -> None:
    """Save what `draw` returns as SVG, PDF or PNG, by the file's suffix."""
    import matplotlib

    kind = path.suffix.lower().removeprefix(".")
    # Text stays text, and the same figure gives the same file.
    style: Any = {"svg.fonttype": "none", "svg.hashsalt": "glassrank", "font.size": font_size}
    with matplotlib.rc_context(style), replace_file(path) as part:
        metadata = {"Date": None} if kind == "svg" else None
        draw().savefig(part, format=kind, dpi=dpi, metadata=metadata)
