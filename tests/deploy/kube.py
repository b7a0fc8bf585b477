"""A small cluster for the objects of a release: nodes, pods, Services, an API server, DNS.

kubectl ── API server ── kubelet of each node ── pods, each in a network of its own
           (ConfigMaps)        |                    |
                             DNS of the headless Service; endpoints of the ordinary one
"""

import base64
import itertools
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.load import Entrances
from tests.cluster.names import Names, serve_names
from tests.cluster.network import Network
from tests.deploy.image import Image
from tests.deploy.kubelet import Kubelet, Node, Pod
from tests.deploy.pod_environment import Objects
from tests.deploy.rbac import Rights
from tests.e2e.kubectl import Kubectl
from tests.source.git_https import certificate
from tests.source.kubernetes_files import kubeconfig
from tests.source.kubernetes_server import Server, serving

Object = dict[str, Any]
NAMESPACE = "models"
_ADMIN = "t0k3n"
_DOMAIN = "svc.cluster.local"
_LAG_SECONDS = 0.5
"""How long a Service's clients still come to a pod that is deleted."""
_LOOK_SECONDS = 0.05
_NOBODY = "http://127.0.0.1:9"


@dataclass(kw_only=True)
class Kube:
    """`objects`: of the release. `pods`: those that are there, by name."""

    folder: Path
    network: Network
    names: Names
    server: Server
    kubectl: Kubectl
    kubelet: Kubelet
    nodes: Sequence[Node]
    objects: Sequence[Object]
    rights: Rights
    secrets: dict[str, Mapping[str, str]]
    pods: dict[str, Pod] = field(default_factory=dict)
    closing: threading.Event = field(default_factory=threading.Event)
    _free: list[str] = field(default_factory=list)
    _addresses: Iterator[int] = field(default_factory=lambda: itertools.count(11))
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def of(self, kind: str, *, headless: bool | None = None) -> list[Object]:
        """The release's objects of a kind. `headless`: of Services."""
        return [
            each
            for each in self.objects
            if each["kind"] == kind
            and headless in (None, each.get("spec", {}).get("clusterIP") == "None")
        ]

    @property
    def workload(self) -> Object:
        """The one that the release has."""
        (found,) = self.of("DaemonSet") + self.of("Deployment")
        return found

    def create(self, node: Node) -> Pod:
        """A new pod of the workload on this node, with another name and address than any before."""
        template = self.workload["spec"]["template"]
        self._check_fits(node, template["spec"])
        host = self._free.pop(0)
        self.network.move(host, next(self._addresses))
        name = f"{self.workload['metadata']['name']}-{next(self._numbers):05x}"
        pod = Pod(
            kubelet=self.kubelet,
            node=node,
            name=name,
            namespace=NAMESPACE,
            template=template,
            host=self.network.hosts[host],
            folder=self.folder / "pods" / name,
        )
        self.pods[name] = pod
        pod.create()
        return pod

    def end(self, pod: Pod) -> None:
        """Delete it, and wait until it is gone."""
        pod.delete()
        pod.wait_gone()
        self._forget(pod)

    def _forget(self, pod: Pod) -> None:
        del self.pods[pod.name]
        (key,) = (key for key, host in self.network.hosts.items() if host is pod.host)
        self._free.append(key)

    def on(self, node: Node) -> Pod:
        """The pod that is there."""
        (found,) = (pod for pod in self.pods.values() if pod.node is node)
        return found

    def roll_out(self) -> Iterator[Pod]:
        """Replace the pods one by one, as the controllers do: yields each new one that is ready."""
        spec = self.workload["spec"]
        kind = "updateStrategy" if self.workload["kind"] == "DaemonSet" else "strategy"
        told = spec[kind].get("rollingUpdate", {})
        if spec[kind]["type"] == "RollingUpdate":
            assert (told.get("maxUnavailable"), told.get("maxSurge", 0)) == (1, 0)
        for pod in list(self.pods.values()):
            self.end(pod)
            successor = self.create(pod.node)
            successor.wait_ready()
            time.sleep(spec.get("minReadySeconds", 0))
            yield successor

    def ready_urls(self) -> list[str]:
        """Where the ordinary Service leads to."""
        now = time.monotonic()
        return [
            pod.url
            for pod in list(self.pods.values())
            if pod.ready
            or (pod.deleted_at is not None and pod.ready_at and now < pod.deleted_at + _LAG_SECONDS)
        ]

    def watch(self) -> None:
        """Keep volumes and DNS up to date, until it is closing."""
        version = -1
        while not self.closing.wait(_LOOK_SECONDS):
            if version != (version := self.server.store.version):
                for pod in list(self.pods.values()):
                    pod.refresh()
            addresses = tuple(pod.facts.ip for pod in list(self.pods.values()))
            if sorted(addresses) != sorted(self.names.addresses):
                self.names.tell(*addresses)

    def end_all(self) -> None:
        """At the end of a test, without waiting for what is in flight."""
        for pod in self.pods.values():
            pod.delete()
        for pod in list(self.pods.values()):
            if pod.container is not None:
                pod.container.send(signal.SIGKILL)
            pod.wait_gone()
            self._forget(pod)

    def _check_fits(self, node: Node, spec: Object) -> None:
        missing = spec.get("nodeSelector", {}).items() - node.labels.items()
        assert not missing, f"no node has {missing}"
        keys = {each.get("key") for each in spec.get("tolerations", ())}
        assert set(node.taints) <= keys, f"nobody tolerates {node.taints}"


