"""A set of files judged as a whole and for itself, without what was ever applied."""

from collections.abc import Sequence
from dataclasses import dataclass

from reconciler.manifest.parse import Skipped, parse_file, unreadable
from reconciler.manifest.problem import Problem, position
from reconciler.manifest.resolve import NO_MODELS, FileInput, no_manifest
from reconciler.manifest.union import Manifest, file_clashes, union


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """All problems of all files, by file and line. `manifest` is None if there is an error."""

    manifest: Manifest | None
    problems: tuple[Problem, ...]
    skipped: tuple[Skipped, ...]


def inspect(files: Sequence[FileInput]) -> Inspection:
    """Everything that keeps these files from being taken whole by a node that knows no others."""
    parsed = [
        parse_file(file.name, file.content)
        if file.content is not None
        else unreadable(file.name, file.error or "no content")
        for file in sorted(files, key=lambda file: file.name)
    ]
    problems = [problem for file in parsed for problem in file.problems]
    problems += file_clashes(parsed)
    problems.sort(key=position)
    manifest = None
    if not any(problem.is_error for problem in problems):
        manifest = union(parsed)
        if not any(file.documents for file in parsed):
            problems.append(no_manifest(len(parsed)))
            manifest = None
        elif not manifest.models and not manifest.allow_empty:
            problems.append(NO_MODELS)
            manifest = None
    skipped = tuple(skip for file in parsed for skip in file.skipped)
    return Inspection(manifest=manifest, problems=tuple(problems), skipped=skipped)
