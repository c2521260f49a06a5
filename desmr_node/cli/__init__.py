"""The two commands: `desmr`, the statistician's and operator's tool, and `desmr-node`, the daemon."""

import argparse
from collections.abc import Sequence
from importlib.metadata import version

__version__ = version("desmr-node")

_LIBRARY = """\
This release holds the estimator, as a Python library:

    from desmr_node import FitSpec, simulate, l1_quantile

`simulate` fits a whole network in one process; see README.md for a first fit."""


def desmr(argv: Sequence[str] | None = None) -> int:
    """Entry point of `desmr`."""
    return _speak("desmr", "Fit one sparse median regression over rows that may not be pooled.", argv)


def desmr_node(argv: Sequence[str] | None = None) -> int:
    """Entry point of `desmr-node`."""
    return _speak("desmr-node", "The node daemon. It is not part of this release.", argv)


def _speak(program: str, purpose: str, argv: Sequence[str] | None) -> int:
    parser = argparse.ArgumentParser(
        prog=program,
        description=purpose,
        epilog=_LIBRARY,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"{program} {__version__}")
    parser.parse_args(argv)
    parser.print_help()
    # Nothing was asked for that this release can do: a script must not take silence for success.
    return 2
