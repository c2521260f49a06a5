import pytest
from pydantic import ValidationError

from desmr_node import ConfigError, FitSpec


def test_defaults_are_the_documented_ones() -> None:
    spec = FitSpec()
    assert (spec.loss, spec.quantile, spec.penalty, spec.lambda_) == ("median", 0.5, "scad", "bic")
    assert (spec.update, spec.metric, spec.intercept, spec.scaling) == ("exact", "pooled", True, "network")
    assert (spec.max_lag, spec.edge_force) == (0, "off")


def test_a_spec_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        FitSpec().outer = 3  # type: ignore[misc]


def test_every_setting_says_what_it_is() -> None:
    assert all(field.description for field in FitSpec.model_fields.values())


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"lambda_": -0.1}, r"lambda_ is -0.1: a penalty level cannot be negative; use 0 or more, or 'bic'"),
        ({"lambda_": "cv"}, r"lambda_ .* is 'cv': input should be 'bic', or input should be a valid number"),
        ({"lambda_": float("nan")}, "lambda_ .* is nan"),
        ({"quantile": 0.0}, r"quantile .* is 0.0: input should be greater than 0"),
        ({"quantile": 1.0}, r"quantile .* is 1.0: input should be less than 1"),
        ({"quantile": 1.5}, "quantile .* is 1.5"),
        ({"penalty": "ridge"}, "penalty .* is 'ridge': input should be 'l1', 'scad', 'mcp' or 'l0'"),
        ({"loss": "huber"}, "loss .* is 'huber'"),
        ({"outer": 0}, "outer .* is 0: input should be greater than or equal to 1"),
        ({"inner": -1}, "inner .* is -1"),
        ({"tolerance": -1.0}, "tolerance .* is -1.0"),
        ({"tau": 0.0}, "tau is 0.0: give a positive number, or 'auto'"),
        ({"edge_force": 0.0}, "edge_force is 0.0: give a positive number, 'auto', or 'off'"),
        ({"edge_force": "on"}, "edge_force .*is 'on'"),
        ({"edge_force": "auto", "loss": "squared"}, "edge_force needs loss = 'median'"),
        ({"suspects": "shoot"}, "suspects .*is 'shoot'"),
        ({"max_lag": -2}, "max_lag .* is -2"),
        ({"bandwidth": "paper"}, "bandwidth is 'paper' but sparsity is missing: give the number of nonzeros"),
        ({"loss": "squared", "quantile": 0.3}, "quantile is 0.3 but loss is 'squared'"),
        ({"loss": "squared", "score": "bic-check"}, "use score = 'bic-squares'"),
        ({"lamda": 0.1}, "lamda is not a setting of FitSpec: the settings are loss, quantile"),
    ],
)
def test_a_bad_setting_is_named_with_its_remedy(settings: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        FitSpec(**settings)
