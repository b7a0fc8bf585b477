"""A pod of the chart that loads slowly, hangs, or finds its folder taken, and its probes."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.network import Network, network, skip_without_namespaces
from tests.deploy.kube import Kube
from tests.deploy.kubelet import Pod
from tests.deploy.pods import own_entry, release, wait_serving
from tests.e2e.manifests import manifest, model
from tests.supervised import agents_below
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(300)

_LIVENESS = {
    "periodSeconds": 5,
    "timeoutSeconds": 5,
    "failureThreshold": 2,
    "terminationGracePeriodSeconds": 4,
}
_WHEN_TOLD = '{STAND_IN: "--ready-when /app/models/go"}'


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    skip_without_namespaces()
    with network(tmp_path_factory.mktemp("network"), "ab") as made:
        yield made


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory, net: Network) -> Iterator[Kube]:
    files = {"models.yaml": manifest(model("slow", nodes="[node-a]", env=_WHEN_TOLD))}
    probes = {"liveness": _LIVENESS}
    with release(tmp_path_factory.mktemp("release"), net, files, probes=probes) as kube:
        yield kube


@pytest.fixture
def pod(lasting: Kube) -> Iterator[Pod]:
    """The only one there is, on node-a; its model loads until it is told to end that."""
    made = lasting.create(lasting.nodes[0])
    yield made
    lasting.end_all()


def sign(pod: Pod) -> Path:
    """The file that the model waits for."""
    return pod.node.machine / "var" / "lib" / "xgen-model" / "models" / "go"


def finish_loading(pod: Pod) -> None:
    sign(pod).parent.mkdir(parents=True, exist_ok=True)
    sign(pod).touch()
    pod.wait_ready()
    wait_serving(pod, "slow", ["node-a"])


def test_a_model_that_loads_for_long_is_not_killed_by_a_probe(pod: Pod) -> None:
    def asked() -> int:
        state = pod.health
        return 0 if state is None or state.liveness is None else state.liveness.asked

    sign(pod).unlink(missing_ok=True)
    wait_until(lambda: asked() > 3 * _LIVENESS["failureThreshold"], what="liveness has asked")
    assert not pod.ready
    assert own_entry(pod, "slow")["state"] == "loading"
    finish_loading(pod)
    assert pod.restarts == []


def test_an_agent_that_hangs_is_started_anew(pod: Pod) -> None:
    finish_loading(pod)
    assert pod.container is not None
    first = pod.container.first
    assert first is not None
    agent = agents_below(first)[0]
    os.kill(agent, signal.SIGSTOP)
    wait_until(lambda: pod.restarts == ["liveness"], what="it was ended", seconds=60)
    assert pod.killed == 1
    pod.wait_ready()
    wait_serving(pod, "slow", ["node-a"])


def test_a_second_pod_on_a_data_folder_waits_until_the_first_is_gone(
    pod: Pod, lasting: Kube
) -> None:
    finish_loading(pod)
    pid = own_entry(pod, "slow")["pid"]
    second = lasting.create(pod.node)
    wait_until(lambda: len(second.restarts) > 1, what=f"it ends again and again\n{second.log}")
    assert set(second.restarts) == {"exit 1"}
    assert "another agent" in second.log
    assert not second.ready
    assert own_entry(pod, "slow")["pid"] == pid
    assert (pod.ready, pod.restarts) == (True, [])
    lasting.end(pod)
    second.wait_ready()
    wait_serving(second, "slow", ["node-a"])
