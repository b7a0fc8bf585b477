"""The volumes of a pod, as kubelet makes them and keeps them up to date."""

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.deploy.pod_environment import CreateContainerConfigError, Facts, Object, Objects
from tests.source.atomic_writer import ConfigMapVolume

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_ACCOUNT_VOLUME = "kube-api-access"


@dataclass(kw_only=True)
class Volumes:
    """`folder`: of the pod. `machine`: what the node has as its /. `claims`: of what outlives
    pods, beside it. `account`: what a service account's token volume holds."""

    folder: Path
    machine: Path
    claims: Path
    template: Object
    facts: Facts
    account: Mapping[str, str]
    _written: dict[str, Mapping[str, str]] = field(default_factory=dict)
    _writers: dict[str, ConfigMapVolume] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def mounts_account(self) -> bool:
        """Whether it gets its account's token without asking."""
        return bool(self.template.get("automountServiceAccountToken", True))

    def make(self, objects: Objects) -> dict[str, Path]:
        """All of them, by name.

        Raises:
            CreateContainerConfigError: An object that is not optional is not there.
        """
        made = {
            each["name"]: self._make(each, objects) for each in self.template.get("volumes", ())
        }
        if self.mounts_account:
            self._write(_ACCOUNT_VOLUME, self.account, {})
            made[_ACCOUNT_VOLUME] = self.folder / _ACCOUNT_VOLUME
        return made

    def mounts(self, container: Object) -> list[Object]:
        """Of a container, with the one of its account."""
        own: list[Object] = list(container.get("volumeMounts", ()))
        if self.mounts_account and all(each["mountPath"] != SERVICE_ACCOUNT for each in own):
            own.append({"name": _ACCOUNT_VOLUME, "mountPath": SERVICE_ACCOUNT, "readOnly": True})
        return own

    def refresh(self, objects: Objects) -> None:
        """Swap what has changed. An object that is gone leaves the old content, as with kubelet."""
        for volume in self.template.get("volumes", ()):
            if any(kind in volume for kind in ("configMap", "secret", "projected")):
                try:
                    self._make(volume, objects)
                except CreateContainerConfigError:
                    continue

    def _make(self, volume: Object, objects: Objects) -> Path:
        name: str = volume["name"]
        path = self.folder / name
        (kind,) = (key for key in volume if key != "name")
        said = volume[kind] or {}
        match kind:
            case "emptyDir":
                path.mkdir(exist_ok=True)
                self._own(path, 0o777)
            case "hostPath":
                return self._host_path(said)
            case "persistentVolumeClaim":
                path = self.claims / str(said["claimName"])
                path.mkdir(parents=True, exist_ok=True)
                self._own(path, 0o755)
            case "downwardAPI":
                self._write(name, self._told(said["items"]), said)
            case "projected":
                files: dict[str, str] = {}
                for source in said["sources"]:
                    files |= self._projected(source, objects)
                self._write(name, files, said)
            case _:
                self._write(name, _chosen(kind, said, objects), said)
        return path

    def _host_path(self, said: Object) -> Path:
        """Root's, and nobody else's to write to, where kubelet makes it."""
        path = self.machine / str(said["path"]).lstrip("/")
        if said.get("type") == "DirectoryOrCreate":
            path.mkdir(parents=True, exist_ok=True)
        elif not path.exists():
            raise CreateContainerConfigError(f"hostPath type check failed: {said['path']}")
        return path

    def _projected(self, source: Object, objects: Objects) -> Mapping[str, str]:
        (kind,) = source
        said = source[kind]
        if kind == "serviceAccountToken":
            return {said["path"]: self.account["token"]}
        if kind == "downwardAPI":
            return self._told(said["items"])
        return _chosen(kind, said, objects)

    def _told(self, items: list[Object]) -> dict[str, str]:
        return {each["path"]: self.facts.tell(each["fieldRef"]["fieldPath"]) for each in items}

    def _write(self, name: str, files: Mapping[str, str], said: Object) -> None:
        group = self._group
        mode = said.get("defaultMode", 0o644) | (0o440 if group is not None else 0)
        with self._lock:
            if self._written.get(name) == files:
                return
            writer = self._writers.setdefault(
                name, ConfigMapVolume(self.folder / name, mode=mode, group=group)
            )
            writer.write(files)
            self._written[name] = dict(files)

    @property
    def _group(self) -> int | None:
        group: Any = (self.template.get("securityContext") or {}).get("fsGroup")
        return None if group is None else int(group)

    def _own(self, path: Path, mode: int) -> None:
        """By the pod's group, where it has one."""
        if self._group is None:
            path.chmod(mode)
        else:
            os.chown(path, -1, self._group)
            path.chmod(mode | 0o2775)


def _chosen(kind: str, said: Object, objects: Objects) -> Mapping[str, str]:
    """The files of a ConfigMap or a Secret."""
    name = said.get("name") or said["secretName"]
    found = objects.of(kind, name, optional=said.get("optional", False)) or {}
    if "items" not in said:
        return found
    missing = [each["key"] for each in said["items"] if each["key"] not in found]
    if missing and not said.get("optional"):
        raise CreateContainerConfigError(f"{kind} {name!r} references non-existent key: {missing}")
    return {each["path"]: found[each["key"]] for each in said["items"] if each["key"] in found}
