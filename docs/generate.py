"""Write docs/configuration.md from the models (`make docs`), or check that it is current (--check)."""

import sys
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from desmr_node.config import NetworkConfig, NodeConfig, settings

PAGE = Path(__file__).with_name("configuration.md")
HEAD = """\
# Settings

Written by `make docs` from the models in `desmr_node/config`. Files are TOML; a key that is not listed here
is refused, relative paths start at the folder of the file. A variable in the environment overrides the
file's value.
"""


def _table(model: type[BaseModel]) -> Iterator[str]:
    yield "| key | default | meaning | variable |"
    yield "|---|---|---|---|"
    for setting in settings(model):
        if setting.is_table:
            continue
        default = "**required**" if setting.required else _shown(setting.default)
        meaning = setting.description.replace("|", "\\|")
        variable = f"`{setting.variable}`" if setting.variable else ""
        yield f"| `{setting.key}` | {default} | {meaning} | {variable} |"


def _shown(value: object) -> str:
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if isinstance(value, int | float) else f'`"{value}"`'


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for title, model in (("node.toml", NodeConfig), ("network.toml", NetworkConfig)):
        parts.append(f"## {title}\n\n" + "\n".join(_table(model)) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page():
        raise SystemExit(f"{PAGE} is not what the models say; run `make docs`")
