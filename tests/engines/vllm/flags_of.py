"""Writes the flags of the vLLM that runs this, as reconciler/backend/vllm_flags has them.

    PYTHON_OF_VLLM tests/engines/vllm/flags_of.py > reconciler/backend/vllm_flags/0.32.json

A flag: its long names, then its negations, by what it takes (`reconciler.backend.flags.Takes`).
Then, by its first name, what its words must be (`Reads`), where argparse itself sees to it, and the
words that it knows. Attention backends are judged behind argparse, by the names of an enumeration.
"""

import argparse
import importlib
import inspect
import json
import sys
from collections import defaultdict
from typing import Any

_PLACES = ("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args")
"""Newest first."""


def parser() -> argparse.ArgumentParser:
    parsers = importlib.import_module("vllm.utils.argparse_utils")
    for place in _PLACES:
        try:
            module = importlib.import_module(place)
        except ModuleNotFoundError as exc:
            if exc.name is None or not place.startswith(exc.name):
                raise
            continue
        made: argparse.ArgumentParser = module.make_arg_parser(parsers.FlexibleArgumentParser())
        return made
    raise SystemExit("this vLLM keeps its parser elsewhere")


def takes(action: argparse.Action) -> str:
    if action.nargs == 0:
        return "nothing"
    if action.nargs == "?":
        return "a value or none"
    if action.nargs in ("+", "*"):
        return "values"
    reads = getattr(action.type, "__name__", "")
    return "JSON" if "json" in reads or "loads" in reads or "dict" in reads else "a value"


_READS = {
    "int": "a whole number",
    "human_readable_int": "a whole number or a size such as 32k",
    "human_readable_int_or_auto": "a whole number, a size such as 32k, or auto",
    "float": "a number",
    "parse_dataclass": "a map",
    "loads": "a map",
}


def reads(action: argparse.Action) -> str | None:
    """What it is converted by, below what lets it be None."""
    convert: Any = action.type
    while getattr(convert, "__name__", "") in ("_optional_type", "_parse_type"):
        convert = inspect.getclosurevars(convert).nonlocals["return_type"]
    return _READS.get(getattr(convert, "__name__", ""))


def choices(action: argparse.Action) -> list[str]:
    """None where it makes another word of what is written first."""
    if "--attention-backend" in action.option_strings:
        registry = importlib.import_module("vllm.v1.attention.backends.registry")
        return ["auto", *registry.AttentionBackendEnum.__members__]
    if getattr(action.type, "__name__", "") == "<lambda>":
        return []
    return [str(choice) for choice in action.choices or () if choice is not None]


def main() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    converted: dict[str, list[str]] = defaultdict(list)
    known: dict[str, list[str]] = {}
    for action in parser()._actions:
        names = [name for name in action.option_strings if name.startswith("--")]
        if names:
            kind = (
                "nothing" if isinstance(action, argparse.BooleanOptionalAction) else takes(action)
            )
            found[kind].append(" ".join(names))
            if (what := reads(action)) is not None:
                converted[what].append(names[0])
            if words := choices(action):
                known[names[0]] = words
    told = {
        "takes": {kind: sorted(found[kind]) for kind in sorted(found)},
        "reads": {what: sorted(converted[what]) for what in sorted(converted)},
        "choices": {name: known[name] for name in sorted(known)},
    }
    json.dump(told, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
