"""Penalties on a coefficient: value, derivative for local linear approximation, and proximal map.

Every penalty is written for least squares on columns of unit variance, where its level ``lam`` has the
units of a coefficient: an isolated least-squares coefficient z is set to zero when ``|z| <= lam``. Weights
multiply the penalty of each coordinate; weight 0 leaves a coordinate (the intercept) free.

====== ============================================================= ===========================
name   value at t = |b|                                              where it comes from
====== ============================================================= ===========================
l1     lam t                                                         the paper
scad   quadratic spline, flat from a lam on, a = 3.7                  Fan and Li (2001)
mcp    lam t - t^2/(2 gamma), flat from gamma lam on, gamma = 3       Zhang (2010)
l0     lam^2/2 for t > 0                                             hard thresholding at lam
====== ============================================================= ===========================
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from desmr_node.core.arrays import Matrix
from desmr_node.errors import ConfigError


class Penalty(Protocol):
    """What the solvers need of a penalty; all arguments broadcast against each other."""

    def value(self, b: Matrix, lam: ArrayLike) -> Matrix:
        """pen_lam(|b|), elementwise."""

    def slope(self, b: Matrix, lam: ArrayLike) -> Matrix:
        """The l1 weight that linearises the penalty at |b|: its derivative there (Zou and Li 2008)."""

    def prox(self, z: Matrix, step: ArrayLike, lam: ArrayLike) -> Matrix:
        """A global minimiser over b of (b - z)^2 / 2 + step * pen_lam(|b|), elementwise."""


def soft_threshold(z: Matrix, threshold: ArrayLike) -> Matrix:
    """sign(z) (|z| - threshold)_+, the paper's S_t."""
    return np.sign(z) * np.maximum(np.abs(z) - threshold, 0.0)


@dataclass(frozen=True, slots=True)
class L1:
    """lam |b|."""

    def value(self, b: Matrix, lam: ArrayLike) -> Matrix:
        """lam |b|."""
        return np.asarray(lam) * np.abs(b)

    def slope(self, b: Matrix, lam: ArrayLike) -> Matrix:
        """Lam everywhere."""
        return np.asarray(lam) * np.ones_like(b)

    def prox(self, z: Matrix, step: ArrayLike, lam: ArrayLike) -> Matrix:
        """Soft thresholding at step * lam."""
        return soft_threshold(z, np.asarray(step) * np.asarray(lam))


def _best_of(
    z: Matrix, candidates: list[Matrix], penalty: Penalty, step: ArrayLike, lam: ArrayLike
) -> Matrix:
    """The candidate with the smallest prox objective, elementwise.

    SCAD and MCP are piecewise quadratic: their prox is the stationary point of one piece, clipped to that
    piece, or zero. Comparing the pieces is right for every step, also where a piece is concave and the
    textbook formula (valid only for step < a - 1, or step < gamma) is not.
    """
    shape = np.broadcast_shapes(np.shape(z), np.shape(step), np.shape(lam))
    stack = np.stack([np.broadcast_to(candidate, shape) for candidate in candidates])
    cost = 0.5 * (stack - np.abs(z)) ** 2 + np.asarray(step) * penalty.value(stack, lam)
    best: Matrix = np.take_along_axis(stack, np.argmin(cost, axis=0)[None], axis=0)[0]
    return np.sign(z) * best


