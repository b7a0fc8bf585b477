"""The kubelet of these tests does with a pod what the real one does: else they proved little."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.network import Network, network, skip_without_namespaces
from tests.deploy.chroot import Mount
from tests.deploy.image import Image
from tests.deploy.kubelet import Kubelet, Node, Pod
from tests.deploy.pod_environment import Objects
from tests.waiting import wait_until

MakePod = Callable[..., Pod]
_UID = 10001
_FOR_EVER = "while :; do sleep 0.1; done"
_DEAF = f"trap '' TERM; {_FOR_EVER}"
_OBEDIENT = f"trap 'echo told; exit 0' TERM; {_FOR_EVER}"


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    skip_without_namespaces()
    with network(tmp_path_factory.mktemp("network"), "a") as made:
        yield made


@pytest.fixture
def maps() -> dict[str, dict[str, str]]:
    """The ConfigMaps."""
    return {"models": {"a.yaml": "first"}}


@pytest.fixture
def make_pod(net: Network, tmp_path: Path, maps: dict[str, dict[str, str]]) -> Iterator[MakePod]:
    """Makes pods of one container, which runs a script."""
    secrets = {"keys": {"token": "t0k3n"}}
    made: list[Pod] = []

    def make(script: str, *, spec: dict[str, Any] | None = None, **container: Any) -> Pod:
        kubelet = Kubelet(
            image=Image(
                entrypoint=["sh", "-c"],
                cmd=["exit 9"],
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
                uid=_UID,
                gid=_UID,
                folder="/",
                mounts=[Mount(source=tmp_path, target="/seen", writable=True)],
            ),
            objects=lambda: Objects(config_maps=maps, secrets=secrets),
            variables={"KUBERNETES_SERVICE_HOST": "198.18.0.253"},
            account=lambda name: {"token": f"of {name}", "ca.crt": "", "namespace": "models"},
            quicker=20,
        )
        own = {"name": "agent", "args": [script], "ports": [{"containerPort": 8000}], **container}
        pod = Pod(
            kubelet=kubelet,
            node=Node(name="node-a", machine=tmp_path / "machine"),
            name=f"agent-{len(made)}",
            namespace="models",
            template={
                "metadata": {"labels": {"app": "x"}},
                "spec": {"containers": [own]} | (spec or {}),
            },
            host=net.hosts["a"],
            folder=tmp_path / f"pod-{len(made)}",
        )
        made.append(pod)
        pod.create()
        return pod

    (tmp_path / "machine").mkdir()
    tmp_path.chmod(0o777)
    yield make
    for pod in made:
        pod.delete()
        pod.wait_gone()


def said(pod: Pod, words: str) -> None:
    wait_until(lambda: words in pod.log, what=f"{words!r} in {pod.log!r} {pod.waiting}")


def test_a_container_has_its_variables_its_identity_and_its_files(
    make_pod: MakePod, net: Network
) -> None:
    script = (
        'echo "$GREETING"; id; cat /etc/keys/token;'
        "cat /var/run/secrets/kubernetes.io/serviceaccount/*; echo;"
        'grep -E "CapBnd|NoNewPrivs" /proc/self/status; stat -L -c "%a %g" /etc/keys/token;'
        "touch /x /etc/keys/x; touch /cache/x && echo cached; hostname;"
        f"echo done; {_FOR_EVER}"
    )
    pod = make_pod(
        script,
        env=[
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}},
            {
                "name": "NONE",
                "valueFrom": {"secretKeyRef": {"name": "no", "key": "x", "optional": True}},
            },
            {"name": "GREETING", "value": "$(IP) $(LABEL) $(KEY) $(NONE) $$(IP)"},
        ],
        securityContext={
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        volumeMounts=[
            {"name": "keys", "mountPath": "/etc/keys", "readOnly": True},
            {"name": "cache", "mountPath": "/cache"},
        ],
        spec={
            "securityContext": {"fsGroup": 77},
            "terminationGracePeriodSeconds": 0,
            "volumes": [
                {"name": "keys", "secret": {"secretName": "keys", "defaultMode": 0o400}},
                {"name": "cache", "emptyDir": {"medium": "Memory"}},
            ],
        },
    )
    said(pod, "done")
    lines = pod.log.splitlines()
    assert lines[0] == f"{net.hosts['a'].ipv4} x t0k3n $(NONE) $(IP)"
    assert lines[1].startswith(f"uid={_UID}(xgen) gid={_UID}(xgen) groups={_UID}(xgen),77")
    assert lines[2] == "t0k3nmodelsof default"
    assert lines[3:5] == ["CapBnd:\t0000000000000000", "NoNewPrivs:\t1"]
    assert lines[5] == "440 77"
    assert sum("Read-only file system" in line for line in lines) == 2
    assert lines[-3:] == ["cached", "agent-0", "done"]


def test_a_pod_without_its_object_waits_for_it(
    make_pod: MakePod, maps: dict[str, dict[str, str]]
) -> None:
    pod = make_pod(
        f"cat /etc/late/*; {_FOR_EVER}",
        volumeMounts=[{"name": "late", "mountPath": "/etc/late"}],
        spec={
            "terminationGracePeriodSeconds": 0,
            "volumes": [{"name": "late", "configMap": {"name": "late"}}],
        },
    )
    wait_until(lambda: "not found" in pod.waiting, what="it waits")
    maps["late"] = {"a": "first\n"}
    said(pod, "first")


def test_a_changed_config_map_is_swapped_under_the_running_container(
    make_pod: MakePod, maps: dict[str, dict[str, str]]
) -> None:
    pod = make_pod(
        "while :; do cat /etc/models/*; sleep 0.05; done",
        volumeMounts=[{"name": "models", "mountPath": "/etc/models"}],
        spec={
            "terminationGracePeriodSeconds": 0,
            "volumes": [{"name": "models", "configMap": {"name": "models"}}],
        },
    )
    said(pod, "first")
    maps["models"] = {"b.yaml": "second"}
    pod.refresh()
    said(pod, "second")
    assert pod.restarts == []


def test_who_outlives_its_time_is_killed_and_who_ends_in_it_is_not(make_pod: MakePod) -> None:
    deaf = make_pod(
        f"setsid sleep 1000 & echo up; {_DEAF}", spec={"terminationGracePeriodSeconds": 1}
    )
    said(deaf, "up")
    assert deaf.container is not None
    pids = deaf.container.pids()
    assert len(pids) > 1
    deaf.delete()
    deaf.wait_gone()
    assert deaf.killed == 1
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    obedient = make_pod(f"echo up; {_OBEDIENT}", spec={"terminationGracePeriodSeconds": 30})
    said(obedient, "up")
    obedient.delete()
    obedient.wait_gone()
    assert (obedient.killed, obedient.restarts) == (0, ["exit 0"])
    assert "told" in obedient.log


def test_probes_make_it_ready_and_kill_it(make_pod: MakePod, tmp_path: Path) -> None:
    def file(name: str, failures: int) -> dict[str, Any]:
        words = {"exec": {"command": ["test", "-e", f"/seen/{name}"]}}
        return {**words, "failureThreshold": failures, "timeoutSeconds": 5}

    pod = make_pod(
        f"echo life; {_OBEDIENT}",
        startupProbe=file("started", 10_000),
        readinessProbe=file("ready", 1),
        livenessProbe=file("alive", 2),
    )
    said(pod, "life")
    for name in ("ready", "alive"):
        (tmp_path / name).touch()
    assert not pod.ready
    (tmp_path / "started").touch()
    pod.wait_ready()
    (tmp_path / "ready").unlink()
    wait_until(lambda: not pod.ready, what="it is not ready")
    assert pod.restarts == []
    (tmp_path / "alive").unlink()
    wait_until(lambda: pod.restarts[:1] == ["liveness"], what="it was restarted")
    (tmp_path / "alive").touch()
    wait_until(lambda: pod.log.count("life") >= 2, what="it lives again")


def test_the_hook_comes_before_the_signal(make_pod: MakePod) -> None:
    hook = {"exec": {"command": ["sh", "-c", "echo hook > /seen/hook"]}}
    script = f"trap 'cat /seen/hook; exit 0' TERM; echo up; {_FOR_EVER}"
    pod = make_pod(script, lifecycle={"preStop": hook})
    said(pod, "up")
    pod.delete()
    pod.wait_gone()
    assert pod.log.split() == ["up", "hook"]
