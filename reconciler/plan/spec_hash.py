"""The hash of what a process gets from the manifest: when it changes, the model restarts (R4).

Only fields that differ from their default are hashed, so that a new field with a default changes no
hash that a running process already carries. `digest` is not: it reaches the process as its files,
which have a digest of their own, so that pinning what runs restarts nothing; nor is
`skip_memory_check`, which decides before there is a process; nor are checks, and their files.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from typing import Any

from reconciler.plan.desired import ModelSpec, SecretRef
from reconciler.plan.ids import SpecHash

VERSION = 1
"""Grows when the same spec would hash differently; the old one can then be told from the new."""
_HEX_DIGITS = 16
_OUTSIDE = frozenset({"digest", "skip_memory_check", "check_files"})


def spec_hash(spec: ModelSpec) -> SpecHash:
    """Hash a spec: `<version>:<16 hex digits of sha256>`.

    The order of keys does not matter, that of lists does. 1, 1.0, "1" and true differ. `auto`
    counts as written, a secret by the name of its reference and never by its value.
    """
    written = {
        field.name: _canonical(value)
        for field in fields(spec)
        if field.name not in _OUTSIDE and (value := getattr(spec, field.name)) != _default(field)
    }
    text = json.dumps(written, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode("ascii")).hexdigest()
    return SpecHash(f"{VERSION}:{digest[:_HEX_DIGITS]}")


def _default(field: Field[Any]) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _canonical(value: object) -> object:
    match value:
        case SecretRef(from_env=str(name)):
            return {"from_env": name}
        case SecretRef(from_file=path):
            return {"from_file": path}
        case Mapping():
            return {str(key): _canonical(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_canonical(inner) for inner in value]
        case _:
            return value
