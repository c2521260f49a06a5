"""The density of the noise at zero, which turns the check loss into least squares.

Nodes agree on it through one network sum. Totals are all such a sum reveals, so there is no median over
nodes to lean on; instead every row adds 1 to a histogram of |residual| with fixed, scale-free bins. The
total yields a robust scale (its median), hence a bandwidth, and the kernel estimate itself: a poisoned
member weighs as much as its rows, whatever it puts in them.
"""

from dataclasses import dataclass

import numpy as np

from desmr_node.core.arrays import Counts, Matrix, Vector

#: A normal sample's median |residual| over its standard deviation.
_MAD_OF_NORMAL = 0.6744897501960817
#: Density times scale is 0.40 for normal, 0.47 for Cauchy and 0.49 for Laplace noise. An estimate beyond
#: this range is an artefact (a negative lobe of the kernel, exact ties) and make the Newton step absurd.
_SHAPE_RANGE = (0.05, 5.0)
_BINS_PER_OCTAVE = 8


def kernel(u: Matrix) -> Matrix:
    """The paper's kernel on [-1, 1], (105 - 525 u^2 + 735 u^4 - 315 u^6) / 64: integrates to 1, order 4."""
    v = np.minimum(np.abs(u), 1.0) ** 2
    return (105.0 - v * (525.0 - v * (735.0 - 315.0 * v))) / 64.0


def kernel_distribution(u: Matrix) -> Matrix:
    """The integral of `kernel` up to u: a smooth stand-in for the indicator 1{0 <= u}."""
    v = np.clip(u, -1.0, 1.0)
    w = v * v
    return 0.5 + v * (105.0 - w * (175.0 - w * (147.0 - 45.0 * w))) / 64.0


def kernel_density(residuals: Vector, bandwidth: float) -> float:
    """Equation (density estimation) of the paper, row by row."""
    return float(np.mean(kernel(residuals / bandwidth)) / bandwidth)


def paper_bandwidth(outer: int, sparsity: int, n: float, m: int, c0: float = 0.013) -> float:
    """h_v of the paper's section 4.1: for unit-scale noise and a known number of nonzeros."""
    n = max(n, 2.0)
    rate = np.sqrt(sparsity * np.log(n) / n)
    return float(rate + sparsity**-0.5 * (c0 * sparsity**2 * np.log(n) / m) ** ((outer + 1) / 2))


def scale_bandwidth(scale: float, total_rows: float) -> float:
    """3 s N^(-1/5), s a robust scale of the residuals: needs no sparsity and no unit."""
    return 3.0 * scale * float(max(total_rows, 2.0) ** -0.2)


@dataclass(frozen=True, slots=True)
class Bins:
    """Bins for |residual|: eight to the octave from 2**lowest on, one below for the rest, one above.

    Edges are read off the bits of the number, so that every machine sorts a residual into the same bin.
    """

    lowest: int
    octaves: int

    @classmethod
    def around(cls, scale: float) -> "Bins":
        """Enough bins for a density and the next scale once the scale is known within a factor of 8."""
        # Kept where every edge is a normal number: only those are read off the bits.
        return cls(int(np.clip(np.floor(np.log2(scale)) - 5, -1000, 1000)), 9)

    @property
    def size(self) -> int:
        """Number of counts, with the two open ends."""
        return _BINS_PER_OCTAVE * self.octaves + 2

    def edges(self) -> Vector:
        """The finite edges, ascending: `size - 1` of them."""
        step = np.arange(_BINS_PER_OCTAVE * self.octaves + 1)
        octave, eighth = np.divmod(step, _BINS_PER_OCTAVE)
        edges: Vector = np.ldexp(1.0 + eighth / _BINS_PER_OCTAVE, self.lowest + octave)
        return edges

    def count(self, magnitudes: Matrix) -> Counts:
        """Rows per bin, for each column of an (n, L) array of |residuals|: (size, L)."""
        bits = np.ascontiguousarray(magnitudes, dtype=np.float64).view(np.int64)
        # Keep the exponent and three bits of the mantissa: the number of eighths of an octave above 2**-1023.
        code = (bits >> 49) - ((self.lowest + 1023) * _BINS_PER_OCTAVE - 1)
        np.clip(code, 0, self.size - 1, out=code)
        columns = magnitudes.shape[1]
        code += np.arange(columns) * self.size
        return np.bincount(code.ravel(), minlength=columns * self.size).reshape(columns, self.size).T


def robust_scale(bins: Bins, counts: Vector) -> float:
    """Standard deviation that a normal sample with this median |residual| would have; never zero.

    Where more than half of the residuals are exactly zero the next quantiles speak instead, and where all
    are, the lowest edge.
    """
    for level, normal in ((0.5, _MAD_OF_NORMAL), (0.75, 1.1503493803760079), (0.95, 1.959963984540054)):
        value = _quantile(bins, counts, level)
        if value > 0:
            return value / normal
    return float(bins.edges()[0])


def _quantile(bins: Bins, counts: Vector, level: float) -> float:
    """The level-quantile of |residual|, linear within a bin; 0 if it lies below the lowest edge."""
    edges = bins.edges()
    cumulative = np.cumsum(counts)
    target = level * cumulative[-1]
    i = int(np.searchsorted(cumulative, target))
    if i == 0:
        return 0.0
    if i == bins.size - 1:
        return float(edges[-1])
    share = (target - cumulative[i - 1]) / max(counts[i], 1e-300)
    return float(edges[i - 1] + share * (edges[i] - edges[i - 1]))


def binned_density(bins: Bins, counts: Vector, bandwidth: float, scale: float) -> float:
    """`kernel_density` from bin counts, kept within what `scale` makes plausible."""
    edges = bins.edges()
    middles = np.concatenate([[0.0], (edges[:-1] + edges[1:]) / 2, [np.inf]])
    weights = kernel(middles / bandwidth)
    # The lowest bin reaches down to zero and may be as wide as the kernel: take the kernel's mean over it.
    reach = edges[0] / bandwidth
    if reach > 1e-3:
        weights[0] = (kernel_distribution(reach) - 0.5) / reach
    estimate = float(counts @ weights) / (bandwidth * float(np.sum(counts)))
    return float(np.clip(estimate, _SHAPE_RANGE[0] / scale, _SHAPE_RANGE[1] / scale))