@dataclass(frozen=True, slots=True)
class Scad:
    """Smoothly clipped absolute deviation: l1 near zero, constant (no bias) for large coefficients."""

    a: float = 3.7

    def value(self, b: Matrix, lam: ArrayLike) -> Matrix:
        """lam t; then (2 a lam t - t^2 - lam^2) / (2 (a-1)); then lam^2 (a+1) / 2."""
        t, lam = np.abs(b), np.asarray(lam)
        middle = (2 * self.a * lam * t - t**2 - lam**2) / (2 * (self.a - 1))
        return np.where(t <= lam, lam * t, np.where(t <= self.a * lam, middle, lam**2 * (self.a + 1) / 2))

    def slope(self, b: Matrix, lam: ArrayLike) -> Matrix:
        """Lam up to lam, then falling linearly to 0 at a lam."""
        lam = np.asarray(lam)
        return np.clip((self.a * lam - np.abs(b)) / (self.a - 1), 0.0, lam)

    def prox(self, z: Matrix, step: ArrayLike, lam: ArrayLike) -> Matrix:
        """Best of the three pieces."""
        t, step, lam = np.abs(z), np.asarray(step), np.asarray(lam)
        first = np.clip(t - step * lam, 0.0, lam)
        curvature = 1.0 - step / (self.a - 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            stationary = (t - step * self.a * lam / (self.a - 1)) / curvature
        # A concave middle piece has its minimum at an end, and both ends belong to the other pieces too.
        middle = np.where(curvature > 0, np.clip(np.nan_to_num(stationary), lam, self.a * lam), lam)
        last = np.maximum(t, self.a * lam)
        return _best_of(z, [first, middle, last], self, step, lam)


@dataclass(frozen=True, slots=True)
class Mcp:
    """Minimax concave penalty: the least concave penalty with a given range of no bias."""

    gamma: float = 3.0

    def value(self, b: Matrix, lam: ArrayLike) -> Matrix:
        """lam t - t^2 / (2 gamma), then gamma lam^2 / 2."""
        t, lam = np.abs(b), np.asarray(lam)
        return np.where(t <= self.gamma * lam, lam * t - t**2 / (2 * self.gamma), self.gamma * lam**2 / 2)

    def slope(self, b: Matrix, lam: ArrayLike) -> Matrix:
        """Falling linearly from lam at 0 to 0 at gamma lam."""
        lam = np.asarray(lam)
        return np.maximum(lam - np.abs(b) / self.gamma, 0.0)

    def prox(self, z: Matrix, step: ArrayLike, lam: ArrayLike) -> Matrix:
        """Best of zero, the inner piece and the flat piece."""
        t, step, lam = np.abs(z), np.asarray(step), np.asarray(lam)
        curvature = 1.0 - step / self.gamma
        with np.errstate(divide="ignore", invalid="ignore"):
            stationary = (t - step * lam) / curvature
        inner = np.where(curvature > 0, np.clip(np.nan_to_num(stationary), 0.0, self.gamma * lam), 0.0)
        last = np.maximum(t, self.gamma * lam)
        return _best_of(z, [inner, last], self, step, lam)


@dataclass(frozen=True, slots=True)
class L0:
    """The count of nonzero coefficients, scaled so that unit steps threshold hard at lam."""

    def value(self, b: Matrix, lam: ArrayLike) -> Matrix:
        """lam^2 / 2 for every nonzero."""
        return np.where(b != 0, np.asarray(lam) ** 2 / 2, 0.0)

    def slope(self, b: Matrix, lam: ArrayLike) -> Matrix:
        """(lam - |b|)_+, the derivative of (lam^2 - (lam - t)_+^2) / 2.

        The count itself has no derivative; this continuous penalty (Antoniadis 1997) has the same proximal
        map, hard thresholding at lam, and so the same solution in an orthogonal design.
        """
        slope: Matrix = np.maximum(np.asarray(lam) - np.abs(b), 0.0)
        return slope

    def prox(self, z: Matrix, step: ArrayLike, lam: ArrayLike) -> Matrix:
        """Hard thresholding at lam sqrt(step)."""
        return np.where(np.abs(z) > np.asarray(lam) * np.sqrt(step), z, 0.0)


_PENALTIES: dict[str, Penalty] = {"l1": L1(), "scad": Scad(), "mcp": Mcp(), "l0": L0()}


def penalty(name: str) -> Penalty:
    """The penalty of that name."""
    try:
        return _PENALTIES[name]
    except KeyError:
        raise ConfigError(f"penalty {name!r} is unknown: choose one of {', '.join(_PENALTIES)}") from None
