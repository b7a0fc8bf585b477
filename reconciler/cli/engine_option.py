"""`--engine NAME=ID:PATH`: builds of a backend beside the default one, by name."""

import difflib
import os
import re
from collections.abc import Sequence
from typing import Annotated

import typer

from reconciler.backend.inventory import BACKENDS, NAMEABLE, XLLAMACPP, NamedEngine

_FORM = "NAME=ID:PATH"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

EngineOption = Annotated[
    list[str] | None,
    typer.Option(
        "--engine",
        envvar="XGEN_ENGINE",
        metavar=_FORM,
        help="Another build of a backend, for models that say `engine: NAME`: "
        "v18=vllm-cuda:/opt/vllm018/bin/vllm. Repeatable; in the environment several are separated "
        "by blanks.",
    ),
]


def named_engines(given: Sequence[str] | None) -> tuple[NamedEngine, ...]:
    """What each says. Whether there is anything at its path shows later, and stops nothing.

    Raises typer.BadParameter for what cannot be meant.
    """
    engines = [_engine(text) for text in given or ()]
    by_name: dict[str, NamedEngine] = {}
    for engine in engines:
        first = by_name.setdefault(engine.name, engine)
        if first is not engine:
            raise _bad(f"{engine.name} stands twice: for {first.path} and for {engine.path}")
    return tuple(engines)


def _engine(text: str) -> NamedEngine:
    name, equals, build = text.partition("=")
    id, colon, path = build.partition(":")
    if not (equals and colon and path):
        raise _bad(f"{text!r} is not {_FORM}, as in v18=vllm-cuda:/opt/vllm018/bin/vllm")
    if name in (*BACKENDS, "auto"):
        raise _bad(f"{text!r}: {name} is a backend's own id; call the build otherwise")
    if not _NAME.fullmatch(name):
        raise _bad(f"{text!r}: a name is 1 to 100 letters, digits, '.', '_' and '-'")
    if id == XLLAMACPP:
        raise _bad(f"{text!r}: {id} is always that of our own environment; it has no other builds")
    if id not in NAMEABLE:
        raise _bad(f"{text!r}: {id!r} is no backend; {_instead(id)}")
    return NamedEngine(name=name, id=id, path=os.path.abspath(path))


def _instead(id: str) -> str:
    close = difflib.get_close_matches(id, NAMEABLE, n=1)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(NAMEABLE)}"


def _bad(message: str) -> typer.BadParameter:
    return typer.BadParameter(message, param_hint="--engine")
