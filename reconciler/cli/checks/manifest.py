"""The manifest, and what this node would run by it."""

from collections.abc import Iterator

import typer

from reconciler.cli.candidate import look_at
from reconciler.cli.checks.config_map import config_map_rights, config_map_step
from reconciler.cli.checks.finding import Finding, fail, ok, warn
from reconciler.errors import XgenError
from reconciler.manifest.policy import ALLOW_FLAG, ALLOW_VARIABLE, Permissions
from reconciler.manifest.select import select
from reconciler.plan.desired import Desired
from reconciler.source.git_access import GitAccess
from reconciler.source.git_address import is_address
from reconciler.source.kubernetes_access import KubernetesAccess
from reconciler.source.kubernetes_address import is_config_map


def manifest_findings(
    place: str,
    access: GitAccess,
    cluster: KubernetesAccess,
    node: str,
    permissions: Permissions,
    *,
    peers: bool = False,
) -> tuple[Desired | None, list[Finding]]:
    """What the node would run (None: that cannot be said), and what there is to say of it; what
    the node allows is no warning there."""
    try:
        inspection = look_at(place, access, cluster)
    except (typer.BadParameter, XgenError) as exc:
        step = config_map_step(place, cluster, exc) if is_config_map(place) else _step(place)
        return None, [fail("manifest", str(exc), step)]
    problems = inspection.problems
    if inspection.manifest is None:
        errors = [str(problem) for problem in problems if problem.is_error]
        return None, [fail("manifest", "; ".join(errors), _closer(place))]
    desired = select(inspection.manifest, node=node, revision="", peers=peers)
    said = f"{place} is valid, with {len(inspection.manifest.models)} models"
    found = ok("manifest", said)
    allowed = _allowed(permissions)
    if used := allowed & {problem.allowed_by for problem in problems if problem.allowed_by}:
        named = ", ".join(sorted(used))
        found = ok("manifest", f"{said}; this node allows what it asks for: {named}")
    if doubts := [problem for problem in problems if problem.allowed_by not in allowed]:
        warnings = "; ".join(map(str, doubts))
        found = warn("manifest", f"{said}; {warnings}", _closer(place))
    rights = config_map_rights(place, cluster) if is_config_map(place) else ()
    return desired, [found, *rights, *_selection(desired)]


def _allowed(permissions: Permissions) -> frozenset[str]:
    flags = (f"{ALLOW_FLAG} {name}" for name in permissions.flags)
    return frozenset((*flags, *(f"{ALLOW_VARIABLE} {name}" for name in permissions.variables)))


def _step(place: str) -> str:
    if is_address(place):
        return "correct --manifest, or what --git-… names, and try again"
    return "correct --manifest, or mount what is missing"


def _closer(place: str) -> str:
    return (
        f"xgen-model plan --offline --manifest {place}"
        if is_address(place)
        else f"xgen-model validate {place}"
    )


def _selection(desired: Desired) -> Iterator[Finding]:
    if desired.suspend:
        yield warn("selection", "suspend: true; nothing is started or stopped", "set it to false")
    names = [model.name for model in desired.models if model.enabled]
    if names:
        yield ok("selection", f"{desired.node} would run {', '.join(names)}")
        return
    others = "; ".join(f"{other.name}: {other.reason}" for other in desired.elsewhere)
    yield warn(
        "selection",
        f"{desired.node} would run nothing" + (f" ({others})" if others else ""),
        "is the node's name right? --node NAME",
    )
