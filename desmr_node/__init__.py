"""Decentralised surrogate median regression over private rows.

>>> from desmr_node import FitSpec, simulate, l1_quantile
"""

from desmr_node.core.fit import NetworkFit, OuterRound
from desmr_node.core.median import l1_quantile
from desmr_node.runtime.simulation import simulate
from desmr_node.core.spec import FitSpec
from desmr_node.errors import ConfigError, DataError, DesmrError

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
