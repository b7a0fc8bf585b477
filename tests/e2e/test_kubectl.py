"""A person with kubectl changes the ConfigMap, and a real agent follows it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.agent import Agent
from tests.e2e.kubectl import Kubectl, cluster, replacing
from tests.e2e.manifests import manifest, model
from tests.waiting import wait_until

pytestmark = pytest.mark.net

PLACE = "configmap://models/models"
BY_THE_SERVER = ("apply", "--server-side", "-f", "-")


@pytest.fixture
def kubectl(tmp_path: Path) -> Iterator[Kubectl]:
    with cluster(tmp_path) as (_, made):
        yield made


@pytest.fixture
def following(agent: Agent, kubectl: Kubectl) -> Agent:
    """An agent that waits for the ConfigMap."""
    agent.start("--manifest", PLACE, "--kubeconfig", str(kubectl.kubeconfig))
    agent.wait_up()
    return agent


def wait_runs(agent: Agent, *names: str) -> None:
    def holds() -> bool:
        models = agent.self_view()["models"]
        return [*names] == [each["name"] for each in models if each["state"] == "loaded"]

    wait_until(holds, what=f"{names} run; log:\n{agent.recent_log}", seconds=60)


def folder_of(root: Path, *names: str, padding: int = 0) -> Path:
    """Manifests in a folder, one model a file. `padding`: bytes of comments in each."""
    folder = root / "folder"
    folder.mkdir(exist_ok=True)
    for name in names:
        text = manifest(model(name)) + f"# {'why ' * 19}\n" * (padding // 80)
        (folder / f"{name}.yaml").write_text(text)
    return folder


def as_yaml(kubectl: Kubectl, folder: Path) -> str:
    """As the docs have it."""
    words = ("create", "configmap", "models", f"--from-file={folder}")
    return kubectl.do(*words, "--dry-run=client", "-o", "yaml")


def test_an_edit_with_kubectl_runs_and_a_bad_one_is_told_where_it_was_made(
    following: Agent, kubectl: Kubectl, tmp_path: Path
) -> None:
    agent = following
    text = as_yaml(kubectl, folder_of(tmp_path, "a"))
    kubectl.do(*BY_THE_SERVER, stdin=text)
    wait_runs(agent, "a")
    pid = agent.wait_state("a", "loaded")["pid"]

    def edit(old: str, new: str) -> None:
        kubectl.do("edit", "configmap", "models", editor=replacing(tmp_path, old, new))

    edit("name: a, ", "name: a, bakend: x, ")
    wait_until(
        lambda: "did you mean 'backend'?" in kubectl.do("describe", "configmap", "models"),
        what=f"an Event; log:\n{agent.recent_log}",
    )
    said = kubectl.do("describe", "configmap", "models").splitlines()[-1].split(maxsplit=4)
    assert said[:2] == ["Warning", "ManifestInvalid"]
    assert "a.yaml:6:" in said[-1]
    assert agent.wait_state("a", "loaded")["pid"] == pid

    edit("name: a, bakend: x, ", "name: b, aliases: [a], ")
    wait_runs(agent, "b")
    assert "ManifestTaken" in kubectl.do("describe", "configmap", "models")

    kubectl.do("delete", "configmap", "models")
    assert "there is no ConfigMap" in agent.wait_condition("SourceReady", "False")["message"]
    assert agent.wait_state("b", "loaded")
    kubectl.do(*BY_THE_SERVER, stdin=text)
    wait_runs(agent, "a")


def test_what_is_too_large_for_kubectl_apply_is_applied_by_the_server(
    following: Agent, kubectl: Kubectl, tmp_path: Path
) -> None:
    """The annotation of client-side apply holds 256 KiB."""
    folder = folder_of(tmp_path, "a", "b", padding=200 * 1024)
    text = as_yaml(kubectl, folder)
    assert len(text) > 400 * 1024
    refused = kubectl("apply", "-f", "-", stdin=text)
    assert refused.returncode != 0
    assert "metadata.annotations: Too long" in refused.stderr
    kubectl.do(*BY_THE_SERVER, stdin=text)
    wait_runs(following, "a", "b")
    (folder / "b.yaml").unlink()
    kubectl.do(*BY_THE_SERVER, stdin=as_yaml(kubectl, folder))
    wait_runs(following, "a")


@pytest.mark.parametrize("patch", ["merge", "strategic"])
def test_patches_count_too(following: Agent, kubectl: Kubectl, tmp_path: Path, patch: str) -> None:
    kubectl.do("apply", "-f", "-", stdin=as_yaml(kubectl, folder_of(tmp_path, "a")))
    wait_runs(following, "a")
    more = {"apiVersion": "xgen.io/v1alpha1", "kind": "ModelManifest", "metadata": {"name": "b"}}
    entry = {"name": "b", "source": "gguf/test_model", "backend": "llama-server-cpu"}
    text = json.dumps({**more, "spec": {"models": [entry]}})
    change = json.dumps({"data": {"a.yaml": None, "b.json": text}})
    kubectl.do("patch", "configmap", "models", f"--type={patch}", "-p", change)
    wait_runs(following, "b")
