"""A manifest's problems as they are shown: to people, and to the forges that mark lines (PURE)."""

import hashlib
from collections.abc import Iterable, Iterator

from reconciler.manifest.problem import Problem

Words = tuple[tuple[str, str], ...]
"""Texts with their styles, one after the other; what they are painted with is not loaded here."""

_SEVERITIES = {"error": "critical", "warning": "minor"}
"""As GitLab has them: from `info` to `blocker`."""


def problem_words(problem: Problem) -> Words:
    """`file:line:column: path: message`."""
    words: list[tuple[str, str]] = []
    if problem.place is not None:
        words.append((f"{problem.place}: ", "bold"))
    if problem.path:
        words.append((f"{problem.path}: ", ""))
    if not problem.is_error:
        words.append(("warning: ", "yellow"))
    return (*words, (problem.message, "red" if problem.is_error else ""))


def as_json(problem: Problem) -> dict[str, object]:
    place = problem.place
    return {
        "severity": problem.severity,
        "file": place.file if place else None,
        "line": place.line if place else None,
        "column": place.column if place else None,
        "path": problem.path,
        "message": problem.message,
    }


def as_annotation(problem: Problem) -> str:
    """A workflow command of GitHub, which marks the line in a pull request."""
    place = problem.place
    where = ""
    if place is not None:
        where = f" file={_property(place.file)},line={place.line},col={place.column}"
    return f"::{problem.severity}{where}::{_data(_said(problem))}"


def as_code_quality(problems: Iterable[Problem], *, fallback: str) -> list[dict[str, object]]:
    """GitLab's report of code quality. `fallback`: the path of what has no place of its own."""
    return [
        {
            "description": _said(problem),
            "check_name": f"xgen-model-{problem.severity}",
            "fingerprint": fingerprint,
            "severity": _SEVERITIES[problem.severity],
            "location": {
                "path": problem.place.file if problem.place else fallback,
                "positions": {
                    "begin": {
                        "line": problem.place.line if problem.place else 1,
                        "column": problem.place.column if problem.place else 1,
                    }
                },
            },
        }
        for problem, fingerprint in _with_fingerprints(problems)
    ]


def _with_fingerprints(problems: Iterable[Problem]) -> Iterator[tuple[Problem, str]]:
    """By which GitLab tells a new problem from one that the branch below has too: not by its line,
    which moves with every edit above it. One that is there twice has two."""
    seen: dict[str, int] = {}
    for problem in problems:
        file = problem.place.file if problem.place else ""
        said = "\0".join((file, problem.path, problem.message))
        seen[said] = seen.get(said, 0) + 1
        yield problem, hashlib.sha256(f"{said}\0{seen[said]}".encode()).hexdigest()


def _said(problem: Problem) -> str:
    return f"{problem.path}: {problem.message}" if problem.path else problem.message


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
