"""What is told of the chart is what it is: its README, its snapshots, its flags."""

import re
import subprocess
import sys

import pytest

from tests.deploy.chart_table import README, defaults, leaves, page, schema
from tests.deploy.golden import CASES, FOLDER, snapshot
from tests.deploy.helm import CHART, HELM, MISSING, helm
from tests.deploy.rendering import Chart

needs_helm = pytest.mark.skipif(not HELM.exists(), reason=MISSING)

OF_THE_CHART = {
    "manifest",
    "hub",
    "node",
    "listen",
    "data-dir",
    "models-dir",
    "gpu-mode",
    "git-token-file",
    "git-ssh-key",
    "git-known-hosts",
    "git-ca-file",
    "git-allowed-signers",
    "git-webhook-secret-file",
    "kubeconfig",
    "kube-context",
    "peers",
    "cluster-token-file",
    "on-exit",
    "supervise",
    "help",
}
"""Flags of `run` that other values stand for, or that mean nothing in a pod."""


def test_the_readme_tells_of_every_value_and_no_other() -> None:
    text = README.read_text(encoding="utf-8")
    assert text == page(text), "run python -m tests.deploy.written"


@needs_helm
@pytest.mark.parametrize("case", CASES)
def test_nothing_changes_unseen(case: str, chart: Chart) -> None:
    written = (FOLDER / f"{case}.yaml").read_text(encoding="utf-8")
    assert snapshot(case, chart) == written, "run python -m tests.deploy.written, read the diff"


def test_every_value_has_a_default_but_for_flags_and_kubernetes_own() -> None:
    missing: list[str] = []
    for path in leaves(schema()):
        node = defaults()
        for name in path.split("."):
            node = node.get(name, missing) if isinstance(node, dict) else missing
        if node is missing:
            missing.append(path)
    free = ("settings.", "podSecurityContext", "securityContext", "probes.", "resources.")
    assert [each for each in missing if not each.startswith(free)] == ["global"]


def test_every_flag_of_an_agent_can_be_set() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "reconciler", "run", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    flags = set(re.findall(r"^  (?:-h, )?--([a-z-]+)", done.stdout, re.MULTILINE))
    settings = schema()["properties"]["settings"]["properties"]
    ours = {re.sub(r"([A-Z])", lambda found: f"-{found[1].lower()}", each) for each in settings}
    assert ours == flags - OF_THE_CHART


@needs_helm
def test_a_setting_becomes_the_variable_of_its_flag(chart: Chart) -> None:
    settings = {
        "cacheBudget": "80%",
        "maxBodyMib": 2_000_000,
        "pollInterval": 0.5,
        "llamaCppPython": "/opt/llama/bin/python",
        "engine": ["a=vllm-cuda:/opt/a", "b=vllm-cuda:/opt/b"],
        "allowEngineArg": ["trust_remote_code"],
        "allowFileRoot": ["/srv/a", "/srv/b"],
        "stopLimit": "none",
    }
    own = chart({"settings": settings, "env": {"COUNT": 10_000_000, "FLAG": True}}).environment()
    expected = {
        "XGEN_CACHE_BUDGET": "80%",
        "XGEN_MAX_BODY_MIB": "2000000",
        "XGEN_POLL_INTERVAL": "0.5",
        "XGEN_LLAMA_CPP_PYTHON": "/opt/llama/bin/python",
        "XGEN_ENGINE": "a=vllm-cuda:/opt/a b=vllm-cuda:/opt/b",
        "XGEN_ALLOW_ENGINE_ARG": "trust_remote_code",
        "XGEN_ALLOW_FILE_ROOT": "/srv/a:/srv/b",
        "XGEN_STOP_LIMIT": "none",
        "COUNT": "10000000",
        "FLAG": "true",
    }
    assert {name: own[name] for name in expected} == expected


@needs_helm
def test_the_notes_say_how_to_reach_it_and_what_is_missing(chart: Chart) -> None:
    def notes(*arguments: str) -> str:
        said = helm(
            "install", "xgen", str(CHART), "-n", "models", "--dry-run=client", *arguments,
            home=chart.folder,
        )  # fmt: skip
        return said.partition("NOTES:")[2]

    bare = notes()
    assert "xgen-xgen-model.models.svc.cluster.local:8000/v1" in bare
    assert "each host needs xgen-model:" in bare
    assert "there is no manifest yet" in bare
    assert "hub.location is empty" in bare
    assert "there is a PriorityClass xgen-prod-serving" in bare
    assert "there is a RuntimeClass nvidia" in bare
    full = notes(
        "--set", "manifest.existingConfigMap=prod,hub.location=s3://m,hub.existingSecret=h",
        "--set", "priorityClass.create=true,gpu.vendor=none,cluster.existingSecret=t",
        "--set", "image.registry=r",
    )  # fmt: skip
    for word in ("MISSING", "CHECK", "without", "each host needs"):
        assert word not in full
    shut = ("--set", "networkPolicy.enabled=true,monitoring.serviceMonitor.enabled=true")
    assert "a Prometheus elsewhere" in notes(*shut)
    assert "clients of the NodePort" in notes(*shut, "--set", "service.type=NodePort")
    opened = notes(
        *shut, "--set", "networkPolicy.ingress.from[0].namespaceSelector.matchLabels.a=b"
    )
    assert "a Prometheus elsewhere" not in opened
