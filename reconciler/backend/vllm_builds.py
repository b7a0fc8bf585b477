"""Finds the vLLM of this node and learns its version without importing it, which takes ten seconds.

The metadata beside the `vllm` package tells it, in the environment of the interpreter that runs it.
"""

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import Distribution
from pathlib import Path

from reconciler.backend.asking import Unusable, ask, need_executable
from reconciler.backend.engine_files import (
    beginning,
    installed,
    metadata_files,
    programs,
    stamps,
)
from reconciler.backend.inventory import VLLM_CPU, VLLM_CUDA, VLLM_ROCM, Asked, Build, Missing
from reconciler.backend.vllm import SERVE
from reconciler.backend.vllm_flag_lists import flags_of

IDS = (VLLM_CUDA, VLLM_ROCM, VLLM_CPU)
_MODULE = ("-m", "vllm.entrypoints.openai.api_server")
_CPU_DISTRIBUTION = "vllm-cpu"
_DISTRIBUTIONS = ("vllm", _CPU_DISTRIBUTION)
_VENDORS = (
    (re.compile(r"cpu"), VLLM_CPU),
    (re.compile(r"rocm|hip"), VLLM_ROCM),
    (re.compile(r"cu\d+|cuda"), VLLM_CUDA),
)
_AUDIO = ("soundfile", "av", "torchcodec", "librosa")
"""One of these reads sound, in one version or another; they come with the extra `vllm[audio]`."""
_INTERPRETER = re.compile(r"(pypy|python)[\d.]*")
_ANSWERED = re.compile(r"^(?:vllm )?v?(\d+\.\d+\S*)$", re.MULTILINE)
_PATHS = r"import sys; print(*sys.path[1:], sep='\n')"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a vLLM is. `interpreter`: None where a script does not tell it; `script`: None where
    there is only a python. `folders`: where the interpreter finds packages."""

    path: str
    interpreter: str | None
    script: str | None
    folders: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What the metadata of packages tell. `id`: of the backend that it is. `hears`: as of a
    `Build`. `files`: the metadata themselves."""

    version: str
    id: str
    hears: bool
    files: tuple[str, ...]


def locate_vllm(search_path: str, python: str) -> str | None:
    """The first on `search_path`, else that of our own environment."""
    return shutil.which("vllm", path=search_path) or _beside(python)


def ask_vllm(
    path: str | None, search_path: str, seconds: float, *, believed: str = VLLM_CUDA
) -> Asked:
    """One build, and for each other id of vLLM why it is missing.

    `path`: a `vllm` command or a python; None: there is none. `believed`: what it is where nothing
    tells. Blocks for a start of its interpreter.
    """
    if path is None:
        reason = "no vllm on PATH; install vLLM in an environment of its own and give --vllm PATH"
        return Asked(found=tuple(Missing(id=id, reason=reason) for id in IDS))
    path = os.path.abspath(path)
    files = programs(path)
    try:
        place = _place(path, search_path, seconds)
        files = (*files, *filter(None, (place.interpreter, place.script)))
        found = _read(place.folders)
        files = (*files, *(found.files if found else place.folders))
        build = _build(place, found, believed, search_path, seconds)
    except Unusable as exc:
        return Asked(found=tuple(Missing(id=id, reason=f"{path} {exc}") for id in IDS), files=files)
    build = replace(build, files=stamps(files))
    other = f"{build.detail} is built for {_target(build.id)}"
    return Asked(
        found=tuple(build if id == build.id else Missing(id=id, reason=other) for id in IDS),
        files=files if build.hears else (*files, *place.folders),
    )


def _place(path: str, search_path: str, seconds: float) -> _Place:
    need_executable(path)
    is_python = _INTERPRETER.fullmatch(Path(path).name) is not None
    interpreter = path if is_python else _interpreter(path)
    return _Place(
        path=path,
        interpreter=interpreter,
        script=_beside(path) if is_python else path,
        folders=_folders(interpreter, search_path, seconds) if interpreter else (),
    )


def _build(
    place: _Place, found: _Found | None, believed: str, search_path: str, seconds: float
) -> Build:
    if found is None and place.script is None:
        raise Unusable("has no vllm in its environment")
    version = found.version if found else None
    if version is None and place.script is not None:
        version = _asked(place.script, search_path, seconds)
    command = (place.script, SERVE) if place.script is not None else (place.path, *_MODULE)
    return Build(
        id=found.id if found else believed,
        command=command,
        version=version,
        detail=f"{place.path}, vLLM {version or 'of an unknown version'}",
        flags=flags_of(version),
        programs=os.path.dirname(place.interpreter) if place.interpreter else None,
        hears=found is None or found.hears,
    )


def _beside(python: str) -> str | None:
    """The command that belongs to an interpreter. Its own link is not followed: that would leave
    the virtual environment."""
    path = Path(python).parent / "vllm"
    return str(path) if path.is_file() else None


def _interpreter(script: str) -> str | None:
    """Of its first line, or of what it calls (an operator's script sets variables first), or beside
    it."""
    for program in programs(script):
        if _INTERPRETER.fullmatch(Path(program).name):
            return program
        if (interpreter := _of_first_line(program)) is not None:
            return interpreter
    beside = Path(script).parent / "python"
    return str(beside) if beside.is_file() else None


def _of_first_line(script: str) -> str | None:
    try:
        first = beginning(script).partition(b"\n")[0]
    except OSError as exc:
        raise Unusable(f"cannot be read: {exc.strerror}") from exc
    words = first.removeprefix(b"#!").decode("utf-8", "replace").split()
    is_python = bool(words) and _INTERPRETER.fullmatch(Path(words[0]).name) is not None
    return words[0] if first.startswith(b"#!") and is_python else None


def _folders(interpreter: str, search_path: str, seconds: float) -> tuple[str, ...]:
    """Where it finds packages; asking it costs some 20 ms, and works for every layout."""
    when = "when asked for its packages"
    answer = ask((interpreter, "-c", _PATHS), when, search_path, seconds)
    return tuple(line for line in answer.splitlines() if line)


def _read(folders: tuple[str, ...]) -> _Found | None:
    there: dict[str, Distribution] = {}
    for name in (*_DISTRIBUTIONS, "torch"):
        if (distribution := installed(name, folders)) is not None:
            there[name] = distribution
    version = next((there[name].version for name in _DISTRIBUTIONS if name in there), None)
    if version is None:
        return None
    torch = there["torch"].version if "torch" in there else ""
    return _Found(
        version=version,
        id=_vendor(version, torch, there),
        hears=any(installed(name, folders) for name in _AUDIO),
        files=tuple(file for name, each in there.items() for file in metadata_files(name, each)),
    )


def _vendor(version: str, torch: str, there: Mapping[str, object]) -> str:
    """By the name of the distribution, its own local version, and torch's; PyPI's is for CUDA."""
    if _CPU_DISTRIBUTION in there:
        return VLLM_CPU
    for text in (version, torch):
        local = text.partition("+")[2]
        for pattern, id in _VENDORS:
            if pattern.search(local):
                return id
    return VLLM_CUDA


def _asked(script: str, search_path: str, seconds: float) -> str | None:
    found = _ANSWERED.search(
        ask((script, "--version"), "when asked for --version", search_path, seconds)
    )
    if found is None:
        raise Unusable("gave no version when asked for it, so it is no vllm")
    return found[1]


def _target(id: str) -> str:
    return {VLLM_CUDA: "CUDA", VLLM_ROCM: "ROCm", VLLM_CPU: "the CPU"}[id]
