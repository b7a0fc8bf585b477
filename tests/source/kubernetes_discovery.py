"""What kubectl reads of a Kubernetes API server before it asks for anything."""

from typing import Any

_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


def _resource(name: str, kind: str, short: str) -> dict[str, Any]:
    return {
        "name": name,
        "singularName": kind.lower(),
        "namespaced": True,
        "kind": kind,
        "verbs": _VERBS,
        "shortNames": [short],
    }


def _patch_of(kind: str) -> dict[str, Any]:
    """That it takes `fieldValidation`: kubectl then leaves it to the server to validate."""
    parameter = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
    return {
        "patch": {
            "parameters": [parameter],
            "responses": {},
            "x-kubernetes-action": "patch",
            "x-kubernetes-group-version-kind": {"group": "", "version": "v1", "kind": kind},
        }
    }


_RBAC = "rbac.authorization.k8s.io"
_RBAC_V1 = {"groupVersion": f"{_RBAC}/v1", "version": "v1"}
_API_V1 = "/openapi/v3/api/v1"
DOCUMENTS: dict[str, dict[str, Any]] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
    "/apis": {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [{"name": _RBAC, "versions": [_RBAC_V1], "preferredVersion": _RBAC_V1}],
    },
    f"/apis/{_RBAC}/v1": {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{_RBAC}/v1",
        "resources": [
            _resource("roles", "Role", "ro"),
            _resource("rolebindings", "RoleBinding", "rb"),
        ],
    },
    "/version": {"major": "1", "minor": "35", "gitVersion": "v1.35.0"},
    "/api/v1": {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": "v1",
        "resources": [
            _resource("configmaps", "ConfigMap", "cm"),
            _resource("events", "Event", "ev"),
            _resource("pods", "Pod", "po"),
        ],
    },
    "/openapi/v3": {"paths": {"api/v1": {"serverRelativeURL": f"{_API_V1}?hash=1"}}},
    _API_V1: {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.35.0"},
        "components": {"schemas": {}},
        "paths": {
            f"/api/v1/namespaces/{{namespace}}/{resource}/{{name}}": _patch_of(kind)
            for resource, kind in (
                ("configmaps", "ConfigMap"),
                ("events", "Event"),
                ("pods", "Pod"),
            )
        },
    },
}
