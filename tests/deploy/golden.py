"""Snapshots of rendered releases: what a change of the chart changes, to be read in its diff."""

from pathlib import Path
from typing import Any

import yaml

from tests.deploy.helm import CHART
from tests.deploy.rendering import Chart, Values

FOLDER = Path(__file__).parent / "golden"

CASES: dict[str, Values] = {
    "default": {},
    "pools": {
        "pools": {
            "nvidia": {"gpu": {"mode": "plugin", "count": 2}},
            "amd": {
                "gpu": {"vendor": "amd"},
                "securityContext": {"privileged": True},
                "podSecurityContext": {"supplementalGroups": [44, 110]},
            },
            "cpu": {"gpu": {"vendor": "none"}, "nodeSelector": {"gpu": "none"}},
        },
    },
    "closed": {
        "workloadKind": "DaemonSet",
        "updateStrategy": {"type": "OnDelete"},
        "manifest": {
            "source": "git",
            "git": {
                "url": "ssh://git@git.example.com/models.git",
                "ref": "main",
                "path": "prod",
                "existingSecret": "git",
            },
        },
        "hub": {
            "location": "s3://models",
            "endpoint": "https://s3.example.com",
            "existingSecret": "hub",
        },
        "trustedCA": {"configMap": "corp"},
        "cluster": {"existingSecret": "peers"},
        "networkPolicy": {"enabled": True, "egress": {"enabled": True}},
    },
    "api": {"manifest": {"source": "api", "files": {"models.yaml": "kind: ModelManifest\n"}}},
}


def snapshot(case: str, chart: Chart) -> str:
    """The objects of a case as YAML, sorted, without what every release of the chart changes."""
    objects = sorted(chart(CASES[case]).objects, key=_place)
    text: str = yaml.safe_dump_all((_plain(each) for each in objects), width=100)
    return text.replace(_version(), "VERSION")


def _place(entry: Any) -> tuple[str, str]:
    return entry["kind"], entry["metadata"]["name"]


def _plain(entry: Any) -> Any:
    """Without the labels that all objects have."""
    labels = entry["metadata"]["labels"]
    entry["metadata"]["labels"] = {
        key: value
        for key, value in labels.items()
        if key in ("app.kubernetes.io/component", "xgen.io/pool")
    }
    return entry


def _version() -> str:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    return str(chart["appVersion"])