@dataclass(kw_only=True)
class ServiceEntrances(Entrances):
    """The ordinary Service, as the load of the tests of clusters asks for addresses."""

    kube: Kube
    urls: list[str] = field(default_factory=list)

    def next(self) -> str:
        self.urls = self.kube.ready_urls() or [_NOBODY]
        return super().next()


def _texts(secret: Object) -> dict[str, str]:
    data = {
        key: base64.b64decode(value).decode() for key, value in (secret.get("data") or {}).items()
    }
    return {**data, **(secret.get("stringData") or {})}


@contextmanager
def kube_of(
    objects: Sequence[Object],
    *,
    folder: Path,
    network: Network,
    image: Image,
    nodes: Sequence[Node],
    secrets: Mapping[str, Mapping[str, str]] | None = None,
    quicker: float = 1.0,
) -> Iterator[Kube]:
    """A cluster that has these objects, without a pod yet. Nothing of it stays.

    Args:
        secrets: Those that are not of the release.
    """
    (headless,) = (
        each["metadata"]["name"]
        for each in objects
        if each["kind"] == "Service" and each["spec"].get("clusterIP") == "None"
    )
    (folder / "names").mkdir()
    rights = Rights(objects=objects)
    server = Server(
        certificate=certificate(folder, "ours", also=network.outside),
        rights=rights,
        address="0.0.0.0",
    )
    with ExitStack() as stack:
        name = f"{headless}.{NAMESPACE}.{_DOMAIN}."
        names = stack.enter_context(serve_names(folder / "names", network.bridge, name=name))
        stack.enter_context(serving(server))
        own = {
            each["metadata"]["name"]: _texts(each) for each in objects if each["kind"] == "Secret"
        }
        made = Kube(
            folder=folder,
            network=network,
            names=names,
            server=server,
            kubectl=Kubectl(
                kubeconfig=kubeconfig(folder, server, user={"token": _ADMIN}), home=folder
            ),
            kubelet=_kubelet(network, server, image, rights, quicker, {**own, **(secrets or {})}),
            nodes=nodes,
            objects=objects,
            rights=rights,
            secrets={**own, **(secrets or {})},
            _free=[*network.hosts],
        )
        maps = [each for each in objects if each["kind"] == "ConfigMap"]
        if maps:
            made.kubectl.do("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(maps))
        watching = threading.Thread(target=made.watch)
        watching.start()
        stack.callback(watching.join)
        stack.callback(made.closing.set)
        stack.callback(made.end_all)
        yield made


def _kubelet(
    network: Network,
    server: Server,
    image: Image,
    rights: Rights,
    quicker: float,
    secrets: Mapping[str, Mapping[str, str]],
) -> Kubelet:
    assert server.certificate is not None
    authority = server.certificate.read_text(encoding="utf-8")

    def account(name: str) -> Mapping[str, str]:
        token = f"token-of-{name}"
        rights.tokens[token] = (NAMESPACE, name)
        return {"token": token, "ca.crt": authority, "namespace": NAMESPACE}

    def objects() -> Objects:
        store = server.store
        with store.changed:
            maps = {
                name: each.get("data") or {}
                for (kind, namespace, name), each in store.objects.items()
                if kind == "configmaps" and namespace == NAMESPACE
            }
        return Objects(config_maps=maps, secrets=secrets)

    return Kubelet(
        image=image,
        objects=objects,
        variables={
            "KUBERNETES_SERVICE_HOST": network.outside,
            "KUBERNETES_SERVICE_PORT": str(server.port),
        },
        account=account,
        quicker=quicker,
    )
