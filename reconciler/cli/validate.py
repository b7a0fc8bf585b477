"""`xgen-model validate`: every problem of a manifest at once, for people, machines and CI."""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reconciler.cli.cluster_option import NodesPeers, peering_of
from reconciler.cli.exits import ExitCode
from reconciler.cli.manifest_links import link_warnings
from reconciler.cli.problem_view import (
    Words,
    as_annotation,
    as_code_quality,
    as_json,
    problem_words,
)
from reconciler.errors import XgenError
from reconciler.manifest.inspection import Inspection, inspect
from reconciler.manifest.problem import Problem, position
from reconciler.manifest.resolve import FileInput
from reconciler.manifest.text import MAX_BYTES
from reconciler.source.git_address import is_address
from reconciler.source.names import shown_name

if TYPE_CHECKING:
    from reconciler.plan.desired import Desired

SUFFIXES = frozenset({".yaml", ".yml", ".json"})


class Output(StrEnum):
    TEXT = "text"
    JSON = "json"
    GITHUB = "github"
    GITLAB = "gitlab"


def validate(
    places: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH",
            help="Files, or directories whose *.yaml, *.yml and *.json are read, not those below.",
        ),
    ],
    node: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Also say what the node of this name would run."),
    ] = None,
    peers: NodesPeers = None,
    output: Annotated[
        Output,
        typer.Option(
            help="For people, as JSON, as annotations of a GitHub workflow, or as GitLab's report "
            "of code quality."
        ),
    ] = Output.TEXT,
) -> None:
    """Check manifests as one set, and print every problem with its place.

    Exit 0: valid, with warnings at most. 1: errors. 64: a path that is not there.
    """
    if any(is_address(place) for place in places):
        raise typer.BadParameter(
            "validate reads files; for a git repository or a ConfigMap: "
            "xgen-model plan --offline --manifest URL",
            param_hint="PATH",
        )
    paths = [Path(place) for place in places]
    missing = [path for path in paths if not os.path.lexists(path)]
    for path in missing:
        typer.echo(f"error: cannot read {path}: no such file or directory", err=True)
    if missing:
        raise typer.Exit(ExitCode.BAD_USAGE)
    found = list(_files(paths))
    files = [_read(file) for file in found]
    inspection, desired = _judged(found, files, node, clustered=peering_of(peers) is not None)
    match output:
        case Output.TEXT:
            _print_words(_text(inspection, desired, len(files)))
        case Output.JSON:
            typer.echo(json.dumps(_as_json(inspection, desired, len(files)), indent=2))
        case Output.GITHUB:
            for problem in _from_the_root(inspection.problems, os.environ.get("GITHUB_WORKSPACE")):
                typer.echo(as_annotation(problem))
            typer.echo(_summary(inspection, len(files)))
        case Output.GITLAB:
            problems = _from_the_root(inspection.problems, os.environ.get("CI_PROJECT_DIR"))
            report = as_code_quality(problems, fallback=places[0])
            typer.echo(json.dumps(report, indent=2, ensure_ascii=False))
    raise typer.Exit(0 if inspection.manifest is not None else 1)


def _judged(
    found: list[Path], files: list[FileInput], node: str | None, *, clustered: bool
) -> "tuple[Inspection, Desired | None]":
    inspection, more, desired = inspect(files), list(link_warnings(found)), None
    if (node is not None or clustered) and inspection.manifest is not None:
        # a tenth of the start of what lacks it
        from reconciler.manifest.select import select, unplaced

        if clustered:
            more += unplaced(inspection.manifest)
        if node is not None:
            desired = select(inspection.manifest, node=node, revision="", peers=clustered)
    if more:
        together = sorted([*more, *inspection.problems], key=position)
        inspection = replace(inspection, problems=tuple(together))
    return inspection, desired


def _files(paths: list[Path]) -> Iterator[Path]:
    """The files behind the paths, each once, chosen as a source chooses them."""
    seen: set[Path] = set()
    for path in paths:
        for file in _listed(path) if path.is_dir() else [path]:
            real = Path(os.path.realpath(file))
            if real not in seen:
                seen.add(real)
                yield file


def _listed(folder: Path) -> list[Path]:
    try:
        files = sorted(folder.iterdir())
    except OSError as exc:
        raise XgenError(f"cannot list {folder}: {exc.strerror}") from exc
    return [file for file in files if _is_manifest(file)]


