"""Writes the flags of the vLLM that runs this, as reconciler/backend/vllm_flags has them.

    PYTHON_OF_VLLM tests/engines/vllm/flags_of.py > reconciler/backend/vllm_flags/0.32.json

A flag: its long names, then its negations, by what it takes (`reconciler.backend.flags.Takes`).
"""

import argparse
import importlib
import json
import sys
from collections import defaultdict

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


def main() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for action in parser()._actions:
        names = [name for name in action.option_strings if name.startswith("--")]
        if names:
            kind = (
                "nothing" if isinstance(action, argparse.BooleanOptionalAction) else takes(action)
            )
            found[kind].append(" ".join(names))
    json.dump({kind: sorted(found[kind]) for kind in sorted(found)}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
