"""What a flag's value may be, where the flag itself is free: which files, JSON keys and words."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from reconciler.manifest.flag_rules import FlagRules, Why
from reconciler.plan.desired import JsonValue

OUTSIDE = "'@/' paths must stay inside the model's folder"
NOT_THE_MODELS = f"{Why.FILES}; name a file of the model itself, as '@/…'"

_ELSEWHERE = re.compile(r"[/~]|\.{1,2}/|file:|[A-Za-z][A-Za-z0-9+.-]*://|.*(?:^|/)\.\.(?:/|$)")
_OWN = re.compile(r"(?:[\w.-]+=)?@/(.*)", re.DOTALL)
"""With the name that an adapter is given, as in `sql=@/adapters/sql`."""
_NO_FILES = frozenset({"auto", "vllm"})
_NO_DRAFTS = frozenset({"ngram", "[ngram]"})
_NAMED = frozenset({"lora_modules", "default_mm_loras"})
"""Their files have names, as in `sql=@/adapters/sql`."""
_NAMES = frozenset({"name", "base_model_name"})
_CODE_KEY = re.compile(r"trust_remote_code|auto_map|code_revision|\w*_plugin|\w*_cls")
_COMPILERS = frozenset({"", "eager", "inductor"})
"""What else `compilation_config.backend` holds is the name of a Python object, to be imported."""


def names_elsewhere(text: str) -> bool:
    """Whether it is a path of the node or an URL; `@/…` is a file of the model's own."""
    return _ELSEWHERE.match(text) is not None


def leaves_the_model(value: JsonValue) -> bool:
    """Whether an `@/…` in it means a file outside the model's folder."""
    return any(_leads_out(found[1]) for text in _texts(value) if (found := _OWN.fullmatch(text)))


def _leads_out(path: str) -> bool:
    """Where the folder itself is meant, too: what a flag takes is a file or a folder in it."""
    parts = PurePosixPath(path).parts
    return not parts or parts[0].startswith("/") or ".." in parts


def against_value(rules: FlagRules, name: str, part: str, value: JsonValue) -> str | None:
    """Why this value needs a permission; None: it does not. `part`: of `flag.part.key`."""
    for key in reversed(part.split(".") if part else ()):
        value = {key: value}
    if name in rules.files:
        return None if _own_files(name, value) else NOT_THE_MODELS
    if name in rules.texts:
        return None
    value = _read(value)
    texts = list(_texts(value))
    free, reason = rules.values.get(name, (None, ""))
    if free is not None and value is not None and str(value) not in free:
        return reason
    if isinstance(value, dict) and (against := _against_keys(rules, name, value)):
        return against
    return Why.FILES if any(names_elsewhere(text) for text in texts) else None


def _against_keys(rules: FlagRules, name: str, config: dict[str, JsonValue]) -> str | None:
    known = rules.keys.get(name)
    if strange := next((key for key in config if known is not None and key not in known), None):
        return f"its key {strange} is not among those that are known to be harmless"
    if found := next((key for key in _keys(config) if _CODE_KEY.fullmatch(key)), None):
        return f"{Why.CODE}, by its key {found}"
    match name, config:
        case "compilation_config", {"backend": str(backend)} if backend not in _COMPILERS:
            return f"{Why.CODE}, by its key backend"
        case "speculative_config", {"model": str(draft)} if draft not in _NO_DRAFTS:
            return None if draft.startswith("@/") else NOT_THE_MODELS
        case _:
            return None


def _own_files(name: str, value: JsonValue) -> bool:
    """Whether all files that it names are the model's own. A template may stand there itself."""
    if name == "chat_template" and isinstance(value, str) and "{" in value:
        return not value.startswith("@/") and not names_elsewhere(value)
    if name in _NAMED:
        files = [text.partition("=")[2] or text for text in _texts(_read(value), but=_NAMES)]
    else:
        files = [text for text in _texts(value) if text not in _NO_FILES]
    return all(part.startswith("@/") for text in files for part in text.split(","))


def _read(value: JsonValue) -> JsonValue:
    """With JSON that stands in texts, as an engine reads it."""
    match value:
        case str() if value.lstrip()[:1] in ("{", "["):
            try:
                return _read(json.loads(value))
            except (ValueError, RecursionError):
                return value
        case list():
            return [_read(item) for item in value]
        case dict():
            return {key: _read(item) for key, item in value.items()}
        case _:
            return value


def _texts(value: JsonValue, but: frozenset[str] = frozenset()) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for item in _items(value, but):
        yield from _texts(item, but)


def _keys(value: JsonValue) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
    for item in _items(value):
        yield from _keys(item)


def _items(value: JsonValue, but: frozenset[str] = frozenset()) -> Iterable[JsonValue]:
    if isinstance(value, dict):
        return [item for key, item in value.items() if key not in but]
    return value if isinstance(value, list) else ()
