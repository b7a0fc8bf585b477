"""Manifests as bytes, with defaults; JSON is YAML, so that values need no quoting of our own."""

import json

from reconciler.manifest.resolve import FileInput


def model(name: str = "m", **fields: object) -> dict[str, object]:
    """One entry of `spec.models`."""
    return {"name": name, "source": f"gguf/org_{name}", **fields}


def manifest(*models: str | dict[str, object], **spec: object) -> bytes:
    """A ModelManifest; a model may be given by its name alone."""
    entries = [model(entry) if isinstance(entry, str) else entry for entry in models]
    document = {
        "apiVersion": "xgen.io/v1alpha1",
        "kind": "ModelManifest",
        "metadata": {"name": "test"},
        "spec": {**spec, "models": entries},
    }
    return json.dumps(document, indent=2).encode()


def listing(**files: bytes | None) -> list[FileInput]:
    """Files by stem; None: it is there and cannot be read."""
    return [
        FileInput(name=f"{stem}.yaml", content=content)
        if content is not None
        else FileInput(name=f"{stem}.yaml", error="permission denied")
        for stem, content in files.items()
    ]


FOREIGN = b"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
TRUNCATED = b"apiVersion: xgen.io/v1alpha1\nkind: ModelManifest\nspec: {models: ["


def words(text: str) -> list[str]:
    """Of lists that are easier to read, and to edit, without quotes."""
    return text.split()
