"""Decentralised surrogate median regression over private rows.

>>> from desmr_node import FitSpec, simulate, l1_quantile
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from desmr_node.core.fit import NetworkFit, OuterRound
    from desmr_node.core.median import l1_quantile
    from desmr_node.core.spec import FitSpec
    from desmr_node.errors import ConfigError, DataError, DesmrError
    from desmr_node.runtime.simulation import simulate

__version__ = "0.1.0"

__all__ = [
    "ConfigError",
    "DataError",
    "DesmrError",
    "FitSpec",
    "NetworkFit",
    "OuterRound",
    "l1_quantile",
    "simulate",
]

_HOMES = {
    "ConfigError": "errors",
    "DataError": "errors",
    "DesmrError": "errors",
    "FitSpec": "core.spec",
    "NetworkFit": "core.fit",
    "OuterRound": "core.fit",
    "l1_quantile": "core.median",
    "simulate": "runtime.simulation",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for.

    The commands pin BLAS to one thread, which has to happen before anything imports numpy; and `desmr --help`
    should not wait for scipy.
    """
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
