"""What the planner would do from here on, if every action it asks for succeeds (PURE)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from reconciler.plan.actions import (
    AbortFetch,
    Action,
    FetchFiles,
    KeepBackend,
    Outlook,
    StartBackend,
    StopBackend,
    StopLeftover,
)
from reconciler.plan.desired import Desired, Format
from reconciler.plan.ids import FilesDigest, ModelName, Nonce
from reconciler.plan.observed import FilesCached, Observed, ObservedModel, ObservedProcess
from reconciler.plan.planner import plan

_NOW = 0.0
_ROUNDS = 10_000
"""Far more than any manifest needs: a model takes part in three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """`actions`: each model's, in order. `outlook`: how it ends. `notes`: what it waits for."""

    actions: Mapping[ModelName, tuple[Action, ...]]
    outlook: Mapping[ModelName, Outlook]
    notes: tuple[str, ...]


def forecast(desired: Desired, observed: Observed) -> Forecast:
    """Plan and let it come true, until the planner asks for nothing more."""
    actions: dict[ModelName, tuple[Action, ...]] = {}
    shares = {model.name: model.gpu_share for model in desired.models}
    made = plan(desired, observed, _NOW)
    for _ in range(_ROUNDS):
        if not made.actions:
            break
        for action in made.actions:
            actions[action.model] = (*actions.get(action.model, ()), action)
            observed = _after(observed, action, shares)
        made = plan(desired, observed, _NOW)
    return Forecast(
        actions=actions, outlook={each.model: each for each in made.outlook}, notes=made.notes
    )


def _after(
    observed: Observed, action: Action, shares: Mapping[ModelName, float | None]
) -> Observed:
    seen = observed.models.get(action.model) or ObservedModel(name=action.model)
    match action:
        case FetchFiles():
            seen = replace(seen, files=files_of(FilesDigest(f"of {action.spec_hash}")))
        case StartBackend():
            started = ObservedProcess(
                nonce=Nonce(""),
                pid=0,
                instance=action.instance,
                started_at=_NOW,
                loaded_at=_NOW,
                gpus=action.gpus,
                gpu_share=shares.get(action.model),
            )
            seen = replace(seen, processes=(*seen.processes, started))
        case StopBackend():
            left = tuple(each for each in seen.processes if each.nonce != action.nonce)
            seen = replace(seen, processes=left)
        case StopLeftover():
            rest = tuple(each for each in observed.leftovers if each.nonce != action.nonce)
            observed = replace(observed, leftovers=rest)
        case AbortFetch() | KeepBackend():
            seen = replace(seen, in_flight=None)
    return replace(observed, models={**observed.models, action.model: seen})


def files_of(digest: FilesDigest) -> FilesCached:
    """Files of which only the digest counts."""
    return FilesCached(digest=digest, path="", root="", format=Format.AUTO)
