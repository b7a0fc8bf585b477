"""The chart on three nodes, by the real helm and kubectl: its pods are one cluster."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest

from tests.cluster.load import chats_by_sdk, under_load
from tests.cluster.network import Network, network, skip_without_namespaces
from tests.deploy.kube import Kube, ServiceEntrances
from tests.deploy.kubelet import Pod
from tests.deploy.pinned_clients import PinnedClient
from tests.deploy.pods import NODES, SLOW, all_up, own_entry, release, view, wait_serving
from tests.e2e.clients import HELLO, TOKENS
from tests.e2e.kubectl import replacing
from tests.e2e.manifests import manifest, model, real_model
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(300)

_CHUNKS = 60
_LONG = f'{{STAND_IN: "--probe-well --chunks {_CHUNKS} --chunk-interval 0.1"}}'
_MANIFEST = manifest(
    model("everywhere", nodes="all", env=SLOW),
    model("long", nodes="[node-b]", env=_LONG),
    real_model("real", "ctx_size: 512", nodes="[node-a]").replace(
        "backend: auto", "backend: xllamacpp"
    ),
)
_PULLED = 'xgen_hub_transfer_bytes_total{direction="pull"}'
_CLUSTER_TOKEN = {"cluster-token": {"token": "of-the-cluster-and-nobody-else"}}


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    skip_without_namespaces()
    with network(tmp_path_factory.mktemp("network"), "abcd") as made:
        yield made


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory, net: Network) -> Iterator[Kube]:
    with release(
        tmp_path_factory.mktemp("release"),
        net,
        {"models.yaml": _MANIFEST},
        secrets=_CLUSTER_TOKEN,
        cluster={"enabled": True, "existingSecret": "cluster-token"},
    ) as kube:
        yield kube


@pytest.fixture
def kube(lasting: Kube) -> Kube:
    """A ready pod on each node; `everywhere` is served by all."""
    for pod in all_up(lasting):
        wait_serving(pod, "everywhere")
    return lasting


def ask(url: str, name: str) -> tuple[str, str]:
    """What a model says, and who has answered."""
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        raw = client.chat.completions.with_raw_response.create(
            model=name, messages=HELLO, max_tokens=4
        )
        return raw.parse().choices[0].message.content or "", raw.headers["x-served-by"]


def test_the_pods_of_a_release_are_one_cluster(kube: Kube) -> None:
    pods = all_up(kube)
    for pod in pods:
        wait_serving(pod, "real", ["node-a"])
        seen = view(pod)
        assert sorted(seen) == [*NODES]
        for other in pods:
            told = seen[other.node.name]
            assert told["reachable"]
            assert (told["pod_name"], told["pod_ip"]) == (other.name, other.facts.ip)
        text, server = ask(pod.url, "real")
        assert text
        assert server == "node-a/real"
    through = [ask(ServiceEntrances(kube=kube).next(), "everywhere") for _ in range(3)]
    assert {text for text, _ in through} == {TOKENS}
    told = own_entry(kube.on(kube.nodes[0]), "real")
    assert told["backend"] == "xllamacpp"


def test_an_edit_with_kubectl_is_applied_on_every_node(kube: Kube, tmp_path: Path) -> None:
    pods = all_up(kube)
    before = {pod.name: own_entry(pod, "everywhere")["pid"] for pod in pods}
    (name,) = (each["metadata"]["name"] for each in kube.of("ConfigMap"))

    def edit(old: str, new: str) -> None:
        editor = replacing(tmp_path, old, new)
        said = kube.kubectl.do("edit", "configmap", name, editor=editor)
        assert said == f"configmap/{name} edited\n"

    edit("{name: everywhere, ", "{name: everywhere, aliases: [gpt-4o-mini], ")
    for pod in pods:
        wait_until(
            lambda pod=pod: own_entry(pod, "everywhere")["aliases"] == ["gpt-4o-mini"],  # type: ignore[misc]
            what=f"the alias at {pod.name}",
        )
        assert own_entry(pod, "everywhere")["pid"] == before[pod.name]
        assert ask(pod.url, "gpt-4o-mini")[0] == TOKENS

    edit("--first-byte-after 0.1", "--first-byte-after 0.11")
    for pod in pods:
        wait_until(
            lambda pod=pod: own_entry(pod, "everywhere")["pid"] not in (None, before[pod.name]),  # type: ignore[misc]
            what=f"a new process at {pod.name}\n{pod.log[-3000:]}",
            seconds=120,
        )
    edit("^\\( *- \\){name: long, ", f"\\1{model('added', nodes='all')}\\n\\1{{name: long, ")
    for pod in pods:
        wait_serving(pod, "added")
        assert pod.restarts == []


def test_pods_are_replaced_one_by_one_and_no_request_fails(kube: Kube) -> None:
    """Nor do clients that keep their connections lose one; and a stream of the only replica there
    is, begun before its pod was deleted, ends whole."""
    pods = all_up(kube)
    wait_serving(pods[1], "long", ["node-b"])
    entrances = ServiceEntrances(kube=kube)
    pinned = [PinnedClient(entrances=entrances, model="everywhere") for _ in range(6)]
    with (
        under_load([client.ask for client in pinned]) as kept,
        chats_by_sdk(ServiceEntrances(kube=kube), "everywhere", 8, max_retries=0) as load,
        openai.OpenAI(base_url=f"{pods[1].url}/v1", api_key="none", max_retries=0) as client,
        client.chat.completions.create(model="long", messages=HELLO, stream=True) as held,
    ):
        next(held)
        load.wait_more(20)
        successors = []
        for successor in kube.roll_out():
            successors.append(successor)
            load.wait_more(20)
            if successor.node is pods[1].node:
                text = "".join(chunk.choices[0].delta.content or "" for chunk in held)
                assert text.endswith(f"token{_CHUNKS - 1} ")
    for each in pinned:
        each.leave()
    assert load.failed == []
    assert kept.failed == []
    assert all(each.connections > 1 for each in pinned)
    assert [pod.node.name for pod in successors] == [*NODES]
    for pod in pods:
        assert (pod.killed, pod.restarts) == (0, ["exit 0"])
    seen = view(successors[0])
    assert {each["pod_name"] for each in seen.values()} >= {pod.name for pod in successors}


def test_a_container_that_is_killed_comes_back_with_its_files(kube: Kube) -> None:
    pod = all_up(kube)[0]
    wait_serving(pod, "real", ["node-a"])
    files = _files(pod)
    assert files
    assert pod.container is not None
    first, container = pod.container.first, pod.container
    assert first is not None
    pids = pod.container.pids()
    restarts = len(pod.restarts)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: len(pod.restarts) > restarts, what="it has ended")
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    pod.wait_ready()
    assert pod.container is not container
    wait_serving(pod, "real", ["node-a"])
    assert ask(pod.url, "real")[1] == "node-a/real"
    assert _files(pod) == files
    assert _pulled(pod.url) == 0.0


def _files(pod: Pod) -> set[int]:
    """The real model's, in the node's folder of models, by inode."""
    models = pod.node.machine / "var" / "lib" / "xgen-model" / "models"
    return {path.stat().st_ino for path in models.rglob("gemma.gguf")}


def _pulled(url: str) -> float:
    """Bytes that this agent has had from the hub since it started."""
    lines = httpx.get(f"{url}/metrics", trust_env=False).text.splitlines()
    (line,) = (line for line in lines if line.startswith(_PULLED))
    return float(line.split()[1])
