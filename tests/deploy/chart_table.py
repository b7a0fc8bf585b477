"""The table of the chart's values in its README, from its schema and its defaults."""

import json
from collections.abc import Iterator
from typing import Any

import yaml

from tests.deploy.helm import CHART

README = CHART / "README.md"
SCHEMA = CHART / "values.schema.json"
_BEGIN = "<!-- values: written by python -m tests.deploy.written -->\n"
_END = "<!-- end of values -->\n"


def schema() -> Any:
    return json.loads(SCHEMA.read_text(encoding="utf-8"))


def defaults() -> Any:
    return yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))


def table() -> str:
    """Markdown: a row a value, in the order of the schema."""
    rows = "".join(
        f"| `{path}` | {default} | {text} |\n"
        for path, default, text in _rows(schema(), defaults())
    )
    return f"| value | default | |\n|---|---|---|\n{rows}"


def overridden() -> list[str]:
    """What a pool may say of its own."""
    return sorted(schema()["$defs"]["pool"]["properties"])


def page(text: str) -> str:
    """The README with its table as it should be."""
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    names = ", ".join(f"`{each}`" for each in overridden())
    return f"{before}{_BEGIN}\n{table()}\nA pool may have its own {names}.\n\n{_END}{after}"


def leaves(node: Any, path: str = "") -> Iterator[str]:
    """The paths of a schema that stand for values."""
    for path_of, _, _ in _rows(node, {}, path):
        yield path_of


def _rows(node: Any, given: Any, path: str = "") -> Iterator[tuple[str, str, str]]:
    for name, each in node["properties"].items():
        own = f"{path}.{name}" if path else name
        default = given.get(name) if isinstance(given, dict) else None
        has = isinstance(given, dict) and name in given
        if "properties" in each:
            yield own, "", _cell(each["description"])
            yield from _rows(each, default, own)
        else:
            yield own, f"`{json.dumps(default)}`" if has else "", _cell(each["description"])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
