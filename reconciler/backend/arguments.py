"""From a manifest's `extra_args` to an engine's arguments (design §4; PURE).

ctx_size: 8192        --ctx-size 8192            true, false    --flag, --no-flag (or on, off)
a list                joined, or repeated        a map          JSON
"@/template.jinja"    a file of the model's      null           the engine's own default

What an engine would misread, or refuse only after a long start, is refused here.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from reconciler.backend.flag_words import misread, takes_one
from reconciler.backend.flags import Flag, Flags, Takes
from reconciler.errors import Rejected
from reconciler.plan.desired import JsonValue

_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
_NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?")
_WHOLE = re.compile(r"-\d+")
_DIGITS = re.compile(r"-?\d+")
_BEYOND_NUMBERS = frozenset({"auto", "all"})
"""What llama.cpp's flags for a number of layers take, too."""
_IN_BYTES = re.compile(r"(\d+(?:\.\d+)?[kKmMgGtT])i?[bB]")
_PART_OF_BINARY = re.compile(r"\d+\.\d+[KMGT]")
_EXACT_FLOATS = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How one family of engines reads its command line.

    `separators`: between the values of a list, for flags other than those with a comma;
    `repeated`: flags that are written once for each value. `reads_dashes`: a value that begins
    with one is read as another flag. `parts`: `flag.key` sets one key of the flag's JSON. `sizes`:
    it reads 4k as 4000 and 4K as 4096. `maps`: the flags that take JSON; None: they say so
    themselves. `by_file`: flags that take a text, with those that take it as a file. `whole`: of
    numbers it reads no more than the digits before a point.
    """

    separators: Mapping[str, str] = field(default_factory=dict)
    repeated: frozenset[str] = frozenset()
    reads_dashes: bool = False
    parts: bool = False
    sizes: bool = False
    maps: frozenset[str] | None = None
    by_file: Mapping[str, str] = field(default_factory=dict)
    whole: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tongue:
    """What one build understands. `engine`: its name and version, for messages."""

    dialect: Dialect
    flags: Flags
    engine: str


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


def translate(extra_args: Mapping[str, JsonValue], tongue: Tongue, root: str) -> Arguments:
    """All of `extra_args`, in the order of the manifest.

    `root`: the folder that `@/` means. Raises Rejected for the first that cannot be passed on.
    """
    arguments: list[Argument] = []
    named: dict[tuple[Flag, str], str] = {}
    for key, value in extra_args.items():
        name, flag = _flag(key, tongue)
        part = (flag, name.partition(".")[2])
        if part in named:
            raise _rejected(key, f"it means the same as {named[part]}, which stands there too")
        named[part] = key
        entry = _Entry(key, name, flag, root, tongue.dialect)
        arguments += _arguments(entry, value)
    return Arguments(arguments=tuple(arguments), named=frozenset(flag for flag, _ in named))


def _flag(key: str, tongue: Tongue) -> tuple[str, Flag]:
    flags = tongue.flags
    if not _KEY.fullmatch(key):
        raise _rejected(key, "write a flag's long name without its dashes, as in ctx_size")
    whole, dot, part = key.partition(".") if tongue.dialect.parts else (key, "", "")
    base = "--" + whole.replace("_", "-")
    flag = flags.find(base)
    if flag is None and flags.complete:
        nearest = flags.nearest(base)
        hint = f"; did you mean {as_key(nearest)}?" if nearest else ""
        raise _rejected(key, f"{tongue.engine} has no flag {base}{hint}")
    flag = flag or Flag(names=(base,), takes=Takes.UNKNOWN)
    if flag.removed is not None:
        raise _rejected(key, f"{tongue.engine} has removed {base}: {flag.removed}")
    return base + dot + part, flag


@dataclass(frozen=True, slots=True)
class _Entry:
    """One key of `extra_args` and the flag that it means."""

    key: str
    name: str
    flag: Flag
    root: str
    dialect: Dialect

    @property
    def is_whole(self) -> bool:
        """Not one key of what the flag takes."""
        return not (self.dialect.parts and "." in self.name)

    def argument(self, *values: str) -> Argument:
        return Argument(flag=self.flag, name=self.name, values=values)


def _arguments(entry: _Entry, value: JsonValue) -> list[Argument]:
    key, flag = entry.key, entry.flag
    match value:
        case None:
            return []
        case bool() if not entry.is_whole:
            return [entry.argument("true" if value else "false")]
        case bool():
            return _switch(entry, value)
        case list():
            return _several(entry, value)
        case dict():
            _need_value(key, flag)
            _need_maps(entry)
            return [entry.argument(_json(entry, value))]
        case _:
            _need_value(key, flag)
            if flag.takes is Takes.TWO_VALUES:
                raise _rejected(key, "it takes a list of two values")
            return [entry.argument(_word(entry, value))]


def _switch(entry: _Entry, value: bool) -> list[Argument]:
    flag = entry.flag
    match flag.takes:
        case Takes.ON_OFF:
            return [entry.argument("on" if value else "off")]
        case Takes.ZERO_ONE:
            return [entry.argument("1" if value else "0")]
        case Takes.VALUE | Takes.NUMBER | Takes.TWO_VALUES | Takes.SEVERAL | Takes.JSON:
            raise _rejected(entry.key, "it takes a value, not true or false")
        case Takes.NOTHING | Takes.OPTIONAL | Takes.UNKNOWN:
            wanted = value is not (entry.name in flag.negations)
            if wanted:
                name = entry.name if entry.name in flag.names else flag.name
                return [Argument(flag=flag, name=name)]
            return [Argument(flag=flag, name=flag.negations[0])] if flag.negations else []


def _several(entry: _Entry, values: list[JsonValue]) -> list[Argument]:
    key, flag, dialect = entry.key, entry.flag, entry.dialect
    _need_value(key, flag)
    if flag.takes is Takes.JSON or not entry.is_whole:
        return [entry.argument(_json(entry, values))]
    if flag.takes is Takes.NUMBER:
        raise _rejected(key, "it takes one number, not a list")
    if entry.is_whole and takes_one(flag) and flag.takes is Takes.VALUE:
        raise _rejected(key, "it takes one value, not a list")
    words = tuple(_word(entry, value) for value in values)
    if flag.takes is Takes.TWO_VALUES:
        if len(words) != 2:
            raise _rejected(key, f"it takes two values, not {len(words)}")
        return [entry.argument(*words)]
    if flag.name in dialect.repeated:
        return [entry.argument(word) for word in words]
    if not words:
        return []
    if flag.takes is Takes.SEVERAL:
        return [entry.argument(*words)]
    separator = dialect.separators.get(flag.name, ",")
    if torn := next((word for word in words if separator in word), None):
        raise _rejected(key, f"{torn!r} holds {separator!r}, which parts the values of a list")
    return [entry.argument(separator.join(words))]


def _need_value(key: str, flag: Flag) -> None:
    if flag.takes is Takes.NOTHING:
        raise _rejected(key, "it takes no value: write true or false")


def _need_maps(entry: _Entry) -> None:
    maps, flag = entry.dialect.maps, entry.flag
    if maps is not None and flag.takes is not Takes.JSON and maps.isdisjoint(flag.names):
        raise _rejected(entry.key, "it takes no map")
    if entry.is_whole and takes_one(flag):
        raise _rejected(entry.key, "it takes one value, not a map")


def _word(entry: _Entry, value: JsonValue) -> str:
    key = entry.key
    match value:
        case str():
            _need_sayable(key, value)
            text = value
        case float() if not math.isfinite(value):
            raise _rejected(key, f"{value} is not a number that an engine can read")
        case float() if value.is_integer() and abs(value) < _EXACT_FLOATS:
            text = str(int(value))  # flags that take whole numbers know no 4096.0
        case int() | float() if not isinstance(value, bool):
            text = str(value)
        case _:
            raise _rejected(key, "a list may hold texts and numbers only")
    if fault := _misread(entry, text):
        raise _rejected(key, fault)
    return _with_files(entry, text)


def _misread(entry: _Entry, text: str) -> str | None:
    """Why an engine would take the word for something else."""
    dialect, flag = entry.dialect, entry.flag
    if text.startswith("-"):
        # A flag of which nothing is known may be a switch, and the next word another flag. vLLM
        # takes a fraction with a sign for `flag.key`, for its dot.
        unknown = flag.takes is Takes.UNKNOWN and not _NUMBER.fullmatch(text)
        if unknown or (dialect.reads_dashes and not _WHOLE.fullmatch(text)):
            return f"{text} begins with a dash, so it would be another flag"
    if flag.takes is Takes.NUMBER and text not in _BEYOND_NUMBERS and not _NUMBER.fullmatch(text):
        return f"it takes a number in digits, not {text!r}"
    if dialect.sizes and (found := _IN_BYTES.fullmatch(text)):
        return f"write {found[1]} (k is 1000, K is 1024), not {text}"
    if dialect.sizes and _PART_OF_BINARY.fullmatch(text):
        return f"{text} is a fraction of a binary unit; write digits, or {text.lower()}"
    whole = not dialect.whole.isdisjoint(flag.names)
    if whole and _NUMBER.fullmatch(text) and not _DIGITS.fullmatch(text):
        return f"it takes a whole number, not {text}"
    if entry.is_whole and (fault := misread(flag, text)):
        return fault
    instead = next((dialect.by_file[name] for name in flag.names if name in dialect.by_file), None)
    if instead is not None and text.startswith("@/"):
        return f"it takes the text itself; use {instead} for a file"
    return None


def _with_files(entry: _Entry, value: str) -> str:
    """`@/x`, and what `name=@/x` gives a name to, as paths."""
    name, equals, path = value.partition("=@/")
    if equals and entry.flag.takes is Takes.SEVERAL:
        return f"{name}={_inside(entry.key, '@/' + path, entry.root)}"
    return _inside(entry.key, value, entry.root) if value.startswith("@/") else value


def _json(entry: _Entry, value: JsonValue) -> str:
    key, value = entry.key, _resolved(entry, value)
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise _rejected(key, "JSON has no numbers that are not finite") from None
    _need_sayable(key, text)
    return text


def _resolved(entry: _Entry, value: JsonValue) -> JsonValue:
    match value:
        case str() if value.startswith("@/"):
            return _inside(entry.key, value, entry.root)
        case list():
            return [_resolved(entry, item) for item in value]
        case dict():
            return {name: _resolved(entry, item) for name, item in value.items()}
        case _:
            return value


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


def as_key(name: str) -> str:
    """A flag as a manifest has it."""
    return name.removeprefix("--").replace("-", "_")


def _rejected(key: str, cause: str) -> Rejected:
    return Rejected(f"cannot use extra_args.{key}: {cause}")
