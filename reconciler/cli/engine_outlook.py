"""Which builds the models of a manifest would get on a node, by what its agent tells (PURE)."""

from collections.abc import Mapping
from dataclasses import replace

from reconciler.backend.choice import Refusal, build_named
from reconciler.backend.inventory import Build, Inventory, Missing, called
from reconciler.cli.client import Json
from reconciler.plan.changes import STARTING, Change, NodeChanges
from reconciler.plan.desired import Desired, ModelSpec
from reconciler.plan.ids import ModelName


def engine_refusals(desired: Desired, view: Json) -> Mapping[ModelName, str]:
    """Models that name builds which the node does not have. One with a fallback runs on that."""
    inventory = _inventory(view)
    if inventory is None:
        return {}
    found = {
        model.name: build_named(model.spec, inventory)
        for model in desired.models
        if model.enabled and model.spec.engine is not None and model.fallback is None
    }
    return {name: each.reason for name, each in found.items() if isinstance(each, Refusal)}


def with_engines(made: NodeChanges, view: Json, desired: Desired | None = None) -> NodeChanges:
    """What is to be said of each model's engine. `desired`: what a manifest wants, if one is
    judged."""
    specs = {model.name: model.spec for model in desired.models} if desired is not None else {}
    drifts = {
        ModelName(model["name"]): str(engine["drift"])
        for model in view.get("models", ())
        if (engine := model.get("engine")) and engine.get("drift")
    }
    inventory = _inventory(view) or Inventory()
    return replace(
        made,
        changes=tuple(
            replace(
                change,
                engine=_new(change, specs.get(change.model), inventory) or drifts.get(change.model),
            )
            for change in made.changes
        ),
    )


def unknown_engines(desired: Desired) -> tuple[str, ...]:
    """Notes on a plan that asks no agent."""
    named = sorted({model.spec.engine for model in desired.models if model.spec.engine is not None})
    if not named:
        return ()
    return (f"whether it has the engines {', '.join(named)}, only its agent knows",)


def _new(change: Change, spec: ModelSpec | None, inventory: Inventory) -> str | None:
    if change.verb not in STARTING or spec is None or spec.engine is None:
        return None
    build = build_named(spec, inventory)
    return f"{called(build)} is {build.detail}" if isinstance(build, Build) else None


def _inventory(view: Json) -> Inventory | None:
    """None: an agent of an older release tells nothing of its engines, and one that has just
    started does not know them all yet."""
    told = view.get("engines")
    if told is None:
        return None
    gaps = [each for each in told if each.get("problem") is not None]
    return Inventory(
        builds=tuple(
            Build(
                id=str(each["id"]),
                name=each.get("name"),
                command=(),
                version=each.get("version"),
                detail=str(each.get("detail")),
            )
            for each in told
            if each.get("problem") is None
        ),
        missing=tuple(
            Missing(id=str(each["id"]), name=each.get("name"), reason=str(each["problem"]))
            for each in gaps
        ),
    )
