"""What holds between the fields of a document, and which flags and variables it may set.

The rules read plain values that may be wrong in any other way, so that one mistake never hides
another.
"""

from collections.abc import Callable, Iterator

from reconciler.manifest.check_rules import check_findings
from reconciler.manifest.contradictions import contradictions
from reconciler.manifest.family import (
    ENGINES,
    FORMATS,
    LLAMA,
    OTHER,
    VLLM,
    backend_family,
    is_guess,
)
from reconciler.manifest.policy import (
    ALLOW_FLAG,
    ALLOW_VARIABLE,
    UNKNOWN_FLAG,
    Ruling,
    canonical,
    flag_ruling,
    nearest_flag,
    variable_ruling,
)
from reconciler.manifest.problem import Finding, Loc, Severity, shown
from reconciler.manifest.supported import unsupported
from reconciler.plan.desired import JsonValue
from reconciler.plan.gpus import one_spelling

_Map = dict[str, JsonValue]
_EXCLUSIVE = (("gpu_ids", "gpus"), ("replicas", "nodes"))


def rule_findings(document: JsonValue) -> Iterator[Finding]:
    """All that a document (as plain values) does which its shape alone allows."""
    spec = _map(_map(document).get("spec"))
    yield from unsupported(spec)
    defaults = _map(_map(spec.get("defaults")).get("extra_args"))
    for family in (LLAMA, VLLM):
        where = ("spec", "defaults", "extra_args", family)
        yield from _flag_findings(where, _map(defaults.get(family)), family)
    for node, settings in _map(spec.get("node_settings")).items():
        drains = _map(settings).get("drain") is True
        if drains and (_map(settings).get("suspend") is True or spec.get("suspend") is True):
            message = "drain and suspend exclude each other"
            yield Finding(loc=("spec", "node_settings", node), message=message, at_key=True)
    for index, model in enumerate(_list(spec.get("models"))):
        loc = ("spec", "models", index)
        yield from _model_findings(loc, _map(model))
        yield from contradictions(loc, _map(model), _map(defaults.get(VLLM)))


def _model_findings(loc: Loc, model: _Map) -> Iterator[Finding]:
    for one, other in _EXCLUSIVE:
        if model.get(one) not in (None, []) and model.get(other) is not None:
            message = f"{one} and {other} exclude each other"
            yield Finding(loc=(*loc, one), message=message, at_key=True)
    yield from _file_findings(loc, model)
    if model.get("digest") is not None and model.get("refresh") == "auto":
        message = "digest pins the files, so refresh: auto takes nothing up"
        yield Finding(loc=(*loc, "refresh"), message=message, severity=Severity.WARNING)
    if str(model.get("source", "")).startswith("file:"):
        yield from _in_place_findings(loc, model)
    yield from _repeated((*loc, "nodes"), "the node", _list(model.get("nodes")))
    yield from _repeated((*loc, "gpu_ids"), "the GPU", _list(model.get("gpu_ids")), one_spelling)
    yield from _own_flag_findings((*loc, "extra_args"), model)
    yield from _env_findings((*loc, "env"), _map(model.get("env")))
    yield from check_findings(loc, model)
    yield from _fallback_findings(loc, model)


def _in_place_findings(loc: Loc, model: _Map) -> Iterator[Finding]:
    if model.get("digest") is not None:
        message = "files used in place have no lasting digest: leave it out, or use the hub"
        yield Finding(loc=(*loc, "digest"), message=message)
    if model.get("refresh") == "auto":
        message = "files used in place are not asked for in the hub: refresh: auto does nothing"
        yield Finding(loc=(*loc, "refresh"), message=message, severity=Severity.WARNING)


def _fallback_findings(loc: Loc, model: _Map) -> Iterator[Finding]:
    fallback, where = _map(model.get("fallback")), (*loc, "fallback")
    same = [fallback.get(key) == model.get(key) for key in ("source", "file")]
    if fallback and isinstance(fallback.get("source"), str) and all(same):
        message = "these are the files of the model's own source; name others, or leave it out"
        yield Finding(loc=(*where, "source"), message=message)
    yield from _file_findings(where, fallback)
    yield from _own_flag_findings((*where, "extra_args"), fallback)
    yield from _env_findings((*where, "env"), _map(fallback.get("env")))


