"""Finds the engines that are installed on this node, by asking each for its version.

An engine may be built for another CPU, lack a library, or hang: all that is found here, not when a
model waits for it.
"""

import importlib.metadata
import importlib.util

from reconciler.backend.asking import Unusable, ask
from reconciler.backend.inventory import XLLAMACPP, Build, Inventory, Missing
from reconciler.backend.llama_builds import discover_llama_server
from reconciler.backend.vllm_builds import discover_vllm
from reconciler.backend.xllamacpp import CHILD
from reconciler.backend.xllamacpp_params import FLAGS

ANSWER_SECONDS = 10.0
"""For `--version`. A GPU build on a cold disk takes some seconds."""


def discover(
    *,
    llama_server: str | None,
    vllm: str | None,
    search_path: str,
    python: str,
    answer_seconds: float = ANSWER_SECONDS,
) -> Inventory:
    """Look for every engine. Blocks as long as they take to answer.

    `llama_server`, `vllm`: what an operator named, else the first on `search_path` (as PATH);
    `python`: our own interpreter.
    """
    found = (
        *discover_llama_server(llama_server, search_path, answer_seconds),
        _xllamacpp(python, search_path, answer_seconds),
        *discover_vllm(vllm, search_path, python, answer_seconds),
    )
    return Inventory(
        builds=tuple(one for one in found if isinstance(one, Build)),
        missing=tuple(one for one in found if isinstance(one, Missing)),
    )


def _xllamacpp(python: str, search_path: str, seconds: float) -> Build | Missing:
    if importlib.util.find_spec("xllamacpp") is None:
        return Missing(id=XLLAMACPP, reason="not installed; pip install 'xgen-model[demo]'")
    try:
        ask((python, "-P", "-c", "import xllamacpp"), "when imported", search_path, seconds)
    except Unusable as exc:
        return Missing(id=XLLAMACPP, reason=f"xllamacpp {exc}")
    try:
        version = importlib.metadata.version("xllamacpp")
    except importlib.metadata.PackageNotFoundError:
        version = None
    return Build(
        id=XLLAMACPP,
        command=(python, *CHILD),
        version=version,
        detail=f"xllamacpp {version or 'of an unknown version'} of our own environment",
        flags=FLAGS,
    )
