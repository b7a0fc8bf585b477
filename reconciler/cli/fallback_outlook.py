"""Which models of a manifest an agent runs on their fallback (PURE)."""

from collections.abc import Sequence

from reconciler.cli.changes import Running
from reconciler.plan.desired import Desired, DesiredModel
from reconciler.plan.fallbacks import fallen_back, with_fallbacks


def on_fallbacks(desired: Desired, running: Sequence[Running]) -> Desired:
    """With the fallbacks that are there, or coming; what is new may need one that is not known."""
    there = {each.name: each for each in running}
    names = [model.name for model in desired.models if _is_on_it(model, there.get(model.name))]
    return with_fallbacks(desired, names)


def _is_on_it(model: DesiredModel, now: Running | None) -> bool:
    if model.fallback is None or now is None:
        return False
    hashes = (now.spec_hash, now.target_hash)
    return fallen_back(model).spec_hash in hashes and model.spec_hash not in hashes
