"""One file's bytes → its documents, or every problem with them, each with its place.

Nothing here raises for what a file holds, and the file's name is all that is known of the file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from pydantic import ValidationError

from reconciler.manifest.claims import Claims, claims_of, clashes
from reconciler.manifest.explain import explain, nearest
from reconciler.manifest.flag_places import Places, places_of_defaults, places_of_models
from reconciler.manifest.model import API_GROUP, API_VERSION, KIND, Document
from reconciler.manifest.problem import Finding, Problem, dotted, position, shown
from reconciler.manifest.rail_places import Suspends, suspends
from reconciler.manifest.rules import rule_findings
from reconciler.manifest.text import at_start, decoded
from reconciler.manifest.tree import MappingNode, Node, ScalarNode, locate, plain
from reconciler.manifest.yaml_text import compose
from reconciler.plan.ids import Place

MAX_PROBLEMS = 100
FLEET_KIND = "Fleet"
"""Of `fleet`: no manifest, and easily taken for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A document of another API group; not ours to judge."""

    place: Place
    api_version: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedDocument:
    """A valid ModelManifest. `model_places` and `flag_places` go with `document.spec.models`."""

    document: Document
    model_places: tuple[Place, ...]
    flag_places: tuple[Places, ...]
    default_places: Mapping[str, Places]
    suspends: Suspends = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedFile:
    """What one file says. With an error among the problems, none of it may be used.

    `complete`: the text was read to its end, so that `claims` hold all that it claims.
    """

    name: str
    documents: tuple[PlacedDocument, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    problems: tuple[Problem, ...] = ()
    claims: Claims = field(default_factory=Claims)
    complete: bool = False

    @property
    def valid(self) -> bool:
        return not any(problem.is_error for problem in self.problems)


def unreadable(name: str, error: str) -> ParsedFile:
    """A file that could not be read at all."""
    return ParsedFile(name=name, problems=(at_start(name, f"cannot read this file: {error}"),))


def parse_file(name: str, content: bytes) -> ParsedFile:
    """Every document of a file, and every problem: syntax, shapes, rules, repeated names."""
    text = decoded(name, content)
    if isinstance(text, Problem):
        return ParsedFile(name=name, problems=(text,))
    if not text.strip():
        empty = at_start(name, "the file is empty")
        return ParsedFile(name=name, problems=(empty,), complete=True)
    composed = compose(text)
    problems = [
        Problem(
            place=Place(file=name, line=flaw.line, column=flaw.column),
            path=dotted(flaw.loc),
            message=flaw.message,
        )
        for flaw in composed.flaws
    ]
    roots = [root for root in composed.documents if not _is_empty(root)]
    if not roots and composed.complete and not problems:
        problems.append(at_start(name, "the file holds no document"))
    file = _File(name)
    flawed = {problem.place for problem in problems}
    for root in roots:
        problems.extend(found for found in file.read(root) if found.place not in flawed)
        if len(problems) > MAX_PROBLEMS:
            break
    claims = claims_of(name, file.roots)
    problems.extend(islice(clashes([claims]), MAX_PROBLEMS))
    return ParsedFile(
        name=name,
        documents=tuple(file.documents),
        skipped=tuple(file.skipped),
        problems=_foremost(problems),
        claims=claims,
        complete=composed.complete,
    )


class _File:
    """Gathers what the documents of one file are."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.documents: list[PlacedDocument] = []
        self.skipped: list[Skipped] = []
        self.roots: list[Node] = []

    def read(self, root: Node) -> list[Problem]:
        """The problems of one document; what it is goes into the fields."""
        if not isinstance(root, MappingNode):
            message = f"must be a map with apiVersion, kind, metadata and spec, not {_kind(root)}"
            return [self._problem(root, Finding(loc=(), message=message))]
        api_version, kind = _text_of(root, "apiVersion"), _text_of(root, "kind")
        if findings := _header_findings(api_version, kind):
            return [self._problem(root, finding) for finding in findings]
        assert api_version is not None
        assert kind is not None
        if api_version != API_VERSION:
            place = Place(file=self.name, line=root.line, column=root.column)
            self.skipped.append(Skipped(place=place, api_version=api_version, kind=kind))
            return []
        self.roots.append(root)
        return [self._problem(root, finding) for finding in self._validated(root)]

    def _validated(self, root: Node) -> list[Finding]:
        values = plain(root)
        findings: list[Finding] = []
        try:
            document = Document.model_validate(values)
        except ValidationError as error:
            findings = explain(error)
        else:
            self.documents.append(
                PlacedDocument(
                    document=document,
                    model_places=self._model_places(root, document),
                    flag_places=places_of_models(self.name, root),
                    default_places=places_of_defaults(self.name, root),
                    suspends=suspends(self.name, root, values),
                )
            )
        wrong = {finding.loc for finding in findings}
        for finding in rule_findings(values):
            depth = len(finding.loc)
            if not any(loc[:depth] == finding.loc for loc in wrong):
                findings.append(finding)
        return findings

    def _model_places(self, root: Node, document: Document) -> tuple[Place, ...]:
        locs = [("spec", "models", index, "name") for index in range(len(document.spec.models))]
        places = [locate(root, loc) for loc in locs]
        return tuple(Place(file=self.name, line=line, column=column) for line, column in places)

    def _problem(self, root: Node, finding: Finding) -> Problem:
        line, column = locate(root, finding.loc, key=finding.at_key)
        return Problem(
            place=Place(file=self.name, line=line, column=column),
            path=dotted(finding.loc),
            message=finding.message,
            severity=finding.severity,
            allowed_by=finding.allowed_by,
        )


