"""The settings of the agent that runs with a data folder, for what a command is not given."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from reconciler.cli.checks.data_folder import lock_holder
from reconciler.cli.git_option import GitOptions
from reconciler.node.data_folder import read_json

_Group = TypeVar("_Group", bound=GitOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningSettings:
    """`pid`: of the agent; None: none runs. `words`: as `reconciler.node.announcement` has them."""

    pid: int | None = None
    words: Mapping[str, object] = field(default_factory=dict)

    def text(self, flag: str, given: str | None) -> str | None:
        """What is given goes first."""
        told = self.words.get(flag)
        return given or (told if isinstance(told, str) else None)

    def path(self, flag: str, given: Path | None) -> Path | None:
        told = self.text(flag, None)
        return given or (Path(told) if told is not None else None)

    def filled(self, group: _Group) -> _Group:
        """With the files and numbers that the agent has where none are given."""
        told: dict[str, Any] = {}
        for each in fields(group):
            word = self.words.get(each.name)
            if getattr(group, each.name) is None and isinstance(word, str | int | float):
                told[each.name] = Path(word) if isinstance(word, str) else word
        return replace(group, **told)

    def texts(self, flag: str, given: list[str] | None) -> list[str]:
        told = self.words.get(flag)
        return given or ([str(each) for each in told] if isinstance(told, list) else [])


def running_settings(folder: Path) -> RunningSettings:
    """Empty where no agent runs, or one of an older release."""
    if lock_holder(folder) is None:
        return RunningSettings()
    told = read_json(folder / "agent.json")
    pid, words = told.get("pid"), told.get("settings")
    if not isinstance(pid, int) or not isinstance(words, dict):
        return RunningSettings()
    return RunningSettings(pid=pid, words=words)
