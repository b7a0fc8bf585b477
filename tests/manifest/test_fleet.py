"""A fleet file: what is wrong with one, and where; what a cluster tells as one."""

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.manifest.fleet import parse_fleet
from reconciler.manifest.fleet_model import FleetNode
from reconciler.manifest.fleet_text import fleet_text, size
from reconciler.manifest.parse import parse_file
from reconciler.manifest.schema import fleet_schema
from reconciler.plan.shares import size_bytes

HEAD = "apiVersion: xgen.io/v1alpha1\nkind: Fleet\nspec:\n  nodes:\n"


def said(text: str) -> list[str]:
    return [str(problem) for problem in parse_fleet("f.yaml", text.encode()).problems]


def nodes(text: str) -> tuple[FleetNode, ...]:
    parsed = parse_fleet("f.yaml", text.encode())
    assert parsed.fleet is not None, parsed.problems
    return parsed.fleet.spec.nodes


def test_a_name_is_enough() -> None:
    (node,) = nodes(f"{HEAD}    - name: a\n")

    assert (node.gpus, node.engines, node.memory) == (None, None, None)


def test_sizes_are_bytes() -> None:
    gpu = "{vendor: nvidia, memory: 80GiB, reserved: 500MiB}"
    (node,) = nodes(f"{HEAD}    - {{name: a, gpus: [{gpu}], memory: 512GB}}\n")

    assert node.memory == 512 * 10**9
    assert node.gpus is not None
    assert (node.gpus[0].memory, node.gpus[0].reserved) == (80 << 30, 500 << 20)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (
            "{name: a, memroy: 1GiB}",
            "5:17: spec.nodes[0].memroy: unknown key 'memroy'; did you mean 'memory'?",
        ),
        ("{name: a, memory: 80}", "5:25: spec.nodes[0].memory: must be a size such as 80GiB"),
        (
            "{name: a, gpus: [{vendor: nvidai}]}",
            "5:33: spec.nodes[0].gpus[0].vendor: must be nvidia or amd, not 'nvidai'; did you mean "
            "'nvidia'?",
        ),
        (
            "{name: a, gpus: [{vendor: nvidia, architecture: 9.0}]}",
            '5:55: spec.nodes[0].gpus[0].architecture: must be text, not 9.0; put it in quotes: "9',
        ),
        (
            "{name: a, gpus: [{vendor: amd}]}",
            "5:24: spec.nodes[0].gpus[0]: needs an architecture such as gfx942",
        ),
        (
            "{name: a, gpus: [{vendor: nvidia, count: 2, index: 0}]}",
            "5:58: spec.nodes[0].gpus[0].index: names one GPU, and count is 2",
        ),
        (
            "{name: a, gpus: [{vendor: nvidia, pci: '0:3:0.0'}, {vendor: nvidia, pci: '03:00'}]}",
            "5:80: spec.nodes[0].gpus[1].pci: '0000:03:00.0' is listed before",
        ),
        (
            "{name: a, gpus: [{vendor: nvidia, memory: 1GiB, reserved: 2GiB}]}",
            "5:65: spec.nodes[0].gpus[0].reserved: is more than its memory",
        ),
        (
            "{name: a, engines: [{backend: vllm}]}",
            "5:37: spec.nodes[0].engines[0].backend: must be vllm-cuda, ",
        ),
        (
            "{name: a, engines: [{backend: vllm-cuda}, {backend: vllm-cuda}]}",
            "5:49: spec.nodes[0].engines[1]: a default build of vllm-cuda is listed before",
        ),
        (
            "{name: a, engines: [{backend: vllm-cuda, name: x}, {backend: vllm-rocm, name: x}]}",
            "5:85: spec.nodes[0].engines[1].name: 'x' is listed before",
        ),
    ],
)
def test_a_problem_has_its_place_and_says_what_is_meant(entry: str, problem: str) -> None:
    (found,) = said(f"{HEAD}    - {entry}\n")

    assert found.startswith(f"f.yaml:{problem}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "f.yaml:1:1: must hold one Fleet, not nothing"),
        ("a: [", "f.yaml:1:5: "),
        (f"{HEAD}    []\n", "f.yaml:4:3: spec.nodes: must name a node"),
        (f"{HEAD}    - name: a\n    - name: a\n", "f.yaml:6:13: spec.nodes[1].name: 'a' is listed"),
        (
            f"{HEAD}    - name: a\n---\n{HEAD}    - name: b\n",
            "f.yaml:1:1: must hold one Fleet, not",
        ),
        (
            "apiVersion: xgen.io/v1alpha1\nkind: ModelManifest\nspec: {nodes: [{name: a}]}\n",
            "f.yaml:2:7: kind: must be Fleet, not 'ModelManifest'",
        ),
    ],
)
def test_what_is_no_fleet_is_told(text: str, problem: str) -> None:
    assert said(text)[0].startswith(problem)


