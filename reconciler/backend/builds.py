"""Finds the engines that are installed on this node, by asking each for its version.

An engine may be built for another CPU, lack a library, or hang: all that is found here, not when a
model waits for it.
"""

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from reconciler.backend.asking import Unusable, ask
from reconciler.backend.discovery import Discovery, Finder
from reconciler.backend.engine_files import installed, metadata_files, stamps
from reconciler.backend.inventory import (
    LLAMA_CPP_PYTHON,
    XLLAMACPP,
    Asked,
    Build,
    Missing,
    NamedEngine,
)
from reconciler.backend.llama_builds import IDS as LLAMA_SERVER_IDS
from reconciler.backend.llama_builds import ask_llama_server, locate_llama_server
from reconciler.backend.llama_cpp_python_builds import (
    ask_llama_cpp_python,
    locate_llama_cpp_python,
)
from reconciler.backend.vllm_builds import IDS as VLLM_IDS
from reconciler.backend.vllm_builds import ask_vllm, locate_vllm
from reconciler.backend.xllamacpp import CHILD
from reconciler.backend.xllamacpp_params import FLAGS

ANSWER_SECONDS = 10.0
"""For `--version`. A GPU build on a cold disk takes some seconds."""


def discovery(
    *,
    llama_server: str | None,
    vllm: str | None,
    llama_cpp_python: str | None = None,
    search_path: str,
    python: str,
    engines: Sequence[NamedEngine] = (),
    answer_seconds: float = ANSWER_SECONDS,
) -> Discovery:
    """What looks for every engine of this node.

    `llama_server`, `vllm`, `llama_cpp_python`: what an operator named, else the first on
    `search_path` (as PATH); `python`: our own interpreter. `engines`: more builds, by name.
    """

    def llama(path: str | None) -> Asked:
        return ask_llama_server(path, search_path, answer_seconds)

    def of_vllm(path: str | None) -> Asked:
        return ask_vllm(path, search_path, answer_seconds)

    def of_python(path: str | None) -> Asked:
        return ask_llama_cpp_python(path, search_path, answer_seconds)

    return Discovery(
        [
            _default(llama_server, lambda: locate_llama_server(search_path), llama),
            Finder(
                locate=_locate_xllamacpp,
                ask=lambda path: _ask_xllamacpp(path, python, search_path, answer_seconds),
            ),
            _default(
                llama_cpp_python, lambda: locate_llama_cpp_python(search_path, python), of_python
            ),
            _default(vllm, lambda: locate_vllm(search_path, python), of_vllm),
            *(_named(engine, search_path, answer_seconds) for engine in engines),
        ]
    )


def _default(
    wanted: str | None, locate: Callable[[], str | None], ask: Callable[[str | None], Asked]
) -> Finder:
    if wanted is None:
        return Finder(locate=locate, ask=ask)
    return Finder(locate=lambda: wanted, ask=lambda path: _as_wanted(ask(path)))


def _as_wanted(asked: Asked) -> Asked:
    """What an operator has named and is nothing at all, an operator has to hear of."""
    if any(isinstance(one, Build) for one in asked.found):
        return asked
    gaps = (replace(one, wanted=True) for one in asked.found if isinstance(one, Missing))
    return replace(asked, found=tuple(gaps))


_ASKS: Mapping[str, Callable[[str | None, str, float], Asked]] = {
    **{id: partial(ask_vllm, believed=id) for id in VLLM_IDS},
    **dict.fromkeys(LLAMA_SERVER_IDS, ask_llama_server),
    LLAMA_CPP_PYTHON: ask_llama_cpp_python,
}


def _named(engine: NamedEngine, search_path: str, seconds: float) -> Finder:
    def ask(path: str | None) -> Asked:
        asked = _ASKS[engine.id](path, search_path, seconds)
        return replace(asked, found=tuple(_called(engine, asked)))

    return Finder(locate=lambda: engine.path, ask=ask)


def _called(engine: NamedEngine, asked: Asked) -> Iterator[Build | Missing]:
    """Of all that a program is, only what the operator says that it is."""
    for one in asked.found:
        if one.id != engine.id:
            continue
        named = replace(one, name=engine.name)
        yield replace(named, wanted=True) if isinstance(named, Missing) else named


def _locate_xllamacpp() -> str | None:
    found = importlib.util.find_spec("xllamacpp")
    return found.origin if found is not None else None


def _ask_xllamacpp(path: str | None, python: str, search_path: str, seconds: float) -> Asked:
    if path is None:
        gap = Missing(id=XLLAMACPP, reason="not installed; pip install 'xgen-model[demo]'")
        return Asked(found=(gap,))
    wheel = installed(XLLAMACPP, sys.path)
    files = (path, *(metadata_files(XLLAMACPP, wheel) if wheel else ()))
    marks = stamps(files)
    try:
        ask((python, "-P", "-c", "import xllamacpp"), "when imported", search_path, seconds)
    except Unusable as exc:
        return Asked(found=(Missing(id=XLLAMACPP, reason=f"xllamacpp {exc}"),), files=files)
    version = wheel.version if wheel else None
    build = Build(
        id=XLLAMACPP,
        command=(python, *CHILD),
        version=version,
        detail=f"xllamacpp {version or 'of an unknown version'} of our own environment",
        flags=FLAGS,
        files=marks,
    )
    return Asked(found=(build,), files=files)
