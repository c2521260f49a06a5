"""A node's settings and a network's, read from TOML: every mistake is told with its key and its remedy.

The models hold the defaults and what each setting means; `settings` lists them, so the error messages, the
environment variables and the reference in the documentation all come from one place.

Imports point one way: mistakes, addresses, writing <- tables <- node, network <- reference <- telling,
environment <- reading.
"""

from desmr_node.config.addresses import is_loopback, split_address
from desmr_node.config.network import NetworkConfig, NetworkNodeConfig
from desmr_node.config.node import NodeConfig
from desmr_node.config.reading import load_network, load_node
from desmr_node.config.reference import ENVIRONMENT_PREFIX, Setting, settings
from desmr_node.config.tables import (
    AdminConfig,
    ColumnsConfig,
    DataConfig,
    FloorsConfig,
    LogConfig,
    MetricsConfig,
    NeighbourConfig,
    TlsConfig,
)
from desmr_node.config.writing import dump_toml
from desmr_node.core.spec import FitSpec

__all__ = [
    "ENVIRONMENT_PREFIX",
    "AdminConfig",
    "ColumnsConfig",
    "DataConfig",
    "FitSpec",
    "FloorsConfig",
    "LogConfig",
    "MetricsConfig",
    "NeighbourConfig",
    "NetworkConfig",
    "NetworkNodeConfig",
    "NodeConfig",
    "Setting",
    "TlsConfig",
    "dump_toml",
    "is_loopback",
    "load_network",
    "load_node",
    "settings",
    "split_address",
]
