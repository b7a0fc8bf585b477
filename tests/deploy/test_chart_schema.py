"""The schema of the values leaves no place where a typo goes unseen."""

from collections.abc import Iterator
from typing import Any

import jsonschema

from tests.deploy.chart_required import required
from tests.deploy.chart_table import schema

KUBERNETES_OWN = {
    "affinity",
    "dnsConfig",
    "global",
    "hub.volume",
    "resources.limits",
    "resources.requests",
}
"""Maps of any form: an API server judges them."""


def _nodes(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, node
    for name, each in node.get("properties", {}).items():
        yield from _nodes(each, f"{path}.{name}" if path else name)
    if isinstance(node.get("items"), dict):
        yield from _nodes(node["items"], f"{path}[]")


def _takes_maps(node: Any) -> bool:
    return "object" in (
        [node["type"]] if isinstance(node.get("type"), str) else node.get("type", [])
    )


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())


def test_no_map_takes_unknown_names_but_kubernetes_own() -> None:
    open_ = {
        path
        for path, node in _nodes(schema(), "")
        if _takes_maps(node) and "additionalProperties" not in node and not path.endswith("[]")
    }
    assert open_ == KUBERNETES_OWN
    loose = [
        path
        for path, node in _nodes(schema(), "")
        if "properties" in node and node["additionalProperties"] is not False
    ]
    assert loose == []


def test_every_value_is_described() -> None:
    dumb = [
        path
        for path, node in _nodes(schema(), "")
        if not node.get("description") and path and not path.endswith("[]")
    ]
    assert dumb == []


def test_a_pool_takes_what_the_chart_takes() -> None:
    pool = schema()["$defs"]["pool"]
    assert pool["additionalProperties"] is False
    for name, node in pool["properties"].items():
        assert node == {"$ref": f"#/properties/{name}"}
        assert name in schema()["properties"]


def test_what_no_null_may_take_away_is_as_the_defaults_are() -> None:
    assert schema()["$defs"]["complete"] == required()  # python -m tests.deploy.written
    assert {"$ref": "#/$defs/complete"} in schema()["allOf"]
