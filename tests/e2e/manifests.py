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


REAL_PREFIX = "gguf/google_gemma-3-270m"


def real_model(name: str, extra_args: str, **fields: str) -> str:
    """An entry for the model of tests/model_files.py, stored at REAL_PREFIX, and the node's engine.

    On one thread: those of llama.cpp wait for each other in a loop, for ages on busy cores.
    """
    return model(
        name,
        source=REAL_PREFIX,
        backend="auto",
        extra_args=f"{{threads: 1, threads_batch: 1, {extra_args}}}",
        **fields,
    )
