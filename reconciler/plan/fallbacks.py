"""A model's fallback in the place of its source (design §4, §8)."""

from collections.abc import Collection
from dataclasses import replace

from reconciler.plan.desired import Desired, DesiredModel
from reconciler.plan.ids import ModelName, SpecHash
from reconciler.plan.spec_hash import spec_hash


def fallen_back(model: DesiredModel) -> DesiredModel:
    """The same model with its fallback's files; one without a fallback as it is."""
    if model.fallback is None:
        return model
    return replace(
        model,
        spec=model.fallback,
        spec_hash=spec_hash(model.fallback),
        fallback=None,
        stands_in_for=model.spec,
    )


def with_fallbacks(desired: Desired, names: Collection[ModelName]) -> Desired:
    """These models with their fallbacks, the others as they are."""
    if not names:
        return desired
    models = tuple(fallen_back(model) if model.name in names else model for model in desired.models)
    return replace(desired, models=models)


def hashes(model: DesiredModel) -> frozenset[SpecHash]:
    """What specs, and downloads of them, are known by: of the source, and of the fallback."""
    forms = (model, fallen_back(model))
    return frozenset(each for form in forms for each in (form.spec_hash, form.fetch_key))
