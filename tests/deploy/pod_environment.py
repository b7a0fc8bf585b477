"""The environment and the command of a container, as kubelet makes them of a pod's template."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")
_KEY = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class CreateContainerConfigError(Exception):
    """What kubelet calls it: something that the container needs is not there."""


@dataclass(frozen=True, kw_only=True)
class Objects:
    """ConfigMaps and Secrets of the pod's namespace, as text by name and key."""

    config_maps: Mapping[str, Mapping[str, str]]
    secrets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def of(self, kind: str, name: str, *, optional: bool = False) -> Mapping[str, str] | None:
        """`kind`: configMap or secret. None: it is not there, and need not be."""
        found = (self.config_maps if kind == "configMap" else self.secrets).get(name)
        if found is None and not optional:
            raise CreateContainerConfigError(f"{kind} {name!r} not found")
        return found


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the Downward API tells of a pod."""

    name: str
    namespace: str
    uid: str
    node: str
    ip: str
    host_ip: str
    account: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    def tell(self, path: str) -> str:
        """The value of a `fieldPath`."""
        if keyed := _KEY.fullmatch(path):
            return getattr(self, keyed[1]).get(keyed[2], "")  # type: ignore[no-any-return]
        return {
            "metadata.name": self.name,
            "metadata.namespace": self.namespace,
            "metadata.uid": self.uid,
            "spec.nodeName": self.node,
            "spec.serviceAccountName": self.account,
            "status.podIP": self.ip,
            "status.podIPs": self.ip,
            "status.hostIP": self.host_ip,
            "status.hostIPs": self.host_ip,
        }[path]


def environment(
    container: Object, facts: Facts, objects: Objects, before: Mapping[str, str]
) -> dict[str, str]:
    """All variables of a container.

    Args:
        before: The image's and those of the Services, which the template goes over.

    Raises:
        CreateContainerConfigError: An object or key that is not optional is not there.
    """
    result = dict(before)
    for source in container.get("envFrom", ()):
        for kind in ("configMap", "secret"):
            if reference := source.get(f"{kind}Ref"):
                optional = reference.get("optional", False)
                found = objects.of(kind, reference["name"], optional=optional) or {}
                result |= {source.get("prefix", "") + key: text for key, text in found.items()}
    for entry in container.get("env", ()):
        value = _value(entry, facts, objects, result)
        if value is not None:
            result[entry["name"]] = value
    return result


def _value(entry: Object, facts: Facts, objects: Objects, known: Mapping[str, str]) -> str | None:
    source = entry.get("valueFrom")
    if source is None:
        return expanded(entry.get("value", ""), known)
    if "fieldRef" in source:
        return facts.tell(source["fieldRef"]["fieldPath"])
    (kind,) = ({"configMapKeyRef": "configMap", "secretKeyRef": "secret"}[key] for key in source)
    reference = source[f"{kind}KeyRef"]
    optional = reference.get("optional", False)
    found = objects.of(kind, reference["name"], optional=optional) or {}
    if reference["key"] not in found and not optional:
        told = f"couldn't find key {reference['key']} in {kind} {reference['name']}"
        raise CreateContainerConfigError(told)
    return found.get(reference["key"])


def expanded(text: str, known: Mapping[str, str]) -> str:
    """With `$(NAME)` replaced where the name is known, and `$$` by `$`."""

    def replace(found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else known.get(found[1], found[0])

    return _REFERENCE.sub(replace, text)


def command(
    container: Object, known: Mapping[str, str], *, entrypoint: list[str], cmd: list[str]
) -> list[str]:
    """What runs. `entrypoint`, `cmd`: the image's, the second of which goes with the first."""
    own = container.get("command")
    words = [*(own or entrypoint), *container.get("args", [] if own else cmd)]
    return [expanded(word, known) for word in words]
