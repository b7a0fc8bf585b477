"""Which values may not be taken away with null, for the chart's schema.

Helm takes a default away where the values say null, and only then asks the schema: what has gone is
missing, and no type is wrong. A template would make 0 or nothing of it.
"""

from typing import Any

from tests.deploy.chart_table import defaults, schema

OPTIONAL = {
    "manifest.git.secretKeys.knownHosts",
    "manifest.git.secretKeys.sshKey",
    "manifest.git.secretKeys.token",
    "monitoring.dashboard.labels",
    "priorityClass.name",
    "probes.liveness.terminationGracePeriodSeconds",
    "resources",
    "storage.shm.sizeLimit",
}
"""They have a default, and without it there is a sensible pod all the same."""
ASKED = {"hub.location"}
"""Empty by default, and templates ask how it begins."""
REMOVABLE = ("podSecurityContext", "securityContext")
"""Maps of Kubernetes: null takes a default of theirs away."""


def required() -> dict[str, Any]:
    """What stands in `$defs.complete`: it is asked of the whole values, not of a pool's."""
    return _required(defaults(), schema(), "")


def _required(given: Any, node: Any, path: str) -> dict[str, Any]:
    names, below = [], {}
    for name, value in given.items():
        place = f"{path}.{name}" if path else name
        described = node.get("properties", {}).get(name, {})
        if place in OPTIONAL or (value in (None, "", [], {}) and place not in ASKED):
            continue
        if isinstance(value, list) and not path:
            continue
        names.append(name)
        if isinstance(value, dict) and "properties" in described and place not in REMOVABLE:
            inner = _required(value, described, place)
            if inner:
                below[name] = inner
    found: dict[str, Any] = {}
    if names:
        found["required"] = names
    if below:
        found["properties"] = below
    return found