def _file_findings(loc: Loc, files: _Map) -> Iterator[Finding]:
    source, file = files.get("source"), files.get("file")
    if file is not None and isinstance(source, str) and source.endswith(".gguf"):
        yield Finding(loc=(*loc, "file"), message="source names the file already", at_key=True)


def _own_flag_findings(loc: Loc, model: _Map) -> Iterator[Finding]:
    """`model`: or a fallback, which has neither backend nor format."""
    backend, weights = str(model.get("backend", "auto")), str(model.get("format", "auto"))
    source, file = str(model.get("source", "")), str(model.get("file") or "") or None
    family = backend_family(backend=backend, weights=weights, source=source, file=file)
    guess = is_guess(backend=backend, weights=weights, source=source, file=file)
    yield from _flag_findings(loc, _map(model.get("extra_args")), family, guess=guess)


def _repeated(
    loc: Loc, what: str, listed: list[JsonValue], spelling: Callable[[str], str] = str
) -> Iterator[Finding]:
    seen: set[str] = set()
    for index, one in enumerate(listed):
        name = spelling(str(one))
        if isinstance(one, str | int) and name in seen:
            yield Finding(loc=(*loc, index), message=f"{what} {shown(one)} stands twice")
        seen.add(name)


def _flag_findings(loc: Loc, flags: _Map, family: str, *, guess: bool = False) -> Iterator[Finding]:
    """`guess`: the files may turn out to be for the other family."""
    spelled: dict[str, str] = {}
    for flag, value in flags.items():
        first = spelled.setdefault(canonical(flag), flag)
        if first != flag:
            message = f"{shown(flag)} and {shown(first)} are the same flag"
            yield Finding(loc=(*loc, flag), message=message, at_key=True)
        ruling = flag_ruling(family, flag, value)
        if ruling is None:
            continue
        unknown = ruling.reason == UNKNOWN_FLAG
        if unknown and (doubt := _of_other((*loc, flag), value, family, guess=guess)):
            yield doubt
        else:
            near = nearest_flag(family, flag) if unknown else None
            hint = f"; did you mean {near}?" if near else ""
            yield _refused((*loc, flag), f"flag {shown(flag)}", ruling, ALLOW_FLAG, hint)


def _of_other(loc: Loc, value: JsonValue, family: str, *, guess: bool) -> Finding | None:
    """Of a flag that this release does not know of the family; None: nor of the other."""
    flag, other = str(loc[-1]), OTHER[family]
    ruling = flag_ruling(other, flag, value)
    if ruling is not None and (ruling.never or ruling.reason == UNKNOWN_FLAG):
        return None
    fate = f"this release knows none of {ENGINES[family]} that is called so"
    if guess:
        fate = f"until its files are seen, this model is taken for one of {ENGINES[family]}"
        if "fallback" not in loc:
            fate += f"; if they are {FORMATS[other]}, say format: {FORMATS[other]}"
    if guess and ruling is not None:
        what = f"flag {shown(flag)} of {ENGINES[other]}"
        return _refused(loc, what, ruling, ALLOW_FLAG, f"; {fate}")
    message = f"the flag {shown(flag)} is {ENGINES[other]}'s: {fate}"
    return Finding(loc=loc, message=message, severity=Severity.WARNING, at_key=True)


def _env_findings(loc: Loc, env: _Map) -> Iterator[Finding]:
    for name, value in env.items():
        if ruling := variable_ruling(name, value):
            yield _refused((*loc, name), f"variable {shown(name)}", ruling, ALLOW_VARIABLE)
        given = [key for key in ("from_env", "from_file") if _map(value).get(key) is not None]
        if isinstance(value, dict) and len(given) != 1:
            message = "must hold exactly one of from_env and from_file"
            yield Finding(loc=(*loc, name), message=message)


def _refused(loc: Loc, what: str, ruling: Ruling, option: str, hint: str = "") -> Finding:
    """An error, or a warning where a node may allow it."""
    if ruling.never:
        return Finding(loc=loc, message=f"the {what} is refused: {ruling.reason}", at_key=True)
    allowed_by = f"{option} {ruling.name}"
    return Finding(
        loc=loc,
        message=f"the {what} is refused, except on nodes whose operator allows it "
        f"({allowed_by}): {ruling.reason}{hint}",
        severity=Severity.WARNING,
        at_key=True,
        allowed_by=allowed_by,
    )


def _map(value: JsonValue) -> _Map:
    return value if isinstance(value, dict) else {}


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []
