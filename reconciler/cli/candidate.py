"""A manifest as a command reads it: once, as an agent would, and judged for itself."""

import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.text import Text

from reconciler.cli.config_map import read_config_map
from reconciler.cli.output import console, show
from reconciler.cli.problem_view import problem_words
from reconciler.errors import Rejected
from reconciler.manifest.inspection import Inspection, inspect
from reconciler.manifest.resolve import FileInput
from reconciler.manifest.union import Manifest
from reconciler.source.git_access import GitAccess
from reconciler.source.git_address import is_address, parse_address
from reconciler.source.git_reader import GitReader
from reconciler.source.kubernetes_access import NO_CLUSTER, KubernetesAccess
from reconciler.source.kubernetes_address import is_config_map
from reconciler.source.listing import read_listing
from reconciler.source.names import shown_name
from reconciler.source.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A valid manifest. `files`: what it is made of, by the names that an agent would know."""

    manifest: Manifest
    files: Mapping[str, bytes]


def read_candidate(
    place: str, access: GitAccess, cluster: KubernetesAccess = NO_CLUSTER
) -> Candidate:
    """Raises Rejected where it is not valid; every problem is printed on stderr before."""
    snapshot = _sound(place, access, cluster)
    inspection = _inspected(place, snapshot)
    err = console(sys.stderr)
    for problem in inspection.problems:
        show(err, Text.assemble(*problem_words(problem)))
    if inspection.manifest is None:
        errors = sum(problem.is_error for problem in inspection.problems)
        raise Rejected(
            f"cannot use the manifest {place}: {errors} error{'' if errors == 1 else 's'}, "
            "shown above; an agent would keep what it runs"
        )
    files = {each.name: each.content for each in snapshot.files if each.content is not None}
    return Candidate(manifest=inspection.manifest, files=files)


def look_at(place: str, access: GitAccess, cluster: KubernetesAccess = NO_CLUSTER) -> Inspection:
    """All of it, with its problems. Raises typer.BadParameter (not there) or Rejected.

    `place`: a path, the URL of a repository that `access` leads to, or a ConfigMap of `cluster`.
    """
    return _inspected(place, _sound(place, access, cluster))


def _sound(place: str, access: GitAccess, cluster: KubernetesAccess) -> Snapshot:
    snapshot = _read(place, access, cluster)
    if snapshot.error is not None:
        raise Rejected(snapshot.error)
    return snapshot


def _inspected(place: str, snapshot: Snapshot) -> Inspection:
    return inspect(
        [
            FileInput(name=_shown(place, file.name), content=file.content, error=file.error)
            for file in snapshot.files
        ]
    )


def _read(place: str, access: GitAccess, cluster: KubernetesAccess) -> Snapshot:
    if is_config_map(place):
        return read_config_map(place, cluster)
    if is_address(place):
        with tempfile.TemporaryDirectory(prefix="xgen-git-") as folder:
            return GitReader(parse_address(place), access, Path(folder)).read().snapshot
    if not os.path.lexists(place):
        raise typer.BadParameter(f"there is no file or directory {place}", param_hint="--manifest")
    return read_listing(Path(place)).snapshot


def _shown(place: str, name: str) -> str:
    """A name that leads to the file from here; in a repository, from its root."""
    if is_config_map(place):
        return name
    if is_address(place):
        path = shown_name(parse_address(place).path)
        return name if path in ("", name) else f"{path}/{name}"
    return str(Path(place) / name) if os.path.isdir(place) else name
