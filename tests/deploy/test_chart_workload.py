"""Which pods the chart makes, and how they come, are replaced, and end."""

from typing import Any

import pytest
import yaml

from tests.deploy.helm import HELM, MISSING
from tests.deploy.rendering import Chart

pytestmark = pytest.mark.skipif(not HELM.exists(), reason=MISSING)


def test_by_default_a_deployment_replaces_one_agent_after_another(chart: Chart) -> None:
    spec = chart().one("Deployment")["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
    }
    assert spec["minReadySeconds"] == 10


@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet"])
@pytest.mark.parametrize(
    "own", [{}, {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "rack"}]}]
)
def test_no_two_agents_of_a_release_share_a_host(
    kind: str, own: dict[str, Any], chart: Chart
) -> None:
    release = chart({"workloadKind": kind, "affinity": {"podAntiAffinity": own}})
    rules = release.pod()["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert rules[:-1] == own.get("requiredDuringSchedulingIgnoredDuringExecution", [])
    labels = release.workload()["spec"]["template"]["metadata"]["labels"]
    assert rules[-1]["topologyKey"] == "kubernetes.io/hostname"
    selected = rules[-1]["labelSelector"]["matchLabels"]
    assert selected.items() <= labels.items()
    assert "xgen.io/pool" not in selected


def test_affinity_of_the_values_stays(chart: Chart) -> None:
    term = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}
    wanted = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}
    affinity = chart({"affinity": wanted}).pod()["affinity"]
    assert affinity.pop("podAntiAffinity")
    assert affinity == wanted


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ({}, {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}),
        (
            {"maxUnavailable": "25%"},
            {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "25%"}},
        ),
        ({"type": "OnDelete"}, {"type": "OnDelete"}),
    ],
)
def test_a_daemon_set_rolls_or_waits_for_a_deletion(
    strategy: dict[str, Any], expected: dict[str, Any], chart: Chart
) -> None:
    release = chart({"workloadKind": "DaemonSet", "updateStrategy": strategy})
    spec = release.one("DaemonSet")["spec"]
    assert spec["updateStrategy"] == expected
    assert "replicas" not in spec
    assert not release.all("PodDisruptionBudget")


def test_a_deployment_has_a_disruption_budget_for_its_pods(chart: Chart) -> None:
    release = chart()
    spec = release.one("PodDisruptionBudget")["spec"]
    assert spec["maxUnavailable"] == 1
    assert spec["selector"] == release.workload()["spec"]["selector"]
    assert not chart({"podDisruptionBudget": {"enabled": False}}).all("PodDisruptionBudget")


def test_the_grace_period_covers_all_that_an_end_takes(chart: Chart) -> None:
    pod = chart().pod()
    # 5 until clients know, 60 to drain, 15 for TERM, 2 for the group's, 10 for KILL, 15 to spare.
    assert pod["terminationGracePeriodSeconds"] == 107
    assert pod["containers"][0]["lifecycle"]["preStop"] == {"sleep": {"seconds": 5}}
    longer = chart({"shutdown": {"drainSeconds": 600, "preStopSeconds": 0}}).pod()
    assert longer["terminationGracePeriodSeconds"] == 642
    assert "lifecycle" not in longer["containers"][0]
    given = chart({"shutdown": {"gracePeriodSeconds": 300}}).pod()
    assert given["terminationGracePeriodSeconds"] == 300


def test_what_passes_through_a_node_counts_where_its_own_drain_is_short(chart: Chart) -> None:
    assert chart({"shutdown": {"drainSeconds": 5}}).pod()["terminationGracePeriodSeconds"] == 107


def _model(**timeouts: Any) -> dict[str, Any]:
    return {"name": "slow", "timeouts": timeouts}


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [
        ({"models": [{"name": "usual"}, _model(drain="10m")]}, 647),
        ({"models": [_model(drain=90, stop="30s", kill="20s")]}, 162),
        ({"defaults": {"timeouts": {"drain": "1h"}}, "models": [{"name": "slow"}]}, 3647),
        ({"defaults": {"timeouts": {"drain": "1h"}}, "models": [_model(drain="2m")]}, 167),
    ],
)
@pytest.mark.parametrize("text", [False, True])
def test_a_model_that_ends_longer_than_a_pod_is_refused(
    spec: dict[str, Any], seconds: int, text: bool, chart: Chart
) -> None:
    written: Any = {"kind": "ModelManifest", "spec": spec}
    if text:
        written = f"kind: ModelManifest\nspec: {{models: []}}\n---\n{yaml.safe_dump(written)}"
    files = {"manifest": {"files": {"a.yaml": written}}}
    said = f"slow may take {seconds} s to end, and a pod has 107"
    assert said in chart.refusal(files)
    enough = chart({**files, "shutdown": {"gracePeriodSeconds": seconds}})
    assert enough.pod()["terminationGracePeriodSeconds"] == seconds


