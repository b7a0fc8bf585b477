"""Rendered objects against Kubernetes' own schemas, as a strict API server would take them."""

from typing import Any

import kubernetes_validate

OLDEST = "1.30"
NEWEST = kubernetes_validate.latest_version()
VERSIONS = [OLDEST, NEWEST]


def refused(objects: list[Any], version: str) -> list[str]:
    """What an API server of `version` would not take: `kind/name: why`."""
    found = []
    for each in objects:
        try:
            kubernetes_validate.validate(each, version, strict=True)
        except (
            kubernetes_validate.ValidationError,
            kubernetes_validate.SchemaNotFoundError,
        ) as exc:
            found.append(f"{each['kind']}/{each['metadata']['name']}: {exc.message}")
    return found