def test_a_fleet_among_the_manifests_is_told_where_it_belongs() -> None:
    (problem,) = parse_file("f.yaml", f"{HEAD}    - name: a\n".encode()).problems

    assert "a fleet file is for `plan --fleet`" in str(problem)


@given(st.binary(max_size=200))
def test_nothing_is_raised_for_what_a_file_holds(content: bytes) -> None:
    parsed = parse_fleet("f.yaml", content)

    assert (parsed.fleet is None) == bool(parsed.problems)


@given(st.integers(0, 1 << 45))
def test_a_size_is_written_so_that_little_is_lost(number: int) -> None:
    read = size_bytes(size(number))

    assert read is not None
    assert number - read in range(1024)


VIEW: dict[str, Any] = {
    "node": "gpu-a",
    "gpu": {
        "mode": "plugin",
        "devices": [
            {
                "index": 0,
                "uuid": "GPU-5f1c",
                "name": "NVIDIA H100",
                "memory_total_bytes": 81559 << 20,
                "pci": "0000:03:00.0",
                "class": "nvidia",
                "architecture": "9.0",
                "problem": None,
            },
            {"index": 1, "uuid": None, "name": "x: {", "pci": "0000:04:00.0", "class": "unknown"}
            | {"problem": "lost: its driver does not list it any more", "architecture": None},
        ],
    },
    "engines": [
        {"id": "vllm-cuda", "name": None, "version": "0.18.1", "problem": None},
        {"id": "llama-server-cuda", "name": "b1", "version": None, "problem": "it is gone"},
    ],
}
BARE: dict[str, Any] = {"node": "cpu-b", "gpu": {"devices": []}, "engines": None}


def test_what_a_cluster_tells_is_a_fleet_file() -> None:
    text = fleet_text([VIEW, BARE], {"cpu-b": 32 << 30}, source="http://gpu-a:8000")

    gpu_a, cpu_b = nodes(text)
    assert gpu_a.gpu_mode == "plugin"
    assert gpu_a.gpus is not None
    first, second = gpu_a.gpus
    assert (first.uuid, first.memory, first.architecture) == ("GPU-5f1c", 81559 << 20, "9.0")
    assert (second.vendor, second.name, second.index) == ("amd", "x: {", 1)
    assert second.problem is not None
    assert gpu_a.engines is not None
    assert [(each.backend, each.version) for each in gpu_a.engines] == [("vllm-cuda", "0.18.1")]
    assert (cpu_b.gpus, cpu_b.engines, cpu_b.memory) == ((), None, 32 << 30)


def test_the_schema_takes_what_is_written() -> None:
    written = json.loads(json.dumps({"name": "a", "gpus": [{"vendor": "amd", "count": 2}]}))
    document = {"apiVersion": "xgen.io/v1alpha1", "kind": "Fleet", "spec": {"nodes": [written]}}

    jsonschema.Draft202012Validator(fleet_schema()).validate(document)
    document["spec"] = {"nodes": []}
    assert not jsonschema.Draft202012Validator(fleet_schema()).is_valid(document)
