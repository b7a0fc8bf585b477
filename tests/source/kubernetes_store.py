"""What a Kubernetes API server keeps of ConfigMaps and Events, and how it takes changes.

As the real one: every write has a version of its own, a write of the same is none, history is
forgotten, and too large an object or annotation is refused.
"""

import copy
import json
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]
MAX_ANNOTATIONS = 256 * 1024
MAX_DATA = 1024 * 1024
KINDS = {"configmaps": "ConfigMap", "events": "Event", "pods": "Pod"}
_KEPT = ("uid", "creationTimestamp", "namespace", "name")


class Refused(Exception):
    """An answer other than 2xx, with the body that the real server gives."""

    def __init__(self, code: int, reason: str, message: str, wait: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.wait = wait
        self.body = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
        }


def merged(base: Any, change: Any) -> Any:
    """RFC 7396. The `$` directives of strategic merge patches are of no weight for ConfigMaps."""
    if not isinstance(change, dict):
        return change
    result = dict(base) if isinstance(base, dict) else {}
    for key, value in change.items():
        if key.startswith("$"):
            continue
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


@dataclass(kw_only=True)
class Store:
    """Safe for threads. `changed`: notified of every write, and to be held while it is read."""

    version: int = 100
    oldest: int = 0
    objects: dict[tuple[str, str, str], Object] = field(default_factory=dict)
    log: list[tuple[int, str, str, Object]] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def put(
        self,
        data: Mapping[str, str] | None = None,
        *,
        namespace: str = "models",
        name: str = "models",
        **more: Any,
    ) -> None:
        """As somebody does who creates or replaces a ConfigMap."""
        new: Object = {"metadata": {"name": name}, "data": dict(data or {}), **more}
        with self.changed:
            if ("configmaps", namespace, name) in self.objects:
                self.replace("configmaps", namespace, name, new)
            else:
                self.create("configmaps", namespace, new)

    def expire(self, *, before_now: bool = False) -> None:
        """Forget all history, as a compaction does. `before_now`: the version of now is known."""
        with self.changed:
            self.version += 0 if before_now else 1
            self.oldest = self.version
            self.log.clear()
            self.changed.notify_all()

    def events(self) -> list[Object]:
        with self.changed:
            return [copy.deepcopy(each) for key, each in self.objects.items() if key[0] == "events"]

    def get(self, resource: str, namespace: str, name: str) -> Object:
        found = self.objects.get((resource, namespace, name))
        if found is None:
            raise Refused(404, "NotFound", f'{resource} "{name}" not found')
        return found

    def create(self, resource: str, namespace: str, new: Object) -> Object:
        with self.changed:
            name = new["metadata"]["name"]
            if (resource, namespace, name) in self.objects:
                raise Refused(409, "AlreadyExists", f'{resource} "{name}" already exists')
            new["metadata"] |= {
                "namespace": namespace,
                "uid": str(uuid.uuid4()),
                "creationTimestamp": "2026-12-01T00:00:00Z",
            }
            return self._keep("ADDED", resource, namespace, new)

    def replace(self, resource: str, namespace: str, name: str, new: Object) -> Object:
        with self.changed:
            old = self.get(resource, namespace, name)
            wanted = new["metadata"].get("resourceVersion")
            if wanted and wanted != old["metadata"]["resourceVersion"]:
                raise Refused(
                    409,
                    "Conflict",
                    f'Operation cannot be fulfilled on {resource} "{name}": the object has been '
                    "modified; please apply your changes to the latest version and try again",
                )
            new["metadata"] |= {key: old["metadata"][key] for key in (*_KEPT, "resourceVersion")}
            if new == old:
                return old
            return self._keep("MODIFIED", resource, namespace, new)

    def patch(self, resource: str, namespace: str, name: str, change: Object) -> Object:
        with self.changed:
            old = self.get(resource, namespace, name)
            return self.replace(
                resource, namespace, name, _unversioned(merged(copy.deepcopy(old), change), change)
            )

    def apply(self, resource: str, namespace: str, name: str, wanted: Object) -> Object:
        """Server-side apply by the one manager there is: what it leaves out is gone."""
        with self.changed:
            if (resource, namespace, name) not in self.objects:
                return self.create(resource, namespace, wanted)
            new = copy.deepcopy(self.get(resource, namespace, name))
            for key in ("data", "binaryData"):
                new.pop(key, None)
            return self.replace(resource, namespace, name, merged(new, wanted))

    def delete(
        self, resource: str = "configmaps", namespace: str = "models", name: str = "models"
    ) -> Object:
        with self.changed:
            gone = self.get(resource, namespace, name)
            del self.objects[resource, namespace, name]
            self._write("DELETED", resource, gone)
            return gone

    def _keep(self, what: str, resource: str, namespace: str, new: Object) -> Object:
        new |= {"apiVersion": "v1", "kind": KINDS[resource]}
        _check(new)
        self.objects[resource, namespace, new["metadata"]["name"]] = new
        self._write(what, resource, new)
        return new

    def _write(self, what: str, resource: str, written: Object) -> None:
        self.version += 1
        written["metadata"]["resourceVersion"] = str(self.version)
        self.log.append((self.version, what, resource, copy.deepcopy(written)))
        self.changed.notify_all()


def _unversioned(new: Object, change: Object) -> Object:
    if "resourceVersion" not in change.get("metadata", {}):
        new["metadata"].pop("resourceVersion", None)
    return new


def _check(new: Object) -> None:
    name = new["metadata"]["name"]
    kind = new["kind"]
    annotations = new["metadata"].get("annotations") or {}
    if sum(len(key) + len(value) for key, value in annotations.items()) > MAX_ANNOTATIONS:
        raise Refused(
            422,
            "Invalid",
            f'{kind} "{name}" is invalid: metadata.annotations: Too long: may not be more than '
            f"{MAX_ANNOTATIONS} bytes",
        )
    data = {**(new.get("data") or {}), **(new.get("binaryData") or {})}
    if sum(len(value.encode()) for value in data.values()) > MAX_DATA:
        raise Refused(
            422,
            "Invalid",
            f'{kind} "{name}" is invalid: []: Too long: may not be more than {MAX_DATA} bytes',
        )


def as_line(what: str, body: Object) -> bytes:
    """One line of a watch."""
    return json.dumps({"type": what, "object": body}).encode() + b"\n"


def metadata_of(body: Object) -> Object:
    """What a client gets that asks for metadata alone."""
    kind = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    return {**kind, "metadata": body["metadata"]}
