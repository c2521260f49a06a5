"""The figures printed in the paper, table by table: by the values of a cell, then by method and measure."""

from collections.abc import Mapping

from desmr_node.runtime.census import PAPER
from desmr_node.studies.methods import AVERAGE, LEAST_SQUARES, LOCAL, POOLED, PRINTED, SUBGRADIENT

#: By the values of a cell: (method, measure) to figure. The paper's deSMR stands under `PRINTED`.
Figures = Mapping[tuple[str, ...], Mapping[tuple[str, str], float]]

_ACCURACY = ("l2_error", "recall", "precision")


def _table(text: str, keys: int, columns: list[tuple[str, str]]) -> Figures:
    """A line per cell: its ``keys`` values, then a figure per column."""
    table = {}
    for line in text.strip().splitlines():
        words = line.split()
        table[tuple(words[:keys])] = dict(zip(columns, map(float, words[keys:]), strict=True))
    return table


#: Table 1: noise, n, p; l2-error, recall and precision of deLR, then of deSMR.
HEAVY_TAIL = _table(
    """
    normal      100 100  0.190 1.00  0.797  0.292 1.00 0.940
    normal      200 100  0.131 1.00  0.832  0.200 1.00 0.951
    normal      200 200  0.150 1.00  0.806  0.225 1.00 0.952
    exponential 100 100  0.261 1.00  0.808  0.292 1.00 0.955
    exponential 200 100  0.188 1.00  0.827  0.188 1.00 0.977
    exponential 200 200  0.211 1.00  0.818  0.212 1.00 0.968
    cauchy      100 100  4.73  0.884 0.816  0.509 1.00 0.992
    cauchy      200 100  5.75  0.836 0.846  0.310 1.00 0.999
    cauchy      200 200  6.36  0.815 0.843  0.351 1.00 0.999
    t1          100 100  4.72  0.891 0.839  0.503 1.00 0.991
    t1          200 100  6.94  0.797 0.885  0.301 1.00 0.999
    t1          200 200  6.82  0.796 0.838  0.373 1.00 0.997
    """,
    3,
    [(method, measure) for method in (LEAST_SQUARES, PRINTED) for measure in _ACCURACY],
)

_FIVE = (POOLED, LOCAL, AVERAGE, SUBGRADIENT, PRINTED)

#: Tables 2 and 3: what differs between nodes, n, p; l2-errors of five methods, then their F1-scores.
HETEROGENEITY = _table(
    """
    covariate 100 100  0.318 291  142  117   0.360  0.995 0.186 0.182  0.266 0.988
    covariate 200 100  0.199 1.24 1.10 1.11  0.202  0.998 0.959 0.737  0.837 0.998
    covariate 200 200  0.223 586  325  273   0.396  0.998 0.101 0.0952 0.186 0.993
    noise     100 100  0.401 194  114  66.9  0.401  0.988 0.186 0.182  0.297 0.991
    noise     200 100  0.282 1.36 1.24 0.730 0.269  0.994 0.932 0.626  0.810 0.993
    noise     200 200  0.296 466  340  268   0.291  0.997 0.107 0.0952 0.461 0.997
    """,
    3,
    [(method, measure) for measure in ("l2_error", "f1") for method in _FIVE],
)

#: Table 4: noise, nodes; l2-errors of four methods.
NODES = _table(
    """
    normal       5  0.424 0.402 0.284 0.160
    normal      10  0.595 0.553 0.368 0.188
    normal      20  0.841 0.764 0.390 0.375
    exponential  5  0.431 0.409 0.299 0.153
    exponential 10  0.656 0.613 0.381 0.178
    exponential 20  0.967 0.880 0.434 0.427
    cauchy       5  0.692 0.662 0.585 0.274
    cauchy      10  1.26  1.20  0.742 0.307
    cauchy      20  2.40  2.24  0.900 0.967
    t1           5  0.698 0.670 0.579 0.286
    t1          10  1.29  1.23  0.733 0.321
    t1          20  2.54  2.37  1.07  0.954
    """,
    2,
    [(method, "l2_error") for method in _FIVE[1:]],
)

#: Table 5: noise, connection probability; deSMR.
SPARSITY = _table(
    """
    normal      0.3  0.178 1.00 0.929
    normal      0.5  0.176 1.00 0.934
    normal      0.8  0.179 1.00 0.934
    exponential 0.3  0.173 1.00 0.949
    exponential 0.5  0.169 1.00 0.940
    exponential 0.8  0.176 1.00 0.955
    cauchy      0.3  0.303 1.00 0.995
    cauchy      0.5  0.299 1.00 0.991
    cauchy      0.8  0.300 1.00 0.990
    t1          0.3  0.297 1.00 0.992
    t1          0.5  0.296 1.00 0.993
    t1          0.8  0.302 1.00 0.996
    """,
    2,
    [(PRINTED, measure) for measure in _ACCURACY],
)

#: Table 6: noise, initial estimator; deSMR after one outer round.
INITIAL = _table(
    """
    normal      lasso          0.204 0.974
    normal      median         0.360 0.958
    normal      perturbed-0.1  0.211 0.969
    normal      perturbed-0.5  0.331 0.940
    exponential lasso          0.215 0.975
    exponential median         0.422 0.966
    exponential perturbed-0.1  0.211 0.981
    exponential perturbed-0.5  0.344 0.935
    cauchy      lasso          7.62  0.653
    cauchy      median         1.40  0.982
    cauchy      perturbed-0.1  0.322 0.999
    cauchy      perturbed-0.5  0.556 0.992
    t1          lasso          6.61  0.665
    t1          median         1.50  0.983
    t1          perturbed-0.1  0.317 0.998
    t1          perturbed-0.5  0.585 0.989
    """,
    2,
    [(PRINTED, measure) for measure in ("l2_error", "f1")],
)

#: Table 7: scenario; RMSE and MAE of deSMR and of deLR, in standard deviations of the response.
CRIME: Figures = {
    (scenario,): {
        (method, measure): figure
        for method, name in ((PRINTED, "deSMR"), (LEAST_SQUARES, "deLR"))
        for measure, figure in zip(("rmse", "mae"), PAPER[name][scenario], strict=True)
    }
    for scenario in PAPER["deSMR"]
}
