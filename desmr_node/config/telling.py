"""What pydantic finds wrong, as sentences with the key and the remedy."""

import difflib
from collections.abc import Iterator

from pydantic import BaseModel, ValidationError

from desmr_node.config.mistakes import Loc, RefusedError, dotted, nearest, shown
from desmr_node.config.network import NetworkConfig
from desmr_node.config.node import NodeConfig
from desmr_node.config.reference import settings, table_type, written
from desmr_node.config.tables import FitTable

_ADVICE = {
    "bool_type": "write true or false",
    "finite_number": "write a finite number",
    "float_type": "write a number",
    "int_type": "write a whole number",
    "literal_error": "write {expected}",
    "greater_than": "write a number above {gt:g}",
    "greater_than_equal": "write a number of at least {ge:g}",
    "less_than": "write a number below {lt:g}",
    "less_than_equal": "write a number of at most {le:g}",
    "model_type": "write a table",
    "model_attributes_type": "write a table",
    "path_type": "write a path in quotes",
    "string_type": "write text in quotes",
    "string_too_short": "write a name in quotes",
    "tuple_type": "write a list in brackets",
}
#: Mistakes of shape, where an example says more than a rule.
_BETTER_SHOWN = {"model_type", "too_long", "too_short", "tuple_type"}
_NOT_WRITTEN = {(NodeConfig, "seed"), (NetworkConfig, "seed")}


def mistakes_told(error: ValidationError, model: type[BaseModel], above: Loc) -> Iterator[tuple[Loc, str]]:
    """What pydantic found, as one text per place; the branches of a union are told together."""
    told: dict[Loc, str] = {}
    for mistake in error.errors(include_url=False):
        loc, holder, example = _place(model, mistake["loc"])
        place = above + tuple("lambda" if part == "lambda_" else part for part in loc)
        context = mistake.get("ctx", {})
        refused = context.get("error")
        if isinstance(refused, RefusedError):
            yield from ((place + below, text) for below, text in refused.mistakes)
        elif mistake["type"] == "extra_forbidden":
            yield place, f"is not a known key: {_nearest_key(model, holder, place)}"
        elif mistake["type"] == "missing":
            yield place, f"is missing: write {example}"
        elif not loc:  # a FitSpec whose settings contradict each other; its text starts with the key
            key, _, text = mistake["msg"].removeprefix("Value error, ").partition(" ")
            yield (*above, written(key)), text.replace("lambda_", "lambda")
        else:
            if refused is not None:
                advice = str(refused)
            elif example is not None and mistake["type"] in _BETTER_SHOWN:
                advice = f"write {example}"
            else:
                rule = _ADVICE.get(mistake["type"])
                advice = mistake["msg"] if rule is None else rule.format(**context)
            if place in told:
                told[place] += f" or {advice.removeprefix('write ')}"
            else:
                told[place] = f"is {shown(mistake['input'])}: {advice}"
    yield from told.items()


def _place(model: type[BaseModel], loc: Loc) -> tuple[Loc, type[BaseModel], str | None]:
    """A place without the names of union branches, the table it lies in, and what to write there."""
    place: list[str | int] = []
    holder, example = model, None
    inside: type[BaseModel] | None = model
    for part in loc:
        if isinstance(part, int):
            place.append(part)
        elif inside is not None and part in inside.model_fields:
            holder, field = inside, inside.model_fields[part]
            example = next(iter(field.examples or ()), None)
            inside, _ = table_type(field.annotation)
            place.append(part)
        elif inside is not None:  # a key that is not known
            holder = inside
            place.append(part)
    return tuple(place), holder, example


def _nearest_key(model: type[BaseModel], holder: type[BaseModel], place: Loc) -> str:
    """What an unknown key may stand for: one of its own table, or one of the same name in another."""
    *above, key = place
    known = [written(name) for name in holder.model_fields if (holder, name) not in _NOT_WRITTEN]
    table = dotted(tuple(above))
    if not difflib.get_close_matches(str(key), known, n=1) and model is not FitTable:
        for setting in settings(model):
            if setting.path[-1] == key:
                return f"did you mean {setting.key}?"
    return nearest(str(key), known, f"{table}." if table else "")
