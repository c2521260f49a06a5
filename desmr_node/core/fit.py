"""The result of a fit, in the data's own units, with an honest account of how it ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from desmr_node.core.agreement import Ground, Plan, Result, Verdict
from desmr_node.core.arrays import Mask, Matrix, Vector
from desmr_node.core.contributions import Evaluation
from desmr_node.core.spec import FitSpec
from desmr_node.errors import DataError


def _loss_unit(ground: Ground, spec: FitSpec) -> float:
    """What one unit of the scaled loss is in the data's units."""
    unit = ground.scaling.unit
    return unit if spec.loss == "median" else unit**2


def _lambda_unit(ground: Ground, spec: FitSpec) -> float:
    """The check loss has slopes without a unit; least squares has those of the response."""
    return 1.0 if spec.loss == "median" else ground.scaling.unit


@dataclass(frozen=True, slots=True)
class OuterRound:
    """One line of a fit's history; `moved`, `spread` over members and `changed` in its standard errors."""

    outer: int
    admm_rounds: int
    candidates: int
    lambda_: float
    density: float
    objective: float
    nonzeros: int
    moved: float
    spread: float
    changed: float
    accepted: bool

    @classmethod
    def of(cls, plan: Plan, verdict: Verdict, admm_rounds: int, ground: Ground, spec: FitSpec) -> Self:
        """What `verdict` said of the round that carried out `plan`."""
        return cls(
            outer=plan.outer + 1,
            admm_rounds=admm_rounds,
            candidates=len(plan.lambdas),
            lambda_=verdict.lambda_ * _lambda_unit(ground, spec),
            density=plan.density / ground.scaling.unit,
            objective=verdict.objective * _loss_unit(ground, spec),
            nonzeros=verdict.nonzeros - ground.scaling.intercept,
            moved=verdict.moved,
            spread=verdict.spread,
            changed=verdict.changed,
            accepted=verdict.outcome != "rejected",
        )


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of prediction on all hold-out rows of the network, each by its own node's model."""

    rows: int
    rmse: float
    mae: float


@dataclass(frozen=True, slots=True)
class MemberFit:
    """What one node holds at the end: its own model, and the network's account of the fit.

    All but ``coef`` and ``intercept`` is the same on every node, bit for bit; see `NetworkFit`. ``scale`` is
    what the network divided each column by: its standard deviation (root mean square without an intercept).
    """

    coef: Vector
    intercept: float
    lambda_: float
    support: Mask
    converged: bool
    message: str
    objective: float
    pilot_objective: float
    members: int
    total_rows: int
    rounds: int
    admm_rounds: int
    history: tuple[OuterRound, ...]
    errors: Errors | None = None
    scale: Vector | None = None

    @classmethod
    def of(
        cls,
        *,
        model: tuple[Vector, float],
        lambda_: float,
        history: list[OuterRound],
        result: Result,
        verdict: Verdict | None,
        rounds: int,
        ground: Ground,
        spec: FitSpec,
        evaluation: Evaluation | None = None,
    ) -> Self:
        """Put the pieces together and say how it ended."""
        coef, intercept = model
        converged = verdict is not None and verdict.outcome == "converged"
        return cls(
            coef=coef,
            intercept=intercept,
            lambda_=lambda_ * _lambda_unit(ground, spec),
            support=result.support[int(spec.intercept) :] if result.keep_fit else coef != 0,
            converged=converged,
            message=_ending(history, verdict, converged, result, spec),
            objective=result.objective * _loss_unit(ground, spec),
            pilot_objective=result.start_objective * _loss_unit(ground, spec),
            members=ground.size,
            total_rows=round(ground.total_rows),
            rounds=rounds,
            admm_rounds=history[-1].admm_rounds,
            history=tuple(history),
            errors=_errors(evaluation, ground.scaling.unit),
            scale=ground.scaling.spread if spec.scaling == "network" else None,
        )


