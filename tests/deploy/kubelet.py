"""What kubelet does with a pod: volumes, containers, probes, and its end.

One pod is one thread here. Its containers may end and come again, its address and volumes stay.
"""

import shutil
import signal
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster.network import Host
from tests.deploy.chroot import Mount
from tests.deploy.container import Container, identity, start, write_etc
from tests.deploy.image import Image
from tests.deploy.pod_environment import (
    CreateContainerConfigError,
    Facts,
    Objects,
    command,
    environment,
    expanded,
)
from tests.deploy.pod_volumes import Volumes
from tests.deploy.probes import Health, answers, health
from tests.waiting import wait_until

Object = dict[str, Any]
_LOOK_SECONDS = 0.05
_BACKOFF_SECONDS = 0.5
"""Before a container comes again: kubelet waits 10 s, and longer each time."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """`machine`: what it has as its /."""

    name: str
    machine: Path
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Kubelet:
    """What is the same for all pods. `quicker`: how many times as often its probes ask.
    `variables`: where the API server is. `account`: the files of a service account's token."""

    image: Image
    objects: Callable[[], Objects]
    variables: Mapping[str, str]
    account: Callable[[str], Mapping[str, str]]
    quicker: float = 1.0


@dataclass(kw_only=True)
class Pod:
    """`template`: of its workload. `host`: its network.

    `killed`: how often a container of it had to be killed, since it outlived the time it has to
    end. `restarts`: why each of its containers has ended.
    """

    kubelet: Kubelet
    node: Node
    name: str
    namespace: str
    template: Object
    host: Host
    folder: Path
    killed: int = 0
    restarts: list[str] = field(default_factory=list)
    waiting: str = ""
    ready: bool = False
    deleted_at: float | None = None
    ready_at: float | None = None
    container: Container | None = None
    health: Health | None = None
    _gone: threading.Event = field(default_factory=threading.Event)
    _deleted: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        spec = self.spec
        assert len(spec["containers"]) == 1
        assert not any(spec.get(f"host{each}") for each in ("Network", "PID", "IPC"))
        metadata = self.template.get("metadata", {})
        self.facts = Facts(
            name=self.name,
            namespace=self.namespace,
            uid=str(uuid.uuid4()),
            node=self.node.name,
            ip=self.host.ipv4,
            host_ip=self.host.ipv4,
            account=spec.get("serviceAccountName", "default"),
            labels=metadata.get("labels", {}),
            annotations=metadata.get("annotations", {}),
        )
        self.volumes = Volumes(
            folder=self.folder / "volumes",
            machine=self.node.machine,
            claims=self.node.machine.parent / "claims",
            template=spec,
            facts=self.facts,
            account=self.kubelet.account(self.facts.account),
        )

    @property
    def spec(self) -> Object:
        found: Object = self.template["spec"]
        return found

    @property
    def url(self) -> str:
        return f"http://{self.facts.ip}:{self.spec['containers'][0]['ports'][0]['containerPort']}"

    @property
    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    @property
    def grace_seconds(self) -> float:
        return float(self.spec.get("terminationGracePeriodSeconds", 30))

    @property
    def is_gone(self) -> bool:
        return self._gone.is_set()

    def create(self) -> None:
        (self.folder / "volumes").mkdir(parents=True)
        write_etc(
            self.folder,
            host=self.host,
            name=self.name,
            namespace=self.namespace,
            user=(self.kubelet.image.uid, self.kubelet.image.gid),
        )
        self._thread = threading.Thread(target=self._live, name=self.name)
        self._thread.start()

    def delete(self) -> None:
        """As `kubectl delete pod` without waiting."""
        self.deleted_at = time.monotonic()
        self._deleted.set()

    def wait_gone(self) -> None:
        """Its processes are, too."""
        assert self._gone.wait(self.grace_seconds + 60), f"{self.name} does not end"
        assert self._thread is not None
        self._thread.join()

    def wait_ready(self, *, seconds: float = 90.0) -> None:
        try:
            wait_until(lambda: self.ready, what=f"{self.name} is ready", seconds=seconds)
        except AssertionError as exc:
            told = f"{exc}; {self.waiting} {self.restarts}\n{self.log[-4000:]}"
            raise AssertionError(told) from exc

    def refresh(self) -> None:
        """Its volumes, after ConfigMaps or Secrets have changed."""
        self.volumes.refresh(self.kubelet.objects())

    def _live(self) -> None:
        try:
            while not self._deleted.is_set():
                try:
                    paths = self.volumes.make(self.kubelet.objects())
                    done = all([self._finishes(each, paths) for each in self._first_ones()])
                    if done:
                        self._run(self.spec["containers"][0], paths)
                except CreateContainerConfigError as exc:
                    self.waiting = str(exc)
                self._deleted.wait(_BACKOFF_SECONDS)
        finally:
            self.ready = False
            self._gone.set()

    def _first_ones(self) -> list[Object]:
        """None of them runs again, unless the pod is new."""
        return [] if self.restarts else list(self.spec.get("initContainers", ()))

    def _finishes(self, container: Object, paths: Mapping[str, Path]) -> bool:
        running = self._start(container, paths)
        while running.exited is None:
            if self._deleted.wait(_LOOK_SECONDS):
                self._end(container, running)
        if running.exited:
            self.waiting = f"init container {container['name']} ended with {running.exited}"
        return running.exited == 0

    def _run(self, container: Object, paths: Mapping[str, Path]) -> None:
        """Until it has ended, of itself or since it was told to."""
        running = self._start(container, paths)
        running.wait_started()
        self.container = running
        state = health(container, running, self.facts.ip, quicker=self.kubelet.quicker)
        self.health = state
        try:
            while running.exited is None and state.fallen is None and not self._deleted.is_set():
                state.look()
                self._tell(state)
                self._deleted.wait(_LOOK_SECONDS)
        finally:
            # A pod that is deleted goes on being asked, but is no endpoint any more (see kube.py).
            self.ready = False
            self._end(container, running, fallen=state.fallen)
            self.container = None
            self.restarts.append(state.fallen or f"exit {running.exited}")

    def _tell(self, state: Health) -> None:
        if state.ready and not self.ready:
            self.ready_at = time.monotonic()
        self.ready = state.ready

    def _start(self, container: Object, paths: Mapping[str, Path]) -> Container:
        image, spec = self.kubelet.image, self.spec
        variables = environment(
            container, self.facts, self.kubelet.objects(), {**image.env, **self.kubelet.variables}
        )
        security = container.get("securityContext", {})
        return start(
            command(container, variables, entrypoint=image.entrypoint, cmd=image.cmd),
            folder=self.folder,
            host=self.host,
            name=self.name,
            mounts=[*image.mounts, *self._mounts(container, paths, variables)],
            identity=identity(spec.get("securityContext", {}), security, (image.uid, image.gid)),
            read_only=security.get("readOnlyRootFilesystem", False),
            working_folder=container.get("workingDir", image.folder),
            environment={**variables, "HOSTNAME": self.name},
        )

    def _mounts(
        self, container: Object, paths: Mapping[str, Path], variables: Mapping[str, str]
    ) -> list[Mount]:
        made = []
        for each in self.volumes.mounts(container):
            below = each.get("subPath") or expanded(each.get("subPathExpr", ""), variables)
            source = paths[each["name"]] / below
            if below:
                source.mkdir(exist_ok=True)
                shutil.copystat(source.parent, source)
            writable = not each.get("readOnly", False)
            made.append(Mount(source=source, target=each["mountPath"], writable=writable))
        return made

    def _end(self, container: Object, running: Container, *, fallen: str | None = None) -> None:
        """Its hook and SIGTERM within the time it has, then SIGKILL."""
        probe = container.get(f"{fallen}Probe") or {}
        deadline = time.monotonic() + probe.get("terminationGracePeriodSeconds", self.grace_seconds)
        if running.exited is None:
            self._call_hook(container, running, deadline)
            running.send(signal.SIGTERM)
        while running.exited is None and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        if running.exited is None:
            self.killed += 1
            running.send(signal.SIGKILL)
            running.process.wait(60)

    def _call_hook(self, container: Object, running: Container, deadline: float) -> None:
        hook = container.get("lifecycle", {}).get("preStop")
        if hook is None:
            return
        left = max(0.0, deadline - time.monotonic())
        if "sleep" in hook:
            until = time.monotonic() + min(left, hook["sleep"]["seconds"])
            while running.exited is None and time.monotonic() < until:
                time.sleep(_LOOK_SECONDS)
        else:
            ports = {each.get("name"): each["containerPort"] for each in container["ports"]}
            answers(hook, running, self.facts.ip, ports, left)
