"""The flags of each release of vLLM, as far as this release knows them: its help takes ten seconds.

vllm_flags/0.32.json    {"takes": {what: ["--name --alias --no-name", …]}, "reads": {what:
                        ["--name", …]}, "choices": {"--name": [value, …]}}

by tests/engines/vllm/flags_of.py.
"""

import importlib.resources
import json
from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.backend.flags import Flag, Flags, Reads, Takes
from reconciler.backend.vllm_versions import Version, parse

_FIGURES = (Reads.WHOLE, Reads.SIZE, Reads.LENGTH, Reads.FRACTION)


def flags_of(version: str | None) -> Flags:
    """Of the release that we have a list of, else what the nearest older one tells, incomplete.

    Values are judged by a list of this very release that tells what they must be; else by the
    newest list, and no closer than that a number is one and JSON is JSON.
    """
    lists = _lists()
    wanted = parse(version)
    exact = lists.get(wanted[:2]) if version is not None else None
    if exact is not None and exact["reads"]:
        return Flags(_flags(exact, _reads(exact), exact["choices"]), True)
    newest = _reads(lists[max(lists)])
    loosely = {name: Reads.FIGURE if what in _FIGURES else what for name, what in newest.items()}
    if exact is not None:
        return Flags(_flags(exact, loosely, {}), True)
    older = [known for known in lists if known <= wanted] or [min(lists)]
    return Flags(_flags(lists[max(older)], loosely, {}), False)


def _lists() -> dict[Version, Any]:
    folder = importlib.resources.files("reconciler.backend") / "vllm_flags"
    return {
        parse(file.name.removesuffix(".json")): json.loads(file.read_text(encoding="utf-8"))
        for file in folder.iterdir()
        if file.name.endswith(".json")
    }


def _reads(told: Any) -> dict[str, Reads]:
    return {name: Reads(what) for what, names in told["reads"].items() for name in names}


def _flags(
    told: Any, reads: Mapping[str, Reads], choices: Mapping[str, Sequence[str]]
) -> tuple[Flag, ...]:
    return tuple(
        _flag(names.split(), Takes(takes), reads, choices)
        for takes, flags in told["takes"].items()
        for names in flags
    )


def _flag(
    names: list[str],
    takes: Takes,
    reads: Mapping[str, Reads],
    choices: Mapping[str, Sequence[str]],
) -> Flag:
    return Flag(
        names=tuple(name for name in names if not name.startswith("--no-")),
        negations=tuple(name for name in names if name.startswith("--no-")),
        takes=takes,
        only=tuple(choices.get(names[0], ())),
        reads=reads.get(names[0]),
    )
