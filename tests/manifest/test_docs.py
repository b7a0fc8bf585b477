"""The page on the manifest is true: its examples are valid, and it names every field."""

import re
from pathlib import Path

import pytest

from reconciler.manifest.inspection import inspect
from reconciler.manifest.model import Model, Timeouts
from reconciler.manifest.resolve import FileInput

PAGE = (Path(__file__).parents[2] / "docs" / "manifest.md").read_text()
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_are_valid(example: str) -> None:
    inspection = inspect([FileInput(name="example.yaml", content=example.encode())])

    assert inspection.problems == ()


@pytest.mark.parametrize("field", [*Model.model_fields, *Timeouts.model_fields])
def test_every_field_is_named(field: str) -> None:
    assert f"`{field}`" in PAGE
