"""The packaged crime table and generators of the paper's designs."""

from desmr_node.datasets.crime import CrimeTable, Scenario, crime_network, load_crime
from desmr_node.datasets.designs import NOISES, Design, erdos_renyi, simulated_network

__all__ = [
    "NOISES",
    "CrimeTable",
    "Design",
    "Scenario",
    "crime_network",
    "erdos_renyi",
    "load_crime",
    "simulated_network",
]
