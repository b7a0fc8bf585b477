"""A plan of every node, from two manifests, without asking any."""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from reconciler.cli.offline_plan.judge import Judge, Offers
from reconciler.cli.offline_plan.node import offline_node
from reconciler.cli.offline_plan.rehearsed import rehearsed
from reconciler.errors import Rejected
from reconciler.manifest.fleet_model import FleetNode
from reconciler.manifest.select import select
from reconciler.manifest.union import Manifest
from reconciler.plan.changes import Change, NodeChanges, Verb
from reconciler.plan.ids import ModelName, NodeName

_REVISION = "the candidate"
_UNLISTED = "the fleet file has no node {name}{close}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineQuestion:
    """`before`: what is taken to run; None: nothing. `fleet`: None: nothing is known of the nodes
    but the names that manifests give. `node`: only this one. `peers`: the nodes are a cluster."""

    wanted: Manifest
    before: Manifest | None = None
    fleet: Sequence[FleetNode] | None = None
    node: str | None = None
    peers: bool = False


def offline_plans(asked: OfflineQuestion, offers: Offers | None, *, here: str) -> list[NodeChanges]:
    """One of each node. `offers` None: no hub is asked. `here`: the node to plan for where nobody
    names one. Raises Rejected where the fleet has none of the name that is asked for."""
    named = {*_names(asked.wanted), *(_names(asked.before) if asked.before else ())}
    fleet = asked.fleet
    if fleet is None:
        names = [asked.node] if asked.node else sorted(named) or [here]
        return [_plan(FleetNode(name=name), asked, offers) for name in names]
    known = [node.name for node in fleet]
    if asked.node is not None:
        if asked.node not in known:
            said = _unlisted_because(asked.node, known)
            raise Rejected(f"cannot plan for node {asked.node}: {said}")
        return [_plan(node, asked, offers) for node in fleet if node.name == asked.node]
    made = [_plan(node, asked, offers) for node in fleet]
    old = set(_names(asked.before)) if asked.before is not None else set()
    for name in sorted(named - set(known)):
        if name in old:
            bare = _plan(FleetNode(name=name), asked, offers)
            made.append(replace(bare, notes=(*bare.notes, _unlisted_because(name, known))))
        else:
            made.append(_unlisted(name, asked.wanted, known))
    return made


def _names(manifest: Manifest) -> Iterator[str]:
    for entry in manifest.models:
        if isinstance(entry.model.nodes, tuple):
            yield from entry.model.nodes


def _plan(told: FleetNode, asked: OfflineQuestion, offers: Offers | None) -> NodeChanges:
    node = offline_node(told)
    before, peers = asked.before, asked.peers
    return rehearsed(
        node,
        Judge(node, offers),
        select(asked.wanted, node=told.name, revision=_REVISION, peers=peers),
        select(before, node=told.name, revision="", peers=peers) if before is not None else None,
    )


def _unlisted(name: str, wanted: Manifest, known: Sequence[str]) -> NodeChanges:
    """A name that nobody had before: misspelt, it would leave its models nowhere."""
    models = {
        entry.model.name: entry.model.source
        for entry in wanted.models
        if isinstance(entry.model.nodes, tuple) and name in entry.model.nodes
    }
    reason = _unlisted_because(name, known)
    return NodeChanges(
        node=NodeName(name),
        changes=tuple(
            Change(model=ModelName(model), verb=Verb.REFUSED, reason=reason, source=source)
            for model, source in sorted(models.items())
        ),
    )


def _unlisted_because(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return _UNLISTED.format(name=name, close=f"; did you mean {close[0]}?" if close else "")
