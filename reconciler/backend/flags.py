"""The flags of one build of an engine, and how its help text tells them (PURE).

llama.cpp renames flags often; what an installed build takes is only in its own `--help`.
"""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

_OPTION = re.compile(r"^(-{1,2}[A-Za-z][\w.-]*(?:,\s+-{1,2}[A-Za-z][\w.-]*)*)(?: (\S.*))?$")
_COLUMNS = re.compile(r" {2,}")
_REMOVED = re.compile(r"the argument has been removed\.? *(.*)")
_FEWEST = 20
"""A help text with fewer options than this was not understood."""
_ON_OFF = ("true", "false", "enabled", "disabled", "1", "0")
"""What llama.cpp takes for on and off, beside what its help text says."""


class Takes(StrEnum):
    NOTHING = "nothing"
    VALUE = "a value"
    NUMBER = "a number"
    OPTIONAL = "a value or none"
    SEVERAL = "values"
    JSON = "JSON"
    TWO_VALUES = "two values"
    ON_OFF = "on or off"
    ZERO_ONE = "0 or 1"
    UNKNOWN = "unknown"


class Reads(StrEnum):
    """What a value must be, where that is sure. SIZE: `32k` too; LENGTH: `auto`, too; FIGURE: some
    number, and which is not sure."""

    WHOLE = "a whole number"
    SIZE = "a whole number or a size such as 32k"
    LENGTH = "a whole number, a size such as 32k, or auto"
    FRACTION = "a number"
    FIGURE = "a number or a size"
    CONFIG = "a map"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One option. `names` and `negations` begin with `--`; `removed`: what to use instead;
    `choices`: values that it knows, where they are told; `only`: there are no others than these;
    `reads`: None is not known."""

    names: tuple[str, ...]
    negations: tuple[str, ...] = ()
    takes: Takes = Takes.VALUE
    removed: str | None = None
    choices: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    reads: Reads | None = None

    @property
    def name(self) -> str:
        return self.names[0]


@dataclass(frozen=True, slots=True)
class Flags:
    """`complete` False: the list could not be had, and a flag that is not in it may exist."""

    flags: tuple[Flag, ...] = ()
    complete: bool = False
    _by_name: dict[str, Flag] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = {name: flag for flag in self.flags for name in (*flag.names, *flag.negations)}
        object.__setattr__(self, "_by_name", names)

    def find(self, name: str) -> Flag | None:
        """By any of its names, a negation included."""
        return self._by_name.get(name)

    def nearest(self, name: str) -> str | None:
        """The name that a person may have meant."""
        offered = [known for known, flag in self._by_name.items() if flag.removed is None]
        return next(iter(difflib.get_close_matches(name, offered, n=1, cutoff=0.75)), None)


def parse_help(text: str) -> Flags:
    """Read llama-server's `--help`. What does not look like it gives an incomplete, empty list."""
    flags = tuple(flag for entry in _entries(text.splitlines()) if (flag := _flag(entry)))
    return Flags(flags, True) if len(flags) >= _FEWEST else Flags()


def _entries(lines: Iterable[str]) -> Iterable[list[str]]:
    """An option's own line with those of its description."""
    entry: list[str] = []
    for line in lines:
        if line.startswith("-"):
            if entry:
                yield entry
            entry = [] if line.startswith("---") else [line]  # `----- sampling params -----`
        elif entry:
            entry.append(line)
    if entry:
        yield entry


def _flag(entry: list[str]) -> Flag | None:
    # `-c,    --ctx-size N         size of the prompt context`: two blanks and more part columns,
    # but for those that align the long name behind a short one.
    signature = _COLUMNS.split(re.sub(r",\s+", ", ", entry[0]).rstrip())[0]
    found = _OPTION.match(signature)
    if found is None:
        return None
    long = [name for name in found[1].split(", ") if name.startswith("--")]
    negations = tuple(name for name in long if name.startswith("--no-"))
    names = tuple(name for name in long if not name.startswith("--no-"))
    if not names:
        names, negations = negations, ()
    if not names:
        return None
    removed = _REMOVED.search(" ".join(line.strip() for line in entry))
    return Flag(
        names=names,
        negations=negations,
        takes=_takes(found[2]),
        only=_only(found[2]),
        removed=removed[1].split("(env:")[0].strip() if removed else None,
    )


def _only(hint: str | None) -> tuple[str, ...]:
    found = re.fullmatch(r"[\[<](on\|off(\|auto)?)[\]>]", hint or "")
    if found is None:
        return ()
    return (*found[1].split("|"), *_ON_OFF, *(("-1",) if found[2] else ()))


def _takes(hint: str | None) -> Takes:
    if hint is None:
        return Takes.NOTHING
    if "on|off" in hint:
        return Takes.ON_OFF
    if hint == "<0|1>":
        return Takes.ZERO_ONE
    if hint == "N":
        return Takes.NUMBER
    return Takes.TWO_VALUES if re.fullmatch(r"[A-Z]+ [A-Z]+", hint) else Takes.VALUE
