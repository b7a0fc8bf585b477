"""The JSON schemas (2020-12) that editors check manifests and fleet files with, generated from the
models.

That of the manifest offers what this release takes: the values in `supported` alone, and no null
where a key is better left out.
"""

import json
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from reconciler.manifest.fleet_model import Fleet
from reconciler.manifest.model import Document
from reconciler.manifest.supported import ACTED_ON
from reconciler.plan.desired import JsonValue

_Schema = dict[str, Any]


def manifest_schema() -> _Schema:
    """The schema of one document."""
    schema = _generated(Document)
    for pattern, values in ACTED_ON.items():
        _limit(schema, pattern, values)
    _prune(schema)
    return _entitled("ModelManifest", schema)


def fleet_schema() -> _Schema:
    """The schema of a fleet file."""
    return _entitled("Fleet", _generated(Fleet))


def schema_text(schema: _Schema) -> str:
    """As it stands in the folder `schema`."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _generated(model: type[BaseModel]) -> _Schema:
    schema = model.model_json_schema(by_alias=True, schema_generator=GenerateJsonSchema)
    _tidy(schema)
    return schema


def _entitled(title: str, schema: _Schema) -> _Schema:
    return {"$schema": GenerateJsonSchema.schema_dialect, "title": title, **schema}


def _tidy(schema: Any) -> None:
    """Without pydantic's titles; keys of maps that have a pattern take no other keys."""
    if isinstance(schema, list):
        for item in schema:
            _tidy(item)
    if not isinstance(schema, dict):
        return
    if isinstance(schema.get("title"), str):
        del schema["title"]
    if "patternProperties" in schema:
        schema["additionalProperties"] = False
    for inner in schema.values():
        _tidy(inner)


def _prune(schema: _Schema) -> None:
    """Without the definitions that nothing refers to any more."""
    definitions = schema["$defs"]
    while unused := [name for name in definitions if f'"#/$defs/{name}"' not in json.dumps(schema)]:
        for name in unused:
            del definitions[name]


def _limit(schema: _Schema, pattern: str, values: tuple[JsonValue, ...]) -> None:
    """Only what is acted on may be written where this release does not do more."""
    parts = ["spec", *pattern.split(".")]
    parent: Any = schema
    for part in parts[:-1]:
        parent = _below(schema, parent, part)
    parent["properties"][parts[-1]] = {
        "description": _description(schema, parent["properties"][parts[-1]], values),
        **({"default": values[0]} if values[0] is not None else {}),
        "enum": list(values),
    }


def _description(schema: _Schema, limited: _Schema, values: tuple[JsonValue, ...]) -> str:
    text = limited.get("description") or _resolved(schema, limited).get("description", "")
    return text if len(values) > 1 else f"Not supported yet. {text}"


def _below(schema: _Schema, parent: _Schema, part: str) -> _Schema:
    if part != "*":
        return _resolved(schema, parent["properties"][part])
    if "items" in parent:
        return _resolved(schema, parent["items"])
    inner = parent.get("additionalProperties") or next(iter(parent["patternProperties"].values()))
    return _resolved(schema, inner)


def _resolved(schema: _Schema, part: _Schema) -> _Schema:
    reference = str(part.get("$ref", ""))
    found: _Schema = schema["$defs"][reference.rpartition("/")[2]] if reference else part
    return found
