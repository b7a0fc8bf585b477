"""What a manifest would change on a node, as JSON: what an agent answers, and a command prints.

docs/commands.md has the shape.
"""

from collections.abc import Mapping
from typing import Any

from reconciler.plan.balance import Balance
from reconciler.plan.changes import Change, Evicted, FieldChange, NodeChanges, Planned, Verb
from reconciler.plan.desired import Elsewhere
from reconciler.plan.ids import GpuUuid, ModelName, NodeName
from reconciler.plan.memory import HOST, Need, Needs, Pool, figures_of
from reconciler.plan.phase import State

Json = dict[str, Any]


def node_as_json(node: NodeChanges) -> Json:
    return {
        "node": node.node,
        "models": [_change_as_json(change) for change in node.changes],
        "elsewhere": [{"name": other.name, "reason": other.reason} for other in node.elsewhere],
        "gpus": [each.figures for each in node.gpus],
        "host": node.host.figures if node.host is not None else None,
        "order": [
            {
                "action": each.kind,
                "model": each.model,
                "gpus": list(each.gpus),
                "reason": each.reason,
            }
            for each in node.order
        ],
        "evictions": [
            {"prefix": each.prefix, "revision": each.revision, "size_bytes": each.size_bytes}
            for each in node.evictions
        ],
        "notes": list(node.notes),
        "errors": list(node.errors),
        "unasked": node.unasked,
    }


def node_from_json(told: Json) -> NodeChanges:
    """What an agent has answered. Raises KeyError, ValueError or TypeError for what is none."""
    return NodeChanges(
        node=NodeName(told["node"]),
        changes=tuple(_change(each) for each in told["models"]),
        elsewhere=tuple(
            Elsewhere(name=ModelName(each["name"]), reason=each["reason"])
            for each in told["elsewhere"]
        ),
        gpus=tuple(_balance(each) for each in told["gpus"]),
        host=_balance(told["host"]) if told["host"] is not None else None,
        order=tuple(
            Planned(
                kind=each["action"],
                model=ModelName(each["model"]),
                reason=each["reason"],
                gpus=tuple(map(GpuUuid, each["gpus"])),
            )
            for each in told["order"]
        ),
        evictions=tuple(
            Evicted(prefix=each["prefix"], revision=each["revision"], size_bytes=each["size_bytes"])
            for each in told["evictions"]
        ),
        notes=tuple(told["notes"]),
        errors=tuple(told.get("errors", ())),
    )


def _change_as_json(change: Change) -> Json:
    return {
        "model": change.model,
        "action": change.verb,
        "reason": change.reason,
        "state": change.state,
        "source": change.source,
        "fallback": change.fallback,
        "engine": change.engine,
        "fetch": change.fetch,
        **figures_of(change.needs),
        "download_bytes": change.download_bytes,
        "download_with": change.download_with,
        "cached_bytes": change.cached_bytes,
        "downtime_seconds": change.downtime_seconds,
        "ready_seconds": change.ready_seconds,
        "held": change.held,
        "fields": [{"path": each.path, "old": each.old, "new": each.new} for each in change.fields],
    }


def _change(told: Json) -> Change:
    return Change(
        model=ModelName(told["model"]),
        verb=Verb(told["action"]),
        reason=told["reason"],
        state=State(told["state"]) if told["state"] is not None else None,
        source=told["source"],
        fallback=told["fallback"],
        engine=told["engine"],
        fetch=told["fetch"],
        needs=needs_from_json(told),
        download_bytes=told["download_bytes"],
        cached_bytes=told["cached_bytes"],
        downtime_seconds=told["downtime_seconds"],
        ready_seconds=told.get("ready_seconds"),
        download_with=told.get("download_with"),
        held=told["held"],
        fields=tuple(
            FieldChange(path=each["path"], old=each["old"], new=each["new"])
            for each in told["fields"]
        ),
    )


def needs_from_json(told: Json) -> Needs:
    """What `figures_of` has told of a model."""
    figures = {HOST: told.get("memory"), **(told.get("memory_on_gpus") or {})}
    return {Pool(pool): _need(each) for pool, each in figures.items() if each is not None}


def _need(told: Mapping[str, Any]) -> Need:
    return Need(
        weights_bytes=told.get("weights_bytes"),
        kv_cache_bytes=told.get("kv_cache_bytes"),
        overhead_bytes=told.get("overhead_bytes", 0),
        tokens=told.get("context_tokens"),
        mapped_bytes=told.get("mapped_bytes", 0),
        claimed_bytes=told.get("claimed_bytes"),
        checked_bytes=told.get("checked_bytes"),
        grows=told.get("grows", False),
    )


def _balance(told: Json) -> Balance:
    return Balance(
        gpu=Pool(told["gpu"]),
        index=told["index"],
        total_bytes=told["total_bytes"],
        used_bytes=told["used_bytes"],
        after_bytes=told["after_bytes"],
        complete=told["complete"],
    )
