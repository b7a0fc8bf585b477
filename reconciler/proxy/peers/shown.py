"""The other agents' server objects as this node shows them (PURE).

They are kept and joined as JSON: at 1,000 nodes a request encodes only what is new since the last.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from reconciler.plan.ids import ModelName
from reconciler.proxy import json_text
from reconciler.proxy.peers.load import IDLE, ModelLoad
from reconciler.proxy.peers.peer import Latest, Peer
from reconciler.status import Json

UNKNOWN = "unknown"
"""The node of an agent that has never been seen."""


def figures(load: ModelLoad) -> Json:
    return {
        "in_flight": load.in_flight,
        "waiting": load.waiting,
        "queued": load.queued,
        "kv_usage": load.kv_usage,
    }


def how_it_stands(
    *, address: str | None, reachable: bool, reason: str | None, since: str | None
) -> Json:
    """Of every server in the view; the node itself can always be reached."""
    return {
        "address": address,
        "reachable": reachable,
        "reason": reason,
        "reachable_since" if reachable else "unreachable_since": since,
    }


class Shown:
    """The objects as JSON, each encoded again when something of it has changed. `edition` grows
    when anything else than moments has, with what `of` and `keep_only` are called for."""

    def __init__(self) -> None:
        self.edition = 0
        self._kept: dict[object, tuple[Peer, Latest | None, bytes]] = {}

    def of(self, peer: Peer, latest: Latest | None, *, now: float) -> tuple[bytes, ...]:
        """In parts, so that a large view is joined once. `now`: on the clock of `latest`."""
        kept = self._kept.get(peer.address)
        if kept is None or kept[0] is not peer or kept[1] is not latest:
            if kept is None or kept[0] is not peer or _loads(kept[1]) != _loads(latest):
                self.edition += 1
            kept = (peer, latest, json_text.encode(_object(peer, latest))[:-1])
            self._kept[peer.address] = kept
        age = b"null" if latest is None else b"%.1f" % max(now - latest.heard_at, 0.0)
        return kept[2], b',"heard_seconds":', age, b"}"

    def keep_only(self, peers: tuple[Peer, ...]) -> None:
        """Forget the others."""
        known = {peer.address for peer in peers}
        if not self._kept.keys() <= known:
            self.edition += 1
            self._kept = {key: kept for key, kept in self._kept.items() if key in known}


def _loads(latest: Latest | None) -> Mapping[ModelName, ModelLoad]:
    return latest.loads if latest is not None else {}


def _object(peer: Peer, latest: Latest | None) -> Json:
    told: dict[str, Any] = msgspec.json.decode(peer.document) if peer.document else {}
    told = {**_never_seen(), **told}
    stands = how_it_stands(
        address=str(peer.address), reachable=peer.reachable, reason=peer.because, since=peer.since
    )
    loads = _loads(latest)
    moment = latest.moment if latest is not None else {}
    models = _models(told.get("models"), loads)
    loaded: object = []
    if peer.reachable:
        loaded = _models(told.get("loaded_models"), loads)
    else:
        models = [{**model, "as_last_seen": True} for model in models]
    told.pop("heard_seconds", None)
    return {**told, **moment, **stands, "models": models, "loaded_models": loaded}


def _models(entries: object, loads: Mapping[ModelName, ModelLoad]) -> list[Json]:
    """With the newest figures."""
    found = []
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict):
            load = loads.get(ModelName(str(entry.get("name"))), IDLE)
            found.append({**entry, "in_flight": load.in_flight, "load": figures(load)})
    return found


def _never_seen() -> dict[str, Any]:
    return {
        "node": UNKNOWN,
        "pod_name": None,
        "pod_ip": None,
        "revision": {"applied": None, "attempted": None},
        "gpu": {"type": UNKNOWN, "count": 0, "devices": []},
        "models": [],
        "loaded_models": [],
        "conditions": [],
    }
