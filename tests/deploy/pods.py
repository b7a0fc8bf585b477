"""Releases of the chart on three nodes, as the tests of pods want them."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cluster.network import Network
from tests.deploy import helm
from tests.deploy.image import image
from tests.deploy.kube import Kube, kube_of
from tests.deploy.kubelet import Node, Pod
from tests.e2e.agent import MINIMAL_GGUF
from tests.e2e.manifests import REAL_PREFIX
from tests.model_files import gemma
from tests.waiting import wait_for

Entry = dict[str, Any]
NODES = ("node-a", "node-b", "node-c")
SLOW = '{STAND_IN: "--probe-well --first-byte-after 0.1 --chunk-interval 0.1"}'
_QUICKER = 5
"""How many times as often as in a real cluster the probes ask: their periods are the chart's."""
_SCENARIO = helm.CHART / "scenarios" / "cpu-laptop.yaml"
_VALUES: Entry = {
    "workloadKind": "DaemonSet",
    "cluster": {"enabled": True},
    "settings": {"allowEngineEnv": ["STAND_IN"], "logFormat": "json"},
    "shutdown": {"preStopSeconds": 2},
    "minReadySeconds": 1,
}


@contextmanager
def release(
    folder: Path,
    network: Network,
    files: Mapping[str, str],
    *,
    secrets: Mapping[str, Mapping[str, str]] | None = None,
    **values: Any,
) -> Iterator[Kube]:
    """The chart's objects on three nodes without GPUs, with no pod yet.

    Args:
        files: The manifest's, by name.
        values: More of the chart's.
    """
    if not helm.HELM.exists():
        pytest.skip(helm.MISSING)
    written = folder / "values.json"
    written.write_text(json.dumps({**_VALUES, "manifest": {"files": files}, **values}))
    objects = helm.render("-f", str(_SCENARIO), "-f", str(written), home=folder)
    hub = folder / "hub"
    _fill(hub)
    nodes = [Node(name=name, machine=folder / name) for name in NODES]
    for node in nodes:
        (node.machine / "srv").mkdir(parents=True)
        (node.machine / "srv" / "hub").symlink_to(hub)
    (folder / "kube").mkdir()
    with kube_of(
        objects,
        folder=folder / "kube",
        network=network,
        image=image(folder / "image"),
        nodes=nodes,
        secrets=secrets,
        quicker=_QUICKER,
    ) as kube:
        yield kube


def _fill(hub: Path) -> None:
    """With gguf/test_model for the stand-in, and a real one."""
    (hub / "gguf" / "test_model").mkdir(parents=True)
    (hub / "gguf" / "test_model" / "model.gguf").write_bytes(MINIMAL_GGUF)
    (hub / REAL_PREFIX).mkdir(parents=True)
    real = hub / REAL_PREFIX / "gemma.gguf"
    try:
        os.link(gemma(), real)
    except OSError:
        shutil.copyfile(gemma(), real)


def all_up(kube: Kube) -> list[Pod]:
    """A ready pod on every node, in the nodes' order."""
    here = {pod.node.name for pod in kube.pods.values()}
    for node in kube.nodes:
        if node.name not in here:
            kube.create(node)
    for pod in kube.pods.values():
        pod.wait_ready()
    return [kube.on(node) for node in kube.nodes]


def view(pod: Pod) -> dict[str, Entry]:
    """Of all nodes, by name, as this pod has it."""
    with httpx.Client(trust_env=False, timeout=30) as client:
        answer = client.get(f"{pod.url}/api/cluster/servers")
    answer.raise_for_status()
    return {each["node"]: each for each in answer.json()["servers"]}


def wait_serving(pod: Pod, model: str, nodes: Sequence[str] = NODES) -> dict[str, Entry]:
    """Until this pod sees the model served by these nodes and no others: each one's entry."""

    def look() -> dict[str, Entry] | None:
        found = {
            node: entry
            for node, server in view(pod).items()
            for entry in server["loaded_models"]
            if entry["name"] == model
        }
        return found if set(found) == set(nodes) else None

    try:
        return wait_for(look, what=f"{model} served by {nodes}", seconds=90)
    except AssertionError as exc:
        seen = [
            (node, server["reason"], entry["name"], entry["state"], entry["reason"])
            for node, server in view(pod).items()
            for entry in server["models"]
        ]
        raise AssertionError(f"{exc}\n{seen}\n{pod.log[-4000:]}") from exc


def own_entry(pod: Pod, model: str) -> Entry:
    """The model as this pod's agent tells of it."""
    (found,) = (each for each in view(pod)[pod.node.name]["models"] if each["name"] == model)
    return dict(found)
