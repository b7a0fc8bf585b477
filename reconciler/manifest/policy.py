"""Which flags and variables a manifest may set: the node's policy, deny by default (design §4).

never      what the agent sets itself, or what would take its place: no node allows it
asked      what gives an editor of the manifest code, files, clients or the network of the node, and
           whatever this release does not know: refused, unless the node's operator allows it
free       all else (no ruling)

A manifest is checked where no node is known, so that what a node may allow is only a warning there;
each node then decides for itself.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from reconciler.manifest.family import ENGINES, LLAMA, OTHER, VLLM
from reconciler.manifest.flag_rules import FlagRules, Why
from reconciler.manifest.flag_values import (
    OUTSIDE,
    against_value,
    leaves_the_model,
    names_elsewhere,
)
from reconciler.manifest.llama_rules import LLAMA_RULES
from reconciler.manifest.variable_rules import ASKED, FREE, NEVER, SECRETS
from reconciler.manifest.vllm_rules import VLLM_RULES
from reconciler.plan.desired import JsonValue, SecretRef

ALLOW_FLAG = "--allow-engine-arg"
ALLOW_VARIABLE = "--allow-engine-env"
ALLOW_FILES = "--allow-file-root"
UNKNOWN_FLAG = "this release does not know it, so it may be dangerous"
UNKNOWN_VARIABLE = "this release does not know it, and an engine may load code by it"
PRINTED = "engines print their variables, and their logs can be read through the agent"
_RULES: Mapping[str, FlagRules] = {LLAMA: LLAMA_RULES, VLLM: VLLM_RULES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """Why it is refused. `never`: no node can allow it. `name`: what an operator would allow."""

    name: str
    reason: str
    never: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Permissions:
    """What this node's operator allows beyond what is free, whatever the value. Flags by their
    `canonical` names. `file_roots`: folders below which `file://` may lead."""

    flags: frozenset[str] = frozenset()
    variables: frozenset[str] = frozenset()
    file_roots: tuple[Path, ...] = ()


STRICT = Permissions()
"""What a node allows unless its operator says more."""


def canonical(flag: str) -> str:
    """One spelling for a flag: `--max-model-len` and `max_model_len` are the same."""
    return flag.lstrip("-").replace("-", "_")


def flag_ruling(
    family: str, key: str, value: JsonValue, aliases: Iterable[str] = ()
) -> Ruling | None:
    """What is held against one entry of `extra_args`, in any spelling; None: it is free.

    `aliases`: other names that the build at hand has for the same flag, negations for a negation.
    """
    rules = _RULES[family]
    whole, part = canonical(key), ""
    if family == VLLM:
        whole, _, part = whole.partition(".")
    names = (whole, *(canonical(alias) for alias in aliases))
    rulings = [_by_name(rules, name, value) for name in names]
    known = [ruling for ruling in rulings if ruling and ruling.reason != UNKNOWN_FLAG]
    if known:
        return next((ruling for ruling in known if ruling.never), known[0])
    if leaves_the_model(value):
        return Ruling(name=whole, reason=OUTSIDE, never=True)
    if None not in rulings:
        return _never_elsewhere(family, whole) or rulings[0]
    for name, ruling in zip(names, rulings, strict=True):
        if ruling is None and (reason := against_value(rules, name, part, value)):
            return Ruling(name=name, reason=reason)
    return None


def nearest_flag(family: str, key: str) -> str | None:
    """The known name that a person may have meant."""
    rules = _RULES[family]
    offered = sorted(rules.free | rules.files)
    return next(iter(difflib.get_close_matches(canonical(key), offered, n=1, cutoff=0.8)), None)


def never_allowed(flag: str) -> str | None:
    """Why no operator can allow this flag for any family; None: one can."""
    rulings = [flag_ruling(family, flag, True) for family in (LLAMA, VLLM)]
    reasons = [ruling.reason for ruling in rulings if ruling is not None and ruling.never]
    return reasons[0] if len(reasons) == len(rulings) else None


def variable_ruling(name: str, value: JsonValue | SecretRef) -> Ruling | None:
    """What is held against one entry of `env`; None: it is free."""
    for rule, reason in NEVER:
        if rule.fullmatch(name):
            return Ruling(name=name, reason=reason, never=True)
    for rule, reason in ASKED:
        if rule.fullmatch(name):
            return Ruling(name=name, reason=reason)
    if name in SECRETS:
        return None
    if not FREE.fullmatch(name):
        return Ruling(name=name, reason=UNKNOWN_VARIABLE)
    if not isinstance(value, str):
        return Ruling(name=name, reason=PRINTED)
    return Ruling(name=name, reason=Why.FILES) if names_elsewhere(value) else None


def _by_name(rules: FlagRules, name: str, value: JsonValue) -> Ruling | None:
    if name in rules.free or name in rules.files:
        return None
    plain = name.lower()
    base = plain.removeprefix("no_")
    for one in (plain, base):
        if one in rules.ours:
            return Ruling(name=one, reason=rules.ours[one], never=True)
    for one in (plain, base):
        if one in rules.asked:
            off = value is None or value is (one != plain)
            return None if off else Ruling(name=one, reason=rules.asked[one])
    if value is None or base in rules.free or base in rules.files:
        return None
    return (_abbreviated(rules, base) if rules.abbreviated else None) or Ruling(
        name=name, reason=UNKNOWN_FLAG
    )


def _never_elsewhere(family: str, name: str) -> Ruling | None:
    """What no node allows the other family is not to be allowed where nobody knows it. A single
    letter means something else to each."""
    other = OTHER[family]
    plain = name.lower().removeprefix("no_")
    reason = _RULES[other].ours.get(plain) if len(plain) > 1 else None
    if reason is None:
        return None
    return Ruling(name=name, reason=f"it is {ENGINES[other]}'s: {reason}", never=True)


def _abbreviated(rules: FlagRules, beginning: str) -> Ruling | None:
    for table, never in ((rules.ours, True), (rules.asked, False)):
        for name, reason in table.items():
            if name.startswith(beginning):
                return Ruling(name=name, reason=reason, never=never)
    return None
