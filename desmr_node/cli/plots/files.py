"""Pictures as files: which are allowed, what is missing to make them, and the same bytes every time."""

import errno
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from desmr_node.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".png")
INK, PALE = "#1f2933", "#6b7785"
_DPI = 160
#: What would differ between two runs, or two machines, if it were left to chance.
_STYLE: dict[str, Any] = {
    "font.family": "sans-serif",
    # The first is part of matplotlib, so sizes are the same everywhere; browsers without it take the next.
    "font.sans-serif": ["DejaVu Sans", "Helvetica", "Arial"],
    "font.size": 9.0,
    "svg.fonttype": "none",  # text stays text: it can be searched and selected
    "svg.hashsalt": "desmr",
    "text.color": INK,
    "axes.edgecolor": PALE,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def check(path: str | Path, *, replace: bool) -> Path:
    """The path, if a picture can be written there; to be asked before anything long begins."""
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"{path} is no name for a picture: let it end in {' or '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise ConfigError(f"{path} cannot be written: {path.parent} is no folder; make it first")
    if path.is_dir():
        raise ConfigError(f"{path} is a folder: name a file")
    _require_access(path.parent)
    if not replace and os.path.lexists(path):
        raise ConfigError(f"{path} exists already: name another file, or add --replace")
    _require_matplotlib()
    return path


def check_folder(folder: str | Path) -> Path:
    """The folder, made if need be, if pictures can be written into it."""
    _require_matplotlib()
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from None
    _require_access(folder)
    return folder


def _require_access(folder: Path) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _unwritable(folder, OSError(errno.EACCES, ""))


def _require_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401 - only to know
    except ImportError:
        raise ConfigError(
            "pictures need matplotlib, which is not installed: pip install 'desmr-node[plots]'"
        ) from None


@contextmanager
def style() -> Iterator[None]:
    """Our looks, whatever the user's matplotlibrc says, for the time of one picture."""
    from matplotlib import style

    with style.context(["default", _STYLE]), warnings.catch_warnings():
        # A name in a script that the font lacks is measured wrongly by a little; the text itself is right.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def save(figure: "Figure", path: Path, title: str) -> None:
    """Write the figure, in the format that the name says."""
    svg = path.suffix.lower() == ".svg"
    # No date and no version: a picture changes when its content does. An SVG's title is what is read aloud.
    metadata = {"Date": None, "Creator": None, "Title": title} if svg else {"Software": None, "Title": title}
    try:
        figure.savefig(path, format="svg" if svg else "png", dpi=_DPI, metadata=metadata)
    except OSError as error:
        raise _unwritable(path, error) from None


def text_widths(texts: Sequence[str], size: float) -> list[float]:
    """How wide each text will be, in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    measure, font = TextToPath(), FontProperties(size=size)
    return [float(measure.get_text_width_height_descent(text, font, ismath=False)[0]) for text in texts]


def _unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{path} cannot be written ({os.strerror(error.errno or 0)}): name another")
