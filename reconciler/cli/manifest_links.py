"""Manifests that are symbolic links: in a directory a node follows them, in git it refuses them."""

import os
from collections.abc import Iterable
from pathlib import Path

from reconciler.manifest.problem import Problem, Severity
from reconciler.plan.ids import Place
from reconciler.source.listing import DATA
from reconciler.source.names import shown_name


def link_warnings(files: Iterable[Path]) -> list[Problem]:
    """One for each link, but for those of a mounted ConfigMap (`key -> ..data/key`)."""
    return [
        Problem(
            place=Place(file=shown_name(str(file)), line=1, column=1),
            path="",
            message=f"it is a symbolic link{_out(file)}: a node that reads this folder follows it, "
            "one that reads it from git refuses it",
            severity=Severity.WARNING,
        )
        for file in files
        if file.is_symlink() and not os.readlink(file).startswith(f"{DATA}/")
    ]


def _out(file: Path) -> str:
    folder = os.path.realpath(file.parent)
    inside = os.path.commonpath([folder, os.path.realpath(file)]) == folder
    return "" if inside else " out of its folder"
