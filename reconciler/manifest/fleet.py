"""A fleet file's bytes → what the nodes are, or every problem with it, each with its place."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from reconciler.manifest.explain import explain
from reconciler.manifest.fleet_model import Fleet, FleetGpu, FleetNode
from reconciler.manifest.problem import Finding, Loc, Problem, dotted, position, shown
from reconciler.manifest.text import at_start, decoded
from reconciler.manifest.tree import MappingNode, Node, locate, plain
from reconciler.manifest.yaml_text import compose
from reconciler.plan.gpus import one_spelling
from reconciler.plan.ids import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedFleet:
    """`fleet` None: there is a problem."""

    fleet: Fleet | None = None
    problems: tuple[Problem, ...] = ()


def parse_fleet(name: str, content: bytes) -> ParsedFleet:
    """One document. Never raises for what the file holds."""
    text = decoded(name, content)
    if isinstance(text, Problem):
        return ParsedFleet(problems=(text,))
    composed = compose(text)
    problems = [
        Problem(
            place=Place(file=name, line=flaw.line, column=flaw.column),
            path=dotted(flaw.loc),
            message=flaw.message,
        )
        for flaw in composed.flaws
    ]
    if problems:
        return ParsedFleet(problems=tuple(problems))
    if len(composed.documents) != 1:
        found = "several documents" if composed.documents else "nothing"
        return ParsedFleet(problems=(at_start(name, f"must hold one Fleet, not {found}"),))
    return _validated(name, composed.documents[0])


def _validated(name: str, root: Node) -> ParsedFleet:
    if not isinstance(root, MappingNode):
        wish = "must be a map with apiVersion, kind and spec"
        return ParsedFleet(problems=(at_start(name, wish),))
    fleet: Fleet | None = None
    try:
        fleet = Fleet.model_validate(plain(root))
    except ValidationError as error:
        findings = explain(error, Fleet)
    else:
        findings = list(_clashes(fleet))
    problems = sorted((_problem(name, root, finding) for finding in findings), key=position)
    return ParsedFleet(fleet=None if problems else fleet, problems=tuple(problems))


def _problem(name: str, root: Node, finding: Finding) -> Problem:
    line, column = locate(root, finding.loc, key=finding.at_key)
    return Problem(
        place=Place(file=name, line=line, column=column),
        path=dotted(finding.loc),
        message=finding.message,
        severity=finding.severity,
    )


def _clashes(fleet: Fleet) -> Iterator[Finding]:
    nodes: Loc = ("spec", "nodes")
    if not fleet.spec.nodes:
        yield Finding(loc=nodes, message="must name a node")
    yield from _twice(nodes, "name", [node.name for node in fleet.spec.nodes])
    for number, node in enumerate(fleet.spec.nodes):
        yield from _in_node((*nodes, number), node)


def _in_node(loc: Loc, node: FleetNode) -> Iterator[Finding]:
    gpus = node.gpus or ()
    for number, gpu in enumerate(gpus):
        yield from _in_gpu((*loc, "gpus", number), gpu)
    spelled: Sequence[tuple[str, Callable[[FleetGpu], object]]] = (
        ("index", lambda gpu: gpu.index),
        ("uuid", lambda gpu: one_spelling(gpu.uuid) if gpu.uuid else None),
        ("pci", lambda gpu: one_spelling(gpu.pci) if gpu.pci else None),
    )
    for key, value in spelled:
        yield from _twice((*loc, "gpus"), key, [value(gpu) for gpu in gpus])
    builds = [(build.backend, build.name) for build in node.engines or ()]
    for number, build in enumerate(builds):
        if build in builds[:number]:
            what = f"{build[0]} {build[1]}" if build[1] else f"a default build of {build[0]}"
            yield Finding(loc=(*loc, "engines", number), message=f"{what} is listed before")
    names = [name for _, name in builds]
    for number, (_, name) in enumerate(builds):
        if name is not None and name in names[:number] and builds[number] not in builds[:number]:
            yield Finding(
                loc=(*loc, "engines", number, "name"), message=f"{shown(name)} is listed before"
            )


def _in_gpu(loc: Loc, gpu: FleetGpu) -> Iterator[Finding]:
    for key, value in (("index", gpu.index), ("uuid", gpu.uuid), ("pci", gpu.pci)):
        if value is not None and gpu.count > 1:
            said = f"names one GPU, and count is {gpu.count}; list them one by one"
            yield Finding(loc=(*loc, key), message=said)
    if gpu.vendor == "amd" and gpu.architecture is None:
        said = "needs an architecture such as gfx942: engines for AMD's GPUs are chosen by it"
        yield Finding(loc=loc, message=said)
    if gpu.memory is not None and gpu.reserved > gpu.memory:
        yield Finding(loc=(*loc, "reserved"), message="is more than its memory")


def _twice(loc: Loc, key: str, values: Sequence[object]) -> Iterator[Finding]:
    for number, value in enumerate(values):
        if value is not None and value in values[:number]:
            yield Finding(loc=(*loc, number, key), message=f"{shown(value)} is listed before")