def _errors(evaluation: Evaluation | None, unit: float) -> Errors | None:
    if evaluation is None or evaluation.count == 0:
        return None
    rows = float(evaluation.count)
    rmse, mae = float(np.sqrt(evaluation.squares / rows)), float(evaluation.absolute / rows)
    return Errors(round(rows), rmse * unit, mae * unit)


@dataclass(frozen=True, slots=True)
class NetworkFit:
    """One model per node; they agree to within `history[-1].spread` standard errors, and on `support`.

    Attributes
    ----------
    coef : (m, p), intercept : (m,)
        Each node's model, in the units of the data.
    lambda_ : the penalty level, given or chosen
    support : (p,) the coefficients that the network holds to be nonzero
    converged : whether the last round moved the fit by no more than the tolerance
    message : how the fit ended, in a sentence
    objective, pilot_objective :
        Mean loss plus penalty, over all rows, of the members' mean model and of the mean of the pilots; the
        first is never the larger.
    rounds, admm_rounds, bytes_sent :
        Message rounds with the network sums, ADMM rounds alone, bytes sent over all edges.
    history : one `OuterRound` per outer round
    left_out : members that seemed to lie and were left out (`FitSpec.edge_force`); their rows hold NaN
    """

    coef: Matrix
    intercept: Vector
    lambda_: float
    support: Mask
    converged: bool
    message: str
    objective: float
    pilot_objective: float
    rounds: int
    admm_rounds: int
    bytes_sent: int
    history: tuple[OuterRound, ...]
    left_out: tuple[int, ...] = ()

    @classmethod
    def gather(cls, fits: Sequence[MemberFit | None], bytes_sent: int) -> Self:
        """All members' models side by side; None for those that were left out."""
        first = next(fit for fit in fits if fit is not None)
        nothing = np.full_like(first.coef, np.nan)
        return cls(
            coef=np.stack([nothing if fit is None else fit.coef for fit in fits]),
            intercept=np.array([np.nan if fit is None else fit.intercept for fit in fits]),
            lambda_=first.lambda_,
            support=first.support,
            converged=first.converged,
            message=first.message,
            objective=first.objective,
            pilot_objective=first.pilot_objective,
            rounds=first.rounds,
            admm_rounds=first.admm_rounds,
            bytes_sent=bytes_sent,
            history=first.history,
            left_out=tuple(j for j, fit in enumerate(fits) if fit is None),
        )

    def predict(self, X: Matrix, node: int = 0) -> Vector:
        """Fitted values for new rows by one node's model."""
        rows = np.asarray(X, dtype=np.float64)
        if rows.ndim not in (1, 2) or rows.shape[-1] != self.coef.shape[1]:
            raise DataError(
                f"X has shape {rows.shape} and the model {self.coef.shape[1]} features: give as many columns"
            )
        fitted: Vector = rows @ self.coef[node] + self.intercept[node]
        return fitted


def _ending(
    history: list[OuterRound], verdict: Verdict | None, converged: bool, result: Result, spec: FitSpec
) -> str:
    spent = f"{len(history)} outer rounds ({history[-1].admm_rounds} ADMM rounds)"
    if not result.keep_fit and converged:
        return f"converged in {spent} to no better than the mean of the pilots, which is returned"
    if not result.keep_fit:
        return (
            f"no step in {spent} improved on the mean of the pilots, which is returned instead: "
            "raise outer or inner, or look for a member whose data do not fit the others"
        )
    assert verdict is not None  # keep_fit implies an accepted round
    if converged:
        return f"converged in {spent}: the last moved the fit by {verdict.moved:.2g} standard errors"
    return (
        f"not converged in {spent}: the last accepted one still moved the fit by {verdict.moved:.2g} "
        f"standard errors, members differ by {verdict.spread:.2g} (tolerance {spec.tolerance:g}): "
        "raise outer or inner, or the tolerance"
    )
