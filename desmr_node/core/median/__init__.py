"""The pilot: exact l1-penalised quantile regression at one node, tuned without a hold-out set."""

from desmr_node.core.median.problem import QuantileSolution
from desmr_node.core.median.solve import l1_quantile, l1_quantile_certified

__all__ = ["QuantileSolution", "l1_quantile", "l1_quantile_certified"]
