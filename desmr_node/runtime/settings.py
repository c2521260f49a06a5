"""What all members of a fit must have set alike, as it is compared between neighbours."""

import json
from typing import Any

from desmr_node.config.tables import SharedConfig
from desmr_node.core.spec import FitSpec


def settings_of(spec: FitSpec, seed: int) -> dict[str, str]:
    """Name to JSON value."""
    settings: dict[str, Any] = {**spec.model_dump(), "seed": seed}
    return {name.rstrip("_"): json.dumps(value) for name, value in settings.items()}


def default_settings() -> dict[str, str]:
    """The same where nothing is set."""
    return settings_of(FitSpec(), SharedConfig.model_fields["seed"].get_default())
