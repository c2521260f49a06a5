"""What to fit and how: the settings that all members of a network share."""

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from desmr_node.core.force import AUTO
from desmr_node.errors import ConfigError


class FitSpec(BaseModel):
    """The fit all nodes agree on. Defaults estimate a sparse median regression without tuning.

    ``FitSpec(update="linearised", metric="identity", penalty="l1", outer=10, inner=50, tolerance=0.0)`` is
    the paper's algorithm; ``loss="squared"`` is its least-squares sibling deLR.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    loss: Literal["median", "squared"] = Field("median", description="check loss, or least squares (deLR)")
    quantile: float = Field(0.5, gt=0.0, lt=1.0, description="level of the check loss; 0.5 is the median")
    penalty: Literal["l1", "scad", "mcp", "l0"] = Field(
        "scad", description="scad estimates and selects best, l1 predicts best"
    )
    lambda_: Literal["bic"] | float = Field(
        "bic", description="penalty level, or 'bic': chosen by the network with `score`"
    )
    lambdas: int = Field(20, ge=2, le=200, description="candidates tried at once when lambda_ is 'bic'")
    score: Literal["likelihood-ratio", "bic-squares", "bic-check"] = Field(
        "likelihood-ratio", description="what a candidate lambda is judged by"
    )
    update: Literal["exact", "linearised"] = Field(
        "exact", description="local update: to the end or one step"
    )
    metric: Literal["pooled", "identity"] = Field(
        "pooled", description="metric in which neighbours must agree"
    )
    tau: Literal["auto"] | float = Field("auto", description="pull of an edge; 'auto' asks the graph")
    outer: int = Field(20, ge=1, description="most outer rounds (new pseudo-responses)")
    inner: int = Field(10, ge=1, description="ADMM rounds in each outer round")
    tolerance: float = Field(
        0.5, ge=0.0, description="stop when a round moves the fit by less than this many standard errors"
    )
    intercept: bool = Field(True, description="an unpenalised constant")
    scaling: Literal["network", "none"] = Field(
        "network", description="penalise coefficients per network-wide standard deviation, or as they are"
    )
    weights: Literal["rows", "nodes"] = Field("rows", description="every row counts the same, or every node")
    bandwidth: Literal["scale", "paper"] = Field(
        "scale", description="density bandwidth: from the residuals' scale, or the paper's rule"
    )
    smoothing: Literal["kernel", "none"] = Field(
        "kernel", description="pseudo-responses smoothed over the bandwidth, or the paper's jump at zero"
    )
    sparsity: int | None = Field(
        None, ge=1, le=1_000_000, description="number of nonzeros s that bandwidth='paper' assumes"
    )
    max_lag: int = Field(0, ge=0, description="rounds a neighbour may lag behind; 0 is lock-step")
    edge_force: Literal["off", "auto"] | float = Field(
        "off",
        description="most that an edge may pull, against members that lie: in standard deviations of an "
        "honest pull; 'auto' is 10",
    )
    suspects: Literal["drop", "report"] = Field(
        "drop",
        description="with edge_force: leave out neighbours that seem to lie, or only report them",
    )

    @property
    def strength(self) -> float | None:
        """Half the side of the box of an edge's dual, in standard deviations; None without one."""
        if self.edge_force == "off":
            return None
        return AUTO if self.edge_force == "auto" else float(self.edge_force)

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise ConfigError(_explain(error)) from None

    @model_validator(mode="after")
    def _settings_fit_together(self) -> Self:
        if self.lambda_ != "bic" and self.lambda_ < 0:
            raise ValueError(
                f"lambda_ is {self.lambda_}: a penalty level cannot be negative; use 0 or more, or 'bic'"
            )
        if self.lambda_ != "bic" and self.lambda_ > 1e100:
            raise ValueError(f"lambda_ is {self.lambda_}: anything above 1 already removes every variable")
        if not isinstance(self.edge_force, str) and self.edge_force <= 0:
            raise ValueError(f"edge_force is {self.edge_force}: give a positive number, 'auto', or 'off'")
        if self.edge_force != "off" and self.loss == "squared":
            raise ValueError(
                "edge_force needs loss = 'median': a row of least squares may pull as hard as it likes, so "
                "no pull is too hard for an honest member"
            )
        if self.tau != "auto" and self.tau <= 0:
            raise ValueError(f"tau is {self.tau}: give a positive number, or 'auto'")
        if self.bandwidth == "paper" and self.sparsity is None:
            raise ValueError(
                "bandwidth is 'paper' but sparsity is missing: give the number of nonzeros, or use 'scale'"
            )
        if self.loss == "squared" and self.quantile != 0.5:
            raise ValueError(
                f"quantile is {self.quantile} but loss is 'squared', which has none: use loss = 'median'"
            )
        if self.loss == "squared" and self.score == "bic-check":
            raise ValueError("score is 'bic-check' but loss is 'squared': use score = 'bic-squares'")
        return self


def _explain(error: ValidationError) -> str:
    """One sentence per setting, in the user's words."""
    sentences: dict[str, str] = {}
    for mistake in error.errors():
        key = str(mistake["loc"][0]) if mistake["loc"] else ""
        text = mistake["msg"].removeprefix("Value error, ")
        if not key:
            sentences[key] = text
        elif mistake["type"] == "extra_forbidden":
            known = ", ".join(FitSpec.model_fields)
            sentences[key] = f"{key} is not a setting of FitSpec: the settings are {known}"
        elif key in sentences:  # the other branch of a union
            sentences[key] += f", or {text[0].lower()}{text[1:]}"
        else:
            meaning = FitSpec.model_fields[key].description
            sentences[key] = f"{key} ({meaning}) is {mistake['input']!r}: {text[0].lower()}{text[1:]}"
    return "; ".join(sentences.values())
