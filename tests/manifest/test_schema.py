"""The JSON schema is fresh, takes what the parser takes, and what is published is valid."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from reconciler.cli.plan_schema import plan_schema
from reconciler.manifest.fleet import parse_fleet
from reconciler.manifest.inspection import inspect
from reconciler.manifest.resolve import FileInput
from reconciler.manifest.schema import fleet_schema, manifest_schema, schema_text
from reconciler.manifest.supported import ACTED_ON
from tests.manifest.texts import manifest, model

ROOT = Path(__file__).parents[2]
EVERY = sorted([*ROOT.glob("manifests/**/*.yaml"), *ROOT.glob("examples/**/*.yaml")])
FLEETS = [file for file in EVERY if file.name == "fleet.yaml"]
PUBLISHED = [file for file in EVERY if file not in FLEETS]
VALIDATOR = jsonschema.Draft202012Validator(manifest_schema())


def documents(file: Path) -> Iterator[Any]:
    with file.open() as stream:
        yield from YAML(typ="safe", pure=True).load_all(stream)


def complaints(entry: dict[str, object]) -> list[str]:
    document = json.loads(manifest(entry))
    return [error.message for error in VALIDATOR.iter_errors(document)]


@pytest.mark.parametrize(
    ("name", "schema"),
    [("manifest", manifest_schema()), ("fleet", fleet_schema()), ("plan", plan_schema())],
)
def test_the_schema_files_are_fresh(name: str, schema: dict[str, Any]) -> None:
    """Otherwise: make schema."""
    assert (ROOT / "schema" / f"{name}.schema.json").read_text() == schema_text(schema)
    jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("file", PUBLISHED, ids=lambda file: str(file.relative_to(ROOT)))
def test_published_manifests_satisfy_the_schema(file: Path) -> None:
    for document in documents(file):
        VALIDATOR.validate(document)


@pytest.mark.parametrize("file", FLEETS, ids=lambda file: str(file.relative_to(ROOT)))
def test_published_fleets_satisfy_their_schema_and_are_valid(file: Path) -> None:
    for document in documents(file):
        jsonschema.Draft202012Validator(fleet_schema()).validate(document)

    assert parse_fleet(file.name, file.read_bytes()).problems == ()


@pytest.mark.parametrize("file", EVERY, ids=lambda file: str(file.relative_to(ROOT)))
def test_published_files_tell_editors_where_the_schema_is(file: Path) -> None:
    first = file.read_text().splitlines()[0]

    path = first.removeprefix("# yaml-language-server: $schema=")
    kind = "fleet" if file in FLEETS else "manifest"
    assert (file.parent / path).resolve() == ROOT / "schema" / f"{kind}.schema.json"


@pytest.mark.parametrize("folder", sorted({file.parent for file in PUBLISHED}), ids=str)
def test_published_folders_are_valid_without_a_warning(folder: Path) -> None:
    files = [
        FileInput(name=str(f), content=f.read_bytes()) for f in PUBLISHED if f.parent == folder
    ]

    inspection = inspect(files)

    assert inspection.problems == ()
    assert inspection.manifest is not None
    assert inspection.manifest.models


def test_the_schema_takes_every_default_written_out() -> None:
    case = Path(__file__).parent / "cases" / "defaults-written-out.yaml"

    for document in documents(case):
        VALIDATOR.validate(document)


@pytest.mark.parametrize(
    "fields",
    [
        {"timeouts": {"ready": 90, "stop": "15s", "download": "1.5d", "drain": 0}},
        {"env": {"A": "1", "B": {"from_env": "B"}, "C": {"from_file": "/c"}}},
        {"nodes": "all"},
        {"nodes": ["node-a", "node-b.example.com"]},
        {"extra_args": {"ctx-size": 1, "x": {"y": [None, True]}}},
        {"source": "file:///srv/models/x"},
        {"source": "gguf/org_a/q4/a-00001-of-00002.gguf"},
        {"gpus": 0, "type": "embedding", "backend": "xllamacpp", "on_failure": "keep"},
        {"type": "rerank"},
        {"gpu_ids": [0, "1", "GPU-8a56a4bc-0000-0000-0000-000000000000"]},
        {
            "gpu_ids": [
                "gpu-AB1",
                "MIG-0b1e2d3c-aaaa-bbbb-cccc-dddddddddddd",
                "GPU-1901ead3a2ecd4a6",
            ]
        },
        {"gpu_ids": ["03:00.0", "0000:0c:00.0", "00000000:C1:00", "nvidia:1", "amd:0"]},
    ],
)
def test_the_schema_and_the_parser_both_take(fields: dict[str, object]) -> None:
    entry = model("a", **fields)

    assert complaints(entry) == []
    assert inspect([FileInput(name="a", content=manifest(entry))]).manifest is not None


@pytest.mark.parametrize(
    "fields",
    [
        {"typo": 1},
        {"name": "a/b"},
        {"timeouts": {"ready": "soon"}},
        {"env": {"A": 1}},
        {"env": {"A": {"from_envy": "X"}}},
        {"nodes": []},
        {"nodes": ["all"]},
        {"gpus": -1},
        {"type": "chat"},
        {"backend": "ollama"},
        {"refresh": "sometimes"},
        {"source": "hf://name"},
        {"source": "justaname"},
        {"replicas": 2},
        {"gpu_ids": [-1]},
        {"gpu_ids": [True]},
        {"gpu_ids": ["cuda:0"]},
        {"gpu_ids": ["0000:0g:00.0"]},
        {"gpu_ids": ["03:00.8"]},
        {"gpu_ids": ["GPU-"]},
        {"gpu_ids": ["MIG-GPU-8a56a4bc/3/0"]},
        {"extra_args": {"--x": 1}},
    ],
    ids=str,
)
def test_the_schema_and_the_parser_both_refuse(fields: dict[str, object]) -> None:
    entry = model("a") | fields

    assert complaints(entry)
    assert inspect([FileInput(name="a", content=manifest(entry))]).manifest is None


@given(st.text(alphabet="0123afGPUMIgpumi:.- nvdx", max_size=14))
def test_the_schema_takes_the_gpus_that_the_parser_takes(gpu: str) -> None:
    entry = model("a", gpu_ids=[gpu])

    taken = inspect([FileInput(name="a", content=manifest(entry))]).manifest is not None

    assert (complaints(entry) == []) is taken


def test_every_field_is_described() -> None:
    schema = manifest_schema()
    shapes = [schema, *schema["$defs"].values()]

    bare = [
        f"{key}"
        for shape in shapes
        for key, field in shape.get("properties", {}).items()
        if not field.get("description")
        and not schema["$defs"].get(field.get("$ref", "").rpartition("/")[2], {}).get("description")
    ]
    assert bare == []


def test_what_is_not_supported_is_the_default_or_one_of_several_values() -> None:
    schema = manifest_schema()
    for pattern, values in ACTED_ON.items():
        if pattern.startswith("models.*.") and pattern.count(".") == 2:
            field = schema["$defs"]["Model"]["properties"][pattern.rpartition(".")[2]]
            assert field["enum"] == list(values)
