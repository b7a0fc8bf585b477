"""The fields of a model as a manifest writes them, to be compared and shown (PURE).

Secrets do not show; what is the default is left out, but for what changes without a restart.
"""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, fields

import msgspec

from reconciler.masking import masked_values
from reconciler.plan.changes import FieldChange
from reconciler.plan.desired import DesiredModel, ModelSpec
from reconciler.plan.wording import as_written

Fields = Mapping[str, object]
"""By dotted path: `extra_args.ctx_size`."""

_BY_KEY = ("extra_args", "env")
"""Fields of a spec that are compared key by key."""


def of_spec(spec: ModelSpec) -> Fields:
    """What reaches the process, and what says which files."""
    flat: dict[str, object] = {}
    for each in fields(ModelSpec):
        value = getattr(spec, each.name)
        if each.name in _BY_KEY:
            flat |= {f"{each.name}.{key}": one for key, one in masked_values(value).items()}
        elif _plain(value) != _DEFAULTS.get(each.name, MISSING):
            flat[each.name] = _plain(value)
    return flat


def of_routing(model: DesiredModel) -> Fields:
    """What changes without a restart, but for aliases. Durations as a manifest has them."""
    timeouts = {
        f"timeouts.{name}": _duration(each) for name, each in asdict(model.timeouts).items()
    }
    return {
        "priority": model.priority,
        "max_in_flight": model.max_in_flight,
        "affinity": model.affinity,
        "strategy": model.strategy,
        "on_failure": model.on_failure,
        "keep_last_good": model.keep_last_good,
        "refresh": model.refresh,
        "checks": [msgspec.to_builtins(each) for each in model.checks],
        **timeouts,
    }


def differences(old: Fields, new: Fields) -> Iterator[FieldChange]:
    for path in sorted(old.keys() | new.keys()):
        if old.get(path) != new.get(path):
            yield FieldChange(path=path, old=old.get(path), new=new.get(path))


def _duration(seconds: object) -> object:
    return as_written(seconds) if isinstance(seconds, int | float) else seconds


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


_DEFAULTS = {
    each.name: _plain(each.default) for each in fields(ModelSpec) if each.default is not MISSING
}
