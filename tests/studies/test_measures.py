import numpy as np
import pytest

from desmr_node.studies.measures import Estimate, accuracy

TRUTH = np.array([3.0, 4.0, 0.0, 0.0])


def test_by_hand():
    coef = np.array([[3.0, 4.0, 0.0, 0.0], [0.0, 4.0, 4.0, 0.0]])  # the second: one miss, one false
    got = accuracy(Estimate.exact(coef, rounds=7), TRUTH)
    assert got["l2_error"] == pytest.approx((0.0 + 5.0) / 2)  # a mean of norms, not of squares
    assert got["recall"] == pytest.approx((1.0 + 0.5) / 2)
    assert got["precision"] == pytest.approx((1.0 + 0.5) / 2)
    assert got["f1"] == pytest.approx((1.0 + 0.5) / 2)
    assert got["rounds"] == 7


def test_a_model_for_all_nodes_counts_once_and_an_empty_one_scores_nothing():
    got = accuracy(Estimate.exact(np.zeros(4)), TRUTH)
    assert got["l2_error"] == pytest.approx(5.0)
    assert (got["recall"], got["precision"], got["f1"]) == (0.0, 0.0, 0.0)


def test_the_support_may_be_another_than_the_nonzeros():
    estimate = Estimate(np.array([[3.0, 4.0, 1e-4, 0.0]]), np.array([[True, True, False, False]]))
    assert accuracy(estimate, TRUTH)["precision"] == 1.0
