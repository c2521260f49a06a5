"""The pilot: exact l1-penalised quantile regression at one node, tuned without a hold-out set."""

from desmr_node.core.median.path import l1_quantile_path, lambda_max
from desmr_node.core.median.problem import QuantileSolution
from desmr_node.core.median.solve import l1_quantile, l1_quantile_certified
from desmr_node.core.median.tuning import Pilot, pilot, pivotal_lambda

__all__ = [
    "Pilot",
    "QuantileSolution",
    "l1_quantile",
    "l1_quantile_certified",
    "l1_quantile_path",
    "lambda_max",
    "pilot",
    "pivotal_lambda",
]