def _is_manifest(file: Path) -> bool:
    return file.suffix in SUFFIXES and not file.name.startswith(".") and not file.is_dir()


def _read(file: Path) -> FileInput:
    name = shown_name(str(file))
    try:
        with file.open("rb") as stream:
            return FileInput(name=name, content=stream.read(MAX_BYTES + 1))
    except OSError as exc:
        return FileInput(name=name, error=exc.strerror or str(exc))


def _from_the_root(problems: Iterable[Problem], root: str | None) -> Iterator[Problem]:
    """Files as a forge knows them: from the root of the repository. None: we are there."""
    top = os.path.realpath(root or os.curdir)
    for problem in problems:
        place = problem.place
        if place is not None:
            path = os.path.relpath(os.path.abspath(place.file), top)
            if path.partition(os.sep)[0] != os.pardir:
                problem = replace(problem, place=replace(place, file=path))
        yield problem


def _print_words(lines: Iterable[Words]) -> None:
    """What paints them is loaded for a terminal alone: it takes as long as a whole manifest."""
    if not sys.stdout.isatty():
        for line in lines:
            typer.echo("".join(text for text, _ in line))
        return
    from rich.text import Text

    from reconciler.cli.output import console

    out = console()
    for line in lines:
        out.print(Text.assemble(*line), soft_wrap=True)


def _text(inspection: Inspection, desired: "Desired | None", files: int) -> Iterator[Words]:
    yield from map(problem_words, inspection.problems)
    for skip in inspection.skipped:
        yield ((f"{skip.place}: skipped: {skip.api_version} {skip.kind} is not ours", "dim"),)
    if desired is not None:
        yield from _of_node(desired)
    if engines := _engines(inspection):
        said = "engines, which only the agents of the nodes know (run --engine): "
        yield ((f"{said}{', '.join(engines)}", "dim"),)
    style = "red" if inspection.manifest is None else "green"
    yield ((_summary(inspection, files), style),)


def _of_node(desired: "Desired") -> Iterator[Words]:
    state = " (suspended: nothing is started or stopped)" if desired.suspend else ""
    yield ((f"{desired.node} would run{state}:", "bold"),)
    for model in desired.models:
        off = "" if model.enabled else ", disabled"
        off += ", suspended" if not desired.suspend and desired.suspends(model.name) else ""
        spec = model.spec
        instead = f" or its fallback {model.fallback.source}" if model.fallback else ""
        kind = f"{spec.type}, {spec.source}{instead}, {spec.engine or spec.backend}{off}"
        yield ((f"  {model.name}  {kind}", ""),)
    if not desired.models:
        yield (("  nothing", ""),)
    for other in desired.elsewhere:
        yield ((f"  not {other.name}: {other.reason}", "dim"),)


def _engines(inspection: Inspection) -> list[str]:
    """The builds that models name. Which of them a node has is not for a manifest to say."""
    models = inspection.manifest.models if inspection.manifest is not None else ()
    return sorted({entry.model.engine for entry in models if entry.model.engine is not None})


def _summary(inspection: Inspection, files: int) -> str:
    errors = sum(problem.is_error for problem in inspection.problems)
    warnings = len(inspection.problems) - errors
    counted = [_counted(files, "file")]
    if inspection.manifest is not None:
        counted.append(_counted(len(inspection.manifest.models), "model"))
    if errors:
        counted.append(_counted(errors, "error"))
    if warnings:
        counted.append(_counted(warnings, "warning"))
    return ", ".join([*counted, "ok"] if not errors else counted)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _as_json(inspection: Inspection, desired: "Desired | None", files: int) -> dict[str, object]:
    manifest = inspection.manifest
    answer: dict[str, object] = {
        "api": 1,
        "ok": manifest is not None,
        "files": files,
        "models": [] if manifest is None else [entry.model.name for entry in manifest.models],
        "engines": _engines(inspection),
        "problems": [as_json(problem) for problem in inspection.problems],
        "skipped": [
            {"file": skip.place.file, "line": skip.place.line, "kind": skip.kind}
            for skip in inspection.skipped
        ],
    }
    if desired is not None:
        answer["node"] = {
            "name": desired.node,
            "suspend": desired.suspend,
            "models": [model.name for model in desired.models],
            "elsewhere": [
                {"name": other.name, "reason": other.reason} for other in desired.elsewhere
            ],
        }
    return answer
