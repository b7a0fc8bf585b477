"""Manifests for the end-to-end tests, as text."""


def manifest(*models: str, spec: str = "") -> str:
    """A manifest of flow-style model entries."""
    body = "".join(f"    - {model}\n" for model in models)
    return (
        "apiVersion: xgen.io/v1alpha1\nkind: ModelManifest\nmetadata: {name: test}\n"
        f"spec:\n{spec}  models:\n{body or '    []'}\n"
    )


def model(name: str = "m", **fields: str) -> str:
    """One model entry in flow style; `fields` are YAML."""
    entries = {"name": name, "source": "gguf/test_model", "backend": "llama-server-cpu", **fields}
    return "{" + ", ".join(f"{key}: {value}" for key, value in entries.items()) + "}"
