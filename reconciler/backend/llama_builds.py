"""Finds the llama-server of this node, and what it was built for.

One program may hold several of ggml's backends, linked or as libraries beside it, so it may be
several builds: every one of them runs on the CPU too.
"""

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from reconciler.backend.asking import Unusable, ask, need_executable
from reconciler.backend.engine_files import programs, stamps
from reconciler.backend.flags import Flags, parse_help
from reconciler.backend.inventory import (
    LLAMA_SERVER_CPU,
    LLAMA_SERVER_CUDA,
    LLAMA_SERVER_ROCM,
    LLAMA_SERVER_VULKAN,
    Asked,
    Build,
    Listed,
    Missing,
)

_KINDS: Mapping[str, tuple[str, ...]] = {
    LLAMA_SERVER_CUDA: ("cuda",),
    LLAMA_SERVER_ROCM: ("rocm", "hip"),
    LLAMA_SERVER_VULKAN: ("vulkan",),
}
"""Backends of ggml by what they are called: in names of libraries and devices, and in its log."""
IDS = (*_KINDS, LLAMA_SERVER_CPU)
_VERSION = re.compile(r"^version: *(?P<version>\S+)(?: *\((?P<more>[^)]*)\))?", re.MULTILINE)
_DEVICE = re.compile(r"^ +(?P<name>[A-Za-z]+\d+): (?P<what>.*) \(\d+ MiB, \d+ MiB free\)$", re.M)
_SAID = re.compile(
    r"(?:found \d+|failed to initialize|loaded) (cuda|rocm|hip|vulkan)\b", re.IGNORECASE
)
_OWN_LIBRARY = re.compile(r"lib(ggml|llama|mtmd)\b.*\.so\b")
_LIBRARY = re.compile(r"libggml-(cuda|hip|vulkan)\b.*\.so\b")


def locate_llama_server(search_path: str) -> str | None:
    return shutil.which("llama-server", path=search_path)


def ask_llama_server(path: str | None, search_path: str, seconds: float) -> Asked:
    """The build for each id, or why it is missing. Blocks as long as the program takes to answer.

    `path`: None: there is none.
    """
    if path is None:
        reason = "no llama-server on PATH; install llama.cpp or give --llama-server PATH"
        return Asked(found=tuple(_all_missing(reason)))
    path = os.path.abspath(path)
    called = programs(path)
    files = (*called, *_libraries(called))
    marks = stamps(files)
    try:
        build, said = _asked(path, search_path, seconds)
    except Unusable as exc:
        return Asked(found=tuple(_all_missing(f"{path} {exc}")), files=files)
    kinds = _kinds(files, said, build.listed)
    return Asked(found=tuple(_by_id(replace(build, files=marks), kinds)), files=files)


def _all_missing(reason: str) -> Iterator[Missing]:
    return (Missing(id=id, reason=reason) for id in (LLAMA_SERVER_CPU, *_KINDS))


def _by_id(build: Build, kinds: set[str]) -> Iterator[Build | Missing]:
    yield build
    held = [id for id, names in _KINDS.items() if kinds.intersection(names)]
    others = " and ".join(each.removeprefix("llama-server-") for each in held)
    what = f"is built for {others}" if others else "lists no GPU, nor has it a library for any"
    for id in _KINDS:
        if id in held:
            yield replace(build, id=id)
        else:
            yield Missing(id=id, reason=f"{build.command[0]} {what}")


def _asked(path: str, search_path: str, seconds: float) -> tuple[Build, str]:
    """It, and all that it said of itself. Raises Unusable."""
    need_executable(path)
    answer = ask((path, "--version"), "when asked for --version", search_path, seconds)
    found = _VERSION.search(answer)
    if found is None:
        raise Unusable("gave no version when asked for it, so it is no llama-server")
    version = " ".join(filter(None, (found["version"], found["more"] and f"({found['more']})")))
    flags = _flags(path, search_path, seconds)
    listing = _listing(path, flags, search_path, seconds)
    build = Build(
        id=LLAMA_SERVER_CPU,
        command=(path,),
        version=version,
        detail=f"{path}, version {version}",
        flags=flags,
        listed=tuple(Listed(each["name"], each["what"]) for each in _DEVICE.finditer(listing)),
    )
    return build, f"{answer}\n{listing}"


def _flags(path: str, search_path: str, seconds: float) -> Flags:
    """A build that does not tell its flags is taken as it is; a wrong one then ends its start."""
    try:
        return parse_help(ask((path, "--help"), "when asked for --help", search_path, seconds))
    except Unusable:
        return Flags()


def _listing(path: str, flags: Flags, search_path: str, seconds: float) -> str:
    """What it prints of its devices; nothing where it cannot."""
    if flags.complete and flags.find("--list-devices") is None:
        return ""
    try:
        return ask((path, "--list-devices"), "when asked for its devices", search_path, seconds)
    except Unusable:
        return ""


def _kinds(files: Iterable[str], said: str, listed: tuple[Listed, ...]) -> set[str]:
    """What it lists, what it says of its libraries, and which of them lie beside it: without a
    driver it lists nothing."""
    kinds = {device.name.rstrip("0123456789").lower() for device in listed}
    kinds |= {word.lower() for word in _SAID.findall(said)}
    names = (os.path.basename(file) for file in files)
    return kinds | {found[1] for name in names if (found := _LIBRARY.match(name))}


def _libraries(called: Iterable[str]) -> list[str]:
    """llama.cpp's own ones, beside each program or in the `lib` beside its `bin`."""
    folders = [Path(os.path.realpath(program)).parent for program in called]
    beside = dict.fromkeys(each for one in folders for each in (one, one.parent / "lib"))
    return [
        str(folder / name)
        for folder in beside
        for name in _names(folder)
        if _OWN_LIBRARY.match(name)
    ]


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:  # not there, or not for us to read
        return []
