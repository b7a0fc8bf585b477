"""The chart whose agents follow the ConfigMap by the API: its own Role is enough for them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.network import Network, network, skip_without_namespaces
from tests.deploy.kube import NAMESPACE, Kube
from tests.deploy.pods import all_up, own_entry, release, view, wait_serving
from tests.e2e.kubectl import replacing
from tests.e2e.manifests import manifest, model
from tests.source.kubernetes_server import Asked
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Network]:
    skip_without_namespaces()
    (tmp_path / "network").mkdir()
    with network(tmp_path / "network", "abcd") as made:
        yield made


@pytest.fixture
def kube(tmp_path: Path, net: Network) -> Iterator[Kube]:
    """A Deployment of three."""
    (tmp_path / "release").mkdir()
    files = {"models.yaml": manifest(model("a", nodes="all"))}
    api = {"source": "api", "files": files}
    with release(
        tmp_path / "release", net, {}, manifest=api, workloadKind="Deployment", replicas=3
    ) as made:
        yield made


def test_an_edit_reaches_every_agent_by_the_rights_of_the_chart(kube: Kube, tmp_path: Path) -> None:
    (name,) = (each["metadata"]["name"] for each in kube.of("ConfigMap"))
    pods = all_up(kube)
    for pod in pods:
        wait_serving(pod, "a")
    pids = {pod.name: own_entry(pod, "a")["pid"] for pod in pods}

    def edit(old: str, new: str) -> None:
        editor = replacing(tmp_path, old, new)
        said = kube.kubectl.do("edit", "configmap", name, editor=editor)
        assert said == f"configmap/{name} edited\n"

    edit("{name: a, ", "{name: a, bakend: x, ")
    wait_until(
        lambda: "ManifestInvalid" in {each["reason"] for each in kube.server.store.events()},
        what=f"an Event\n{pods[0].log[-4000:]}",
    )
    edit("bakend: x, ", "aliases: [b], ")
    for pod in pods:
        wait_until(
            lambda pod=pod: own_entry(pod, "a")["aliases"] == ["b"],  # type: ignore[misc]
            what=f"the alias at {pod.name}",
        )
        assert own_entry(pod, "a")["pid"] == pids[pod.name]

    successor = next(kube.roll_out())
    wait_serving(successor, "a")
    assert own_entry(successor, "a")["aliases"] == ["b"]
    assert view(successor)[successor.node.name]["pod_name"] == successor.name

    assert kube.rights.refused == []
    (token,) = kube.rights.tokens
    asked = {verb for verb, shown in kube.server.asked if shown == token}
    assert {"list", "watch", "create"} <= asked
    for more in (
        Asked("list", "configmaps", NAMESPACE, None),
        Asked("get", "configmaps", NAMESPACE, "another"),
        Asked("patch", "configmaps", NAMESPACE, name),
        Asked("list", "configmaps", "default", name),
    ):
        assert not kube.rights(token, more), more
