"""`plan` and `doctor` read a ConfigMap as an agent does, and say what to do where they cannot."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.cli.checks.manifest import manifest_findings
from reconciler.manifest.policy import STRICT
from reconciler.source.git_access import PUBLIC
from reconciler.source.kubernetes_access import KubernetesAccess
from reconciler.source.kubernetes_address import parse_config_map
from reconciler.source.kubernetes_role import role
from tests.cli.command import xgen_model
from tests.cli.plan_answers import plan_of
from tests.e2e.manifests import manifest, model
from tests.source.git_https import certificate
from tests.source.kubernetes_files import kubeconfig
from tests.source.kubernetes_server import Server, serving

PLACE = "configmap://models/models"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(Server(certificate=certificate(tmp_path, "ours"), tokens={"t0k3n"})) as made:
        made.store.put({"models.yaml": manifest(model("a", nodes="[node-a]"))})
        yield made


@pytest.fixture
def config(tmp_path: Path, server: Server) -> Path:
    return kubeconfig(tmp_path, server, user={"token": "t0k3n"})


def test_a_plan_of_a_config_map(server: Server, config: Path) -> None:
    words = ("plan", "--offline", "--kubeconfig", config, "--output", "json", "--manifest")
    done = xgen_model(*words, PLACE)
    assert (done.returncode, "t0k3n" in done.stderr) == (2, False)
    assert plan_of(done.stdout)["nodes"][0]["node"] == "node-a"
    server.store.put({"models.yaml": "spec: ["})
    bad = xgen_model(*words, PLACE)
    assert (bad.returncode, bad.stderr.startswith("models.yaml:1:")) == (1, True)
    gone = xgen_model(*words, "configmap://models/other")
    assert gone.stderr == (
        "error: cannot read configmap://models/other: there is no ConfigMap other in namespace "
        "models\n"
    )


def test_a_config_map_that_cannot_be_is_bad_usage() -> None:
    for words, said in (
        (("--manifest", "configmap://models"), "is not configmap://NAMESPACE/NAME"),
        (("--manifest", PLACE), "name a kubeconfig with --kubeconfig FILE"),
        (("--manifest", PLACE, "--kube-context", "x"), "name a kubeconfig with --kubeconfig FILE"),
    ):
        done = xgen_model("plan", "--offline", *words)
        assert done.returncode == 64
        assert said in done.stderr


def test_doctor_looks_at_it(config: Path, tmp_path: Path) -> None:
    words = ("--kubeconfig", config, "--data-dir", tmp_path / "data", "--output", "json")
    done = xgen_model("doctor", "--manifest", PLACE, "--node", "node-a", *words)
    found = {each["subject"]: each["message"] for each in json.loads(done.stdout)["checks"]}
    assert found["selection"] == "node-a would run a"


def test_doctor_says_what_to_do(server: Server, config: Path) -> None:
    access = KubernetesAccess(kubeconfig=config)

    def every(place: str = PLACE) -> list[tuple[str, str, str]]:
        _, findings = manifest_findings(place, PUBLIC, access, "node-a", STRICT)
        return [
            (each.level, each.said, each.next or "")
            for each in findings
            if each.subject == "manifest"
        ]

    def found(place: str = PLACE) -> tuple[str, str, str]:
        return every(place)[0]

    assert found() == ("ok", f"{PLACE} is valid, with 1 models", "")
    assert [level for level, _, _ in every()] == ["ok", "ok"]
    server.forbidden = {("watch", "configmaps"), ("create", "events")}
    _, watch, events = every()
    assert (watch[0], events[0]) == ("warn", "warn")
    assert watch[1].startswith("edits are seen within a minute only: cannot watch")
    assert events[1].startswith("a bad edit is told in no Event on")
    assert "kind: Role" in watch[2]
    assert server.store.events() == []
    server.forbidden = {("list", "configmaps")}
    level, said, step = found()
    assert (level, "is forbidden" in said) == ("fail", True)
    subject = "{kind: ServiceAccount, name: agent, namespace: models}"
    wanted = role(parse_config_map(PLACE), subject=subject)
    assert step == f"allow it: kubectl apply -f - with\n{wanted}".rstrip()
    server.forbidden = set()
    assert "kubectl -n models create configmap x --from-file" in found("configmap://models/x")[2]
    server.tokens = {"another"}
    assert "(401)" in (refused := found())[1]
    assert refused[2].endswith(f"kubectl --kubeconfig {config} -n models get configmap models")
    server.stop()
    assert "cannot connect to the API server localhost" in found()[1]