@pytest.mark.parametrize(
    "written",
    [
        "",
        "[1, 2",
        "just text",
        "- 1",
        "spec: {models: {a: b}}",
        "spec: {models: [1]}",
        "spec: {models: [{name: a, timeouts: 5}]}",
        "spec: {defaults: {timeouts: 5}, models: [{name: a, timeouts: {drain: long}}]}",
    ],
)
def test_a_manifest_that_is_none_is_left_to_the_agent_to_judge(written: str, chart: Chart) -> None:
    release = chart({"manifest": {"files": {"a.yaml": written}}})
    assert release.one("ConfigMap")["data"]["a.yaml"].strip() == written


def test_probes_outlast_a_load_and_an_agent_that_is_started_anew(chart: Chart) -> None:
    agent = chart().agent()
    assert agent["readinessProbe"]["httpGet"]["path"] == "/readyz"
    for probe in (agent["livenessProbe"], agent["startupProbe"]):
        # Never /readyz, which is 503 for as long as models load.
        assert probe["httpGet"] == {"path": "/healthz", "port": "http"}
        assert probe["failureThreshold"] * probe["periodSeconds"] >= 120
    assert agent["ports"] == [{"name": "http", "containerPort": 8000, "protocol": "TCP"}]


def test_an_edit_of_the_manifest_or_a_newer_chart_starts_no_pod_anew(chart: Chart) -> None:
    before = chart({"manifest": {"files": {"a.yaml": "spec: {}"}}})
    after = chart({"manifest": {"files": {"a.yaml": "spec: {models: []}"}}})
    assert before.one("ConfigMap") != after.one("ConfigMap")
    assert before.workloads == after.workloads
    template = before.workload()["spec"]["template"]["metadata"]
    assert "annotations" not in template
    assert not [label for label in template["labels"] if "version" in label or "chart" in label]


def test_services_of_the_namespace_set_no_variables(chart: Chart) -> None:
    assert chart().pod()["enableServiceLinks"] is False


def test_more_of_a_pod(chart: Chart) -> None:
    release = chart(
        {
            "podLabels": {"team": "ml"},
            "podAnnotations": {"a": "b"},
            "imagePullSecrets": [{"name": "pull"}],
            "schedulerName": "mine",
            "topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 1}],
            "initContainers": [{"name": "first", "image": "x"}],
            "sidecars": [{"name": "beside", "image": "y"}],
            "extraVolumes": [{"name": "more", "emptyDir": {}}],
            "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
            "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["hub"]}],
            "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
            "extraArgs": ["--log-level", "debug"],
            "envFrom": [{"secretRef": {"name": "hf"}}],
            "commonLabels": {"cost": "7"},
        }
    )
    metadata = release.workload()["spec"]["template"]["metadata"]
    assert metadata["labels"]["team"] == "ml"
    assert metadata["annotations"] == {"a": "b"}
    pod = release.pod()
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert pod["schedulerName"] == "mine"
    assert pod["topologySpreadConstraints"][0]["topologyKey"] == "zone"
    assert [each["name"] for each in pod["initContainers"]] == ["permissions", "first"]
    assert [each["name"] for each in pod["containers"]] == ["agent", "beside"]
    assert release.volume("more") == {"name": "more", "emptyDir": {}}
    assert release.mount("more")["mountPath"] == "/more"
    assert pod["hostAliases"][0]["ip"] == "10.0.0.1"
    assert pod["dnsConfig"]["options"][0]["name"] == "ndots"
    assert release.agent()["args"] == ["run", "--log-level", "debug"]
    assert release.agent()["envFrom"] == [{"secretRef": {"name": "hf"}}]
    assert all(each["metadata"]["labels"]["cost"] == "7" for each in release.objects)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, "xgen-model:0.1.0-vllm-cuda"),
        ({"gpu": {"vendor": "none"}}, "xgen-model:0.1.0-cpu"),
        ({"image": {"variant": "llama-cuda"}}, "xgen-model:0.1.0-llama-cuda"),
        (
            {"image": {"registry": "mirror.local:5000", "repository": "m", "tag": "x"}},
            "mirror.local:5000/m:x",
        ),
        (
            {"image": {"digest": "sha256:" + "0" * 64}},
            "xgen-model@sha256:" + "0" * 64,
        ),
    ],
)
def test_the_image(values: dict[str, Any], expected: str, chart: Chart) -> None:
    pod = chart(values).pod()
    assert {each["image"] for each in pod["containers"] + pod["initContainers"]} == {expected}


def test_the_priority_class_is_named_and_made_on_request(chart: Chart) -> None:
    release = chart()
    assert release.pod()["priorityClassName"] == "xgen-prod-serving"
    assert not release.all("PriorityClass")
    made = chart({"priorityClass": {"create": True}}).one("PriorityClass")
    assert (made["metadata"]["name"], made["value"]) == ("xgen-prod-serving", 1_000_000)
    assert made["globalDefault"] is False
    assert "priorityClassName" not in chart({"priorityClass": {"name": ""}}).pod()


@pytest.mark.parametrize("name", ["affinity", "resources", "tolerations", "podLabels", "env"])
def test_a_value_that_is_left_blank_is_empty(name: str, chart: Chart) -> None:
    empty: Any = [] if name == "tolerations" else {}
    if name == "resources":
        empty = {"requests": None}
    assert chart({name: None}).objects == chart({name: empty}).objects
