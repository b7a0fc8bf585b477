"""What manifests may ask of engines on this node beyond the usual, as its operator says it."""

import re
from pathlib import Path
from typing import Annotated

import typer

from reconciler.manifest.policy import (
    ALLOW_FILES,
    ALLOW_FLAG,
    ALLOW_VARIABLE,
    Permissions,
    canonical,
    never_allowed,
    variable_ruling,
)

_FLAG = re.compile(r"-{0,2}[A-Za-z][A-Za-z0-9_.-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

AllowedFlags = Annotated[
    list[str] | None,
    typer.Option(
        ALLOW_FLAG,
        envvar="XGEN_ALLOW_ENGINE_ARG",
        metavar="NAME",
        help="A dangerous flag that manifests may set on this node, such as trust_remote_code. "
        "Can be given several times; in the environment with blanks between.",
    ),
]

AllowedVariables = Annotated[
    list[str] | None,
    typer.Option(
        ALLOW_VARIABLE,
        envvar="XGEN_ALLOW_ENGINE_ENV",
        metavar="NAME",
        help="The same for a variable of `env`.",
    ),
]

AllowedFiles = Annotated[
    list[Path] | None,
    typer.Option(
        ALLOW_FILES,
        envvar="XGEN_ALLOW_FILE_ROOT",
        metavar="DIR",
        help="A folder whose models manifests may use in place, by file://. Can be given several "
        "times; in the environment with colons between.",
    ),
]


def permissions(
    flags: list[str] | None, variables: list[str] | None, file_roots: list[Path] | None = None
) -> Permissions:
    """The node's policy; what no node can allow, and what is no name, are bad usage."""
    for flag in flags or ():
        if not _FLAG.fullmatch(flag):
            raise typer.BadParameter(f"{flag!r} is no name of a flag", param_hint=ALLOW_FLAG)
        if reason := never_allowed(flag):
            raise typer.BadParameter(f"no node can allow {flag!r}: {reason}", param_hint=ALLOW_FLAG)
    for name in variables or ():
        if not _VARIABLE.fullmatch(name):
            said = f"{name!r} is no name of a variable"
            raise typer.BadParameter(said, param_hint=ALLOW_VARIABLE)
        ruling = variable_ruling(name, "")
        if ruling is not None and ruling.never:
            said = f"no node can allow {name!r}: {ruling.reason}"
            raise typer.BadParameter(said, param_hint=ALLOW_VARIABLE)
    for root in file_roots or ():
        if not root.is_absolute():
            raise typer.BadParameter(f"{root} is no absolute path", param_hint=ALLOW_FILES)
    return Permissions(
        flags=frozenset(canonical(flag) for flag in flags or ()),
        variables=frozenset(variables or ()),
        file_roots=tuple(file_roots or ()),
    )
