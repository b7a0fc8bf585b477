"""Of which models the hub is asked something, by what was seen of them (PURE)."""

from collections.abc import Mapping

from reconciler.loop.observation import Looks
from reconciler.plan.desired import Format, ModelSpec
from reconciler.plan.ids import ModelName


def unlisted(looks: Looks) -> Mapping[ModelName, ModelSpec]:
    """The format of their files is, while these are not here."""
    return {name: look.desired.spec for name, look in looks.items() if look.asks_hub}


def unfetched(looks: Looks) -> Mapping[ModelName, ModelSpec]:
    """How large they are is, before they are fetched."""
    return {
        name: look.desired.spec
        for name, look in looks.items()
        if look.files is None and look.desired.enabled
    }


def without_backend(looks: Looks) -> Mapping[ModelName, ModelSpec]:
    """Models in safetensors that nothing here can run: a GGUF of theirs would do."""
    return {
        name: look.desired.spec
        for name, look in looks.items()
        if look.desired.enabled
        and look.assessment.no_backend is not None
        and look.assessment.format is Format.SAFETENSORS
    }
