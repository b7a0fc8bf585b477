"""The format of files that are not here, where only the hub can tell it (PURE)."""

from dataclasses import replace

from reconciler.backend.engines import Engines
from reconciler.plan.desired import DesiredModel, Format


def only_hub_tells(model: DesiredModel, engines: Engines) -> bool:
    """Whether neither the manifest nor the name of the source does, nor a file of the node."""
    spec = model.spec
    local = spec.source.startswith("file:")
    return model.enabled and not local and engines.likely_format(spec) is Format.AUTO


def in_format(model: DesiredModel, listed: Format | None) -> DesiredModel:
    """As if the manifest said what the hub does: for questions about it, never to be started."""
    if listed in (None, Format.AUTO):
        return model
    return replace(model, spec=replace(model.spec, format=listed))
