"""Finds the llama-cpp-python of this node: a python that can import its server.

The version is in the metadata of its packages. Which settings it has, and whether its libraries
load at all, only an import tells, which takes a second.
"""

import importlib.util
import os
import shutil
from dataclasses import replace
from importlib.metadata import Distribution
from pathlib import Path

import msgspec

from reconciler.backend.asking import Unusable, ask, need_executable
from reconciler.backend.engine_files import installed, metadata_files, stamps
from reconciler.backend.flags import Flags
from reconciler.backend.inventory import LLAMA_CPP_PYTHON, Asked, Build, Missing
from reconciler.backend.llama_cpp_python import SERVER
from reconciler.backend.llama_cpp_python_params import flags_of

_DISTRIBUTION = "llama-cpp-python"
_ISOLATED = "-I"
_PATHS = r"import sys; print(*sys.path, sep='\n')"
_SETTINGS = """
import ast, inspect, json
import llama_cpp.server.app
from llama_cpp.server.settings import Settings

def chat_formats():
    from llama_cpp.llama_chat_format import LlamaChatCompletionHandlerRegistry
    from llama_cpp.server import model
    compared = {
        word.value
        for node in ast.walk(ast.parse(inspect.getsource(model)))
        if isinstance(node, ast.Compare) and getattr(node.left, "attr", None) == "chat_format"
        for word in ast.walk(node)
        if isinstance(word, ast.Constant) and isinstance(word.value, str)
    }
    registered = LlamaChatCompletionHandlerRegistry()._chat_handlers
    return sorted({*compared, *registered}) if compared and registered else []

try:
    formats = chat_formats()
except Exception:
    formats = []
settings = {name: str(field.annotation) for name, field in Settings.model_fields.items()}
print()
print(json.dumps({"settings": settings, "chat_formats": formats}))
"""
"""Most chat formats are in a registry; those with a projector are in the server's code alone. Where
either is not as it was, nothing is said of them."""
_IMPORT = 3
"""An import of a thousand files takes that many times what an answer does, on a busy machine."""
_NOWHERE = (
    "neither the python on PATH nor our own has it; install llama-cpp-python[server] in an "
    "environment of its own and give --llama-cpp-python PYTHON"
)


class _Told(msgspec.Struct, frozen=True):
    """`settings`: by name, with their types."""

    settings: dict[str, str]
    chat_formats: tuple[str, ...]


def locate_llama_cpp_python(search_path: str, python: str) -> str | None:
    """The interpreter on `search_path` if it has the package, else our own if that has. Starts
    nothing."""
    for name in ("python3", "python"):
        path = shutil.which(name, path=search_path)
        if path is not None and _lies_below(Path(path).parent.parent):
            return path
    return python if importlib.util.find_spec("llama_cpp") is not None else None


def ask_llama_cpp_python(path: str | None, search_path: str, seconds: float) -> Asked:
    """`path`: of an interpreter; None: there is none. Blocks for two starts of it."""
    if path is None:
        return Asked(found=(Missing(id=LLAMA_CPP_PYTHON, reason=_NOWHERE),))
    path = os.path.abspath(path)
    files: tuple[str, ...] = (path,)
    try:
        need_executable(path)
        folders = _folders(path, search_path, seconds)
        found = installed(_DISTRIBUTION, folders)
        files = (*files, *(metadata_files(_DISTRIBUTION, found) if found else folders))
        marks = stamps(files)
        build = _build(path, found, search_path, seconds)
    except Unusable as exc:
        return Asked(found=(Missing(id=LLAMA_CPP_PYTHON, reason=f"{path} {exc}"),), files=files)
    return Asked(found=(replace(build, files=marks),), files=files)


def _lies_below(prefix: Path) -> bool:
    """Where interpreters keep packages; a link to one is not followed: that would leave its
    virtual environment."""
    places = ("lib/python3*/site-packages", "lib/python3*/dist-packages")
    return any(any(prefix.glob(f"{place}/llama_cpp/server/__main__.py")) for place in places)


def _folders(path: str, search_path: str, seconds: float) -> tuple[str, ...]:
    """Where it finds packages."""
    command = (path, _ISOLATED, "-c", _PATHS)
    answer = ask(command, "when asked for its packages", search_path, seconds)
    return tuple(line for line in answer.splitlines() if line)


def _build(path: str, found: Distribution | None, search_path: str, seconds: float) -> Build:
    if found is None:
        raise Unusable("has no llama-cpp-python in its environment")
    return Build(
        id=LLAMA_CPP_PYTHON,
        command=(path, *SERVER),
        version=found.version,
        detail=f"{path}, llama-cpp-python {found.version}",
        flags=_flags(path, search_path, seconds),
    )


def _flags(path: str, search_path: str, seconds: float) -> Flags:
    """Raises Unusable."""
    command = (path, _ISOLATED, "-c", _SETTINGS)
    try:
        answer = ask(command, "when its server was imported", search_path, seconds * _IMPORT)
    except Unusable as exc:
        cure = "; install llama-cpp-python[server]" if "ModuleNotFoundError" in str(exc) else ""
        raise Unusable(f"{exc}{cure}") from exc
    try:
        told = msgspec.json.decode(answer.rstrip().rpartition("\n")[2], type=_Told)
    except msgspec.MsgspecError as exc:
        raise Unusable("did not tell its settings when its server was imported") from exc
    return flags_of(told.settings, told.chat_formats)
