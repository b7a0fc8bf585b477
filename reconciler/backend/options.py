"""What an engine is told beside its model and address: our defaults, under the manifest's words
(PURE)."""

from collections.abc import Iterable
from dataclasses import dataclass

from reconciler.backend.arguments import Argument, Arguments
from reconciler.backend.flags import Flag, Flags, Takes


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`arguments`: ours first, then the manifest's. `warnings`: what an operator should know."""

    arguments: tuple[Argument, ...]
    warnings: tuple[str, ...] = ()

    def value(self, name: str) -> str | None:
        """What a flag is given, by any of its names; the last word counts. None: nothing."""
        given = [each for each in self.arguments if name in each.flag.names]
        return given[-1].values[0] if given and given[-1].values else None

    def says(self, name: str) -> bool:
        """Whether this very word is among them."""
        return any(each.name == name for each in self.arguments)


@dataclass(frozen=True, slots=True)
class Default:
    """A flag of ours, with its value unless it is a switch; the manifest's own word replaces it.

    `optional`: left out where the build does not know the flag.
    """

    name: str
    value: str | None = None
    optional: bool = False


def with_defaults(
    defaults: Iterable[Default], given: Arguments, flags: Flags
) -> tuple[Argument, ...]:
    return (*_ours(defaults, given, flags), *given.arguments)


def _ours(defaults: Iterable[Default], given: Arguments, flags: Flags) -> Iterable[Argument]:
    said = set(given.named)
    for default in defaults:
        flag = flags.find(default.name)
        if flag is None and default.optional:
            continue
        flag = flag or Flag(names=(default.name,), takes=Takes.UNKNOWN)
        if flag in said:
            continue
        said.add(flag)
        values = () if default.value is None else (default.value,)
        yield Argument(flag=flag, name=default.name, values=values)
