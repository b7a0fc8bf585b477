"""Flags that several commands have in common, as one value that each of them gets.

A group is a dataclass, and each of its fields a flag:

    @dataclass(frozen=True, slots=True, kw_only=True)
    class GitOptions:
        git_timeout: Annotated[float | None, typer.Option("--git-timeout", …)] = None

    @with_groups
    def plan(manifest: …, git: GitOptions = GitOptions()) -> int: …
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any


def with_groups(command: Callable[..., int]) -> Callable[..., int]:
    """The command as typer is to see it, with the flags of each group where the group stands."""
    signature = inspect.signature(command, eval_str=True)
    types: dict[str, Any] = {name: each.annotation for name, each in signature.parameters.items()}
    groups = {name: each for name, each in types.items() if _is_group(each)}
    flags = {name: inspect.signature(group, eval_str=True) for name, group in groups.items()}
    seen: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        seen += flags[name].parameters.values() if name in groups else [parameter]

    @functools.wraps(command)
    def called(**given: Any) -> int:
        for name, group in groups.items():
            given[name] = group(**{flag: given.pop(flag) for flag in flags[name].parameters})
        return command(**given)

    shown = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in seen]
    vars(called)["__signature__"] = signature.replace(parameters=shown)
    called.__annotations__ = {each.name: each.annotation for each in seen} | {"return": int}
    return called


def _is_group(kind: object) -> bool:
    return is_dataclass(kind)
