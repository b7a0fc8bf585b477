"""Kubernetes Events about a ConfigMap, for who looks at it with kubectl and at no node.

One Event for one thing to be said, whichever nodes say it and how often: its name is made of what
it says, and who finds it there counts it up.
"""

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from reconciler.source.kubernetes_address import ConfigMapAddress
from reconciler.source.kubernetes_api import KubernetesApi, Metadata
from reconciler.source.kubernetes_failures import CONFLICT, NOT_FOUND, ApiFailed
from reconciler.source.manifest_source import ManifestNews

_COMPONENT = "xgen-model"
_MAX_CHARACTERS = 1024
"""Of a message; the API takes no more."""
_MAX_NAME = 200


async def write_event(
    api: KubernetesApi, address: ConfigMapAddress, about: Metadata, news: ManifestNews
) -> None:
    """`about`: of the ConfigMap as it was read last. Raises ApiFailed."""
    event = event_of(address, about, news)
    name, time = event["metadata"]["name"], event["lastTimestamp"]
    try:
        await api.create_event(address.namespace, event)
        return
    except ApiFailed as exc:
        if exc.status != CONFLICT:
            raise
    try:
        found = await api.patch_event(address.namespace, name, {"lastTimestamp": time})
        version = found.get("metadata", {}).get("resourceVersion")
        count = {
            "count": int(found.get("count") or 1) + 1,
            "metadata": {"resourceVersion": version},
        }
        await api.patch_event(address.namespace, name, count)
    except ApiFailed as exc:
        # Another node has counted, or its hour is over: it was told all the same.
        if exc.status not in (CONFLICT, NOT_FOUND):
            raise


def event_of(address: ConfigMapAddress, about: Metadata, news: ManifestNews) -> Mapping[str, Any]:
    """Of core/v1. The same on every node, but for who was the first to say it."""
    message = news.message
    if len(message) > _MAX_CHARACTERS:
        message = message[: _MAX_CHARACTERS - 1] + "…"
    kind = "Warning" if news.bad else "Normal"
    what = "\0".join((about.uid, kind, news.reason, message))
    mark = hashlib.sha256(what.encode(errors="replace")).hexdigest()[:16]
    time = datetime.fromisoformat(news.time).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "namespace": address.namespace,
            "name": f"{address.name[:_MAX_NAME].rstrip('.-')}.{mark}",
        },
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "namespace": address.namespace,
            "name": address.name,
            "uid": about.uid,
            "resourceVersion": about.resourceVersion,
        },
        "type": kind,
        "reason": news.reason,
        "message": message,
        "source": {"component": _COMPONENT, "host": news.node},
        "reportingComponent": _COMPONENT,
        "reportingInstance": news.node,
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    }
