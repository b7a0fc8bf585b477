"""From a manifest's `extra_args` to an engine's arguments (design §4; PURE).

ctx_size: 8192        --ctx-size 8192            true, false    --flag, --no-flag (or on, off)
a list                joined, or repeated        a map          JSON
"@/template.jinja"    a file of the model's      null           the engine's own default
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from reconciler.backend.flags import Flag, Flags, Takes
from reconciler.errors import Rejected
from reconciler.manifest.refused import refused_reason, refused_value
from reconciler.plan.desired import JsonValue

FAMILY = "llama"
"""What the manifest calls the engines of llama.cpp, in `defaults.extra_args` and the policy."""

_KEY = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
_SEPARATORS = {"--samplers": ";"}
_REPEATED = {"--logit-bias", "--dry-sequence-breaker", "--reverse-prompt"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One occurrence of a flag. `name`: as it is written; `values`: none for a switch."""

    flag: Flag
    name: str
    values: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        return (self.name, *self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """`named`: every flag that the manifest speaks of, those included that need no word."""

    arguments: tuple[Argument, ...] = ()
    named: frozenset[Flag] = frozenset()


def translate(
    extra_args: Mapping[str, JsonValue], *, flags: Flags, root: str, engine: str
) -> Arguments:
    """All of `extra_args`, in the order of the manifest.

    `root`: the folder that `@/` means; `engine`: its name and version, for messages. Raises
    Rejected for the first that cannot be passed on.
    """
    arguments: list[Argument] = []
    named: dict[Flag, str] = {}
    for key, value in extra_args.items():
        name, flag = _flag(key, value, flags, engine)
        if flag in named:
            raise _rejected(key, f"it means the same as {named[flag]}, which stands there too")
        named[flag] = key
        arguments += _arguments(key, value, name, flag, root)
    return Arguments(arguments=tuple(arguments), named=frozenset(named))


def _flag(key: str, value: JsonValue, flags: Flags, engine: str) -> tuple[str, Flag]:
    if not _KEY.fullmatch(key):
        raise _rejected(key, "write a flag's long name without its dashes, as in ctx_size")
    name = "--" + key.replace("_", "-")
    flag = flags.find(name)
    if flag is None and flags.complete:
        nearest = flags.nearest(name)
        hint = f"; did you mean {_as_key(nearest)}?" if nearest else ""
        raise _rejected(key, f"{engine} has no flag {name}{hint}")
    flag = flag or Flag(names=(name,), takes=Takes.UNKNOWN)
    for spelling in (name, *flag.names):
        if reason := refused_reason(FAMILY, spelling) or refused_value(FAMILY, spelling, value):
            raise _rejected(key, reason)
    if flag.removed is not None:
        raise _rejected(key, f"{engine} has removed {name}: {flag.removed}")
    return name, flag


def _arguments(key: str, value: JsonValue, name: str, flag: Flag, root: str) -> list[Argument]:
    match value:
        case None:
            return []
        case bool():
            return _switch(key, value, name, flag)
        case list():
            return _several(key, value, name, flag, root)
        case dict():
            _need_value(key, flag)
            return [Argument(flag=flag, name=name, values=(_json(key, value),))]
        case _:
            _need_value(key, flag)
            if flag.takes is Takes.TWO_VALUES:
                raise _rejected(key, "it takes a list of two values")
            return [Argument(flag=flag, name=name, values=(_word(key, value, root),))]


def _switch(key: str, value: bool, name: str, flag: Flag) -> list[Argument]:
    match flag.takes:
        case Takes.ON_OFF:
            return [Argument(flag=flag, name=name, values=("on" if value else "off",))]
        case Takes.ZERO_ONE:
            return [Argument(flag=flag, name=name, values=("1" if value else "0",))]
        case Takes.VALUE | Takes.TWO_VALUES:
            raise _rejected(key, "it takes a value, not true or false")
        case Takes.NOTHING | Takes.UNKNOWN:
            wanted = value is not (name in flag.negations)
            if wanted:
                return [Argument(flag=flag, name=name if name in flag.names else flag.name)]
            return [Argument(flag=flag, name=flag.negations[0])] if flag.negations else []


def _several(key: str, values: list[JsonValue], name: str, flag: Flag, root: str) -> list[Argument]:
    _need_value(key, flag)
    words = tuple(_word(key, value, root) for value in values)
    if flag.takes is Takes.TWO_VALUES:
        if len(words) != 2:
            raise _rejected(key, f"it takes two values, not {len(words)}")
        return [Argument(flag=flag, name=name, values=words)]
    if flag.name in _REPEATED:
        return [Argument(flag=flag, name=name, values=(word,)) for word in words]
    if not words:
        return []
    separator = _SEPARATORS.get(flag.name, ",")
    if torn := next((word for word in words if separator in word), None):
        raise _rejected(key, f"{torn!r} holds {separator!r}, which parts the values of a list")
    return [Argument(flag=flag, name=name, values=(separator.join(words),))]


def _need_value(key: str, flag: Flag) -> None:
    if flag.takes is Takes.NOTHING:
        raise _rejected(key, "it takes no value: write true or false")


def _word(key: str, value: JsonValue, root: str) -> str:
    match value:
        case str():
            _need_sayable(key, value)
            return _inside(key, value, root) if value.startswith("@/") else value
        case float() if not math.isfinite(value):
            raise _rejected(key, f"{value} is not a number that an engine can read")
        case int() | float() if not isinstance(value, bool):
            return str(value)
        case _:
            raise _rejected(key, "a list may hold texts and numbers only")


def _json(key: str, value: dict[str, JsonValue]) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise _rejected(key, "JSON has no numbers that are not finite") from None
    _need_sayable(key, text)
    return text


def _need_sayable(key: str, text: str) -> None:
    """No argument of a process can hold NUL; half a surrogate pair is no character at all."""
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise _rejected(key, "it holds a character that no argument can hold")


def _inside(key: str, value: str, root: str) -> str:
    """`@/x` as a path. It stays inside the model's files, whatever stands in it."""
    path = PurePosixPath(value[2:])
    if ",@/" in value:
        raise _rejected(key, "write several files as a list")
    if not path.parts or path.is_absolute() or ".." in path.parts:
        raise _rejected(key, f"{value} is not a path inside the model's files")
    return str(PurePosixPath(root) / path)


def _as_key(name: str) -> str:
    return name.removeprefix("--").replace("-", "_")


def _rejected(key: str, cause: str) -> Rejected:
    return Rejected(f"cannot use extra_args.{key}: {cause}")