def _foremost(problems: list[Problem]) -> tuple[Problem, ...]:
    """In the order of the file, errors first where there are too many to show."""
    if len(problems) <= MAX_PROBLEMS:
        return tuple(sorted(problems, key=position))
    errors_first = sorted(problems, key=lambda problem: not problem.is_error)
    *shown, last = sorted(errors_first[:MAX_PROBLEMS], key=position)
    more = f"only {MAX_PROBLEMS} of the problems of this file are shown, this is the last"
    return (*shown, replace(last, message=f"{last.message} ({more})"))


def _header_findings(api_version: str | None, kind: str | None) -> list[Finding]:
    """What keeps a document from being told ours or another's."""
    findings = [
        Finding(loc=(key,), message=f"is missing; a manifest begins with {key}: {wish}")
        for key, value, wish in (("apiVersion", api_version, API_VERSION), ("kind", kind, KIND))
        if value is None
    ]
    if api_version is None or kind is None:
        return findings
    ours = api_version.partition("/")[0] == API_GROUP
    if ours and kind != KIND:
        hint = f"; did you mean {KIND!r}?" if nearest(kind, [KIND]) else f"; it must be {KIND!r}"
        if kind == FLEET_KIND:
            hint = "; a fleet file is for `plan --fleet`, and stands beside the manifests' folder"
        findings.append(Finding(loc=("kind",), message=f"unknown kind {shown(kind)}{hint}"))
    if (ours or kind == KIND) and api_version != API_VERSION:
        message = f"must be {API_VERSION}, not {shown(api_version)}"
        findings.append(Finding(loc=("apiVersion",), message=message))
    return findings


def _text_of(root: MappingNode, key: str) -> str | None:
    entry = root.entries.get(key)
    if entry is None or not isinstance(entry.node, ScalarNode):
        return None
    return None if entry.node.value in (None, "") else str(entry.node.value)


def _is_empty(root: Node) -> bool:
    return isinstance(root, ScalarNode) and root.value is None


def _kind(root: Node) -> str:
    """Not what it says: the file may be no manifest, and the message is told to many."""
    return "a text" if isinstance(root, ScalarNode) else "a list"
