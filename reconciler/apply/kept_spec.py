"""A model's spec as JSON, for files that outlive the agent: what differs from the defaults (PURE).

A release before or after reads what it knows, and refuses as a whole what it does not know.
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, get_type_hints

import msgspec

from reconciler.plan.desired import ModelSpec

_DEFAULTS = {
    field.name: field.default if field.default_factory is MISSING else field.default_factory()
    for field in fields(ModelSpec)
}
_HINTS = get_type_hints(ModelSpec) | {"extra_args": Mapping[str, Any]}
_Written = msgspec.defstruct(
    "_Written",
    [
        (name, _HINTS[name])
        if default is MISSING
        else (name, _HINTS[name] | msgspec.UnsetType, msgspec.UNSET)
        for name, default in _DEFAULTS.items()
    ],
    forbid_unknown_fields=True,
)


def encode_spec(spec: ModelSpec) -> bytes:
    """References to secrets stand there as in the manifest: they name one and are none."""
    values = ((name, getattr(spec, name)) for name in _DEFAULTS)
    return msgspec.json.encode({name: v for name, v in values if v != _DEFAULTS[name]})


def decode_spec(content: bytes | msgspec.Raw) -> ModelSpec:
    """Raises msgspec.MsgspecError."""
    written = msgspec.json.decode(content, type=_Written)
    values = ((name, getattr(written, name)) for name in _DEFAULTS)
    return ModelSpec(**{name: value for name, value in values if value is not msgspec.UNSET})
