"""What `plan --output json` prints, held against the published schema."""

import json
from functools import cache
from typing import Any

import jsonschema

from reconciler.cli.plan_schema import plan_schema

Validator = jsonschema.Draft202012Validator


@cache
def strict() -> Validator:
    """Knows no field that the schema does not have: of this release there is none."""
    schema = plan_schema()
    for definition in schema["$defs"].values():
        if "properties" in definition:
            definition["additionalProperties"] = False
    return Validator(schema)


def plan_of(stdout: str) -> Any:
    """The answer of the command, which is what the schema says."""
    answer = json.loads(stdout)
    strict().validate(answer)
    return answer
