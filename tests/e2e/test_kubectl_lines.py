"""The lines for kubectl in the docs do what they are there for; and the server that stands for a
cluster is one to the real kubectl."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.agent import REPOSITORY
from tests.e2e.kubectl import FOLDER, Kubectl, cluster
from tests.source.kubernetes_server import Server

pytestmark = pytest.mark.net

PAGE = (REPOSITORY / "docs" / "sources.md").read_text(encoding="utf-8")


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Server, Kubectl]]:
    with cluster(tmp_path) as made:
        yield made


def run_line(kubectl: Kubectl, start: str) -> str:
    """The line of the docs that starts so, in a shell at the root of the repository."""
    (line,) = re.findall(rf"^    ({re.escape(start)}.*)$", PAGE, re.MULTILINE)
    done = subprocess.run(
        ["sh", "-ec", line],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={
            "PATH": f"{FOLDER}:/usr/bin:/bin",
            "HOME": str(kubectl.home),
            "KUBECONFIG": str(kubectl.kubeconfig),
        },
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_line_that_writes_a_folder(both: tuple[Server, Kubectl]) -> None:
    server, kubectl = both
    for _ in range(2):
        said = run_line(kubectl, "kubectl -n models create configmap prod")
        assert said == "configmap/prod serverside-applied\n"
    held = server.store.get("configmaps", "models", "prod")["data"]
    folder = REPOSITORY / "manifests" / "production"
    assert held == {file.name: file.read_text() for file in folder.iterdir()}


def test_the_line_that_makes_kubelet_look(both: tuple[Server, Kubectl]) -> None:
    server, kubectl = both
    for name, app in (("one", "xgen-model"), ("two", "xgen-model"), ("three", "other")):
        labels = {"app.kubernetes.io/name": app}
        server.store.create("pods", "xgen-model", {"metadata": {"name": name, "labels": labels}})
    for _ in range(2):
        run_line(kubectl, "kubectl -n xgen-model annotate pods")
    annotated = [
        name
        for (kind, _, name), pod in server.store.objects.items()
        if kind == "pods" and pod["metadata"].get("annotations", {}).get("xgen.io/looked-at")
    ]
    assert annotated == ["one", "two"]


def test_the_role_is_one_that_kubectl_takes(both: tuple[Server, Kubectl]) -> None:
    _, kubectl = both
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    said = kubectl.do("apply", "--dry-run=client", "--validate=false", "-f", "-", stdin=text)
    assert said.splitlines() == [
        "role.rbac.authorization.k8s.io/xgen-model-manifest created (dry run)",
        "rolebinding.rbac.authorization.k8s.io/xgen-model-manifest created (dry run)",
    ]


def test_kubectl_hears_of_changes_and_of_conflicts(both: tuple[Server, Kubectl]) -> None:
    server, kubectl = both
    server.store.put({"a.yaml": "1"})
    old = json.loads(kubectl.do("get", "configmap", "models", "-o", "json"))
    argv = [*kubectl.argv, "get", "configmap", "models", "-w", "-o", "jsonpath={.data}{'\\n'}"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline() == '{"a.yaml":"1"}\n'
        server.store.put({"a.yaml": "2"})
        assert watching.stdout.readline() == '{"a.yaml":"2"}\n'
        watching.kill()
    old["data"] = {"a.yaml": "3"}
    refused = kubectl("replace", "-f", "-", stdin=json.dumps(old))
    assert "the object has been modified" in refused.stderr
    del old["metadata"]["resourceVersion"]
    kubectl.do("replace", "-f", "-", stdin=json.dumps(old))
    assert server.store.get("configmaps", "models", "models")["data"] == {"a.yaml": "3"}
