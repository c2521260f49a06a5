"""What is wrong with a setting and where: the words that the tables and the readers of a file share."""

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any

Loc = tuple[str | int, ...]


class RefusedError(ValueError):
    """Several mistakes at once: each a place below the model that was checked, and what is wrong there."""

    def __init__(self, mistakes: Iterable[tuple[Loc, str]]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("; ".join(f"{dotted(loc)} {text}".lstrip() for loc, text in self.mistakes))

    @classmethod
    def unless_none(cls, mistakes: Iterable[tuple[Loc, str]]) -> None:
        """Raise it if there is any mistake."""
        refused = cls(mistakes)
        if refused.mistakes:
            raise refused


def dotted(loc: Loc) -> str:
    """A place as messages name it, such as neighbours[0].address."""
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def shown(value: Any) -> str:
    """A value as one would write it in TOML, on one short line."""
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}" if value else "an empty list"
    text = (
        json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool | int | float) else str(value)
    )
    return text if len(text) <= 80 else f"{text[:77]}..."


def nearest(name: str, known: Iterable[str], prefix: str = "") -> str:
    """The known name that an unknown one may stand for, or all of them."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {prefix}{close[0]}?" if close else f"write one of {', '.join(names)}"
